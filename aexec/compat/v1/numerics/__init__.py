"""The less common functions, built on those in `functions`: spectra, matrices, images, quantization."""
