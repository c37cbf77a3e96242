"""Barriers in sessions: assembling, order, waiting, closing, and errors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.dtypes import float32, int32, string
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.abandoned_calls import AbandonedError, CallInThread
from aexec.kernels.data_flow import barrier_ops
from aexec.resources import barrier
from tests.kernels.harness import in_tensorflow, ops_of, registered
from tests.support.programs.graphs import GraphBuilder

PAIR = [float32, float32]
SCALARS = [PartialTensorShape([]), PartialTensorShape([])]


def _barrier(**attrs: Any) -> aexec.Graph:
    g = GraphBuilder()
    g("b", "Barrier", **{"component_types": PAIR, "shapes": SCALARS, **attrs})
    g.placeholder("keys", string)
    g.placeholder("values", float32)
    g.placeholder("n", int32)
    for component in (-1, 0, 1, 2):
        g(f"put{component}", "BarrierInsertMany", "b", "keys", "values", T=float32, component_index=component)
    g("take", "BarrierTakeMany", "b", "n", component_types=PAIR)
    g("take_small", "BarrierTakeMany", "b", "n", component_types=PAIR, allow_small_batch=True)
    g("take_timed", "BarrierTakeMany", "b", "n", component_types=PAIR, timeout_ms=5)
    g("take_other", "BarrierTakeMany", "b", "n", component_types=[float32])
    g("close", "BarrierClose", "b")
    g("cancel", "BarrierClose", "b", cancel_pending_enqueues=True)
    g("ready", "BarrierReadySize", "b")
    g("incomplete", "BarrierIncompleteSize", "b")
    return g.graph()


class Client:
    """A session with one barrier."""

    def __init__(self, session: aexec.Session) -> None:
        self.session = session

    async def put(self, component: int, **values: Any) -> None:
        keys = np.array([key.encode() for key in values], object)
        feeds = {"keys": keys, "values": np.array(list(values.values()), np.float32)}
        await self.session.run([], feeds, targets=[f"put{component}"])

    async def take(self, count: int, op: str = "take") -> dict[bytes, list[float]]:
        fetches = [f"{op}:{i}" for i in range(4)]
        indices, keys, *values = await self.session.run(fetches, {"n": np.int32(count)})
        self.indices = indices
        return dict(zip(keys.tolist(), np.transpose(values).tolist(), strict=True))

    async def sizes(self) -> list[int]:
        return [int(n) for n in await self.session.run(["ready:0", "incomplete:0"])]

    async def do(self, target: str) -> None:
        await self.session.run([], targets=[target])


async def test_tuples_are_assembled_by_key() -> None:
    """Complete ones come out in the order of their first insertion."""
    async with aexec.Session(_barrier()) as session:
        b = Client(session)
        await b.put(0, a=1, b=2)
        await b.put(0, c=3)
        assert await b.sizes() == [0, 3]
        await b.put(1, c=30, a=10)
        assert await b.sizes() == [2, 1]
        assert list((await b.take(2)).items()) == [(b"a", [1, 10]), (b"c", [3, 30])]
        assert b.indices.tolist() == [-(2**63), -(2**63) + 1]
        await b.put(0, a=5)
        assert await b.sizes() == [0, 2]
        assert await b.take(0) == {}


async def test_taking_waits() -> None:
    """Until there are enough; a cancelled one has taken nothing, and closing ends those that wait in vain."""
    async with aexec.Session(_barrier()) as session:
        b = Client(session)
        await b.put(0, a=1, b=2, c=3)
        first = asyncio.ensure_future(b.take(2))
        await b.put(1, a=1)
        assert not first.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(b.take(2))
        await b.do("close")
        await b.put(1, b=2)
        assert await second == {b"a": [1, 1], b"b": [2, 2]}
        third = asyncio.ensure_future(b.take(1))
        await b.sizes()
        await b.do("cancel")
        with pytest.raises(errors.OutOfRangeError, match=r"insufficient elements \(requested 1, total size 0\)"):
            await third


async def test_closing() -> None:
    """New keys are refused, tuples may be completed; fewer than asked for may be taken if so wanted."""
    async with aexec.Session(_barrier(shared_name=b"x")) as session:
        b = Client(session)
        await b.put(0, a=1)
        await b.do("close")
        with pytest.raises(
            errors.CancelledError, match=r"Barrier x is closed, but attempted to insert a brand new key: z"
        ):
            await b.put(0, z=1)
        await b.put(1, a=2)
        with pytest.raises(errors.OutOfRangeError, match=r"'x' is closed .* \(requested 2, total size 1\)"):
            await b.take(2)
        assert await b.take(2, "take_small") == {b"a": [1, 2]}
        with pytest.raises(errors.OutOfRangeError, match=r"\(requested 0, total size 0\)"):
            await b.take(2, "take_small")
        with pytest.raises(errors.CancelledError, match=r"Barrier 'x' is already closed\."):
            await b.do("close")
        await b.do("cancel")
        with pytest.raises(errors.CancelledError, match="already closed"):
            await b.do("cancel")


async def test_dropping_incomplete_tuples() -> None:
    async with aexec.Session(_barrier()) as session:
        b = Client(session)
        await b.put(0, a=1)
        await b.do("cancel")
        assert await b.sizes() == [0, 0]
        with pytest.raises(errors.CancelledError, match="Pending enqueues cancelled: 1"):
            await b.put(1, a=1)


async def test_insertion_errors() -> None:
    """Nothing is inserted when something is wrong."""
    async with aexec.Session(_barrier(shared_name=b"x")) as session:
        b = Client(session)
        await b.put(0, a=1)
        with pytest.raises(errors.InvalidArgumentError, match="Key a already has a value for component 0 in barrier x"):
            await b.put(0, new=1, a=2)
        feeds = {"keys": np.array([b"k", b"k"], object), "values": np.ones(2, np.float32)}
        with pytest.raises(errors.InvalidArgumentError, match="already has a value"):
            await session.run([], feeds, targets=["put0"])
        for component in (-1, 2):
            with pytest.raises(errors.InvalidArgumentError, match="component ID is out of range"):
                await b.put(component, k=1)
        for keys, values in ((["k"], [1, 2]), (["k"], [[1]]), ([["k"]], [1])):
            feeds = {"keys": np.array(keys, "S").astype(object), "values": np.array(values, np.float32)}
            with pytest.raises(errors.InvalidArgumentError, match=r"Shape mismatch|must be a vector"):
                await session.run([], feeds, targets=["put0"])
        assert await b.sizes() == [0, 1]


async def test_taking_errors() -> None:
    async with aexec.Session(_barrier()) as session:
        b = Client(session)
        with pytest.raises(errors.InvalidArgumentError, match="must not be negative"):
            await b.take(-1)
        with pytest.raises(errors.InvalidArgumentError, match="Timeout not supported yet"):
            await b.take(1, "take_timed")
        with pytest.raises(errors.InvalidArgumentError, match="Signature mismatch"):
            await session.run("take_other:0", {"n": np.int32(1)})
        with pytest.raises(errors.InvalidArgumentError, match="num_elements must be a scalar"):
            await session.run("take:0", {"n": np.array([1, 2], np.int32)})


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"capacity": 3}, "Barrier only accepts capacity=-1"),
        ({"shapes": []}, "All of the component shapes must be specified"),
        ({"shapes": [PartialTensorShape([None]), PartialTensorShape([])]}, r"Shape \[\?\] is not fully defined"),
    ],
)
async def test_barriers_that_cannot_be(attrs: dict[str, Any], words: str) -> None:
    async with aexec.Session(_barrier(**attrs)) as session:
        with pytest.raises(errors.InvalidArgumentError, match=words):
            await session.run("ready:0")


async def test_shared_barriers_must_agree() -> None:
    """Two nodes that name one barrier must want the same components."""
    g = GraphBuilder()
    for name, types, shapes in (("p", PAIR, SCALARS), ("q", [float32, int32], SCALARS), ("r", PAIR, SCALARS[:1] * 2)):
        shapes = [PartialTensorShape([2]), SCALARS[0]] if name == "r" else shapes
        g(name, "Barrier", component_types=types, shapes=shapes, shared_name=b"x")
        g(f"{name}_size", "BarrierReadySize", name)
    async with aexec.Session(g.graph()) as session:
        assert await session.run("p_size:0") == 0
        with pytest.raises(errors.InvalidArgumentError, match="Shared barrier 'x' has component types"):
            await session.run("q_size:0")
        with pytest.raises(errors.InvalidArgumentError, match="Shared barrier 'x' has component shapes"):
            await session.run("r_size:0")


def test_registered_for_tensorflows_types() -> None:
    ops = ops_of("data_flow.barrier_ops")
    assert len(ops) == 6
    for op in ops:
        assert registered(op) == in_tensorflow(op), op


async def test_fed_arrays_may_be_written_to_afterwards() -> None:
    keys, values = np.array([b"a"], object), np.array([1.0], np.float32)
    async with aexec.Session(_barrier()) as session:
        for component in (0, 1):
            await session.run([], {"keys": keys, "values": values}, targets=[f"put{component}"])
        values[0] = 7
        assert await Client(session).take(1) == {b"a": [1, 1]}


async def test_very_many_keys() -> None:
    """As many as would take minutes if each were compared with all others."""
    keys, values = np.array([b"%d" % i for i in range(50_000)], object), np.arange(50_000, dtype=np.float32)
    async with aexec.Session(_barrier()) as session:
        for component in (0, 1):
            await session.run([], {"keys": keys, "values": values}, targets=[f"put{component}"])
        _, taken, first, second = await session.run([f"take:{i}" for i in range(4)], {"n": np.int32(50_000)})
        assert (taken == keys).all() and (first == values).all() and (second == values).all()


async def test_loop_waits_for_no_insertion_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, values = np.array([b"%d" % i for i in range(20_000)], object), np.arange(20_000, dtype=np.float32)
    entered, leave = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        leave.wait()

    async with aexec.Session(_barrier()) as session:
        client = Client(session)
        for component in (0, 1):
            await client.put(component, a=1, b=2)
        await session.run([], {"keys": keys, "values": values}, targets=["put0"])
        monkeypatch.setattr(barrier, "let_others_run", wait)
        inserting = session.start([], {"keys": keys, "values": values}, targets=["put1"])
        await asyncio.to_thread(entered.wait)
        # What is ready can be taken; what is being completed comes at once or not at all.
        assert await client.take(1) == {b"a": [1, 1]}
        assert await client.sizes() == [1, 20_000]
        rest = asyncio.create_task(client.take(20_001))
        # Other insertions, and closing, are put off.
        other, closing = asyncio.create_task(client.put(0, c=3)), asyncio.create_task(client.do("close"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not (rest.done() or other.done() or closing.done())
        monkeypatch.undo()
        leave.set()
        await asyncio.gather(inserting, closing)
        assert (await rest)[b"19999"] == [19999, 19999]
        # Which of the two that were put off comes first is not said.
        (refused,) = await asyncio.gather(other, return_exceptions=True)
        assert refused is None or isinstance(refused, errors.CancelledError)
        assert await client.sizes() == [0, 1 if refused is None else 0]


async def test_tuples_come_in_the_order_of_their_first_components_however_they_are_completed() -> None:
    many = [f"k{i}" for i in range(40)]
    async with aexec.Session(_barrier()) as session:
        client = Client(session)
        for key in many:
            await client.put(0, **{key: 0})
        await client.put(1, **dict.fromkeys(many[30:], 1))
        await client.put(1, **dict.fromkeys(many[5:25], 1))
        await client.put(1, **{many[0]: 1, many[27]: 1})
        assert list(await client.take(2)) == [b"k0", b"k5"]
        await client.put(1, **dict.fromkeys(many[1:5], 1))
        assert list(await client.take(4)) == [b"k1", b"k2", b"k3", b"k4"]
        assert list(await client.take(30)) == [key.encode() for key in [*many[6:25], many[27], *many[30:]]]


async def test_elements_taken_by_a_cancelled_step_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, values = np.array([b"%d" % i for i in range(20_000)], object), np.arange(20_000, dtype=np.float32)
    entered, leave = threading.Event(), threading.Event()

    def wait(*_: Any) -> None:
        entered.set()
        leave.wait()

    monkeypatch.setattr(barrier_ops, "_columns", wait)
    async with aexec.Session(_barrier()) as session:
        for component in (0, 1):
            await session.run([], {"keys": keys, "values": values}, targets=[f"put{component}"])
        step = session.start("take:0", {"n": np.int32(20_000)})
        await asyncio.to_thread(entered.wait)
        assert await Client(session).sizes() == [0, 0]
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        assert await Client(session).sizes() == [20_000, 0]
        leave.set()


async def test_key_twice_in_a_closed_barrier() -> None:
    async with aexec.Session(_barrier()) as session:
        client = Client(session)
        await client.put(0, a=1)
        await session.run([], targets=["close"])
        feeds = {"keys": np.array([b"a", b"a"], object), "values": np.zeros(2, np.float32)}
        with pytest.raises(errors.InvalidArgumentError, match="Key a already has a value"):
            await session.run([], feeds, targets=["put1"])


async def test_impossible_shape_of_a_batch_is_refused() -> None:
    shapes = [PartialTensorShape([]), PartialTensorShape([2**62])]
    async with aexec.Session(_barrier(shapes=shapes)) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating a batch"):
            await Client(session).take(0)


class _Unwanted(CallInThread):
    """Whom nobody waits for any more when it asks for the third time."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = 0

    @property  # type: ignore[override]
    def abandoned(self) -> bool:
        self.asked += 1
        return self.asked == 3


