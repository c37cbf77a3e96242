"""The order of reads and updates in a step is the same however the step is run, and is that of the rule."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.runtime.compiled import line_writer
from aexec.runtime.interpreter import node_runner
from aexec.runtime.planning import delegated
from aexec.runtime.plans import compilation_policy
from aexec.runtime.session import session_steps
from tests.distributed.clusters import cluster_session
from tests.support.programs.line_runs import Interruptions
from tests.support.programs.seeds import Seeds
from tests.support.programs.state_programs import DEVICES, PREDICATES, StateProgram
from tests.support.stand_ins.numpy_delegate import numpy_delegate
from tests.support.stand_ins.plain_executor import PlainExecution

RUNS = 3
FEEDS = ["x:0", *(f"{p}:0" for p in PREDICATES)]
SEVERAL = {"CPU": DEVICES}
INLINED = tuple(sorted(set(aexec.graph.passes.PASSES)))
NOT_INLINED = tuple(sorted(set(INLINED) - {"function_inlining"}))


def wanted(program: StateProgram) -> tuple[list[Any], bool]:
    """The expected results and final variables, and whether function calls contradict one another."""
    chances = random.Random(program.seed)
    state, found, contradicts = program.state, [], False
    for number in range(RUNS):
        answers = [program.answer(state, program.feeds(number), chances) for _ in range(2)]
        assert _plain(answers[0]) == _plain(answers[1]), "the model itself leaves something open"
        state, contradicts = answers[0].state, contradicts or answers[0].contradicts_calls
        found.append(_plain(answers[0]))
    return found, contradicts


def _plain(answer: Any) -> Any:
    return [value.tolist() for value in answer.values.values()], [value.tolist() for value in answer.state.values()]


async def given(program: StateProgram, opened: aexec.Session, runs: int = RUNS) -> list[Any]:
    await opened.run([], targets=program.initial)
    call = opened.make_callable(program.fetches, FEEDS, program.targets)
    found = []
    for number in range(runs):
        feeds = program.feeds(number)
        values = await call(*(feeds[name] for name in FEEDS))
        left = await opened.run(program.read_all)
        found.append(([np.asarray(v).tolist() for v in values], [np.asarray(v).tolist() for v in left]))
    return found


class Modes:
    """The ways in which a step can be run."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    async def check(self, seed: int, ways: Sequence[str]) -> None:
        """Raises AssertionError where one of these ways gives something else than the model."""
        program = StateProgram(seed)
        right, contradicts = wanted(program)
        passes = NOT_INLINED if contradicts else random.Random(seed).choice([INLINED, NOT_INLINED, ()])
        for way in ways:
            name, _, several = way.partition(" ")
            if name == "cluster":
                async with cluster_session(program.over_tasks().graph(), DEVICES) as (opened, _):
                    assert await given(program, opened) == right, f"seed {seed} in a cluster"
                continue
            g = program.placed() if several else program.g
            settings = {**self._settings(name), **({"device_count": SEVERAL} if several else {})}
            config = aexec.SessionConfig(graph_passes=passes, **settings)
            with self._patch.context() as patch:
                getattr(self, f"_{name}")(patch, seed)
                async with aexec.Session(g.graph(), config=config) as opened:
                    assert await given(program, opened) == right, f"seed {seed}, {way}, passes {passes}"

    @staticmethod
    def _settings(name: str) -> dict[str, Any]:
        return {
            "interpreted": {"compile_plans": False},
            "plain": {},
            "shuffled": {"executor_type": "SHUFFLED"},
            "compiled": {},
            "sliced": {"slice_seconds": 2e-5},
            "stretches": {},
            "delegated": {"delegates": ["numpy"], "compile_plans": False},
        }[name]

    def _interpreted(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        pass

    _shuffled = _delegated = _interpreted

    def _plain(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        patch.setattr(session_steps, "default_executor", lambda **_: PlainExecution)

    def _compiled(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        patch.setattr(compilation_policy, "COMPILE_AT", 1)
        patch.setattr(compilation_policy, "GIVE_UP_AT", 1 << 30)
        patch.setattr(compilation_policy, "OVERRUN", 1e9)

    def _sliced(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        """The interpreter takes over at random calls."""
        self._compiled(patch, seed)
        chances = random.Random(seed)
        patch.setattr(compilation_policy, "CHUNK", 4)
        patch.setattr(line_writer, "INTERRUPT", Interruptions(chances, chances.choice([0.02, 0.1, 0.3])).at_a_call)

    def _stretches(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        self._compiled(patch, seed)
        patch.setattr(compilation_policy, "GIVE_UP_AT", 1)
        patch.setattr(compilation_policy, "Trial", lambda: None)
        patch.setattr(node_runner, "correct_estimate", lambda *_: None)


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch, plans_compile: None) -> Iterator[Modes]:
    monkeypatch.setattr(delegated, "NAMED_HOPS", 0)
    with numpy_delegate():
        yield Modes(monkeypatch)


HERE = ["interpreted", "plain", "shuffled", "compiled", "sliced", "stretches", "delegated"]
OVER_DEVICES = ["interpreted over devices", "shuffled over devices", "compiled over devices"]
CASES = 300
BATCH = 30


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
async def test_reads_and_updates_follow_the_rule_in_every_way_of_running(first: int, modes: Modes) -> None:
    for seed in range(first, first + BATCH):
        ways = [HERE[seed % len(HERE)], OVER_DEVICES[seed % len(OVER_DEVICES)]]
        await modes.check(seed, [*ways, "cluster"] if seed % BATCH == 0 else ways)


@pytest.mark.soak
@pytest.mark.time_limit(4 * 3600)
async def test_ten_thousand_steps_give_what_the_rule_says(modes: Modes) -> None:
    seeds = Seeds(10_000)
    for seed in seeds:
        with seeds.trying(seed):
            await modes.check(seed, [*HERE, *OVER_DEVICES, "cluster"] if seed % 10 == 0 else [*HERE, *OVER_DEVICES])
    seeds.check()
