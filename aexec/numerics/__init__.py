"""Numbers whose bits are specified: random generators, hashes, functions of the C library."""
