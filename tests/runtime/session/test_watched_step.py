"""Steps that report their outputs as they are computed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder


async def test_outputs_come_before_the_end() -> None:
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g("early", "Square", "x", T=dtypes.float32)
    g("late", "TestGate", "x", key=gate.key, T=dtypes.float32)
    told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable(["late:0", "early:0"], ["x:0"])
        for _ in range(4):  # often enough that it would be compiled
            gate.entered.clear()
            gate.open.clear()
            step = call.prepare(3.0, on_output=lambda *output: told.put_nowait(output))
            step.launch()
            await gate.entered.wait()
            assert await told.get() == ("early:0", 9)
            gate.open.set()
            assert await step == [3, 9]
            assert told.get_nowait() == ("late:0", 3)
            assert told.empty()


async def test_dead_output_is_not_reported() -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g.const("no", False, dtypes.bool_)
    g("switch", "Switch", "x", "no", T=dtypes.float32)
    told: list[str] = []
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable(["switch:0", "switch:1"], ["x:0"])
        with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
            await call.prepare(1.0, on_output=lambda name, value: told.append(name))
    assert told == ["switch:0"]
