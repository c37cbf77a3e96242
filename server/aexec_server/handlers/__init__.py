"""Handlers of the server's own API: runs, partial runs, sessions, graphs, queues, tensors, status, health, metrics.

Also how models are called.
"""
