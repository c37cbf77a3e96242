"""Memory: where arrays are allocated, who holds how much, and what limits apply."""
