"""The benchmark of the ways of running a node: each row compares a way with the same run without it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from aexec.runtime.session.session_steps import SessionSteps

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
ways: Any = importlib.import_module("way_benchmarks")
sys.path.remove(SCRIPTS)


async def test_short_lines_are_run_with_and_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "_TURN_SECONDS", 1e-4)
    begin_line = SessionSteps._begin_line
    gains = await ways.measure(1, small=True, ways=["at once"])
    assert {"empty run (a constant)", "chain of 1 on 4×4"} <= {gain.model for gain in gains}
    assert all(gain.wall > 0 and gain.processor > 0 for gain in gains)
    assert SessionSteps._begin_line is begin_line


async def test_turns_of_a_pair_change_their_order() -> None:
    order: list[str] = []

    def turn(name: str, seconds: float) -> Any:
        async def taken() -> tuple[float, float]:
            order.append(name)
            return seconds, 2 * seconds * seconds

        return taken

    assert await ways._compared(turn("with", 1.0), turn("without", 3.0), 3) == (1.0, 3.0, 3.0, 9.0)
    assert order == ["with", "without", "without", "with", "with", "without"]


def test_table_has_the_ratios_of_all_rounds() -> None:
    rounds = [
        [ways.Gain("at once", "a model", 0.001, 2.0, 2.2, 1.5), ways.Gain("direct", "POST", None, None, None, 3.0)],
        [ways.Gain("at once", "a model", 0.003, 4.0, 3.0, 2.5)],
    ]
    assert ways._markdown(rounds).splitlines()[2:] == [
        "| at once | a model | 2 | 2.00 / 4.00 | 2.20 / 3.00 | 1.50 / 2.50 |",
        "| direct | POST |  |  |  | 3.00 |",
    ]


def test_processor_time_counts_where_the_clock_does_not() -> None:
    assert ways.Gain("direct", "POST", None, None, None, 3.0).factor == 3.0
    assert ways.Gain("at once", "a model", 0.001, 2.0, 2.2, 1.5).factor == 2.0
