"""`Session`, its steps and its callables: what a program that embeds aexec uses.

Next to read: `session.py`, `callable.py`, `step.py`."""
