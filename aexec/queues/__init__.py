"""Queues: what they hold between steps, and the tasks that keep them filled.

Low modules, which kernels use: `queue_base.py` (read it first), `attempts.py`, `batching.py`,
`kinds` with a module per kind of queue, which `queue_registry.py` knows, and `session_queue.py`,
a queue as a Python program sees it.
They know no session.  Above the runtime: `queue_runner.py` and `coordinator.py` keep tasks that
run enqueue operations, `prefetch.py` fills a queue from a Python iterator.
"""
