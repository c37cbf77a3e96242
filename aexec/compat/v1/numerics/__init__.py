"""Functions that fewer programs use, over those of `functions`: spectra, matrices, images, quantised numbers."""
