"""A graph with each kind of state that a durable session keeps."""

from __future__ import annotations

from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder

__all__ = ["counter_graph", "state_graph"]


def counter_graph(size: int = 1) -> GraphBuilder:
    """`set` and `add` change the variable `v`, a vector; `read` reads it; `twice` reads nothing."""
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=dtypes.float32, shape=[size], shared_name="v")
    g.placeholder("x", dtypes.float32, [None])
    g("set", "AssignVariableOp", "v", "x", dtype=dtypes.float32)
    g("add", "AssignAddVariableOp", "v", "x", dtype=dtypes.float32)
    g("read", "ReadVariableOp", "v", dtype=dtypes.float32)
    g("twice", "Add", "x", "x", T=dtypes.float32)
    g("after", "ReadVariableOp", "v", "^add", dtype=dtypes.float32)
    return g


def state_graph() -> GraphBuilder:
    """`counter_graph` with a reference variable, a table, queues of each kind and kept tensors."""
    g = counter_graph()
    g("r", "VariableV2", dtype=dtypes.int64, shape=[])
    g.placeholder("i", dtypes.int64, [])
    g("r_set", "Assign", "r", "i", T=dtypes.int64)
    g("r_read", "Identity", "r", T=dtypes.int64)
    g("t", "MutableHashTableV2", key_dtype=dtypes.string, value_dtype=dtypes.float32, shared_name="t")
    g.placeholder("k", dtypes.string, [None])
    g("t_set", "LookupTableInsertV2", "t", "k", "x", Tin=dtypes.string, Tout=dtypes.float32)
    g.const("t_none", -1.0, dtypes.float32)
    g("t_get", "LookupTableFindV2", "t", "k", "t_none", Tin=dtypes.string, Tout=dtypes.float32)
    types = {"component_types": [dtypes.int64], "shapes": [[]]}
    g("fifo", "FIFOQueueV2", **types)
    g("padding", "PaddingFIFOQueueV2", component_types=[dtypes.int64], shapes=[[]], shared_name="padding")
    g("shuffle", "RandomShuffleQueueV2", seed=3, **types)
    g("priority", "PriorityQueueV2", component_types=[dtypes.int64], shapes=[[]])
    for name in ("fifo", "padding", "shuffle"):
        g(f"{name}_put", "QueueEnqueueV2", name, "i", Tcomponents=[dtypes.int64])
        g(f"{name}_get", "QueueDequeueV2", name, component_types=[dtypes.int64])
    g("priority_put", "QueueEnqueueV2", "priority", "i", "i", Tcomponents=[dtypes.int64] * 2)
    g("priority_get", "QueueDequeueV2", "priority", component_types=[dtypes.int64] * 2)
    g("fifo_close", "QueueCloseV2", "fifo")
    g("keep", "GetSessionHandle", "x", T=dtypes.float32)
    g.placeholder("handle", dtypes.string, [])
    g("kept", "GetSessionTensor", "handle", dtype=dtypes.float32)
    return g
