"""What can be set about a server, where settings come from, and what they may be."""
