"""Queues: the resources, and the tasks that keep them filled.

Kernels use the low modules, which know no session: `queue_base.py` (read it first), `attempts.py`, `batching.py`,
`kinds` with a module per kind of queue, which `queue_registry.py` lists, and `session_queue.py`, a queue for Python
programs. Above the runtime, `queue_runner.py` and `coordinator.py` keep tasks that run enqueue operations, and
`prefetch.py` fills a queue from a Python iterator.
"""
