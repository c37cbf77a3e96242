"""Batching across steps, in sessions."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.framework.dtypes import float32, int32, int64
from aexec.framework.wire.attr_value import NameAttrList
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder
from tests.support.virtual_clock import run_virtual

SCALE = function_def(
    "Scale(x: float, factor: float) -> y: float",
    body=[("m", "Mul", ["x", "factor"], {"T": float32})],
    ret={"y": "m:z:0"},
)


def _graph(**attrs: Any) -> aexec.Graph:
    g = GraphBuilder()
    g.graph_def.library.function.append(SCALE)
    g.placeholder("x", float32)
    g.placeholder("factor", float32)
    defaults: dict[str, Any] = {
        "f": NameAttrList("Scale"),
        "num_batch_threads": 1,
        "max_batch_size": 4,
        "batch_timeout_micros": 3_600_000_000,
        "Tin": [float32],
        "Tcaptured": [float32],
        "Tout": [float32],
    }
    g("y", "BatchFunction", "x", "factor", **{**defaults, **attrs})
    return g.graph()


def _feeds(*rows: float, factor: float = 3) -> dict[str, Any]:
    return {"x": np.array(rows, np.float32), "factor": np.float32(factor)}


async def test_steps_share_a_batch() -> None:
    """Two half batches from two steps make one, run with the captured tensors of the first."""
    async with aexec.Session(_graph()) as session:
        first, second = await asyncio.gather(
            session.run("y:0", _feeds(1, 2)), session.run("y:0", _feeds(3, 4, factor=100))
        )
        assert first.tolist() == [3, 6]
        assert second.tolist() == [9, 12]


async def test_cancelled_step_leaves_the_others() -> None:
    async with aexec.Session(_graph()) as session:
        first = asyncio.ensure_future(session.run("y:0", _feeds(1, 2)))
        for _ in range(20):
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await session.run("y:0", _feeds(1, 1, 1, 1))).tolist() == [3, 3, 3, 3]


async def test_large_batches_are_split() -> None:
    """Only if so wanted; otherwise they are refused."""
    async with aexec.Session(_graph(enable_large_batch_splitting=True)) as session:
        assert (await session.run("y:0", _feeds(*range(8)))).tolist() == [3 * n for n in range(8)]
    async with aexec.Session(_graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match=r"Batch size \(8\) exceeds maximum batch size \(4\)"):
            await session.run("y:0", _feeds(*range(8)))


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"allowed_batch_sizes": [2, 1, 4]}, "must be monotonically increasing"),
        ({"allowed_batch_sizes": [1, 2]}, "final entry in allowed_batch_sizes must equal max_batch_size"),
        ({"num_batch_threads": 0}, "must be positive"),
        ({"Tcaptured": [float32, float32]}, "does not take what y is given"),
    ],
)
async def test_attrs_that_make_no_sense(attrs: dict[str, Any], words: str) -> None:
    g = _graph(**attrs) if "Tcaptured" not in attrs else _two_captured()
    async with aexec.Session(g) as session:
        with pytest.raises(errors.InvalidArgumentError, match=words):
            await session.run("y:0", _feeds(1))


def _two_captured() -> aexec.Graph:
    g = GraphBuilder()
    g.graph_def.library.function.append(SCALE)
    g.placeholder("x", float32)
    g.placeholder("factor", float32)
    g(
        "y", "BatchFunction", "x", "factor", "factor", f=NameAttrList("Scale"), num_batch_threads=1, max_batch_size=4,
        batch_timeout_micros=0, Tin=[float32], Tcaptured=[float32] * 2, Tout=[float32],
    )  # fmt: skip
    return g.graph()


def _joining(unbatches: bool = True, timeout: float = 3600.0, **attrs: Any) -> aexec.Graph:
    """x and y are joined; z is ten times the rows of x that belong to the step."""
    g = GraphBuilder()
    g.placeholder("x", float32)
    g.placeholder("y", int32)
    defaults: dict[str, Any] = {
        "num_batch_threads": 1, "max_batch_size": 4, "batch_timeout_micros": 3_600_000_000,
        "grad_timeout_micros": 3_600_000_000, "T": [float32, int32],
    }  # fmt: skip
    g("b", "Batch", "x", "y", **{**defaults, **attrs})
    g("ten", "Const", dtype=float32, value=np.float32(10))
    g("scaled", "Mul", "b:0", "ten", T=float32)
    if unbatches:
        g("z", "Unbatch", "scaled", "b:2", "b:3", T=float32, timeout_micros=int(1e6 * timeout))
    return g.graph()


def _fed(*rows: float) -> dict[str, Any]:
    return {"x:0": np.array(rows, np.float32), "y:0": np.arange(len(rows), dtype=np.int32)}


OUTPUTS = ["b:0", "b:1", "b:2", "b:3"]


async def test_last_step_is_given_the_joined_tensors() -> None:
    """The others get none; the index has the key of each step and its rows."""
    async with aexec.Session(_joining()) as session:
        first, second, third = await asyncio.gather(*(session.run(OUTPUTS, _fed(*x)) for x in ((1, 2), (3,), (4,))))
    for tensors, numbers, index, _ in (first, second):
        assert (tensors.shape, numbers.shape, index.shape) == ((0,), (0,), (0, 3))
    tensors, numbers, index, key = third
    assert (tensors.tolist(), numbers.tolist()) == ([1, 2, 3, 4], [0, 1, 0, 0])
    assert index.tolist() == [[int(first[3]), 0, 2], [int(second[3]), 2, 3], [int(key), 3, 4]]


@pytest.mark.parametrize(
    ("feeds", "sizes", "joined", "rows"),
    [
        ([(1,)], [2, 4], [1, 1], [(0, 1)]),
        ([(5,), (6, 7)], [4], [5, 6, 7, 5], [(0, 1), (1, 3)]),
        ([(1,), (1,)], [2, 4], [1, 1], [(0, 1), (1, 2)]),
        ([()], [4], [], [(0, 0)]),
    ],
)
def test_batch_is_padded_to_an_allowed_size(feeds, sizes, joined, rows) -> None:
    """With the first row; the index leaves the padding out."""

    async def main() -> None:
        async with aexec.Session(_joining(batch_timeout_micros=1_000_000, allowed_batch_sizes=sizes)) as session:
            *_, last = await asyncio.gather(*(session.run(OUTPUTS, _fed(*x)) for x in feeds))
        assert last[0].tolist() == joined
        assert [tuple(row) for row in last[2][:, 1:].tolist()] == rows

    run_virtual(main())


async def test_each_step_gets_its_own_rows_again() -> None:
    async with aexec.Session(_joining()) as session:
        found = await asyncio.gather(*(session.run("z:0", _fed(*x)) for x in ((1, 2), (3,), (4,))))
        assert [z.tolist() for z in found] == [[10, 20], [30], [40]]
        assert (await session.run("z:0", _fed())).shape == (0,)


@pytest.mark.parametrize("cancelled", range(3))
async def test_cancelled_step_leaves_the_others_of_a_batch(cancelled: int) -> None:
    """A later step takes its place."""
    async with aexec.Session(_joining()) as session:
        tasks = [asyncio.ensure_future(session.run("z:0", _fed(x))) for x in (1, 2, 3)]
        await _settled()
        tasks.pop(cancelled).cancel()
        await _settled()
        tasks.append(asyncio.ensure_future(session.run("z:0", _fed(8, 9))))
        found = [z.tolist() for z in await asyncio.gather(*tasks)]
        assert found == [[10.0 * x] for x in (1, 2, 3) if x != cancelled + 1] + [[80, 90]]


async def _settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def _graph_of(op: str, shared: str = "", **attrs: Any) -> aexec.Graph:
    g = GraphBuilder()
    for name, dtype in (("x", float32), ("index", int64), ("id", int64), ("grad", float32)):
        g.placeholder(name, dtype)
    inputs = ("x", "index", "grad", "id") if op == "UnbatchGrad" else ("x", "index", "id")
    g("z", op, *inputs, T=float32, **attrs)
    return g.graph()


def _part(x: Any, index: Any, key: Any, grad: Any = None) -> dict[str, Any]:
    feeds = {
        "x:0": np.array(x, np.float32), "index:0": np.array(index, np.int64).reshape(np.shape(index) or (0, 3)),
        "id:0": np.array(key, np.int64),
    }  # fmt: skip
    return feeds if grad is None else {**feeds, "grad:0": np.array(grad, np.float32)}


NONE: Any = np.empty((0, 3), np.int64)
BATCH = _part([[1], [2], [3]], [[5, 0, 2], [7, 2, 3]], 5, [[4], [5]])
OTHER = _part(np.empty((0, 1)), NONE, 7, [[9]])


@pytest.mark.parametrize("order", [(BATCH, OTHER), (OTHER, BATCH)])
async def test_rows_and_steps_may_come_in_any_order(order: Any) -> None:
    graph = _graph_of("Unbatch", timeout_micros=3_600_000_000)
    feeds = [{name: value for name, value in feed.items() if name != "grad:0"} for feed in order]
    async with aexec.Session(graph) as session:
        tasks = []
        for feed in feeds:
            tasks.append(asyncio.ensure_future(session.run("z:0", feed)))
            await _settled()
        found = [(await task).tolist() for task in tasks]
    assert sorted(found, key=len) == [[[3]], [[1], [2]]]


@pytest.mark.parametrize("order", [(BATCH, OTHER), (OTHER, BATCH)])
async def test_gradients_of_all_parts_go_to_the_step_with_the_batch(order: Any) -> None:
    async with aexec.Session(_graph_of("UnbatchGrad")) as session:
        tasks = []
        for feed in order:
            tasks.append(asyncio.ensure_future(session.run("z:0", feed)))
            await _settled()
        found = [(await task).tolist() for task in tasks]
    assert sorted(found, key=len) == [[], [[4], [5], [9]]]


async def test_cancelled_gradient_leaves_nothing_behind() -> None:
    """What comes later for it is dropped, and the keys may be used again."""
    async with aexec.Session(_graph_of("UnbatchGrad")) as session:
        task = asyncio.ensure_future(session.run("z:0", BATCH))
        await _settled()
        task.cancel()
        assert (await session.run("z:0", OTHER)).shape == (0, 1)
        again = asyncio.ensure_future(session.run("z:0", BATCH))
        await _settled()
        assert (await session.run("z:0", OTHER)).shape == (0, 1)
        assert (await again).tolist() == [[4], [5], [9]]


def test_rows_that_do_not_come_in_time_end_the_step() -> None:
    """And rows that nobody takes are forgotten."""

    async def main() -> None:
        alone = _part(np.empty((0, 1)), NONE, 7)
        async with aexec.Session(_graph_of("Unbatch", timeout_micros=60_000_000)) as session:
            with pytest.raises(errors.DeadlineExceededError, match="Batched data did not arrive within timeout window"):
                await session.run("z:0", alone)
            await session.run("z:0", _part([[1], [2], [3]], [[5, 0, 2], [7, 2, 3]], 5))
            await asyncio.sleep(61)
            with pytest.raises(errors.DeadlineExceededError):
                await session.run("z:0", alone)

    run_virtual(main())


REFUSED = [
    ("Unbatch", _part(1.0, NONE, 7), "batched_tensor must have rows"),
    ("Unbatch", _part([1.0], [1, 2, 3], 7), "batch_index must be a matrix"),
    ("Unbatch", _part([1.0], [[1, 2]], 7), "Expected 1st dimension size to be 3 ; Got: 2."),
    ("Unbatch", _part([1.0], NONE, [7]), "Input id should be scalar"),
    (
        "Unbatch",
        _part([1.0], [[1, 0, 1], [2, 0, 1]], 7),
        "Expected 0th dimension size to be no greater than 1; Got: 2.",
    ),
    ("Unbatch", _part([1.0, 2, 3], [[7, 0, 1]], 7), "Sum of split sizes must match"),
    ("Unbatch", _part([1.0, 2, 3], [[7, 0, -1], [8, 0, 4]], 7), "Sum of split sizes must match"),
    ("Unbatch", _part([1.0] * 10_001, [[k, k, k + 1] for k in range(10_001)], 7), "at most 10000 steps share a batch"),
    ("UnbatchGrad", _part([1.0], [[k, 0, 0] for k in range(10_001)], 7, [9.0]), "at most 10000 steps share a batch"),
    ("UnbatchGrad", _part([1.0], NONE, 7, [9.0]), "batch_index is empty while the tensor isn't."),
    ("UnbatchGrad", _part([1.0], [[1, 2]], 7, [9.0]), "batch_index should contain 3 elements. Received 2"),
    ("UnbatchGrad", _part([1.0], NONE, [7], [9.0]), "Expected `id` to be scalar."),
    ("UnbatchGrad", _part([], NONE, 7, 9.0), "grad must have at least one dimension"),
    ("UnbatchGrad", _part([1.0, 2], [[7, 0, 1], [7, 1, 2]], 7, [9.0]), "wanted by more than one batch"),
]


@pytest.mark.parametrize(("op", "feeds", "words"), REFUSED)
async def test_parts_that_make_no_sense(op: str, feeds: dict[str, Any], words: str) -> None:
    attrs = {"timeout_micros": 0} if op == "Unbatch" else {}
    async with aexec.Session(_graph_of(op, **attrs)) as session:
        with pytest.raises(errors.InvalidArgumentError, match=re.escape(words)):
            await session.run("z:0", feeds)


async def test_many_parts_are_handed_out_in_turns() -> None:
    """Each is there for its step, and takes memory of the session until then."""
    many = 1000
    index = [[k, k, k + 1] for k in range(many)]
    config = aexec.SessionConfig(session_bytes=64 << 20)
    async with aexec.Session(_graph_of("Unbatch", timeout_micros=3_600_000_000), config=config) as session:
        assert (await session.run("z:0", _part(list(range(many)), index, many - 1))).tolist() == [many - 1]
        for key in (0, many // 2):
            assert (await session.run("z:0", _part([], NONE, key))).tolist() == [key]


@pytest.mark.parametrize("op", ["Unbatch", "UnbatchGrad"])
async def test_two_steps_with_one_key(op: str) -> None:
    feeds = OTHER if op == "UnbatchGrad" else _part(np.empty((0, 1)), NONE, 7)
    attrs = {"timeout_micros": 3_600_000_000} if op == "Unbatch" else {}
    error = errors.InvalidArgumentError if op == "UnbatchGrad" else errors.AlreadyExistsError
    async with aexec.Session(_graph_of(op, **attrs)) as session:
        first = asyncio.ensure_future(session.run("z:0", feeds))
        await _settled()
        with pytest.raises(error, match="with the same batch key"):
            await session.run("z:0", feeds)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_gradient_is_that_of_each_steps_own_rows() -> None:
    """TensorFlow's: of z * z, where z is ten times x."""
    with aexec.Graph() as g:
        x = aexec.placeholder(float32)
        joined = ops.batch(
            [x], num_batch_threads=1, max_batch_size=3, batch_timeout_micros=3_600_000_000,
            grad_timeout_micros=3_600_000_000,
        )  # fmt: skip
        z = ops.unbatch(joined[0][0] * 10.0, joined[1], joined[2], timeout_micros=3_600_000_000)
        (grad,) = aexec.gradients(z * z, x)
    async with aexec.Session(g) as session:
        rows = np.array([[1], [2]], np.float32), np.array([[3]], np.float32)
        found = await asyncio.gather(*(session.run([z, grad], {x: fed}) for fed in rows))
    assert [(z.tolist(), grad.tolist()) for z, grad in found] == [
        ([[10], [20]], [[200], [400]]),
        ([[30]], [[600]]),
    ]
