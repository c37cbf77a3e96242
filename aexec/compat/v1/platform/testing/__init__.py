"""The parts of `tf.test.TestCase`: a module of assertions per kind of value, and the files of a test."""
