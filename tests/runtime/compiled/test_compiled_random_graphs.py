"""Random graphs as compiled plans: what comes out, what was called and what is raised are the interpreter's.

The graphs are those of `tests/support/programs/line_programs.py`.  The interpreter takes over where a random call says
so, and kernels find at random that they cannot go on inline.
"""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

import aexec
from aexec.runtime.compiled import line_writer
from tests.support.programs import line_programs
from tests.support.programs.line_runs import STARTS, Interruptions, batches, outcomes, program_of

pytestmark = pytest.mark.usefixtures("always_compiled")

GRAPHS = 25
# Of so many, on average, some have a loop in a loop of which a part runs once more than the rest.
MAY_BE_REFUSED = 10


@pytest.mark.parametrize("first", batches(8, GRAPHS, ordinary=3))
async def test_random_graphs_give_the_results_of_the_interpreter(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chances = random.Random(first)
    interruptions = Interruptions(chances)
    refused = 0
    for number in range(first, first + GRAPHS):
        monkeypatch.setattr(line_writer, "INTERRUPT", None)
        monkeypatch.setattr(line_programs, "BEFORE_CALL", [])
        wanted, _ = await outcomes(program_of(number), 1, compile_plans=False)
        got, reason = await outcomes(program_of(number), 2)
        assert got == wanted * 2, number
        refused += bool(reason)
        monkeypatch.setattr(line_writer, "INTERRUPT", interruptions.at_a_call)
        monkeypatch.setattr(line_programs, "BEFORE_CALL", [interruptions.in_a_kernel])
        interruptions.share = chances.choice([0.01, 0.05, 0.2])
        got, _ = await outcomes(program_of(number), 4)
        assert got == wanted * 4, number
    assert refused <= MAY_BE_REFUSED


async def test_steps_of_one_plan_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps share functions and estimates of kernels, but no values."""
    interruptions = Interruptions(random.Random(1), 0.02)
    for number in range(1, 20, 3):
        program = program_of(number)
        wanted, _ = await outcomes(program, 1, compile_plans=False)
        monkeypatch.setattr(line_writer, "INTERRUPT", interruptions.at_a_call)
        async with aexec.Session(program.g.graph(), config=aexec.SessionConfig(slice_seconds=2e-5)) as session:
            call = session.make_callable(program.fetches, list(STARTS[0]), program.targets)
            answers = await asyncio.gather(*(call(*start.values()) for _ in range(10) for start in STARTS))
            got = [[np.asarray(value).tolist() for value in values] for values in answers]
            assert got == [outcome.values for outcome in wanted] * 10
        monkeypatch.setattr(line_writer, "INTERRUPT", None)


async def test_extending_the_graph_between_runs() -> None:
    program = program_of(17)
    wanted, _ = await outcomes(program, 1, compile_plans=False)
    graph = program.g.graph()
    async with aexec.Session(graph) as session:
        for number in range(4):
            for start, expected in zip(STARTS, wanted, strict=True):
                values = await session.run(program.fetches, dict(start), program.targets)
                assert [np.asarray(value).tolist() for value in values] == expected.values
            with graph:
                more = aexec.ops.neg(graph.tensor(program.fetches[0]), name=f"more{number}")
            assert await session.run(more, dict(STARTS[0])) == -np.asarray(wanted[0].values[0])
