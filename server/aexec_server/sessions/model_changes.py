"""Which ops change what a model keeps from run to run: its variables, tables, queues and the rest.

The graphs of the server's own are one session for all clients, so a run of one of them must not change what the
others get.  An op that is stateful, or takes a reference or a handle, is taken for one that does, unless it is named
here as one that does not: that holds for ops of programs and for new ones.  A kernel's own random numbers
(RandomUniform) are no model's.  `ServerConfig.allow_model_changes` lifts this.
"""

from __future__ import annotations

from aexec.hosting import dtypes, find_op_def, queue_class
from aexec_server.sessions.op_rules import OpUse

__all__ = ["CHANGES_NOTHING", "may_change_model", "what_changes_model"]

_READS = """
    AccumulatorNumAccumulated BarrierIncompleteSize BarrierReadySize GetSessionTensor IsVariableInitialized
    LookupTableExport LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2
    MapIncompleteSize MapPeek MapSize OrderedMapIncompleteSize OrderedMapPeek OrderedMapSize QueueIsClosed
    QueueIsClosedV2 QueueSize QueueSizeV2 ReadVariableOp ReaderNumRecordsProduced ReaderNumRecordsProducedV2
    ReaderNumWorkUnitsCompleted ReaderNumWorkUnitsCompletedV2 ReaderSerializeState ReaderSerializeStateV2
    ResourceAccumulatorNumAccumulated ResourceGather ResourceGatherNd StagePeek StageSize VarIsInitializedOp
    VariableShape _ReadVariablesOp
"""
# They make what the graph declares, empty, where it is not there yet; so do the ops that make queues.
_MAKES = """
    AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable AnonymousMutableHashTableOfTensors
    Barrier ConditionalAccumulator FakeQueue HashTable HashTableV2 IdentityReader
    IdentityReaderV2 MutableDenseHashTable MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors
    MutableHashTableOfTensorsV2 MutableHashTableV2 MutexV2 ResourceConditionalAccumulator
    SparseConditionalAccumulator SummaryWriter VarHandleOp Variable VariableV2 _VarHandlesOp
"""
# What they work on ends with the step.
_OF_THE_STEP = """
    CollectiveBcastRecv CollectiveBcastSend CollectiveGather CollectiveReduce DestroyTemporaryVariable Recv Send
    Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2 TemporaryVariable TensorArray
    TensorArrayClose TensorArrayCloseV3 TensorArrayConcat TensorArrayConcatV3 TensorArrayGather
    TensorArrayGatherV3 TensorArrayGrad TensorArrayGradV2 TensorArrayGradV3 TensorArrayGradWithShape
    TensorArrayPack TensorArrayRead TensorArrayReadV3 TensorArrayScatter TensorArrayScatterV3 TensorArraySize
    TensorArraySizeV3 TensorArraySplit TensorArraySplitV3 TensorArrayUnpack TensorArrayV2 TensorArrayV3
    TensorArrayWrite TensorArrayWriteV3 _HostRecv _HostSend _Recv _Send
"""
# Random numbers of the kernel, which is another for each session.
_DRAWS = """
    AllCandidateSampler FixedUnigramCandidateSampler LogUniformCandidateSampler Multinomial NonDeterministicInts
    ParameterizedTruncatedNormal RandomCrop RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt SampleDistortedBoundingBox SampleDistortedBoundingBoxV2
    StatelessRandomGetAlg TruncatedNormal UniformCandidateSampler
"""
# Stateful so that they are never folded or shared; or they pass on a reference, or call functions, which are looked at.
_PASSES_ON = """
    Assert Case CheckNumerics CheckNumericsV2 DeepCopy Empty GuaranteeConst If Print PrintV2 RefIdentity RefSelect
    RemoteCall StatefulPartitionedCall Timestamp While _If _While
"""
CHANGES_NOTHING = frozenset(" ".join((_READS, _MAKES, _OF_THE_STEP, _DRAWS, _PASSES_ON)).split())


def may_change_model(op: str) -> bool:
    """Is it stateful, or does it take a reference or a handle?  What is no op has its effects in its body."""
    op_def = find_op_def(op)
    if op_def is None:
        return False
    takes = (arg.is_ref or arg.type is dtypes.resource for arg in op_def.inputs)
    return op_def.is_stateful or any(takes)


def what_changes_model(use: OpUse) -> str | None:
    """The rule: reading is for everybody."""
    if use.op in CHANGES_NOTHING or queue_class(use.op) is not None or not may_change_model(use.op):
        return None
    return "changes what the graph keeps, which is the server's own: clients may run what reads it only"
