"""Staging areas in sessions: order, limits, waiting, parts of tuples, and errors."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.dtypes import float32, int32, int64
from aexec.resources.staging_area import StagingArea, StagingMap
from tests.kernels.harness import in_tensorflow, ops_of, registered
from tests.support.programs.graphs import GraphBuilder

TYPES = [float32, int32]
# The ops of a map, as `_map` takes them.
MAPS = {
    kind: ops.split()
    for kind, ops in {
        "Map": "MapStage MapUnstage MapPeek MapUnstageNoKey MapSize MapIncompleteSize MapClear",
        "OrderedMap": "OrderedMapStage OrderedMapUnstage OrderedMapPeek OrderedMapUnstageNoKey OrderedMapSize "
        "OrderedMapIncompleteSize OrderedMapClear",
    }.items()
}


def _stage(**limits: int) -> aexec.Graph:
    g = GraphBuilder()
    attrs: dict[str, Any] = {"dtypes": TYPES, "shared_name": b"area", **limits}
    g.placeholder("a", float32)
    g.placeholder("b", int32)
    g.placeholder("i", int32)
    g("put", "Stage", "a", "b", **attrs)
    g("get", "Unstage", **attrs)
    g("peek", "StagePeek", "i", **attrs)
    g("size", "StageSize", **attrs)
    g("clear", "StageClear", **attrs)
    g("wrong", "Unstage", **{**attrs, "dtypes": [float32]})
    g("other", "Unstage", **{**attrs, "dtypes": [int32, int32]})
    return g.graph()


def _map(kind: str, **limits: int) -> aexec.Graph:
    g = GraphBuilder()
    stage, unstage, peek, unstage_any, size, incomplete_size, clear = MAPS[kind]
    attrs: dict[str, Any] = {"dtypes": TYPES, "shared_name": b"map", **limits}
    for name, dtype in (("k", int64), ("both", int32), ("one", int32), ("a", float32), ("b", int32)):
        g.placeholder(name, dtype)
    g("put", stage, "k", "both", "a", "b", fake_dtypes=TYPES, **attrs)
    g("put_one", stage, "k", "one", "a", fake_dtypes=[float32], **attrs)
    g("get", unstage, "k", "both", **attrs)
    g("get_one", unstage, "k", "one", **{**attrs, "dtypes": TYPES})
    g("peek", peek, "k", "both", **attrs)
    g("any", unstage_any, "both", **attrs)
    g("size", size, **attrs)
    g("incomplete", incomplete_size, **attrs)
    g("clear", clear, **attrs)
    return g.graph()


def _tuple(n: int) -> dict[str, Any]:
    return {"a": np.float32(n), "b": np.int32(n)}


def _keyed(key: int, n: int | None = None) -> dict[str, Any]:
    return {"k": np.int64(key), "both": np.array([0, 1], np.int32), **_tuple(key if n is None else n)}


async def _blocked(*coroutines: Any) -> list[asyncio.Task[Any]]:
    """Tasks that have got as far as they can on their own."""
    tasks = [asyncio.ensure_future(c) for c in coroutines]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


async def test_first_in_first_out() -> None:
    async with aexec.Session(_stage()) as session:
        for n in (1, 2, 3):
            await session.run([], _tuple(n), targets=["put"])
        assert [float(v) for v in await session.run(["peek:0", "peek:1"], {"i": np.int32(1)})] == [2, 2]
        assert [float(v) for v in await session.run(["get:0", "get:1"])] == [1, 1]
        assert await session.run("size:0") == 2
        await session.run([], targets=["clear"])
        assert await session.run("size:0") == 0


@pytest.mark.parametrize("limits", [{"capacity": 1}, {"memory_limit": 12}])
async def test_putting_waits_for_room(limits: dict[str, int]) -> None:
    """Full by number or by bytes: the next one waits until one is taken, or until all are cleared."""
    async with aexec.Session(_stage(**limits)) as session:
        await session.run([], _tuple(1), targets=["put"])
        (waiting,) = await _blocked(session.run([], _tuple(2), targets=["put"]))
        assert await session.run("get:0") == 1
        await waiting
        (waiting,) = await _blocked(session.run([], _tuple(3), targets=["put"]))
        await session.run([], targets=["clear"])
        await waiting
        assert await session.run("get:0") == 3


async def test_taking_waits_and_can_be_cancelled() -> None:
    """A cancelled step has taken nothing."""
    async with aexec.Session(_stage()) as session:
        first, second = await _blocked(session.run("get:0"), session.run("get:0"))
        first.cancel()
        await session.run([], _tuple(7), targets=["put"])
        assert await second == 7
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_staging_errors() -> None:
    async with aexec.Session(_stage(memory_limit=4)) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="combined size of '8' bytes into Staging Area"):
            await session.run([], _tuple(1), targets=["put"])
    async with aexec.Session(_stage()) as session:
        for name in ("wrong:0", "other:0"):
            await session.run([], _tuple(1), targets=["put"])
            with pytest.raises(errors.InvalidArgumentError, match="Mismatch stage/unstage"):
                await session.run(name)
        with pytest.raises(errors.InvalidArgumentError, match="index must be scalar"):
            await session.run("peek:0", {"i": np.array([1], np.int32)})


@pytest.mark.parametrize("kind", MAPS)
async def test_maps(kind: str) -> None:
    """By key, and without one: the smallest key of an ordered map."""
    async with aexec.Session(_map(kind)) as session:
        for key in (5, 3, 4):
            await session.run([], _keyed(key), targets=["put"])
        assert await session.run("size:0") == 3
        assert await session.run("peek:1", _keyed(4)) == 4
        assert [float(v) for v in await session.run(["get:0", "get:1"], _keyed(4))] == [4, 4]
        key, value = await session.run(["any:0", "any:1"], _keyed(0))
        assert key == value == (3 if kind == "OrderedMap" else 5)
        (waiting,) = await _blocked(session.run("get:0", _keyed(9)))
        await session.run([], _keyed(9), targets=["put"])
        assert await waiting == 9
        await session.run([], targets=["clear"])
        assert await session.run("size:0") == 0
        (waiting,) = await _blocked(session.run("any:0", _keyed(0)))
        await session.run([], _keyed(1), targets=["put"])
        assert await waiting == 1


async def test_index_given_twice() -> None:
    async with aexec.Session(_map("Map")) as session:
        await session.run([], _keyed(1), targets=["put"])
        with pytest.raises(errors.InvalidArgumentError, match="not strictly ordered"):
            await session.run("get:0", {**_keyed(1), "both": np.array([0, 0], np.int32)})


async def test_tuples_in_parts() -> None:
    """Components may come in one by one; the tuple is there when all are."""
    async with aexec.Session(_map("Map")) as session:
        part = {"k": np.int64(1), "one": np.array([0], np.int32), "a": np.float32(8)}
        await session.run([], part, targets=["put_one"])
        assert await session.run(["size:0", "incomplete:0"]) == [0, 1]
        with pytest.raises(errors.InvalidArgumentError, match="index '0' for key '1' was already initialized"):
            await session.run([], part, targets=["put_one"])
        with pytest.raises(errors.InvalidArgumentError, match="already initialized"):
            await session.run([], _keyed(1), targets=["put"])
        await session.run([], _keyed(2), targets=["put"])
        with pytest.raises(errors.InvalidArgumentError, match="key '2' was already inserted"):
            await session.run([], _keyed(2), targets=["put"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"both": np.array([0, 2], np.int32)}, "Index '2' for key '1' was out of bounds '2'"),
        ({"both": np.array([-1, 1], np.int32)}, "Index '-1' for key '1' was out of bounds '2'"),
        ({"both": np.array([], np.int32)}, "Indices are empty"),
        ({"both": np.array([1, 0], np.int32)}, "Indices are not strictly ordered"),
        ({"both": np.array([0], np.int32)}, "indices and values don't match: 1 vs. 2"),
        ({"k": np.array([1])}, "key must be an int64 scalar"),
    ],
)
async def test_map_errors(changes: dict[str, Any], words: str) -> None:
    async with aexec.Session(_map("Map")) as session:
        with pytest.raises(errors.InvalidArgumentError, match=words):
            await session.run([], {**_keyed(1), **changes}, targets=["put"])


def test_registered() -> None:
    """Every op of the family, for the CPU; there is no other device whose memory would need an area of its own."""
    ops = ops_of("data_flow.staging_ops")
    assert len(ops) == 19
    for op in ops:
        ours, theirs = registered(op), in_tensorflow(op)
        assert theirs is not None
        assert ours == {r for r in theirs if r[0] == "CPU"}


@pytest.mark.parametrize("size", [1, 1 << 19])
async def test_fed_arrays_may_be_written_to_afterwards(size: int) -> None:
    fed = np.ones(size, np.float32)
    async with aexec.Session(_stage()) as session:
        await session.run([], {"a": fed, "b": 5}, targets=["put"])
        fed[:] = 7
        assert (await session.run("get:0"))[0] == 1
    fed = np.ones(size, np.float32)
    async with aexec.Session(_map("Map")) as session:
        await session.run([], {"k": 1, "both": [0, 1], "a": fed, "b": 5}, targets=["put"])
        fed[:] = 7
        assert (await session.run("any:1", {"both": [0, 1]}))[0] == 1


async def _cancelled_after_delivery(waiting: Any, deliver: Any) -> None:
    """Have `deliver` serve a waiting attempt, and cancel its task before that has its turn."""
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    await deliver()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelled_put_leaves_nothing() -> None:
    area, values = StagingArea(capacity=1), (np.ones(2),)
    await area.put(values, None)
    await _cancelled_after_delivery(area.put((np.zeros(2),), None), lambda: area.get(None))
    assert len(area) == 0 and area.bytes == 0


@pytest.mark.parametrize("ordered", [False, True])
async def test_cancelled_put_leaves_nothing_in_a_map(ordered: bool) -> None:
    held = StagingMap(2, ordered=ordered, memory_limit=40)
    one, other = (np.ones(2), np.ones(3)), np.zeros(2)
    await held.put(1, [0, 1], one, None)
    await _cancelled_after_delivery(held.put(2, [0, 1], one, None), lambda: held.get(1, [0, 1], None))
    assert (len(held), held.incomplete, held.bytes) == (0, 0, 0)
    await held.put(1, [0, 1], one, None)
    # What another one put under the key stays.
    waiting = [asyncio.ensure_future(held.put(3, [i], (other,), None)) for i in (0, 1)]
    await asyncio.sleep(0)
    await held.get_any([0, 1], None)
    waiting[1].cancel()
    await asyncio.wait(waiting)
    assert (len(held), held.incomplete, held.bytes) == (0, 1, other.nbytes)
