"""Memory limits of steps and sessions: refusals before allocation, and their errors."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.memory import tensor_buffer
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.memory.tensor_buffer import buffer_of
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions.shape_inference import InferenceContext
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.interpreter import memory_accountant
from aexec.runtime.interpreter.memory_accountant import expected_of, values_of_line
from tests.kernels.kernel_calls import KernelCall, load
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder, counting_loop
from tests.support.waiting import until

MB = 1 << 20
made: list[str] = []


def _square(c: InferenceContext) -> None:
    c.set_output(0, c.input(0))


register_op("TestMakes(x: T) -> y: T", "T: type", shape_fn=_square)
register_op("TestMakesUnknown(x: float) -> y: float")


@kernel("TestMakes", "TestMakesUnknown")
def _makes(c: Any) -> Any:
    def compute(x: Any) -> Any:
        made.append(c.name)
        return x + 1

    return compute


@kernel("TestMakesThenFails")
def _fails(c: Any) -> Any:
    def compute(x: Any) -> Any:
        raise MemoryError("no more")

    return compute


register_op("TestMakesThenFails(x: float) -> y: float")

# Needs, besides its output, twice as much, or as much as a value says.
register_op("TestNeeds(x: float) -> y: float", shape_fn=_square)
register_op("TestNeedsAsMany(x: float, bytes: int32) -> y: float", shape_fn=_square)
kernel("TestNeeds", scratch=8)(_makes)


@kernel("TestNeedsAsMany", scratch=lambda x, count: int(count))
def _makes_of_two(c: Any) -> Any:
    makes = _makes(c)
    return lambda x, count: makes(x)


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


def chain(count: int, op: str = "TestMakes") -> aexec.Graph:
    """x → n0 → n1 → …, each of which is fetched, so that all of them are alive."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    attrs = {"T": dtypes.float32} if op == "TestMakes" else {}
    for i in range(count):
        g(f"n{i}", op, f"n{i - 1}" if i else "x", **attrs)
    return g.graph()


