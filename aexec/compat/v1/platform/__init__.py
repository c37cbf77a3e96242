"""The surroundings of a program: command line, flags, files, logging, tests and versions, TensorFlow's `platform`."""
