"""Bodies and answers: read within bounds, written in pieces, whatever the protocol."""
