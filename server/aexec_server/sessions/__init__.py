"""The sessions that a server holds, and what clients may do in them."""