X = np.ones(MB // 4, np.float32)  # 1 MiB


def session(graph: aexec.Graph, **limits: Any) -> aexec.Session:
    return aexec.Session(graph, config=aexec.SessionConfig(**limits))


async def test_kernel_that_would_exceed_the_limit_is_not_run() -> None:
    async with session(chain(5), step_bytes=3 * MB) as limited:
        with pytest.raises(errors.ResourceExhaustedError) as caught:
            await limited.run([f"n{i}:0" for i in range(5)], {"x:0": X})
        assert made == ["n0", "n1", "n2"]
        assert caught.value.node == "n3"
        text = caught.value.message
        assert text.startswith(
            "OOM when allocating tensor with shape[262144] and type float on "
            "/job:localhost/replica:0/task:0/device:CPU:0: the tensors of the step take 3145728 bytes, "
            "1048576 more would exceed the 3145728 of SessionConfig.step_bytes\n"
            "Current usage from device: /job:localhost/replica:0/task:0/device:CPU:0, allocator: cpu\n"
        )
        assert sorted(text.splitlines()[2:]) == [f"  1.00MiB from n{i}" for i in range(3)]
        # The session goes on.
        for _ in range(5):
            assert len(await limited.run(["n0:0", "n1:0", "n2:0"], {"x:0": X})) == 3


async def test_scratch_is_reserved_while_a_kernel_runs() -> None:
    metadata = aexec.RunMetadata()
    async with session(chain(2, "TestNeeds"), step_bytes=4 * MB) as limited:
        await limited.run(["n0:0", "n1:0"], {"x:0": X}, metadata=metadata)
    assert metadata.peak_bytes == 4 * MB  # two outputs, and what one call needs
    made.clear()
    async with session(chain(2, "TestNeeds"), step_bytes=4 * MB - 1) as limited:
        with pytest.raises(errors.ResourceExhaustedError, match=r"take 1048576 bytes, 3145728 more would exceed"):
            await limited.run(["n0:0", "n1:0"], {"x:0": X})
    assert made == ["n0"]


async def test_scratch_may_depend_on_a_value() -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g.placeholder("bytes", dtypes.int32)
    g("y", "TestNeedsAsMany", "x", "bytes")
    async with session(g.graph(), step_bytes=2 * MB) as limited:
        for count in (0, MB, -5):
            await limited.run("y:0", {"x:0": X, "bytes:0": np.int32(count)})
        with pytest.raises(errors.ResourceExhaustedError, match="2097153 more would exceed"):
            await limited.run("y:0", {"x:0": X, "bytes:0": np.int32(MB + 1)})


async def test_freed_values_do_not_count() -> None:
    async with session(chain(20), step_bytes=2 * MB) as limited:
        await limited.run("n19:0", {"x:0": X})
    assert len(made) == 20


async def test_outputs_of_unknown_size_are_counted_once_made() -> None:
    async with session(chain(3, "TestMakesUnknown"), step_bytes=MB + 1) as limited:
        with pytest.raises(errors.ResourceExhaustedError, match=r"take 2097152 bytes, which is more than the 1048577"):
            await limited.run(["n0:0", "n1:0", "n2:0"], {"x:0": X})
    assert made == ["n0", "n1"]


async def test_too_many_dimensions_are_refused_as_without_limits() -> None:
    with aexec.Graph() as graph:
        ops.fill(aexec.placeholder("int32", [None], name="dims"), False, name="y")
    for limit in (None, MB):
        async with session(graph, step_bytes=limit) as limited:
            with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating tensor"):
                await limited.run("y:0", {"dims:0": np.ones(100, np.int32)})


async def test_sizes_that_values_say_are_known_before() -> None:
    with aexec.Graph() as graph:
        dims = aexec.placeholder("int32", [2], name="dims")
        ops.fill(dims, aexec.constant(1.0), name="filled")
    async with session(graph, step_bytes=MB) as limited:
        assert (await limited.run("filled:0", {"dims:0": [100, 100]})).shape == (100, 100)
        with pytest.raises(errors.ResourceExhaustedError, match=r"shape\[1000000,1000000\] and type float"):
            await limited.run("filled:0", {"dims:0": [1000000, 1000000]})


async def test_counted_bytes_are_python_integers() -> None:
    """NumPy's integers overflow, and JSON cannot hold them."""
    with aexec.Graph() as graph:
        ops.where(aexec.placeholder("float32", [None, None], name="x"), name="y")
    metadata = aexec.RunMetadata()
    async with session(graph, step_bytes=MB) as limited:
        assert len(await limited.run("y:0", {"x:0": np.ones((10, 10), np.float32)}, metadata=metadata)) == 100
    assert type(metadata.peak_bytes) is int


NEEDY: dict[str, Callable[[], Any]] = {
    "integers that are multiplied as floats": lambda: ops.mat_mul(
        np.ones((1000, 9), np.int64), np.ones((9, 1000), np.int64)
    ),
    "parts of strings": lambda: ops.string_split([b"ab" * 100_000], b"")[1],
    "filters of sounds": lambda: ops.mfcc(np.ones((1, 2, 9), np.float32), 44100, filterbank_channel_count=200_000),
}


@pytest.mark.parametrize("name", NEEDY)
async def test_scratch_beyond_the_limit_is_refused(name: str) -> None:
    with aexec.Graph() as graph:
        ops.identity(NEEDY[name](), name="y")
    async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=(), step_bytes=15 * MB)) as limited:
        with pytest.raises(errors.ResourceExhaustedError, match="15728640"):
            await limited.run("y:0")


async def test_scratch_counts_during_a_call() -> None:
    """A shuffle needs 8 bytes per row while it runs."""
    with aexec.Graph() as graph:
        aexec.ops.random_shuffle(aexec.placeholder("uint8", [None], name="x"), name="y")
    x = np.zeros(100_000, np.uint8)
    async with aexec.Session(graph, config=aexec.SessionConfig(step_bytes=1_000_000)) as session:
        await session.run("y:0", {"x:0": x})
    async with aexec.Session(graph, config=aexec.SessionConfig(step_bytes=799_999)) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="800000 more would exceed the 799999"):
            await session.run("y:0", {"x:0": x})
        assert session.statistics().bytes_in_use == 0


