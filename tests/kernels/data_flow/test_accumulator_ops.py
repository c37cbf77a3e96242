"""Accumulators in sessions: means and sums, stale gradients, waiting, sparse rows, and errors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import float32, float64, int32, int64
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.resources.accumulator import ConditionalAccumulator, SparseAccumulator
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread
from tests.kernels.harness import in_tensorflow, ops_of, registered
from tests.support.programs.graphs import GraphBuilder
from tests.support.virtual_clock import run_virtual


def _dense(op: str = "ConditionalAccumulator", reduction: bytes = b"MEAN", shape: Any = (2,)) -> aexec.Graph:
    prefix = "Resource" if op.startswith("Resource") else ""
    g = GraphBuilder()
    g("acc", op, dtype=float32, shape=PartialTensorShape(shape), reduction_type=reduction)
    for name, dtype in (("grad", float32), ("double", float64), ("step", int64), ("n", int32)):
        g.placeholder(name, dtype)
    g("apply", f"{prefix}AccumulatorApplyGradient", "acc", "step", "grad", dtype=float32)
    g("apply_double", f"{prefix}AccumulatorApplyGradient", "acc", "step", "double", dtype=float64)
    g("take", f"{prefix}AccumulatorTakeGradient", "acc", "n", dtype=float32)
    g("set_step", f"{prefix}AccumulatorSetGlobalStep", "acc", "step")
    g("count", f"{prefix}AccumulatorNumAccumulated", "acc")
    return g.graph()


class Client:
    def __init__(self, session: aexec.Session) -> None:
        self.session = session

    async def apply(self, grad: Any, step: int = 0) -> None:
        await self.session.run([], {"grad": np.array(grad, np.float32), "step": np.int64(step)}, targets=["apply"])

    async def take(self, count: int) -> Any:
        return await self.session.run("take:0", {"n": np.int32(count)})

    async def count(self) -> int:
        return int(await self.session.run("count:0"))


@pytest.mark.parametrize("op", ["ConditionalAccumulator", "ResourceConditionalAccumulator"])
async def test_means_and_stale_gradients(op: str) -> None:
    """The mean of what came; taking makes what was computed before stale."""
    async with aexec.Session(_dense(op)) as session:
        acc = Client(session)
        await acc.apply([1, 2])
        await acc.apply([3, 4])
        assert await acc.count() == 2
        assert (await acc.take(1)).tolist() == [2, 3]
        await acc.apply([9, 9], step=0)
        assert await acc.count() == 0
        await acc.apply([9, 9], step=1)
        await session.run([], {"step": np.int64(5)}, targets=["set_step"])
        await acc.apply([9, 9], step=4)
        assert await acc.count() == 1


async def test_sums() -> None:
    """SUM adds up, and the first gradient is not changed by it."""
    async with aexec.Session(_dense(reduction=b"SUM", shape=None)) as session:
        acc, first = Client(session), np.array([1, 2], np.float32)
        await session.run([], {"grad": first, "step": np.int64(0)}, targets=["apply"])
        await acc.apply([3, 4])
        assert (await acc.take(2)).tolist() == [4, 6]
        assert first.tolist() == [1, 2]
        with pytest.raises(errors.InvalidArgumentError, match=r"Shape mismatch: expected \[2\], got \[3\]"):
            await asyncio.gather(acc.apply([1, 2], 1), acc.apply([1, 2, 3], 1))
        assert await acc.count() == 1


async def test_taking_waits_in_order() -> None:
    """Who came first is served first; who was cancelled has taken nothing."""
    async with aexec.Session(_dense(reduction=b"SUM")) as session:
        acc = Client(session)
        first, second, third = (asyncio.ensure_future(acc.take(n)) for n in (2, 3, 1))
        await acc.count()
        first.cancel()
        for step in range(3):
            await acc.apply([1, 1], step=step)
        assert (await second).tolist() == [3, 3]
        await acc.apply([5, 5], step=3)
        assert (await third).tolist() == [5, 5]
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_errors() -> None:
    async with aexec.Session(_dense()) as session:
        acc = Client(session)
        with pytest.raises(errors.InvalidArgumentError, match=r"Shape mismatch: expected \[2\], got \[3\]"):
            await acc.apply([1, 2, 3])
        for count in (0, -1):
            with pytest.raises(errors.InvalidArgumentError, match=f"num_required must be positive, but was {count}"):
                await acc.take(count)
        feeds = {"double": np.ones(2), "step": np.int64(0)}
        with pytest.raises(errors.InvalidArgumentError, match="Signature mismatch"):
            await session.run([], feeds, targets=["apply_double"])
        with pytest.raises(errors.InvalidArgumentError, match="num_required must be scalar"):
            await session.run("take:0", {"n": np.array([1], np.int32)})


async def test_cancelled_take_gives_the_gradients_back() -> None:
    """A taker that is cancelled after it was served gives everything back."""
    accumulator = ConditionalAccumulator(float32, UNKNOWN_RANK, is_mean=True)
    task = asyncio.ensure_future(accumulator.take(1, CancellationManager()))
    await asyncio.sleep(0)
    accumulator.add(0, np.ones(2, np.float32))
    assert accumulator.count == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (accumulator.count, accumulator.step) == (1, 0)
    assert (await accumulator.take(1, None)).tolist() == [1, 1]


def test_threads_lose_nothing() -> None:
    """Gradients that several threads add are all in the sum."""
    import threading

    accumulator = ConditionalAccumulator(float64, UNKNOWN_RANK, is_mean=False)
    threads = [threading.Thread(target=lambda: [accumulator.add(0, np.ones(3)) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asyncio.run(accumulator.take(800, None)).tolist() == [800] * 3


def test_taker_is_served_while_a_wrong_gradient_is_refused() -> None:
    """The thread that refuses it holds the lock when the taker comes, and serves it all the same."""
    entered, leave = threading.Event(), threading.Event()

    class Held(ConditionalAccumulator):
        def _check(self, gradient: Any) -> None:
            if gradient.shape == (3,):
                entered.set()
                leave.wait()
            super()._check(gradient)

    async def main() -> None:
        accumulator = Held(float32, UNKNOWN_RANK, is_mean=True)
        accumulator.add(0, np.ones(2, np.float32))
        wrong = np.ones(3, np.float32)
        refused = asyncio.create_task(run_in_thread(accumulator.add, 0, wrong, on_cancel=OnCancel.WAIT))
        await run_in_thread(entered.wait, on_cancel=OnCancel.WAIT)
        taking = asyncio.create_task(accumulator.take(1, None))
        await asyncio.sleep(0)
        leave.set()
        with pytest.raises(errors.InvalidArgumentError, match="Shape mismatch"):
            await refused
        assert (await taking).tolist() == [1, 1]

    run_virtual(main())


def _sparse(shape: Any = (4, 2), *, is_mean: bool = True) -> SparseAccumulator:
    return SparseAccumulator(float32, PartialTensorShape(shape), is_mean=is_mean)


def _rows(accumulator: SparseAccumulator, indices: Any, values: Any, shape: Any = None, step: int = 0) -> None:
    whole = None if shape is None else np.array(shape)
    accumulator.add(step, np.array(indices, np.int64), np.array(values, np.float32), whole)


@pytest.mark.parametrize(("is_mean", "middle"), [(True, [3, 3]), (False, [6, 6])])
def test_sparse_rows(is_mean: bool, middle: list[float]) -> None:
    """Rows that several gradients have are added up, and averaged over those gradients."""
    accumulator = _sparse(is_mean=is_mean)
    _rows(accumulator, [0, 2], [[1, 1], [2, 2]])
    _rows(accumulator, [2, 3], [[4, 4], [6, 6]], shape=[4, 2])
    _rows(accumulator, [], np.zeros((0, 2)))
    taken = asyncio.run(accumulator.take(3, None))
    assert taken.indices.tolist() == [0, 2, 3]
    assert taken.values.tolist() == [[1, 1], middle, [6, 6]]
    assert accumulator.whole_shape(taken.values).tolist() == [4, 2]
    assert _sparse(None).whole_shape(taken.values).tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("indices", "values", "shape", "words"),
    [
        ([0, 7], [[1, 1], [2, 2]], None, "index of slice 1 exceeded limits of shape; index is 7 exceeded 4"),
        ([0], [[1, 1], [2, 2]], None, "Expected 1 non-empty input values, got 2"),
        ([0], [1], None, "Shape mismatch: expected values rank at least 2, got 1"),
        ([0], [[1, 1, 1]], None, "Shape mismatch: expected values dim 1 to be 2, got 3"),
        ([[0]], [[1, 1]], None, r"Input indices should be vector but received shape: \[1,1\]"),
        ([0], [[1, 1]], (5, 2), "Shape mismatch: expected shape dim 0 to be 4, got 5"),
        ([0], [[1, 1]], (4, 3), "Shape mismatch: expected shape dim 1 to be 2, got 3"),
        ([0], [[1, 1]], (4,), "Shape mismatch: expected shape rank at least 2, got 1"),
        ([0], 1, None, r"Values cannot be 0-dimensional\."),
    ],
)
def test_sparse_errors(indices: Any, values: Any, shape: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        _rows(_sparse(), indices, values, shape)


def test_sparse_gradients_must_agree_where_the_shape_is_unknown() -> None:
    accumulator = _sparse(None)
    _rows(accumulator, [0], [[1, 1]])
    with pytest.raises(errors.InvalidArgumentError, match="expected values dim 1 to be 2, got 3"):
        _rows(accumulator, [0], [[1, 1, 1]])
    assert accumulator.count == 1


async def test_sparse_ops_take_no_dense_accumulator() -> None:
    """Kinds and types of accumulators that share a name must agree."""
    g = GraphBuilder()
    g("acc", "SparseConditionalAccumulator", dtype=float32, shape=PartialTensorShape([4]), shared_name=b"x")
    g("dense", "ConditionalAccumulator", dtype=float32, shape=PartialTensorShape([4]), shared_name=b"x")
    g.const("n", 1, int32)
    g("take", "AccumulatorTakeGradient", "acc", "n", dtype=float32)
    g("count", "AccumulatorNumAccumulated", "dense")
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match="takes no SparseAccumulator"):
            await session.run("take:0")
        with pytest.raises(errors.InvalidArgumentError, match="which is no ConditionalAccumulator of float"):
            await session.run("count:0")


def test_registered_for_tensorflows_types() -> None:
    ops = ops_of("data_flow.accumulator_ops")
    assert len(ops) == 13
    assert dtypes.bfloat16 not in {dtype for op in ops for r in registered(op) for _, dtype in r[3]}
    for op in ops:
        assert registered(op) == in_tensorflow(op), op


async def test_sparse_gradients_may_be_written_to_afterwards() -> None:
    accumulator = _sparse(is_mean=False)
    indices, values = np.array([1]), np.ones((1, 2), np.float32)
    accumulator.add(0, indices, values, None)
    indices[:], values[:] = 3, 7
    taken = await accumulator.take(1, None)
    assert taken.indices.tolist() == [1] and taken.values.tolist() == [[1, 1]]


async def test_large_mean_is_made_in_a_thread_and_given_back_by_a_cancelled_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait(*_: Any) -> None:
        entered.set()
        leave.wait()

    async with aexec.Session(_dense(shape=None)) as session:
        client = Client(session)
        for _ in range(2):
            await client.apply(np.full(1 << 20, 3))
        with monkeypatch.context() as patched:
            patched.setattr(ConditionalAccumulator, "_mean", wait)
            step = session.start("take:0", {"n": 2})
            await asyncio.to_thread(entered.wait)
            assert await client.count() == 0
            step.cancel()
            with pytest.raises(errors.CancelledError):
                await step
            leave.set()
        assert await client.count() == 2
        assert (await client.take(2) == 3).all()
