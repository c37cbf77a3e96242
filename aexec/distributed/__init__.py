"""Sessions across machines: one graph, whose nodes run on the tasks of a cluster.

The client's process plans and splits the graph as for a session in process.  Each task is sent its partition once, and
runs it with the same planner and executor, so nothing here executes nodes.  An existing engine carries the messages:
Dask distributed, or for tests one in memory with faults. In reading order: `engine.py`, the contract of an engine;
`cluster_session.py`, the client's side, with `cluster_planner.py` and `remote_execution.py`; `worker.py` and
`worker_session.py`, a task's side.
"""
