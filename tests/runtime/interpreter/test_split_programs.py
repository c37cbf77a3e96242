"""Random loop programs whose nodes are scattered over devices give what they give on one.

The graphs are those of `tests/support/programs/line_programs.py`, interpreted.  Next to read:
`aexec/runtime/interpreter/shared_turn.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from tests.support.programs.line_runs import Outcome, batches, outcomes, program_of

KINDS = {
    "CPU": ({"CPU": 4}, ("/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3")),
    "SIM": ({"CPU": 2, "SIM": 3}, ("/cpu:0", "/cpu:1", "/device:SIM:0", "/device:SIM:1", "/device:SIM:2")),
}
# In these some device waits for a value of an iteration that another one never comes to.
WAIT_IN_VAIN = (3, 11, 18, 37, 41, 81, 83, 91, 98, 109, 111, 214, 232, 268, 296, 531)
# A loop goes on by its predicate, but all that would go round is dead: where the loop is driven by the predicate
# alone, its constants have been used once more.  So it is in TensorFlow.
GO_ON_WITH_CONSTANTS = {449, 670, 776, 1000}


async def check(numbers: Iterable[int], kind: str) -> None:
    count, places = KINDS[kind]
    for number in numbers:
        wanted, _ = await outcomes(program_of(number), 1, compile_plans=False)
        drawn = random.Random(number)
        program = program_of(number)
        for node in program.g.graph_def.node:
            node.device = drawn.choice(places)
        got, _ = await outcomes(program, 1, compile_plans=False, device_count=count, allow_soft_placement=True)
        if number in GO_ON_WITH_CONSTANTS:
            assert all(one.calls <= other.calls for one, other in zip(wanted, got, strict=True))
            wanted, got = ([Outcome(one.values, one.error, one.calls - one.calls) for one in o] for o in (wanted, got))
        assert got == wanted, number


@pytest.mark.parametrize("kind", KINDS)
async def test_programs_that_wait_in_vain(kind: str) -> None:
    await check(WAIT_IN_VAIN, kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_programs_whose_loops_go_on_with_constants(kind: str) -> None:
    await check(GO_ON_WITH_CONSTANTS, kind)


@pytest.mark.parametrize("first", batches(12, 100, ordinary=0))
@pytest.mark.parametrize("kind", KINDS)
async def test_random_programs_give_the_same_results_when_split(kind: str, first: int) -> None:
    await check(range(first, first + 100), kind)
