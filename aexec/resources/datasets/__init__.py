"""Datasets, and iterators over them: what the kernels of `aexec.kernels.datasets` make and take elements from."""
