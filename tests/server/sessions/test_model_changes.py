"""A model of the server's own: clients run what reads it, and nothing that changes what it keeps."""

from __future__ import annotations

from typing import Any

import pytest
from aexec_server.sessions import model_changes
from aexec_server.sessions.model_changes import may_change_model, what_changes_model
from aexec_server.sessions.op_rules import OpUse

import aexec
from aexec.framework import dtypes
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.hosting import is_built_in, queue_class
from tests.server.conftest import Start
from tests.support.programs.graphs import GraphBuilder

# Every op with a kernel that is stateful, or takes a reference or a handle, and changes what outlives the run.
CHANGES = set(
    """AccumulatorApplyGradient AccumulatorSetGlobalStep AccumulatorTakeGradient AddManySparseToTensorsMap
    AddSparseToTensorsMap AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 AnonymousMemoryCache
    AnonymousMultiDeviceIterator AnonymousMultiDeviceIteratorV3 AnonymousRandomSeedGenerator
    AnonymousSeedGenerator ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam
    ApplyAddSign ApplyCenteredRMSProp ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyMomentum ApplyPowerSign
    ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp Assign AssignAdd AssignAddVariableOp
    AssignSub AssignSubVariableOp AssignVariableOp BarrierClose BarrierInsertMany BarrierTakeMany CacheDatasetV2
    CloseSummaryWriter ConsumeMutexLock CountUpTo CreateSummaryFileWriter DeleteIterator DeleteMemoryCache
    DeleteMultiDeviceIterator DeleteRandomSeedGenerator DeleteSeedGenerator DeleteSessionTensor
    DeserializeIterator DestroyResourceOp DisableCopyOnRead DummyMemoryCache DummySeedGenerator
    FixedLengthRecordReader FixedLengthRecordReaderV2 FlushSummaryWriter GetSessionHandle GetSessionHandleV2
    ImportEvent InitializeTable InitializeTableFromTextFile InitializeTableFromTextFileV2 InitializeTableV2
    IteratorGetNext IteratorGetNextAsOptional IteratorGetNextSync LearnedUnigramCandidateSampler
    LoadAndRemapMatrix LookupTableImport LookupTableImportV2 LookupTableInsert LookupTableInsertV2
    LookupTableRemoveV2 MakeIterator MapClear MapStage MapUnstage MapUnstageNoKey MergeV2Checkpoints
    MultiDeviceIteratorGetNextFromShard MultiDeviceIteratorInit MutexLock OrderedMapClear OrderedMapStage
    OrderedMapUnstage OrderedMapUnstageNoKey QueueClose QueueCloseV2 QueueDequeue QueueDequeueMany
    QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2 QueueDequeueV2 QueueEnqueue QueueEnqueueMany
    QueueEnqueueManyV2 QueueEnqueueV2 ReaderRead ReaderReadUpTo ReaderReadUpToV2 ReaderReadV2 ReaderReset
    ReaderResetV2 ReaderRestoreState ReaderRestoreStateV2 RecordInput ResourceAccumulatorApplyGradient
    ResourceAccumulatorSetGlobalStep ResourceAccumulatorTakeGradient ResourceApplyAdaMax ResourceApplyAdadelta
    ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam
    ResourceApplyAdamWithAmsgrad ResourceApplyAddSign ResourceApplyCenteredRMSProp ResourceApplyFtrl
    ResourceApplyFtrlV2 ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum
    ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent
    ResourceApplyRMSProp ResourceCountUpTo ResourceScatterAdd ResourceScatterDiv ResourceScatterMax
    ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin
    ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate
    ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA
    ResourceSparseApplyAdagradV2 ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl
    ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
    ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp
    ResourceStridedSliceAssign Restore RestoreSlice RestoreV2 RngReadAndSkip RngSkip Save SaveDataset
    SaveDatasetV2 SaveSlices SaveV2 ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd
    ScatterNdMax ScatterNdMin ScatterNdSub ScatterNdUpdate ScatterSub ScatterUpdate ShuffleAndRepeatDatasetV2
    ShuffleDatasetV2 ShuffleDatasetV3 Skipgram SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient
    SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA SparseApplyAdagradV2 SparseApplyCenteredRMSProp
    SparseApplyFtrl SparseApplyFtrlV2 SparseApplyMomentum SparseApplyProximalAdagrad
    SparseApplyProximalGradientDescent SparseApplyRMSProp Stage StageClear StatefulRandomBinomial
    StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform
    StatefulUniformFullInt StatefulUniformInt StridedSliceAssign TFRecordReader TFRecordReaderV2
    TakeManySparseFromTensorsMap TextLineReader TextLineReaderV2 ThreadUnsafeUnigramCandidateSampler Unstage
    WholeFileReader WholeFileReaderV2 WriteAudioSummary WriteFile WriteGraphSummary WriteHistogramSummary
    WriteImageSummary WriteRawProtoSummary WriteScalarSummary WriteSummary""".split()
)


