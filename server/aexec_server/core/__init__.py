"""What all handlers share: the server's state, the table of routes, access, and the admission of runs."""
