"""Which ops TensorFlow has kernels for CPUs for, and aexec has none, each with a reason.

The ops are those of TensorFlow's registry, which `harness.in_tensorflow` reads.  `python -m
tests.kernels.test_cpu_coverage` prints what is missing.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.kernels.harness import ops_of_tensorflow, registered
from tests.support.reasons import Reasons

# The first pattern that an op matches says why there is no kernel.
REASONS = {
    "the executor's own, which need no kernel": """Enter Exit Merge NextIteration Switch RefEnter RefExit RefMerge
    RefNextIteration RefSwitch _SwitchN""",
    "XLA": "Xla* _Xla*",
    "oneDNN's, which TensorFlow puts in place of others itself": "_Mkl* __Mkl*",
    "TensorFlow's own runtime, or its graph rewrites": """CheckPinned DevicePlacementOp GetDeadline GraphDefVersion
    IsTensorFloat32Enabled MapDefun SyncDevice _ArrayToList _DeviceArg _DeviceRetval _EagerConst _ListToArray
    _ParallelConcat* _ScopedAllocator* _TensorToHashBucketFast _UnaryOpsComposition IsResourceHandleRefCounting
    MakeWeakResourceHandle CompositeTensorVariant*""",
    "examples of TensorFlow's own tests": """ConstructionFails DtypeWithDefaultOp Fact KernelLabel* Old ResourceCreateOp
    ResourceInitializedOp ResourceUsingOp SleepIdentityOp SleepOp StubResourceHandleOp TestAttr""",
    "the debugger of TensorFlow": "Debug* DumpTensor",
    "calibrates models for TensorFlow Lite": "CalibrationStatisticsSaver CustomAggregator",
    "uniform quantisation, which runs by XLA": "Uniform*",
    "servers of data, and RPC between processes of TensorFlow": """DataServiceDataset* Rpc* DeleteRpcFutureResource
    RegisterDataset* DistributedSave""",
    "collectives across processes": "Collective*",
    "snapshots of datasets, and what datasets say about themselves": """*Snapshot* DatasetToGraph*
     DatasetFromGraph DatasetFingerprint *DatasetToTFRecord *StatsAggregator* CompressElement
    UncompressElement ComputeBatchSize IteratorGetModelProto GetOptions DummyIterationCounter""",
    "datasets that tf.data makes only inside itself": """ChooseFastestBranchDataset GlobalShuffleDataset
    IndexFlatMapDataset WeightedFlatMapDataset WindowOp WrapDatasetVariant UnwrapDatasetVariant GetElementAtIndex""",
    "databases": "*SqlDataset *LMDB* CreateSummaryDbWriter",
    "a table that a dataset fills": "InitializeTableFromDataset",
    "calls functions of the process that made the graph, which a GraphDef does not carry: use aexec.op": """PyFunc
    EagerPyFunc PyFuncStateless""",
    "not built yet": """QuantizedBatchNorm* QuantizedConcatV2 QuantizedConv2D?* QuantizedDepthwise* QuantizedMatMulWith*
    _FusedQuantized* _QuantizedMatMul _QuantizedMaxPool3D""",
    "training of TensorFlow 1's own models": "NegTrain Sdca* AudioMicrofrontend",
    "rounding at random, which only accelerators use": "StochasticCastToInt",
    "settings of a file system of another process": "FileSystemSetConfiguration",
    "formats of images that Pillow has no decoder of": "DecodeJxl",
    "only on accelerators": "ApproxTopK",
}
WHY = Reasons(REASONS)


def missing() -> list[str]:
    return [op for op in ops_of_tensorflow() if not registered(op)]


def test_each_missing_kernel_has_a_reason() -> None:
    assert not WHY.unexplained(missing())


def test_each_reason_is_that_of_a_missing_kernel() -> None:
    assert not WHY.unused(missing())


def test_most_ops_have_a_kernel() -> None:
    """All but those of XLA and oneDNN, and less than a fifth of others."""
    ops = [op for op in ops_of_tensorflow() if not fnmatchcase(op, "*Xla*") and not fnmatchcase(op, "*_Mkl*")]
    without = [op for op in ops if not registered(op)]
    assert len(ops) > 1300 and len(without) < len(ops) / 5


def main() -> None:
    """Print what is missing, by its reason."""
    without = missing()
    WHY.show(without)
    total, lacking = len(ops_of_tensorflow()), len(without)
    print(f"{total - lacking} of {total} have a kernel")


if __name__ == "__main__":
    main()
