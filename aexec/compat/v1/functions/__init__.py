"""Functions of tensors with TensorFlow's names and arguments, over `aexec.ops`."""