def test_insertion_that_nobody_waits_for_any_more_inserts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "_AT_ONCE", 10)
    made = barrier.Barrier("b", PAIR, [(), ()])
    keys = [b"%d" % i for i in range(10)]
    made.insert(keys, np.zeros(10, np.float32), 0)
    more = [*keys, *[b"more%d" % i for i in range(20)]]
    with _Unwanted().running(), pytest.raises(AbandonedError):
        made.insert(more, np.zeros(30, np.float32), 1)
    assert (made.incomplete_size, made.ready_size) == (10, 0)
    made.insert(more, np.zeros(30, np.float32), 1)
    assert (made.incomplete_size, made.ready_size) == (20, 10)


def test_tuples_of_a_barrier_count_for_its_session() -> None:
    account = MemoryAccount("session", "session_bytes", 10 << 20)
    made = barrier.Barrier("b", PAIR, [(), ()])
    made.kept = KeptMemory(account)
    made.insert([b"%d" % i for i in range(5000)], np.zeros(5000, np.float32), 0)
    assert account.in_use > 5000 * 300
    with pytest.raises(errors.ResourceExhaustedError, match="session_bytes"):
        made.insert([b"k%d" % i for i in range(30_000)], np.zeros(30_000, np.float32), 0)
    assert made.incomplete_size == 5000
