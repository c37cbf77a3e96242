"""Sessions across machines: one graph, whose nodes run on the tasks of a cluster.

The client's process plans and splits the graph as in process; each task is sent its partition once, and runs it with
the same planner and executor, so that nothing here is about executing nodes.  What carries messages is an engine that
exists: Dask distributed, or for tests one in memory with faults.
In the order to read it: `engine.py`, what is asked of an engine; `cluster_session.py`, the client's side, with
`cluster_planner.py` and `remote_execution.py`; `worker.py` and `worker_session.py`, a task's side.
"""
