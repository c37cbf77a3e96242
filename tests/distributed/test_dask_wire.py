"""What goes over Dask's connections: no pickle in either direction, whoever sends it; and no port of the client's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

import aexec
from aexec import errors
from aexec.distributed import worker_session
from aexec.distributed.cluster_messages import Message
from aexec.distributed.cluster_security import ClusterSecurity
from aexec.distributed.cluster_status import cluster_status
from aexec.framework import dtypes
from tests.distributed.clusters import chain, on
from tests.support import gates
from tests.support.waiting import until

distributed = pytest.importorskip("distributed")
dask_wire = pytest.importorskip("aexec.distributed.dask.dask_wire")
dask_engine = pytest.importorskip("aexec.distributed.dask.dask_engine")
dask_security = pytest.importorskip("aexec.distributed.dask.dask_security")
ends: Any = pytest.importorskip("tests.distributed.dask_ends")

F = dtypes.float32


class Evil:
    """Whoever unpickles one is caught."""

    unpickled = 0

    def __reduce__(self) -> Any:
        return _caught, ()


def _caught() -> str:
    Evil.unpickled += 1
    return "evil"


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The verbs of the messages that come to any end."""
    seen: set[str] = set()
    receive = dask_engine.DaskEngine.receive

    async def received(self: Any, envelope: Any) -> Message:
        seen.add(envelope[3])
        return await receive(self, envelope)  # type: ignore[no-any-return]

    monkeypatch.setattr(dask_engine.DaskEngine, "receive", received)
    return seen


@pytest.fixture
def no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask pickles nothing, and unpickles nothing, while the test runs."""

    def refused(*args: object, **options: object) -> Any:
        raise AssertionError("pickled")

    for name in ("dumps", "loads"):
        monkeypatch.setattr(distributed.protocol.pickle, name, refused)


def graph_of_all(key: int) -> aexec.Graph:
    g = chain(2)
    g.placeholder("y")
    g("gated", "TestGate", "n0", device=on(1), key=key, T=F)
    g("after", "Neg", "gated", device=on(0), T=F)
    g("sum", "AddV2", "n1", "y", device=on(0), T=F)
    g("fails", "TestFail", "n1", device=on(1), T=F)
    g.placeholder("s", dtypes.string)
    g("text", "Identity", "s", device=on(1), T=dtypes.string)
    return g.graph()


@pytest.mark.usefixtures("no_pickle")
async def test_messages_are_not_pickled(verbs: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps whose ends are answered and pushed, large values and strings, partial runs, errors, cancels, status."""
    monkeypatch.setattr(worker_session, "_HELD", 0.0)
    gate = gates.Gate()
    async with ends.dask_session(graph_of_all(gate.key), 2) as (session, _):
        x = np.arange(1 << 18, dtype=np.float32)
        np.testing.assert_array_equal(await session.run("n1:0", {"x:0": x}), x)
        assert await session.run("text:0", {"s:0": b"text"}) == b"text"
        step = session.start("after:0", {"x:0": 3.0})
        await gate.entered.wait()
        gate.open.set()
        assert await step == 3
        gate.open.clear()
        gate.entered.clear()
        step = session.start("after:0", {"x:0": 1.0})
        await gate.entered.wait()
        step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step
        setup = await session.partial_run_setup(["n1:0", "sum:0"], ["x:0", "y:0"])
        assert await session.partial_run(setup, "n1:0", {"x:0": 3.0}) == 3
        assert await session.partial_run(setup, "sum:0", {"y:0": 1.0}) == 4
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose"):
            await session.run("fails:0", {"x:0": 1.0})
        await session.reset()
        await session.recover()
        assert len((await cluster_status(session.engine))["workers"]) == 2
    assert verbs >= {
        *("open_session", "register_graph", "run_step", "recv_tensor", "step_ended", "step_value", "feed_step"),
        *("cancel_step", "reset", "update_tasks", "describe", "close_session"),
    }, verbs


async def test_client_listens_nowhere() -> None:
    """What it is told, it is told on connections that it has made."""
    async with ends.dask_worker() as worker:
        before = listening()
        async with ends.dask_client([worker]) as connection:
            await connection.engine.call(worker.address, "describe", Message())
            assert listening() == before
            assert worker.address in {f"tcp://127.0.0.1:{port}" for _, port in before}


