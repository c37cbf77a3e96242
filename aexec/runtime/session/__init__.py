"""`Session`, its steps and its callables: the API of a program that embeds aexec.

Next to read: `session.py`, `callable.py`, `step.py`.
"""