async def test_views_take_nothing() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        y = ops.reshape(ops.expand_dims(ops.identity(ops.neg(x)), 0), [2, -1])
        ops.transpose(ops.squeeze(ops.reshape(y, [1, 2, -1])), [1, 0], name="y")
        ops.strided_slice(y, [0, 0], [2, 9], [1, 1], name="z")
        ops.split(0, y, num_split=2, name="s")
        ops.unpack(y, num=2, name="u")
    async with session(graph, step_bytes=MB + 100, graph_passes=()) as limited:
        for _ in range(2):
            await limited.run(["y:0", "z:0", "s:1", "u:1"], {"x:0": X})


@pytest.mark.skipif(DEBUG > 0, reason="AEXEC_DEBUG makes inputs unusable instead")
async def test_call_that_writes_over_its_input_reserves_nothing() -> None:
    with aexec.Graph() as graph:
        y: Any = ops.neg(aexec.placeholder("float32", [None], name="x"))
        for _ in range(5):
            y = ops.abs(ops.neg(y))
        ops.identity(y, name="y")
    metadata = aexec.RunMetadata()
    async with session(graph, step_bytes=MB + 100, graph_passes=()) as limited:
        for _ in range(3):
            await limited.run("y:0", {"x:0": X}, metadata=metadata)
    assert metadata.peak_bytes == MB


async def test_loops_calls_and_threads() -> None:
    g = counting_loop()
    async with session(g.graph(), step_bytes=MB) as limited:
        assert await limited.run("result:0", {"n:0": 30}) == 30
    gate, g = gates.ThreadGate(), GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "TestThreadGate", "x", key=gate.key, T=dtypes.float32)
    async with session(g.graph(), step_bytes=MB) as limited:
        step = limited.start("y:0", {"x:0": X})
        await until(gate.entered.is_set)
        gate.open.set()
        await step


