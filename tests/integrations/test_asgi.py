"""The helper for ASGI frameworks, by its channel alone and in a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.integrations import cancel_on_disconnect
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder


class Channel:
    """ASGI's `receive`: what was put in, in order."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self.cancelled = False

    async def receive(self) -> Mapping[str, Any]:
        try:
            return await self.messages.get()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


@pytest.fixture
def gate() -> gates.Gate:
    return gates.Gate()


@pytest.fixture
async def session(gate: gates.Gate) -> AsyncIterator[aexec.Session]:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [])
    g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
    async with aexec.Session(g.graph()) as opened:
        yield opened


@pytest.mark.parametrize("as_step", [False, True])
async def test_client_who_stays_gets_the_answer(session: aexec.Session, gate: gates.Gate, as_step: bool) -> None:
    channel = Channel()
    gate.open.set()
    work = (session.start if as_step else session.run)("y:0", {"x:0": 3})
    assert await cancel_on_disconnect(channel.receive, work) == 3
    assert channel.cancelled


@pytest.mark.parametrize("as_step", [False, True])
async def test_step_of_a_client_who_leaves_is_cancelled(
    session: aexec.Session, gate: gates.Gate, as_step: bool
) -> None:
    channel = Channel()
    work = (session.start if as_step else session.run)("y:0", {"x:0": 3})
    answering = asyncio.create_task(cancel_on_disconnect(channel.receive, work))
    await gate.entered.wait()
    channel.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    channel.messages.put_nowait({"type": "http.disconnect"})
    with pytest.raises(errors.CancelledError, match="has gone"):
        await answering
    assert gate.cancelled == 1
    assert not session.steps


async def test_cancelled_handler_cancels_its_run(session: aexec.Session, gate: gates.Gate) -> None:
    channel = Channel()
    answering = asyncio.create_task(cancel_on_disconnect(channel.receive, session.run("y:0", {"x:0": 3})))
    await gate.entered.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert (gate.cancelled, channel.cancelled, session.steps) == (1, True, ())


async def test_errors_are_passed_on(session: aexec.Session) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        await cancel_on_disconnect(Channel().receive, session.run("y:0", {"x:0": "text"}))

    async def broken() -> Mapping[str, Any]:
        raise OSError("no channel")

    with pytest.raises(OSError, match="no channel"):
        await cancel_on_disconnect(broken, session.run("y:0", {"x:0": 3}))
    assert not session.steps
