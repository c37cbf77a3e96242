"""The server's settings: which there are, which values they take, and where the values come from."""
