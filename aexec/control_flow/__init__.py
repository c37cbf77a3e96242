"""Conditionals and loops of graphs that are built in Python.

Read first `cond.py`, then `while_loop.py`.
"""