def changes(op: str) -> bool:
    return what_changes_model(OpUse("n", op, lambda name: b"")) is not None


def test_every_stateful_op_is_classified() -> None:
    ops = {op for op in kernel_registry.global_registry.ops() if is_built_in(op)}
    assert {op for op in ops if changes(op)} == CHANGES
    known = model_changes.CHANGES_NOTHING | {op for op in ops if queue_class(op)}
    assert {op for op in ops if may_change_model(op)} - CHANGES == known


def test_unclassified_stateful_op_counts_as_a_change() -> None:
    assert changes("TestGate") and not changes("TestFail") and not changes("NoSuchOp")


def test_op_that_is_registered_later_is_looked_at_again() -> None:
    """A library may be loaded after a model that names its op was refused."""
    assert not changes("TestRegisteredLater")
    register_op("TestRegisteredLater() -> y: float", stateful=True)
    assert changes("TestRegisteredLater")


def model() -> aexec.Graph:
    """A variable of each kind, a table, a queue, a generator, and functions that read and write."""
    g = GraphBuilder()
    f = dtypes.float32
    g.placeholder("x", f, [])
    shape = PartialTensorShape([])
    g("v", "VarHandleOp", dtype=f, shape=shape, shared_name=b"v")
    g.const("one", 1.0, f)
    g("init", "AssignVariableOp", "v", "one", dtype=f)
    g("write", "AssignVariableOp", "v", "x", dtype=f)
    g("read", "ReadVariableOp", "v", dtype=f)
    g("written", "Identity", "x", "^write", T=f)
    g("y", "Mul", "x", "read", T=f)
    g("ref", "VariableV2", shape=shape, dtype=f)
    g("init_ref", "Assign", "ref", "one", T=f)
    g("add", "AssignAdd", "ref", "x", T=f)
    g("ref_read", "Identity", "ref", T=f)
    g("table", "HashTableV2", key_dtype=dtypes.int64, value_dtype=f, shared_name=b"t")
    g.const("key", 3, dtypes.int64)
    g.const("keys", [3], dtypes.int64)
    g.const("values", [7.0], f)
    g("init_table", "InitializeTableV2", "table", "keys", "values", Tkey=dtypes.int64, Tval=f)
    g("found", "LookupTableFindV2", "table", "key", "one", Tin=dtypes.int64, Tout=f)
    g("queue", "FIFOQueueV2", component_types=[f], shared_name=b"q")
    g("put", "QueueEnqueueV2", "queue", "x", Tcomponents=[f])
    g("take", "QueueDequeueV2", "queue", component_types=[f])
    g("size", "QueueSizeV2", "queue")
    g.const("shape", [2], dtypes.int32)
    g("noise", "RandomUniform", "shape", T=dtypes.int32, dtype=f)
    g("kept", "GetSessionHandleV2", "x", T=f)
    calls: dict[str, Any] = {"Tin": [dtypes.resource, f], "Tout": [f]}
    g("calls_read", "StatefulPartitionedCall", "v", "x", f=NameAttrList("Reads"), **calls)
    g("calls_write", "StatefulPartitionedCall", "v", "x", f=NameAttrList("Writes"), **calls)
    for name, op in (("Reads", "ReadVariableOp"), ("Writes", "AssignVariableOp")):
        function = g.graph_def.library.function.add()
        function.signature.name = name
        function.signature.is_stateful = True
        function.signature.input_arg.add(name="v", type=dtypes.resource.enum)
        function.signature.input_arg.add(name="x", type=f.enum)
        function.signature.output_arg.add(name="z", type=f.enum)
        node = function.node_def.add(name="n", op=op, input=["v"] if op == "ReadVariableOp" else ["v", "x"])
        node.attr["dtype"].type = f.enum
        function.ret["z"] = "n:value:0" if op == "ReadVariableOp" else "x"
        if op == "AssignVariableOp":
            function.control_ret["n"] = "n"
            function.signature.control_output.append("n")
    return g.graph()


