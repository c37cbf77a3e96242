"""Nodes and their tables: imported, read from messages, walked and pruned.

Also function libraries, colocation, and the frames of loops.
"""
