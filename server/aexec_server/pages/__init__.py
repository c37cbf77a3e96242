"""Pages for people: the console, and the API's description."""
