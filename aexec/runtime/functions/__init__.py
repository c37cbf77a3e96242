"""Functions of the graph's library: instantiated, planned, and called from kernels."""
