"""Handlers of the server's own API: runs, partial runs, sessions, graphs, queues, tensors, status, health, metrics.

They also run models, for the protocols of `protocols`.
"""
