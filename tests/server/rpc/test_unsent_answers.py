"""Clients that do not take their answers: their connections are closed, and no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aexec_server.rpc import client_socket
from aexec_server.rpc.unsent_answers import UnsentAnswers

from aexec import proto
from aexec.framework import dtypes
from tests.server.rpc.conftest import RpcClient
from tests.server.rpc.slow_reader import UnreadCall, unread_call
from tests.server.rpc.test_master_service import MASTER, create
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

Serve = Callable[..., Awaitable[RpcClient]]
# Long enough that the server never looks by itself.
PATIENCE = 1000.0
SIZE = 2**20


@pytest.fixture
async def rpc(serve: Serve, unsent: list[UnsentAnswers]) -> RpcClient:
    return await serve(slow_seconds=PATIENCE, min_rate=100.0)


@pytest.fixture
def unsent(monkeypatch: pytest.MonkeyPatch) -> list[UnsentAnswers]:
    """The answers of the server that is made in the test."""
    made: list[UnsentAnswers] = []
    begin = UnsentAnswers.__init__

    def note(self: UnsentAnswers, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(UnsentAnswers, "__init__", note)
    return made


@asynccontextmanager
async def slow_call(rpc: RpcClient, size: int = SIZE) -> AsyncIterator[UnreadCall]:
    """Context manager: a call whose answer, with this many bytes, waits to be taken."""
    graph = GraphBuilder()
    graph.const("n", [size // 4], dtypes.int32)
    graph.const("v", 1.5, dtypes.float32)
    graph("ones", "Fill", "n", "v", T=dtypes.float32, index_type=dtypes.int32)
    run = proto.RunStepRequest(session_handle=await create(rpc, graph), fetch=["ones:0"])
    calls = rpc.server.metrics.calls
    before = calls.total
    async with unread_call(rpc.address, f"{MASTER}RunStep", run.SerializeToString()) as call:
        await until(lambda: calls.total == before + 1)
        yield call


@pytest.mark.parametrize("size", [SIZE, 64])
async def test_connection_of_a_client_that_takes_nothing_is_closed(
    rpc: RpcClient, unsent: list[UnsentAnswers], size: int
) -> None:
    (answers,) = unsent
    async with slow_call(rpc, size) as call:
        now = time.monotonic()
        await answers.look(now + 0.5 * PATIENCE)
        await answers.look(now + 1.5 * PATIENCE)
        assert not call.reader.at_eof() and answers._waiting
        await answers.look(now + 2.5 * PATIENCE)
        await call.reader.read()
        await until(lambda: not answers._waiting)
        assert answers.shares.in_use == 0
    handle = await create(rpc, GraphBuilder())
    assert handle  # on another connection


async def test_client_that_takes_enough_is_served_on(rpc: RpcClient, unsent: list[UnsentAnswers]) -> None:
    (answers,) = unsent
    async with slow_call(rpc) as call:
        now = time.monotonic()
        await answers.look(now + 1.5 * PATIENCE)
        (client,) = answers._taken
        before = answers._taken[client]
        if before is None:
            pytest.skip("this system does not tell what clients have taken")
        call.take(2**17)
        await call.reader.readexactly(2**17)
        while await asyncio.to_thread(taken_by, client) < before + 100 * PATIENCE:
            pass
        await answers.look(now + 2.5 * PATIENCE)
        await answers.look(now + 2.6 * PATIENCE)
        await call.reader.read()
        assert call.reader.at_eof()


def taken_by(client: tuple[str, int]) -> int:
    with client_socket.open_sockets([client]) as sockets:
        return client_socket.bytes_taken(sockets[client]) or 0


async def test_connection_of_a_trusted_proxy_stays(serve: Serve, unsent: list[UnsentAnswers]) -> None:
    rpc = await serve(slow_seconds=PATIENCE, trusted_proxies=["127.0.0.1"])
    (answers,) = unsent
    async with slow_call(rpc):
        now = time.monotonic()
        for times in (1.5, 2.5, 3.5):
            await answers.look(now + times * PATIENCE)
        assert answers._waiting


async def test_rate_counts_from_the_answer_where_the_system_tells_nothing(
    rpc: RpcClient, unsent: list[UnsentAnswers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aexec_server.rpc.unsent_answers.bytes_taken", lambda connected: None)
    (answers,) = unsent
    async with slow_call(rpc) as call:
        now = time.monotonic()
        for later in (PATIENCE + 1, 2 * PATIENCE + 1, SIZE / 100):
            await answers.look(now + later)
        assert answers._waiting
        await answers.look(now + PATIENCE + SIZE / 100 + 100)
        await call.reader.read()


async def test_server_looks_by_itself(serve: Serve) -> None:
    rpc = await serve(slow_seconds=0.05)
    async with slow_call(rpc) as call:
        await call.reader.read()
