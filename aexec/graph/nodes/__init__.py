"""Nodes and their tables: import, wire form, traversal, pruning.

Also function libraries, colocation groups, and the frames of loops.
"""
