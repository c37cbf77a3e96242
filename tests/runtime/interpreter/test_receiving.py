"""Delivery of a value to a waiting Recv, from any thread, to an idle or a busy execution."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.device_contract.rendezvous import Received
from aexec.runtime.interpreter.receiving import Receiving

VALUE = Received(np.ones(2, np.float32))


class Execution:
    """Records how a value is delivered."""

    def __init__(self, *, idle: bool) -> None:
        self.environment: Any = SimpleNamespace(loop=asyncio.get_running_loop())
        self.idle = idle
        self.told: list[Any] = []

    def received(self, receiving: Receiving, outcome: Any) -> None:
        self.told.append(("at once", outcome))

    def receives(self, receiving: Receiving, outcome: Any) -> None:
        self.told.append(("in its turn", outcome))

    def wake(self) -> None:
        self.told.append("woken")


def receiving_of(execution: Execution) -> Receiving:
    node: Any = "node"
    iteration: Any = "iteration"
    made = Receiving(execution, node, iteration)
    assert made.started[:2] == (node, iteration)
    return made


async def test_idle_execution_receives_a_value_at_once() -> None:
    execution = Execution(idle=True)
    receiving_of(execution)(VALUE)
    assert execution.told == [("at once", VALUE), "woken"]


@pytest.mark.parametrize(("idle", "outcome"), [(False, VALUE), (True, errors.AbortedError("gone"))])
async def test_busy_execution_and_errors_wait_for_a_turn(idle: bool, outcome: Any) -> None:
    execution = Execution(idle=idle)
    receiving_of(execution)(outcome)
    assert execution.told == [("in its turn", outcome)]


async def test_value_from_another_thread_is_delivered_on_the_loop() -> None:
    execution = Execution(idle=True)
    receiving = receiving_of(execution)
    await asyncio.to_thread(receiving, VALUE)
    await asyncio.sleep(0)
    assert execution.told == [("at once", VALUE), "woken"]


def test_closed_loop_delivers_nothing() -> None:
    async def make() -> tuple[Execution, Receiving]:
        execution = Execution(idle=True)
        return execution, receiving_of(execution)

    execution, receiving = asyncio.run(make())
    receiving(VALUE)
    assert not execution.told
