"""TensorFlow's `platform`: command line, flags, files, logging, tests and versions."""