async def test_concurrent_steps_share_the_sessions_limit_and_have_their_own() -> None:
    g = GraphBuilder()
    gate = gates.Gate()
    g.placeholder("x", dtypes.float32)
    g("held", "TestMakes", "x", T=dtypes.float32)
    g("waits", "TestGate", "held", key=gate.key, T=dtypes.float32)
    g("free", "TestMakes", "x", T=dtypes.float32)
    async with session(g.graph(), step_bytes=MB, session_bytes=MB + MB // 2) as limited:
        waiting = limited.start(["waits:0", "held:0"], {"x:0": X})
        await gate.entered.wait()
        assert limited.statistics().bytes_in_use == MB
        assert waiting.statistics().live_bytes == MB
        with pytest.raises(errors.ResourceExhaustedError, match=r"of the session take .* SessionConfig.session_b"):
            await limited.run("free:0", {"x:0": X})
        gate.open.set()
        await waiting
        del waiting
        await asyncio.sleep(0)
        held = await limited.run("free:0", {"x:0": X})
        assert limited.statistics().bytes_in_use == 0  # what was fetched is the caller's
        del held


async def test_variables_count_in_the_session() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        variable = ops.var_handle_op(dtype="float32", shape=[None], name="v")
        ops.assign_variable_op(variable, x, name="assign")
        ops.read_variable_op(variable, dtype="float32", name="read")
    async with session(graph, session_bytes=MB + 100) as limited:
        await limited.run([], {"x:0": X}, targets=["assign"])
        assert limited.statistics().bytes_in_use == MB
        assert len(await limited.run("read:0")) == len(X)
        assert limited.statistics().bytes_in_use == MB
        await limited.run([], {"x:0": X[:10]}, targets=["assign"])
        assert limited.statistics().bytes_in_use == 40
        with pytest.raises(errors.ResourceExhaustedError, match="session_bytes"):
            await limited.run([], {"x:0": np.ones(MB, np.float32)}, targets=["assign"])
        assert len(await limited.run("read:0")) == 10


async def test_table_entries_and_cut_rows_count_where_each_call_is_counted() -> None:
    """These are no arrays, but objects in a dict and views without elements."""
    many = 10_000
    with aexec.Graph() as graph:
        table = ops.mutable_hash_table_v2(key_dtype="int64", value_dtype="int32", name="table")
        keys = aexec.constant(np.arange(many))
        ops.lookup_table_insert_v2(table, keys, aexec.constant(np.zeros(many, np.int32)), name="insert")
        queue = ops.fifo_queue_v2(component_types=["float32"], shapes=[[0]], name="queue")
        ops.queue_enqueue_many_v2(queue, [aexec.constant(np.zeros((many, 0), np.float32))], name="put")
        ops.queue_dequeue_many_v2(queue, many, component_types=["float32"], name="take")
    async with session(graph, session_bytes=100 * MB) as limited:
        for target in ("insert", "put"):
            before = limited.statistics().bytes_in_use
            await limited.run([], targets=[target])
            assert limited.statistics().bytes_in_use > before + 100 * many
        await limited.run([], targets=["take"])
        await until(lambda: limited.statistics().bytes_in_use < 400 * many)


@pytest.mark.parametrize("kept_by", ["queue", "batch", "staging area", "map"])
@pytest.mark.parametrize("exact", [True, False])
async def test_copies_that_threads_make_to_keep_count_until_they_are_freed(kept_by: str, exact: bool) -> None:
    """A fed array may be written to later, so it is copied, in a thread because it is large."""
    with aexec.Graph() as graph:
        x, key = aexec.placeholder("float32", name="x"), aexec.placeholder("int64", name="key")
        queue = ops.fifo_queue_v2(component_types=["float32"], name="queue")
        if kept_by == "queue":
            ops.queue_enqueue_v2(queue, [x], name="put")
        elif kept_by == "batch":
            ops.queue_enqueue_many_v2(queue, [x], name="put")
        elif kept_by == "staging area":
            ops.stage([x], name="put")
        else:
            ops.map_stage(key, [0], [x], dtypes=["float32"], name="put")
    large = np.ones((2, 16 * MB // 8), np.float32)
    async with session(graph, session_bytes=(30 if exact else 400) * MB) as limited:
        await limited.run([], {"x:0": large, "key:0": 1}, targets=["put"])
        assert 16 * MB <= limited.statistics().bytes_in_use < 17 * MB
        if exact:
            for _ in range(2):
                with pytest.raises(errors.ResourceExhaustedError, match="session_bytes"):
                    await limited.run([], {"x:0": large, "key:0": 2}, targets=["put"])
                large = np.ones((2, 32 * MB // 8), np.float32)
            assert limited.statistics().bytes_in_use < 17 * MB


def folded() -> aexec.Graph:
    """A sum of constants that takes 2 MiB, and repeats one number."""
    with aexec.Graph() as graph:
        one = aexec.constant(np.broadcast_to(np.float32(1), MB // 2))
        ops.add_v2(one, 2.0, name="sum")
    return graph


async def test_folded_values_count_for_the_session_until_it_is_closed() -> None:
    together = MemoryAccount("server", "max_memory_bytes", 100 * MB)
    async with session(folded(), memory_account=together) as opened:
        assert (await opened.run("sum:0"))[5] == 3
        assert opened.statistics().bytes_in_use >= 2 * MB
    await until(lambda: together.in_use == 0)


async def test_values_that_would_exceed_the_limit_are_not_folded() -> None:
    async with session(folded(), session_bytes=MB) as opened:
        with pytest.raises(errors.ResourceExhaustedError, match="session_bytes"):
            await opened.run("sum:0")
        assert opened.statistics().bytes_in_use < MB


async def test_traced_run_reports_its_peak() -> None:
    metadata = aexec.RunMetadata()
    async with aexec.Session(chain(3)) as unlimited:
        await unlimited.run("n2:0", {"x:0": X}, options=aexec.RunOptions(trace=True), metadata=metadata)
        assert metadata.peak_bytes == 2 * MB
        step = unlimited.start("n2:0", {"x:0": X}, options=aexec.RunOptions(trace=True))
        await step
        assert step.statistics().peak_bytes == 2 * MB
        plain = unlimited.start("n2:0", {"x:0": X})
        await plain
        assert plain.statistics().peak_bytes is None


async def test_kernels_own_error_reports_allocations_on_request() -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g("n0", "TestMakes", "x", T=dtypes.float32)
    g("y", "TestMakesThenFails", "n0")
    options = aexec.proto.RunOptions(report_tensor_allocations_upon_oom=True)
    async with aexec.Session(g.graph()) as unlimited:
        with pytest.raises(errors.ResourceExhaustedError, match=r"(?s)no more\nCurrent usage .*\n  1.00MiB from n0\n"):
            await unlimited.run("y:0", {"x:0": X}, options=options)
        with pytest.raises(errors.ResourceExhaustedError) as caught:
            await unlimited.run("y:0", {"x:0": X})
        assert "Current usage" not in caught.value.message


@pytest.mark.parametrize("name", ["step_bytes", "session_bytes"])
def test_negative_limit_is_refused(name: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=f"{name} must not be negative, got -1"):
        aexec.SessionConfig(**{name: -1})


# Limits of many megabytes: what is small is looked for, and costs no time


@pytest.fixture
def rough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let smaller limits be kept as large ones are."""
    monkeypatch.setattr("aexec.runtime.session.session_memory.EXACT_BELOW", 0)


LARGE = np.ones(8 * MB // 4, np.float32)


@pytest.mark.usefixtures("rough")
async def test_call_for_a_thread_is_refused_before_it_runs() -> None:
    # So much that the call is one for a thread also where it was measured with pages that are there already.
    large = np.ones(32 * MB // 4, np.float32)
    async with session(chain(5), step_bytes=104 * MB) as limited:
        for _ in range(8):  # interpreted, compiled, and going on in a thread
            made.clear()
            with pytest.raises(errors.ResourceExhaustedError) as caught:
                await limited.run([f"n{i}:0" for i in range(5)], {"x:0": large})
            assert made == ["n0", "n1", "n2"]
            assert caught.value.node == "n3"
            assert "33554432 more would exceed the 109051904 of SessionConfig.step_bytes" in caught.value.message
            del caught
            await until(lambda: limited.statistics().bytes_in_use == 0)  # a thread may still have the error
        assert len(await limited.run([f"n{i}:0" for i in range(3)], {"x:0": large})) == 3


@pytest.mark.usefixtures("rough")
async def test_sessions_may_have_a_limit_together() -> None:
    together = MemoryAccount("server", "max_memory_bytes", 30 * MB)
    async with session(chain(2), memory_account=together) as one, session(chain(2), memory_account=together) as other:
        held = await one.run(["n0:0", "n1:0"], {"x:0": LARGE})
        assert one.statistics().bytes_in_use == 0  # what was fetched is the caller's
        assert together.in_use == 16 * MB  # and goes on counting for all
        with pytest.raises(errors.ResourceExhaustedError, match=r"of the server .* of max_memory_bytes"):
            await other.run(["n0:0", "n1:0"], {"x:0": LARGE})
        del held
        await other.run(["n0:0", "n1:0"], {"x:0": LARGE})
    assert together.in_use == 0


def test_memory_checks_take_a_bounded_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a check that takes a second of the processor there is none for eight seconds, or sixteen with two steps,
    however long the processor did something else meanwhile.
    """
    clock, processor = itertools.count(step=100), itertools.count()
    monkeypatch.setattr(memory_accountant, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(memory_accountant, "thread_time", lambda: float(next(processor)))
    steps = [memory_accountant.StepMemory(MB, None, None, "", is_exact=False) for _ in range(2)]
    for step in steps:
        step._look("execution", tuple)
    assert [step._looked["execution"][1] for step in steps] == [100 + 8, 300 + 16]
    for step in steps:
        step.close()
    assert memory_accountant._executions_looked_at == [0]


@pytest.mark.usefixtures("rough")
async def test_small_values_are_counted_in_long_steps() -> None:
    """A loop that goes on until it has gathered too much."""
    g = counting_loop()
    g.placeholder("x", dtypes.float32)
    frame = {"frame_name": b"loop"}
    g("enter_x", "Enter", "x", T=dtypes.float32, is_constant=True, **frame)
    g.const("shape", -1, dtypes.int32)
    g.const("none", -1, dtypes.int32)
    g("list", "EmptyTensorList", "shape", "none", element_dtype=dtypes.float32, shape_type=dtypes.int32)
    g("enter_list", "Enter", "list", T=dtypes.variant, **frame)
    g("value", "Merge", "enter_list", "next_list", N=2, T=dtypes.variant)
    g("taken", "Switch", "value", "cond", T=dtypes.variant)
    g("number", "Cast", "body", SrcT=dtypes.int32, DstT=dtypes.float32)
    g("made", "AddV2", "enter_x", "number", T=dtypes.float32)
    g("push", "TensorListPushBack", "taken:1", "made", element_dtype=dtypes.float32)
    g("next_list", "NextIteration", "push", T=dtypes.variant)
    g("y", "Exit", "taken", T=dtypes.variant)
    g("length", "TensorListLength", "y")
    async with session(g.graph(), step_bytes=26 * MB) as limited:
        for _ in range(4):
            assert await limited.run("length:0", {"n:0": 10, "x:0": np.ones(10_000, np.float32)}) == 10
            with pytest.raises(errors.ResourceExhaustedError, match=r"the 27262976 of SessionConfig\.step_bytes"):
                await limited.run("length:0", {"n:0": 2**31 - 1, "x:0": np.ones(10_000, np.float32)})
            await until(lambda: limited.statistics().bytes_in_use == 0)  # what is in a thread counts until it returns


@pytest.mark.usefixtures("rough")
async def test_fed_values_do_not_count_in_the_step() -> None:
    g = GraphBuilder()
    gate = gates.Gate()
    g.placeholder("x", dtypes.float32)
    g("waits", "TestGate", "x", key=gate.key, T=dtypes.float32)
    g("y", "AddN", "waits", "x", N=2, T=dtypes.float32)
    async with session(g.graph(), step_bytes=30 * MB) as limited:
        step = limited.start("y:0", {"x:0": np.ones(25 * MB // 4, np.float32)})
        await gate.entered.wait()
        gate.open.set()
        await step


@pytest.mark.usefixtures("rough")
async def test_resources_count_in_the_session() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        queue = ops.fifo_queue_v2(component_types=["float32"], name="queue")
        ops.queue_enqueue_v2(queue, [ops.neg(x)], name="put")
        ops.queue_dequeue_v2(queue, component_types=["float32"], name="got")
    async with session(graph, session_bytes=26 * MB) as limited:
        for _ in range(3):
            await limited.run([], {"x:0": LARGE}, targets=["put"])
        with pytest.raises(errors.ResourceExhaustedError, match="session_bytes"):
            await limited.run([], {"x:0": LARGE}, targets=["put"])
        held = await limited.run("got:0")
        assert limited.statistics().bytes_in_use < 17 * MB  # what was fetched is the caller's
        await limited.run([], {"x:0": LARGE}, targets=["put"])
        del held


def _repeated(call: KernelCall) -> tuple[list[Any], Any, Any] | None:
    """Inputs, outputs and the node of a call that a test made; None if it cannot be repeated so."""
    c = call.construction(np)
    try:
        built = call.registration(c).build(c)
        inputs = [np.array(value) for value in call.inputs]
        with np.errstate(all="ignore"):
            out = built.compute(*inputs)
    except Exception:
        return None  # it needs its step, or was to be refused
    node = SimpleNamespace(
        op=call.op,
        cost=built.cost,
        scratch=built.scratch,
        passes_on=False,
        calls=None,
        node=SimpleNamespace(op_def=c.op_def, attrs=c.attrs, output_types=c.output_types, shapes=None),
    )
    return inputs, out if isinstance(out, tuple) else (out,), node


def test_expected_outputs_are_no_larger_than_actual_ones() -> None:
    """Otherwise calls would be refused although there is room."""
    checked, told = set(), set()
    for call in load():
        repeated = _repeated(call)
        if repeated is None:
            continue
        inputs, outputs, node = repeated
        given = {id(buffer_of(value)) for value in inputs}
        made = sum(out.nbytes for out in outputs if out is not None and id(buffer_of(out)) not in given)
        expected = expected_of(node, inputs).outputs
        # Some give an input for a small output, as batch norms for a channel's statistics.
        assert expected <= made + 100, (call.op, [value.shape for value in inputs], expected, made)
        checked.add(call.op)
        if expected == made > 0:
            told.add(call.op)
    assert len(checked) > 500
    assert len(told) > 0.75 * len(checked)


async def test_tensors_under_handles_are_the_sessions() -> None:
    with aexec.Graph() as graph:
        ops.get_session_handle(ops.neg(aexec.placeholder("float32", [None], name="x")), name="h")
    async with session(graph, session_bytes=3 * MB) as limited:
        handle = await limited.run("h:0", {"x:0": X})
        assert limited.statistics().bytes_in_use == MB
        put = await limited.tensors.put(X)
        assert limited.statistics().bytes_in_use == 2 * MB
        with pytest.raises(errors.ResourceExhaustedError, match="session_bytes"):
            await limited.tensors.put(np.ones(MB // 2, np.float32))
        limited.tensors.delete(handle)
        limited.tensors.delete(put)
        assert limited.statistics().bytes_in_use == 0


async def test_parts_of_a_run_that_were_handed_out_are_the_callers() -> None:
    g = GraphBuilder()
    for name in "xz":
        g.placeholder(name, dtypes.float32)
        g(f"{name}_made", "TestMakes", name, T=dtypes.float32)
    async with session(g.graph(), session_bytes=2 * MB) as limited:
        step = await limited.partial_run_setup(["x_made:0", "z_made:0"], ["x:0", "z:0"])
        first = await limited.partial_run(step, "x_made:0", {"x:0": X})
        assert limited.statistics().in_flight == 1
        assert limited.statistics().bytes_in_use == 0
        second = await limited.partial_run(step, "z_made:0", {"z:0": X})
        assert limited.statistics().bytes_in_use == 0
        del first, second


async def test_received_value_is_not_counted_again() -> None:
    """A fed value belongs to the caller, on other devices of the host, too."""
    g = GraphBuilder()
    g.placeholder("x")
    g.const("axis", 0, dtypes.int32)
    g("small", "Max", "x", "axis", device="/cpu:1", T=dtypes.float32)
    g("less", "Neg", "small", device="/cpu:0", T=dtypes.float32)
    config = aexec.SessionConfig(device_count={"CPU": 2}, graph_passes=(), session_bytes=1000)
    async with aexec.Session(g.graph(), config=config) as session:
        assert await session.run("less:0", {"x:0": np.ones(MB, np.float32)}) == -1


def test_memory_check_of_a_line_keeps_no_value() -> None:
    """Values that the line releases are free, so that kernels may write over them."""
    seen: list[weakref.ref[Any]] = []

    def line() -> Generator[None, None, None]:
        value = np.zeros(8)
        seen.append(weakref.ref(value))
        yield
        del value
        yield

    running = line()
    next(running)
    assert any(value is seen[0]() for value in values_of_line(running))
    next(running)
    assert seen[0]() is None


@pytest.mark.default_executor
class TestManyStrings:
    """Measuring many strings does not hold the event loop."""

    MANY = 50_000

    @pytest.fixture
    def measured(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """For each array of many strings that was measured: True if a thread did it."""
        here, found, distinct_strings = threading.current_thread(), list[bool](), tensor_buffer._distinct_strings

        def noting(objects: Any) -> Any:
            if objects.size == self.MANY:
                found.append(threading.current_thread() is not here)
            return distinct_strings(objects)

        monkeypatch.setattr(tensor_buffer, "_distinct_strings", noting)
        return found

    @property
    def strings(self) -> Any:
        return np.array([b"%d" % i for i in range(self.MANY)], object)

    async def test_strings_are_measured_once_for_all_accounts(self, measured: list[bool]) -> None:
        """One measurement serves all accounts."""
        with aexec.Graph() as graph:
            ops.copy_host(aexec.placeholder("string", [None], name="x"), name="copied")
        text = self.strings
        async with session(graph, step_bytes=8 * MB, session_bytes=100 * MB) as limited:
            for _ in range(3):
                copied = await limited.run("copied:0", {"x:0": text})
            assert copied.tolist() == text.tolist()
        assert measured == [True] * 3

    async def test_kept_strings_are_measured_once(self, measured: list[bool]) -> None:
        with aexec.Graph() as graph:
            x = aexec.placeholder("string", [None], name="x")
            handle = ops.var_handle_op(dtype="string", shape=[self.MANY], name="v")
            ops.assign_variable_op(handle, x, name="assign")
            queue = ops.fifo_queue_v2(component_types=["string"], name="queue")
            ops.queue_enqueue_v2(queue, [x], name="put")
            ops.stage([x], name="stage")
            ops.get_session_handle(x, name="handle")
        text = self.strings
        async with session(graph, session_bytes=1000 * MB) as limited:
            for target in ("assign", "put", "stage"):
                await limited.run([], {"x:0": text}, targets=[target])
                assert limited.statistics().bytes_in_use > 8 * self.MANY
            await limited.run("handle:0", {"x:0": text})
        assert measured == [True] * 4

    def test_sample_of_strings_estimates_a_watched_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_at: list[int] = []
        memory_bytes = tensor_buffer.memory_bytes

        def noting(array: Any) -> int:
            looked_at.append(array.size)
            return memory_bytes(array)

        monkeypatch.setattr(memory_accountant, "memory_bytes", noting)
        memory = memory_accountant.StepMemory(None, None, None, "", is_exact=False)
        text = np.array([b"%07d" % i for i in range(self.MANY)], object)
        memory.look("execution", lambda: [text])
        assert looked_at[0] < 5000
        assert memory.step.in_use == pytest.approx((15 + tensor_buffer.STRING_BYTES) * self.MANY, rel=0.01)
        memory.close()


class TestLongLists:
    """A sample of a long list estimates its memory."""

    COUNT = 100_000

    def bytes_found(self, values: list[Any]) -> int:
        memory = memory_accountant.StepMemory(None, None, None, "", is_exact=False)
        memory.look("execution", lambda: [values])
        found = memory.step.in_use
        memory.close()
        return found

    def test_equal_arrays_are_estimated(self) -> None:
        values = [np.empty(8) for _ in range(self.COUNT)]
        assert self.bytes_found(values) == pytest.approx(64 * self.COUNT, rel=0.05)

    def test_rows_of_one_array_count_once(self) -> None:
        rows = np.empty((self.COUNT, 8))
        assert self.bytes_found(list(rows)) == rows.nbytes

    def test_few_arrays_do_not_stand_for_many(self) -> None:
        values: list[Any] = [None] * self.COUNT
        values[:: self.COUNT // 10] = [np.empty(1000) for _ in range(10)]
        assert self.bytes_found(values) <= 80_000

    def test_few_values_of_a_long_list_are_looked_at(self) -> None:
        assert len(list(memory_accountant._arrays([[np.empty(1)] * self.COUNT]))) < 5000
