"""Scenarios of queues, barriers, staging areas, accumulators and tables, whose answers TensorFlow gave once.

`answers.json` has, for each step, what TensorFlow 2.21 gave: values, the code and message of an error, or that it
waits.  Where ours is another on purpose, it says so too.
"""
