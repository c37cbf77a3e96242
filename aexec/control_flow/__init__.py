"""Conditionals and loops of graphs that are built in Python.

Read `cond.py` first, then `while_loop.py`.
"""
