"""Numbers that must come out bit for bit: random generators, hashes, functions of the C library."""
