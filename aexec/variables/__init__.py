"""Variables of graphs that are built in Python.

Read `variable.py` first, then `initialization.py`.
"""
