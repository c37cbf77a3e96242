"""Why a step ended: the caller sees the cause, in whichever wait the step was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.waiting.cancellation import wait
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder
from tests.support.virtual_clock import run_virtual
from tests.support.waiting import until

pytestmark = pytest.mark.both_executors

F = "float32"


@aexec.op("CausesSleep(x: float) -> y: float", stateful=True)
async def causes_sleep(x: Any) -> Any:
    await asyncio.get_running_loop().create_future()
    return x


register_op("CausesWait() -> y: float", stateful=True)
register_op("CausesSoreLoser() -> y: float", stateful=True)


@kernel("CausesWait", cost=0)
def causes_wait(c: Any) -> Any:
    c.need_context()

    async def compute(context: Any) -> Any:
        return await wait(context.cancellation, asyncio.get_running_loop().create_future(), "The wait was cancelled")

    return compute


@kernel("CausesSoreLoser", cost=0)
def causes_sore_loser(c: Any) -> Any:
    """A kernel that turns the cancellation of its wait into its own error."""
    c.need_context()

    async def compute(context: Any) -> Any:
        try:
            await wait(context.cancellation, asyncio.get_running_loop().create_future())
        except errors.CancelledError:
            raise errors.InternalError("cancelled, and cross about it") from None

    return compute


def _queue(**limits: Any) -> Any:
    return ops.fifo_queue_v2(component_types=[F], shapes=[[]], name="q", **limits)


def _full_queue() -> Any:
    handle = _queue(capacity=1)
    return handle, ops.queue_enqueue_v2(handle, [aexec.constant(1.0)], name="fill")


def _dequeue() -> None:
    ops.queue_dequeue_v2(_queue(), component_types=[F], name="waiting")


def _dequeue_many() -> None:
    ops.queue_dequeue_many_v2(_queue(), 2, component_types=[F], name="waiting")


def _dequeue_up_to() -> None:
    ops.queue_dequeue_up_to_v2(_queue(), 2, component_types=[F], name="waiting")


def _dequeue_unknown_shapes() -> None:
    """Elements that may be large are joined in a thread."""
    handle = ops.padding_fifo_queue_v2(component_types=[F], shapes=[[None]], name="q")
    ops.queue_dequeue_up_to_v2(handle, 2, component_types=[F], name="waiting")


def _enqueue() -> None:
    handle, _ = _full_queue()
    ops.queue_enqueue_v2(handle, [aexec.constant(1.0)], name="waiting")


def _enqueue_many() -> None:
    handle, _ = _full_queue()
    ops.queue_enqueue_many_v2(handle, [aexec.constant(np.ones(3, np.float32))], name="waiting")


def _enqueue_copied() -> None:
    """The rows are so many that a thread cuts them first."""
    handle, _ = _full_queue()
    ops.queue_enqueue_many_v2(handle, [aexec.constant(np.ones(3000, np.float32))], name="waiting")


def _stage() -> None:
    ops.stage([aexec.constant(1.0)], capacity=1, shared_name="s", name="fill")
    ops.stage([aexec.constant(1.0)], capacity=1, shared_name="s", name="waiting")


def _unstage() -> None:
    ops.unstage(dtypes=[F], shared_name="s", name="waiting")


def _stage_peek() -> None:
    ops.stage_peek(0, dtypes=[F], shared_name="s", name="waiting")


_KEY, _INDICES = np.int64(1), np.array([0], np.int32)


def _map(op: str, prefix: str) -> Callable[[], None]:
    def build() -> None:
        shared = {"dtypes": [F], "shared_name": "m", "capacity": 1}
        if op == "stage":
            stage = getattr(ops, f"{prefix}stage")
            stage(_KEY, _INDICES, [aexec.constant(1.0)], fake_dtypes=[dtypes.float32], name="fill", **shared)
            stage(_KEY + 1, _INDICES, [aexec.constant(1.0)], fake_dtypes=[dtypes.float32], name="waiting", **shared)
        elif op == "unstage_no_key":
            getattr(ops, f"{prefix}unstage_no_key")(_INDICES, name="waiting", **shared)
        else:
            getattr(ops, f"{prefix}{op}")(_KEY, _INDICES, name="waiting", **shared)

    return build


def _barrier() -> None:
    handle = ops.barrier(component_types=[F], shapes=[[]], name="b")
    ops.barrier_take_many(handle, 1, component_types=[F], name="waiting")


def _accumulator() -> None:
    handle = ops.conditional_accumulator(dtype=F, shape=[], name="a")
    ops.accumulator_take_gradient(handle, 1, dtype=F, name="waiting")


def _resource_accumulator() -> None:
    handle = ops.resource_conditional_accumulator(dtype=F, shape=[], name="a")
    ops.resource_accumulator_take_gradient(handle, 1, dtype=F, name="waiting")


def _sparse_accumulator() -> None:
    handle = ops.sparse_conditional_accumulator(dtype=F, shape=[], name="a")
    ops.sparse_accumulator_take_gradient(handle, 1, dtype=F, name="waiting")


def _mutex() -> None:
    handle = ops.mutex_v2(name="m")
    ops.mutex_lock(handle, name="held")
    ops.mutex_lock(handle, name="waiting")


def _reader() -> None:
    ops.reader_read_v2(ops.whole_file_reader_v2(name="r"), _strings(), name="waiting")


def _reader_up_to() -> None:
    ops.reader_read_up_to_v2(ops.tf_record_reader_v2(name="r"), _strings(), np.int64(2), name="waiting")


def _strings() -> Any:
    return ops.fifo_queue_v2(component_types=["string"], shapes=[[]], name="q")


_FUNCTION = function_def(
    "CausesFunction(x: float) -> y: float",
    body=[("inner", "Unstage", [], {"dtypes": [dtypes.float32], "shared_name": b"s"})],
    ret={"y": "inner:values:0"},
    stateful=True,
)


def _if() -> GraphBuilder:
    g = GraphBuilder()
    g.graph_def.library.function.append(_FUNCTION)
    g.const("x", np.float32(1))
    g.const("p", True)
    branch = calls("CausesFunction")
    types = {"Tin": [dtypes.float32], "Tout": [dtypes.float32]}
    g("waiting", "If", "p", "x", then_branch=branch, else_branch=branch, Tcond=dtypes.bool_, **types)
    return g


def _batch_function() -> GraphBuilder:
    g = GraphBuilder()
    g.graph_def.library.function.append(_FUNCTION)
    g.const("x", np.ones(1, np.float32))
    types = {"Tin": [dtypes.float32], "Tcaptured": [], "Tout": [dtypes.float32]}
    limits = {"num_batch_threads": 1, "max_batch_size": 4, "batch_timeout_micros": 10**15}
    g("waiting", "BatchFunction", "x", f=calls("CausesFunction"), **limits, **types)
    return g


def _batch_function_at_work() -> GraphBuilder:
    g = _batch_function()
    g.graph_def.node[-1].attr["max_batch_size"].i = 1
    return g


def _user_op() -> None:
    causes_sleep(aexec.constant(1.0), name="waiting")


WAITS: dict[str, Callable[[], Any]] = {
    "dequeue": _dequeue,
    "dequeue_many": _dequeue_many,
    "dequeue_up_to": _dequeue_up_to,
    "dequeue_unknown_shapes": _dequeue_unknown_shapes,
    "enqueue": _enqueue,
    "enqueue_many": _enqueue_many,
    "enqueue_copied": _enqueue_copied,
    "stage": _stage,
    "unstage": _unstage,
    "stage_peek": _stage_peek,
    **{
        f"{prefix}{op}": _map(op, prefix)
        for prefix in ("map_", "ordered_map_")
        for op in ("stage", "unstage", "peek", "unstage_no_key")
    },
    "barrier": _barrier,
    "accumulator": _accumulator,
    "resource_accumulator": _resource_accumulator,
    "sparse_accumulator": _sparse_accumulator,
    "mutex": _mutex,
    "reader": _reader,
    "reader_up_to": _reader_up_to,
    "if": _if,
    "batch_function": _batch_function,
    "batch_function_at_work": _batch_function_at_work,
    "user_op": _user_op,
    "wait": lambda: ops.causes_wait(name="waiting"),
    "sore_loser": lambda: ops.causes_sore_loser(name="waiting"),
}

# What an operation that waits says, as TensorFlow words it, when the session is closed.
_WORDS = {
    **dict.fromkeys(["dequeue", "dequeue_many", "dequeue_up_to", "dequeue_unknown_shapes", "barrier"], "Dequeue"),
    **dict.fromkeys(["enqueue", "enqueue_many"], "Enqueue"),
    **dict.fromkeys(["accumulator", "resource_accumulator", "sparse_accumulator"], "TakeGrad"),
    "stage": "Stage",
    "unstage": "Unstage",
    "stage_peek": "StagePeek",
    **dict.fromkeys(["if", "batch_function_at_work"], "Unstage"),  # in the function
    **{
        f"{prefix}_{op}": f"{name}{word}"
        for prefix, name in (("map", "Map"), ("ordered_map", "OrderedMap"))
        for op, word in (
            ("stage", "Stage"),
            ("unstage", "Unstage"),
            ("peek", "Peek"),
            ("unstage_no_key", "UnstageNoKey"),
        )
    },
}


def _graph(build: Callable[[], Any]) -> aexec.Graph:
    with aexec.Graph() as graph:
        builder = build()
    return builder.graph() if isinstance(builder, GraphBuilder) else graph


async def _waiting(session: aexec.Session, options: aexec.RunOptions | None = None) -> aexec.Step:
    """A step that waits in the node `waiting`."""
    if session.graph.find("fill") is not None:
        await session.run([], targets=["fill"])
    step = session.start([], targets=["waiting"], options=options)
    await until(lambda: "  running waiting " in step.dump())
    for _ in range(5):
        await asyncio.sleep(0)
    await until(lambda: not session.statistics().pool.outstanding)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not step.done
    return step


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["loop", "thread"])
async def test_caller_sees_that_the_step_was_cancelled(name: str, elsewhere: bool) -> None:
    async with aexec.Session(_graph(WAITS[name])) as session:
        lock = await session.run("held:0") if name == "mutex" else None
        step = await _waiting(session)
        cancelled = await asyncio.to_thread(step.cancel, "not wanted") if elsewhere else step.cancel("not wanted")
        assert cancelled
        with pytest.raises(errors.CancelledError) as caught:
            await step
        assert caught.value.message == f"Step {step.id} was cancelled: not wanted"
        assert not caught.value.derived
        assert step.state.value == "cancelled"
        del lock


@pytest.mark.parametrize("name", WAITS)
def test_caller_sees_that_the_deadline_passed(name: str) -> None:
    async def main() -> None:
        async with aexec.Session(_graph(WAITS[name])) as session:
            lock = await session.run("held:0") if name == "mutex" else None
            step = await _waiting(session, aexec.RunOptions(timeout=3600))
            with pytest.raises(errors.DeadlineExceededError, match="Timed out waiting for notification"):
                await step
            del lock

    run_virtual(main())


@pytest.mark.parametrize("name", WAITS)
async def test_caller_sees_that_the_session_closed(name: str) -> None:
    async with aexec.Session(_graph(WAITS[name])) as session:
        lock = await session.run("held:0") if name == "mutex" else None
        step = await _waiting(session)
        await session.close()
        with pytest.raises(errors.CancelledError) as caught:
            await step
        assert caught.value.message == "Session has been closed." + (
            f" {_WORDS[name]} operation was cancelled" if name in _WORDS else ""
        )
        del lock
