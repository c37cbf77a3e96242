"""The parts of `tf.test.TestCase`: assertions by what they compare, and files of tests."""
