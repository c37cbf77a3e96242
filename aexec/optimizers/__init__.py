"""Optimisers, such as `aexec.training.AdamOptimizer`.

Read first `optimizer.py`.
"""
