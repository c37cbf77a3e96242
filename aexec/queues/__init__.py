"""Queues: what they hold between steps, and the tasks that keep them filled.

Low modules, which kernels use: `queue_base.py` (read it first), `attempts.py`, `batching.py`,
and one module per kind of queue.  They know no session.  Above the runtime: `session_queue.py`
is a queue as a Python program sees it, `queue_runner.py` and `coordinator.py` keep tasks
that run enqueue operations, `prefetch.py` fills a queue from a Python iterator.
"""
