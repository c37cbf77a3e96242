"""Which graphs may be of durable sessions: those whose state can be recorded.

Variables, lookup tables, queues and kept tensors can.  A graph with ops that keep other state is refused by the names
of node and op.
"""

from __future__ import annotations

from enum import Enum

from aexec import errors, proto
from aexec.hosting import dtypes, find_op_def, queue_class

__all__ = ["NO_STORE", "Durability", "check_durable"]

NO_STORE = '"durable": this server keeps no durable sessions: it must be started with --state DIR'

# Make resources that are recorded, or that end with the step.
_RECORDED = frozenset(
    """AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable AnonymousMutableHashTableOfTensors
    GetSessionHandleV2 HashTable HashTableV2 MutableDenseHashTable MutableDenseHashTableV2 MutableHashTable
    MutableHashTableOfTensors MutableHashTableOfTensorsV2 MutableHashTableV2 Stack StackV2 TensorArray
    TensorArrayGrad TensorArrayV2 TensorArrayV3 VarHandleOp _VarHandlesOp""".split()
)
# Keep state without a handle to it.
_HIDDEN = frozenset(
    """AddManySparseToTensorsMap AddSparseToTensorsMap Batch BatchFunction ConsumeMutexLock
    LearnedUnigramCandidateSampler MapClear MapStage MapUnstage MapUnstageNoKey OrderedMapClear OrderedMapStage
    OrderedMapUnstage OrderedMapUnstageNoKey RecordInput Skipgram Stage StageClear TakeManySparseFromTensorsMap
    ThreadUnsafeUnigramCandidateSampler Unbatch UnbatchGrad Unstage""".split()
)


class Durability(Enum):
    """When a durable session's requests are answered."""

    STRICT = "strict"  # once their changes are on the disk
    RELAXED = "relaxed"  # before


def check_durable(graph_def: proto.GraphDef | proto.FlatGraphDef) -> None:
    """Raise UnimplementedError if a graph, or a function of its library, has an op whose state cannot be recorded."""
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            if _keeps_other_state(node.op):
                raise errors.UnimplementedError(
                    f"Node '{node.name}' ({node.op}) keeps state that cannot be recorded, so its session cannot be "
                    "durable: variables, lookup tables, queues and kept tensors can be recorded",
                    node=node.name,
                    op=node.op,
                )


def _keeps_other_state(op: str) -> bool:
    if op in _HIDDEN:
        return True
    op_def = find_op_def(op)
    if op_def is None or op in _RECORDED or queue_class(op) is not None:
        return False
    if any(arg.type is dtypes.resource or arg.is_ref for arg in op_def.inputs):
        return False  # the op that makes its resource is judged
    return any(arg.type is dtypes.resource or (arg.is_ref and arg.type is dtypes.string) for arg in op_def.outputs)
