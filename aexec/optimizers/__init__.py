"""Optimisers: `aexec.training.AdamOptimizer` and others.

Read first `optimizer.py`.
"""