def listening(process: int | None = None) -> set[tuple[str, int]]:
    """The addresses on which a process listens, this one by default."""
    found = psutil.Process(process).net_connections("inet")
    return {(each.laddr.ip, each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN}


async def test_closed_client_is_lost_to_its_workers() -> None:
    async with ends.dask_worker() as worker:
        lost: list[str] = []
        worker.aexec._engine.on_lost(lambda address, why: lost.append(address))
        async with ends.dask_client([worker]) as connection:
            await connection.engine.call(worker.address, "describe", Message())
        await until(lambda: lost)
        assert lost == ["client-test"]


async def test_closed_worker_is_lost_to_its_clients() -> None:
    lost: list[str] = []
    async with ends.dask_worker() as other, ends.dask_client([other]) as connection:
        connection.engine.on_lost(lambda address, why: lost.append(address))
        async with ends.dask_worker() as worker:
            await connection.engine.call(worker.address, "describe", Message())
        await until(lambda: lost)
        with pytest.raises(errors.UnavailableError, match=f"{worker.address} is lost: its connection was closed"):
            await connection.engine.call(worker.address, "describe", Message())
        assert lost == [worker.address]


# What is pickled nevertheless


async def test_pickled_push_is_refused() -> None:
    """It ends the line, and with that the worker is lost; nothing of it is unpickled."""
    async with ends.dask_worker() as worker, ends.dask_client([worker]) as connection:
        lost: list[str] = []
        connection.engine.on_lost(lambda address, why: lost.append(why))
        await connection.engine.call(worker.address, "describe", Message())
        (line,) = worker.aexec._engine._opened.values()
        await line._comm.write({"number": 1, "body": b"", "large": [distributed.protocol.Serialize(Evil())]})
        await until(lambda: lost)
        assert "serialized with pickle" in lost[0] and not Evil.unpickled


async def test_pickled_answer_is_refused() -> None:
    async def evil(comm: Any, body: object, large: object) -> Any:
        await comm.write({"body": distributed.protocol.Serialize(Evil()), "large": []})
        return distributed.core.Status.dont_reply

    async with ends.dask_worker() as worker, ends.dask_client([worker]) as connection:
        worker.handlers["aexec_deliver"] = evil
        with pytest.raises(errors.UnavailableError, match="serialized with pickle"):
            await connection.engine.call(worker.address, "describe", Message())
        assert not Evil.unpickled


@pytest.mark.parametrize(
    "sent",
    [
        {"body": {"a": 1}, "large": []},
        {"body": "text", "large": []},
        {"body": b"", "large": [{"code": "x"}]},
        {"body": b"", "large": 3},
        {"body": b"", "large": []},
        {"body": b"\x93\x01\x02\x03", "large": []},
        {"body": b"\x93\x90\x80\x91\xc0", "large": []},
        {"body": b"\x93\x90\x80\x90", "large": []},
        {},
        dask_wire.packed(5, Message({})),
    ],
)
async def test_invalid_message_is_refused_with_a_reason(sent: dict[str, Any]) -> None:
    """Such as an object that a peer had Dask unpickle on a worker's own port."""
    async with ends.dask_worker() as worker:
        answer = await worker.handlers["aexec_deliver"](**sent)
        _, message = dask_wire.unpacked(**answer)
        assert message.fields["error"]["code"] == errors.Code.INVALID_ARGUMENT


@pytest.mark.parametrize("size", [0, 10, (1 << 16) - 1, 1 << 16, 1 << 20])
def test_frames_come_as_they_were(size: int) -> None:
    frame = np.arange(size, dtype=np.uint8).data
    dumped = distributed.protocol.dumps(
        dask_wire.packed(["head", 1], Message({"a": [1, None, b"b"]}, [b"x", frame])), serializers=["aexec"]
    )
    head, message = dask_wire.unpacked(**distributed.protocol.loads(dumped, deserializers=["aexec"]))
    assert head == ["head", 1] and message.fields == {"a": [1, None, b"b"]}
    assert [bytes(each) for each in message.frames] == [b"x", bytes(frame)]


# Where TLS is required


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
@pytest.mark.parametrize("other", ["10.0.0.7:4000", "[fd00::7]:4000", "node:4000", "127.0.0.1@node:4000", "[::1:4000"])
def test_worker_elsewhere_needs_tls_too(scheme: str, other: str) -> None:
    """Though the scheduler was reached by a loopback address."""
    addresses = ["tcp://127.0.0.1:8786", "tcp://[::1]:3", f"{scheme}://{other}"]
    check: Callable[[], object] = lambda: dask_security.check_addresses(addresses, distributed.Security())  # noqa: E731
    if scheme == "tls":
        check()
    else:
        with pytest.raises(errors.FailedPreconditionError, match="not an address of this machine alone"):
            check()


async def test_cluster_elsewhere_is_refused_before_it_is_connected_to() -> None:
    with pytest.raises(errors.FailedPreconditionError, match="--cluster-ca"):
        await dask_engine.connect_to_dask("10.0.0.5:8786", ClusterSecurity(required=True))
    await asyncio.sleep(0)


async def test_scheduler_that_names_other_addresses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was reached by a loopback address; nobody else is connected to, or sent anything."""
    made: list[Any] = []

    class Client:
        connection_args: dict[str, Any] = {}  # noqa: RUF012
        closed = registered = False

        def __init__(self, *args: object, **options: object) -> None:
            made.append(self)
            self.scheduler = self

        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return self

        async def identity(self, n_workers: int) -> dict[str, Any]:
            return {"address": "tcp://192.168.1.2:8786", "workers": {}}

        async def register_plugin(self, plugin: object) -> None:
            self.registered = True

        async def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(distributed, "Client", Client)
    with pytest.raises(errors.FailedPreconditionError, match=r"tcp://192.168.1.2:8786 of the cluster"):
        await dask_engine.connect_to_dask("127.0.0.1:8786", ClusterSecurity(required=True))
    (client,) = made
    assert client.closed and not client.registered
    await (await dask_engine.connect_to_dask("127.0.0.1:8786")).close()
    assert made[1].registered, "a program may"
