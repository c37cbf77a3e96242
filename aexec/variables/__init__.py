"""Variables of graphs that are built in Python.

Read first `variable.py`, then `initialization.py`.
"""
