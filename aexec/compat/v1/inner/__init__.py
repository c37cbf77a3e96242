"""Functions of `tensorflow.python` that have no public name, and that programs import all the same.

Each module has the names of one TensorFlow module, which `aexec/compat/tensorflow_modules.py` tells.
Next to read: `smart_cond.py`.
"""
