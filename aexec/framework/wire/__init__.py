"""TensorFlow's messages and their Python values: tensors, attr values, op and node definitions."""
