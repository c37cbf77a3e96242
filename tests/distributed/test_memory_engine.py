"""Engines: a message is handled once, whatever the network does to it; an end that answers nothing is lost."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from aexec import errors
from aexec.distributed.cluster_messages import Message, error_fields, error_from
from aexec.distributed.memory_engine import CutOff, MemoryEngine, MemoryNetwork, NetworkCosts, NetworkFaults
from aexec.framework import dtypes
from aexec.framework.state.resource_manager import ResourceHandle
from tests.support.virtual_clock import run_virtual


async def _exchange(faults: NetworkFaults, count: int = 50) -> tuple[list[int], list[object]]:
    """Numbers as the other end handles them, and what the calls give."""
    handled: list[int] = []

    async def handle(sender: str, verb: str, message: Message) -> Message:
        handled.append(message.fields["number"])
        if verb == "fail":
            raise errors.NotFoundError("there is none")
        return Message({"twice": 2 * message.fields["number"]})

    network = MemoryNetwork(faults)
    MemoryEngine(network, "worker-0", handle)
    engine = MemoryEngine(network, "client-0", None)
    calls = [engine.call("worker-0", "double", Message({"number": number})) for number in range(count)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    for each in list(network.engines.values()):
        await each.close()
    return handled, [r if isinstance(r, BaseException) else r.fields["twice"] for r in results]


@pytest.mark.parametrize("faults", [{}, {"drop": 0.3}, {"double": 0.9}, {"delay": 0.15}, {"drop": 0.2, "delay": 0.1}])
def test_each_message_is_handled_once(faults: dict[str, float]) -> None:
    for seed in range(5):
        handled, results = run_virtual(_exchange(NetworkFaults(seed=seed, **faults)))  # type: ignore[arg-type]
        assert sorted(handled) == list(range(50))
        assert results == [2 * number for number in range(50)]


def test_worker_is_lost_after_a_long_cut_off_only() -> None:
    _, results = run_virtual(_exchange(NetworkFaults(partitions=[CutOff(1, 40, ["worker-0"])])))
    assert results == [2 * number for number in range(50)]
    handled, results = run_virtual(_exchange(NetworkFaults(partitions=[CutOff(1, 10_000, ["worker-0"])])))
    assert not handled and all(isinstance(result, errors.UnavailableError) for result in results)


def test_lost_worker_is_reported_once() -> None:
    async def main() -> None:
        network = MemoryNetwork(NetworkFaults(kill={1: "worker-0"}))
        MemoryEngine(network, "worker-0", None)
        engine, told = MemoryEngine(network, "client-0", None), []
        engine.on_lost(lambda address, why: told.append((address, why)))
        for _ in range(2):
            with pytest.raises(errors.UnavailableError, match="worker-0 is lost: its connection was closed"):
                await engine.call("worker-0", "ping", Message())
        engine.push("worker-0", "ping", Message())
        assert told == [("worker-0", "its connection was closed")]
        await engine.close()

    run_virtual(main())


def test_worker_heard_from_again_is_not_lost() -> None:
    async def main() -> None:
        heard: list[str] = []

        async def handle(sender: str, verb: str, message: Message) -> None:
            heard.append(f"{sender} {verb}")

        network = MemoryNetwork(NetworkFaults(partitions=[CutOff(1, 8, ["worker-0"])]))
        one, other = MemoryEngine(network, "worker-0", handle), MemoryEngine(network, "worker-1", handle)
        with pytest.raises(errors.UnavailableError, match="worker-1 is lost"):
            await one.call("worker-1", "ask", Message())
        one.push("worker-1", "dropped", Message())
        while network.sent < 8:
            other.push("worker-0", "too early", Message())
            await asyncio.sleep(0)
        await other.call("worker-0", "ask", Message())
        await one.call("worker-1", "answer", Message())
        assert heard[-2:] == ["worker-1 ask", "worker-0 answer"] and "worker-0 dropped" not in heard
        for each in (one, other):
            await each.close()

    run_virtual(main())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.zeros((0, 2), np.int64),
        np.asarray(3, dtypes.bfloat16.np),
        np.array([b"a", b""], object),
        np.asarray(np.arange(4)[::2]),
    ],
)
def test_tensors_come_as_they_went(array: np.ndarray) -> None:  # type: ignore[type-arg]
    message = Message()
    got = message.tensor(message.put_tensor(array))
    np.testing.assert_array_equal(got, array)
    assert got.dtype == array.dtype and not got.flags.writeable
    assert message.tensor(message.put_tensor(None)) is None


def test_handles_and_errors_come_as_they_went() -> None:
    message, handle = Message(), ResourceHandle("/cpu:0", "c", "n")
    assert message.tensor(message.put_tensor(handle)).item() == handle
    error = errors.OutOfRangeError("over", node="n", op="Op", derived=True)
    again = error_from(error_fields(error))
    assert type(again) is errors.OutOfRangeError and again.derived and str(again) == str(error)


def test_ends_work_on_one_message_at_a_time() -> None:
    async def main() -> list[float]:
        network = MemoryNetwork(lease=100.0, costs=NetworkCosts(message=0.01, byte=0.001, latency=0.1))

        async def answer(sender: str, verb: str, message: Message) -> Message:
            return Message({}, [b"12345"])

        client, _ = MemoryEngine(network, "client", None), MemoryEngine(network, "worker", answer)
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def call() -> float:
            await client.call("worker", "ask", Message())
            return loop.time() - began

        return list(await asyncio.gather(call(), call()))

    # Sent, on its way, got; and back, with five bytes, when the worker has got the other one, too.
    first = 0.01 + 0.1 + 0.01 + 0.01 + 0.015 + 0.1 + 0.015
    assert run_virtual(main()) == pytest.approx([first, first + 0.015], abs=1e-6)
