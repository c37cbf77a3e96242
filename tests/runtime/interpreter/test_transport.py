"""Partitions whose values travel through a socket: a transport that is plugged into the rendezvous."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.device_contract.rendezvous import Received, Rendezvous, create_key
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder, counting_loop
from tests.support.stand_ins.socket_transport import SocketTransport

F = dtypes.float32
TASK = "/job:localhost/replica:0/task:0/device:"
KEY = create_key(f"{TASK}CPU:0", 1, f"{TASK}CPU:1", "edge")


@pytest.fixture
async def transport() -> AsyncIterator[SocketTransport]:
    async with SocketTransport() as opened:
        yield opened


def config(transport: SocketTransport, **settings: Any) -> aexec.SessionConfig:
    return aexec.SessionConfig(
        device_count={"CPU": 2, "SIM": 2}, graph_passes=(), transport=transport, allow_soft_placement=True, **settings
    )


@pytest.mark.parametrize("there", ["CPU:1", "SIM:0"])
async def test_values_go_through_the_socket(transport: SocketTransport, there: str) -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "Neg", "x", device=f"/device:{there}", T=F)
    g("z", "Square", "y", T=F)
    x = np.arange(1000, dtype=np.float32)
    async with aexec.Session(g.graph(), config=config(transport)) as session:
        for _ in range(3):
            np.testing.assert_array_equal(await session.run("z:0", {"x:0": x}), x * x)
    assert len(transport.keys) == 6
    assert transport.num_bytes > 6 * x.nbytes


async def test_loops_and_branches_through_the_socket(transport: SocketTransport) -> None:
    g = counting_loop()
    for node in g.graph_def.node:
        node.device = "/cpu:1" if node.name in ("add", "less") else "/cpu:0"
    g.placeholder("p", dtypes.bool_)
    g("choice", "Switch", "n", "p", T=dtypes.int32)
    g("dead", "Identity", "choice:1", device="/cpu:1", T=dtypes.int32)
    g("chosen", "Merge", "dead", "choice", T=dtypes.int32, N=2)
    async with aexec.Session(g.graph(), config=config(transport)) as session:
        assert await session.run("result:0", {"n:0": 7}) == 7
        assert await session.run(["chosen:0", "chosen:1"], {"n:0": 7, "p:0": False}) == [7, 1]


async def test_errors_and_cancelling_beside_a_socket(transport: SocketTransport) -> None:
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("x")
    g("fails", "TestFail", "x", device="/cpu:1", T=F)
    g("after", "Neg", "fails", T=F)
    g("gated", "TestGate", "x", device="/cpu:1", key=gate.key, T=F)
    g("last", "Neg", "gated", T=F)
    async with aexec.Session(g.graph(), config=config(transport)) as session:
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose"):
            await session.run("after:0", {"x:0": 1.0})
        step = session.start("last:0", {"x:0": 1.0})
        await gate.entered.wait()
        step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step


class _Known:
    """A transport whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.closed = False

    def brings(self, key: str) -> bool:
        return key == KEY

    def receive(self, key: str, done: Any) -> None:
        self.asked[key] = done

    def close(self) -> None:
        self.closed = True


async def test_transported_values_are_apart_from_local_ones() -> None:
    rendezvous, transport, got = Rendezvous(), _Known(), []
    rendezvous.plug_in(transport)
    rendezvous.send(KEY, "sent here")
    assert rendezvous.recv_nowait(KEY) is None
    rendezvous.recv_async(KEY, got.append)
    assert not got
    transport.asked[KEY](Received("brought"))
    rendezvous.recv_local(KEY, got.append)
    assert [received.value for received in got] == ["brought", "sent here"]
    rendezvous.close()
    assert transport.closed


async def test_error_from_the_transport_ends_the_wait() -> None:
    rendezvous, transport, got = Rendezvous(), _Known(), []
    rendezvous.plug_in(transport)
    rendezvous.recv_async(KEY, got.append)
    transport.asked[KEY](errors.UnavailableError("the other side is gone"))
    assert isinstance(got[0], errors.UnavailableError)
    rendezvous.recv_async(KEY, got.append)
    rendezvous.start_abort(errors.AbortedError("over"))
    transport.asked[KEY](Received("too late"))
    assert isinstance(got[1], errors.AbortedError) and len(got) == 2
