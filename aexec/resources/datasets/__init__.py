"""The datasets and iterators of a session, which the kernels in `aexec.kernels.datasets` create and use."""
