"""Runs the random graphs of `line_programs.py`, also with random interruptions, and collects their outcomes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import errors
from aexec.framework.waiting.inline_call import NeedsThreadError, PostponedError, on_event_loop
from aexec.runtime.compiled.line_calls import TakeOverError
from tests.support.programs import line_programs
from tests.support.programs.line_programs import LineProgram

__all__ = ["STARTS", "Interruptions", "Outcome", "batches", "outcome", "outcomes", "program_of"]

STARTS = [{"x:0": 1, "y:0": 2, "z:0": 3}, {"x:0": 0, "y:0": 0, "z:0": 5}, {"x:0": 10, "y:0": 997, "z:0": 1}]


class Interruptions:
    """Interrupts runs at random: makes the interpreter take over, or a kernel find that it cannot go on inline.

    Attributes:
        share: fraction of the calls that are interrupted.
    """

    def __init__(self, chances: random.Random, share: float = 0.0) -> None:
        self._chances = chances
        self.share = share

    def at_a_call(self) -> None:
        if self._chances.random() < self.share:
            raise TakeOverError("here")

    def in_a_kernel(self) -> None:
        if self._chances.random() < self.share and on_event_loop():
            if self._chances.random() < 0.5:
                raise NeedsThreadError("in a thread")
            raise PostponedError(lambda ready: ready())


@dataclass
class Outcome:
    """The outcome of a run."""

    values: list[Any] | None
    error: tuple[type, str, str | None, str | None] | None
    calls: Counter[Any]


async def outcome(call: aexec.SessionCallable, start: dict[str, Any]) -> Outcome:
    line_programs.TALLY.clear()
    try:
        values = await call(*start.values())
    except errors.OpError as error:
        # It is not defined which of the calls independent of a failing one were made.
        return Outcome(None, (type(error), str(error), error.node, error.op), Counter())
    return Outcome([np.asarray(value).tolist() for value in values], None, line_programs.TALLY.copy())


async def outcomes(program: LineProgram, runs: int, **config: Any) -> tuple[list[Outcome], str]:
    """Return the outcomes of runs from each start, and why they were not compiled, or ""."""
    graph = program.g.graph()
    async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=(), **config)) as session:
        call = session.make_callable(program.fetches, list(STARTS[0]), program.targets)
        found = [await outcome(call, start) for start in STARTS]
        assert call.plan is not None
        compilation = call.plan.compilation
        while compilation.busy:
            await asyncio.sleep(0)
        assert compilation.compiled or compilation.refused or config
        found += [await outcome(call, start) for _ in range(runs - 1) for start in STARTS]
        return found, compilation.refused


def batches(count: int, size: int, ordinary: int) -> list[Any]:
    """Return the first seeds of `count` batches of graphs, for `parametrize`; all but the first `ordinary` are marked
    as soaks.
    """
    marks = [() if number < ordinary else (pytest.mark.soak,) for number in range(count)]
    return [pytest.param(number * size, marks=marks[number]) for number in range(count)]


def program_of(number: int) -> LineProgram:
    return LineProgram(number, failing=number % 3 == 0)
