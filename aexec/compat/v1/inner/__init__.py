"""Functions of `tensorflow.python` that have no public name, and that programs import all the same.

Each module has the names of one of TensorFlow's; `aexec/compat/tensorflow_modules.py` says of which.
Next to read: `smart_cond.py`.
"""