async def started(start: Start, **settings: Any) -> Any:
    api = await start(graphs={"model": model()}, **settings)
    await api.hosted("model").session.run([], targets=["init", "init_ref", "init_table"])
    return api


@pytest.mark.parametrize(
    ("fetches", "targets", "op"),
    [
        ([], ["write"], "AssignVariableOp"),
        (["y"], ["write"], "AssignVariableOp"),
        (["written"], [], "AssignVariableOp"),
        (["add"], [], "AssignAdd"),
        ([], ["init_table"], "InitializeTableV2"),
        ([], ["put"], "QueueEnqueueV2"),
        (["take"], [], "QueueDequeueV2"),
        (["kept"], [], "GetSessionHandleV2"),
        (["calls_write"], [], "StatefulPartitionedCall"),
    ],
)
async def test_run_that_changes_a_model_is_refused(
    start: Start, fetches: list[str], targets: list[str], op: str
) -> None:
    api = await started(start)
    for _ in range(2):
        status, answer = await api.run("model", feeds={"x": 5.0}, fetches=fetches, targets=targets)
        assert (status, answer["code"], answer["op"]) == (403, "PERMISSION_DENIED", op)
        assert "the server's own" in answer["error"]
    if op == "StatefulPartitionedCall":
        assert "calls AssignVariableOp, which changes" in answer["error"]
    status, answer = await api.run("model", feeds={"x": 2.0}, fetches=["y", "ref_read", "size"])
    assert (status, answer["outputs"]) == (200, {"y": 2.0, "ref_read": 1.0, "size": 0})


async def test_run_that_reads_a_model_is_allowed(start: Start) -> None:
    api = await started(start)
    fetches = ["y", "ref_read", "found", "size", "calls_read"]
    for _ in range(2):
        status, answer = await api.run("model", feeds={"x": 2.0}, fetches=fetches)
        expected = {"y": 2.0, "ref_read": 1.0, "found": 7.0, "size": 0, "calls_read": 1.0}
        assert (status, answer["outputs"]) == (200, expected)
        assert (await api.run("model", fetches=["noise"]))[0] == 200


async def test_plan_is_looked_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    api = await started(start)
    looked = []
    checked = api.hosted("model")._guard.check
    monkeypatch.setattr(api.hosted("model")._guard, "check", lambda *args: looked.append(1) or checked(*args))
    for _ in range(3):
        assert (await api.run("model", feeds={"x": 2.0}, fetches=["y"]))[0] == 200
    assert len(looked) == 1


async def test_changes_run_if_they_are_allowed(start: Start) -> None:
    api = await started(start, allow_model_changes=True)
    assert (await api.run("model", feeds={"x": 5.0}, targets=["write"]))[0] == 200
    assert (await api.run("model", feeds={"x": 2.0}, fetches=["y"]))[1]["outputs"] == {"y": 10.0}


async def test_clients_may_change_their_own_sessions(start: Start) -> None:
    api = await start()
    g = GraphBuilder()
    g.graph_def.CopyFrom(model().to_graph_def())
    handle = await api.create(g)
    assert (await api.run(handle, feeds={"x": 5.0}, targets=["write"]))[0] == 200
    assert (await api.run(handle, feeds={"x": 2.0}, fetches=["y"]))[1]["outputs"] == {"y": 10.0}
