"""Tells which ops change the state of a model: its variables, tables, queues and other resources.

All clients share the session of one of the server's own graphs, so a client's run there must not change what the others
get. An op counts as changing state if it is stateful or takes a reference or a handle, unless it is listed here; this
covers ops of programs and ops that are added later. Random numbers of a kernel (RandomUniform) are not state of the
model. `ServerConfig.allow_model_changes` lifts the restriction.
"""

from __future__ import annotations

from aexec.hosting import dtypes, find_op_def, queue_class
from aexec_server.sessions.op_rules import OpUse

__all__ = ["CHANGES_NOTHING", "may_change_model", "what_changes_model"]

_READS = """
    AccumulatorNumAccumulated BarrierIncompleteSize BarrierReadySize ExperimentalIteratorGetDevice GetSessionTensor
    IsVariableInitialized IteratorFromStringHandle IteratorFromStringHandleV2 IteratorGetDevice IteratorToStringHandle
    LookupTableExport LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2
    MapIncompleteSize MapPeek MapSize MultiDeviceIteratorFromStringHandle MultiDeviceIteratorToStringHandle
    OrderedMapIncompleteSize OrderedMapPeek OrderedMapSize QueueIsClosed QueueIsClosedV2 QueueSize QueueSizeV2
    ReadVariableOp ReaderNumRecordsProduced ReaderNumRecordsProducedV2 ReaderNumWorkUnitsCompleted
    ReaderNumWorkUnitsCompletedV2 ReaderSerializeState ReaderSerializeStateV2 ResourceAccumulatorNumAccumulated
    ResourceGather ResourceGatherNd SerializeIterator StagePeek StageSize VarIsInitializedOp VariableShape
    _ReadVariablesOp
"""
# Create a resource that the graph declares, empty, unless it exists; ops that create queues do the same.
_MAKES = """
    AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable AnonymousMutableHashTableOfTensors
    Barrier ConditionalAccumulator ExperimentalThreadPoolHandle FakeQueue HashTable HashTableV2 IdentityReader
    IdentityReaderV2 Iterator IteratorV2 MultiDeviceIterator MutableDenseHashTable MutableDenseHashTableV2
    MutableHashTable MutableHashTableOfTensors MutableHashTableOfTensorsV2 MutableHashTableV2 MutexV2 OneShotIterator
    ResourceConditionalAccumulator SparseConditionalAccumulator SummaryWriter ThreadPoolHandle VarHandleOp Variable
    VariableV2 _VarHandlesOp
"""
# Work on resources that end with the step.
_OF_THE_STEP = """
    CollectiveBcastRecv CollectiveBcastSend CollectiveGather CollectiveReduce DestroyTemporaryVariable Recv Send
    Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2 TemporaryVariable TensorArray
    TensorArrayClose TensorArrayCloseV3 TensorArrayConcat TensorArrayConcatV3 TensorArrayGather
    TensorArrayGatherV3 TensorArrayGrad TensorArrayGradV2 TensorArrayGradV3 TensorArrayGradWithShape
    TensorArrayPack TensorArrayRead TensorArrayReadV3 TensorArrayScatter TensorArrayScatterV3 TensorArraySize
    TensorArraySizeV3 TensorArraySplit TensorArraySplitV3 TensorArrayUnpack TensorArrayV2 TensorArrayV3
    TensorArrayWrite TensorArrayWriteV3 _HostRecv _HostSend _Recv _Send
"""
# Draw from the kernel's own random numbers; each session has its own kernels.
_DRAWS = """
    AllCandidateSampler FixedUnigramCandidateSampler LogUniformCandidateSampler Multinomial NonDeterministicInts
    ParameterizedTruncatedNormal RandomCrop RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt SampleDistortedBoundingBox SampleDistortedBoundingBoxV2
    StatelessRandomGetAlg TruncatedNormal UniformCandidateSampler
"""
# Are stateful only so that they are not folded or shared; or pass on a reference; or call functions, which are checked
# themselves.
_PASSES_ON = """
    Assert CSVDataset CSVDatasetV2 Case CheckNumerics CheckNumericsV2 DatasetToSingleElement DeepCopy DeviceIndex Empty
    ExperimentalCSVDataset ExperimentalGroupByReducerDataset ExperimentalMatchingFilesDataset ExperimentalRandomDataset
    ExperimentalThreadPoolDataset FixedLengthRecordDataset FixedLengthRecordDatasetV2 GeneratorDataset
    GroupByReducerDataset GuaranteeConst If ListDataset LoadDataset MatchingFilesDataset Print PrintV2 RandomDataset
    RandomDatasetV2 RangeDataset ReduceDataset RefIdentity RefSelect RemoteCall SparseTensorSliceDataset
    StatefulPartitionedCall TFRecordDataset TFRecordDatasetV2 TensorDataset TensorSliceDataset TextLineDataset
    ThreadPoolDataset Timestamp While _Arg _If _Retval _While
"""
CHANGES_NOTHING = frozenset(" ".join((_READS, _MAKES, _OF_THE_STEP, _DRAWS, _PASSES_ON)).split())


def may_change_model(op: str) -> bool:
    """True if an op is stateful or takes a reference or a handle.  False for a name that is no op: a function is judged
    by its body.
    """
    op_def = find_op_def(op)
    if op_def is None:
        return False
    takes = (arg.is_ref or arg.type is dtypes.resource for arg in op_def.inputs)
    return op_def.is_stateful or any(takes)


def what_changes_model(use: OpUse) -> str | None:
    """Rule: clients may read the state of the server's own graphs, not change it."""
    if use.op in CHANGES_NOTHING or queue_class(use.op) is not None or not may_change_model(use.op):
        return None
    return "changes what the graph keeps, which is the server's own: clients may run what reads it only"
