"""Session hosts: processes that hold clients' sessions, and the front that sends requests to them."""
