"""Queues, barriers, staging areas, accumulators and tables answer as TensorFlow does: see `scenarios/`.

Errors are of TensorFlow's code, and contain its words.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import errors
from tests.kernels.data_flow.scenarios import accumulators, barriers, checks, queues, staging, tables
from tests.kernels.data_flow.scenarios.scenario import Scenario
from tests.support.programs.graphs import GraphBuilder
from tests.support.virtual_clock import run_virtual

SCENARIOS: dict[str, Scenario] = {
    name: scenario
    for module in (queues, barriers, staging, accumulators, tables, checks)
    for name, scenario in module.SCENARIOS.items()
}
# Of each scenario the outcomes of its steps; where ours is another, {"tensorflow": outcome, "ours": outcome}.
ANSWERS: dict[str, list[Any]] = json.loads((Path(__file__).parent / "scenarios" / "answers.json").read_text())
_CRASHES = "TensorFlow reads beyond its arrays, or ends the process"
_UNCHECKED = "TensorFlow takes it, and goes on with what makes no sense"
_ALL_OR_NONE = "what fails has changed nothing"
# Why.
OTHERWISE = {
    "fifo: wrong arguments": _UNCHECKED,
    "shuffle: wrong arguments": _UNCHECKED,
    "priority: wrong arguments": _UNCHECKED,
    "PriorityQueueV2 without shapes": "TensorFlow's cannot be used",
    "priority: without shapes, wrong priorities": "TensorFlow's cannot be used",
    **dict.fromkeys(
        ["barrier: closing with too few", "barrier: closing, none", "barrier: cancelling ends what waits"],
        "ours names the barrier, TensorFlow's the queue in it",
    ),
    "barrier: new keys of a closed one": _ALL_OR_NONE,
    "barrier: wrong arguments": _UNCHECKED,
    "barrier that cannot be: unknown rank": _UNCHECKED,
    "stage: other types": "what a client asks for wrongly is no INTERNAL error",
    "stage: index below none": _CRASHES,
    **{
        f"{prefix}: {name}": why
        for prefix in ("Map", "OrderedMap")
        for name, why in {
            "parts put twice": "TensorFlow drops a tuple silently",
            "keys twice": "TensorFlow drops a tuple silently",
            "wrong indices": "what a client asks for wrongly is no INTERNAL error",
            "any with wrong indices": "what a client asks for wrongly is no INTERNAL error",
            "more indices than outputs": _CRASHES,
            "any beyond its indices": _CRASHES,
            "putting fewer than indices": _CRASHES,
            "putting with a vector of keys": _UNCHECKED,
            "putting other types": _UNCHECKED,
        }.items()
    },
    "ConditionalAccumulator: another type": _CRASHES,
    "ResourceConditionalAccumulator: another type": _CRASHES,
    **dict.fromkeys(
        [
            "shared ConditionalAccumulator: type",
            "shared ResourceConditionalAccumulator: type",
            "shared accumulator: kind",
            "shared table: tensors",
        ],
        _UNCHECKED,
    ),
    "HashTableV2: defaults": "TensorFlow takes the first default for every key",
    "MutableDenseHashTableV2: defaults": "TensorFlow takes the first default for every key",
    "HashTableV2: initialising with what does not fit": _ALL_OR_NONE,
    "HashTableV2: importing, exporting": "TensorFlow compares how many entries there are, not which",
    "HashTableV2: strings": "TensorFlow compares how many entries there are, not which",
    "MutableDenseHashTableV2: importing, exporting": "ours exports no empty buckets",
    "MutableDenseHashTableV2: removing": _UNCHECKED,
    "dense: reserved keys": "TensorFlow imports matrices alone",
}


async def _settled(task: asyncio.Task[Any]) -> bool:
    """Is it done, once nothing else can happen?  The virtual clock goes on only then."""
    done, _ = await asyncio.wait([task], timeout=60.0)
    return bool(done)


def _plain(value: Any) -> dict[str, Any]:
    array = np.asarray(value)
    values = [item.decode("latin-1") if isinstance(item, bytes) else item for item in array.ravel().tolist()]
    kind = "string" if array.dtype == object or array.dtype.kind == "S" else array.dtype.name
    return {"dtype": kind, "shape": list(array.shape), "values": values}


async def _outcome(session: aexec.Session, names: str, feeds: dict[str, Any]) -> Any:
    fetches = [name for name in names.split() if ":" in name]
    targets = [name for name in names.split() if ":" not in name]
    try:
        return [_plain(value) for value in await session.run(fetches, feeds, targets=targets)]
    except errors.OpError as error:
        # The numbers of resources without a name count what was made before.
        return {"code": error.code.name, "message": re.sub(r"'_\d+_", "'_#_", error.message)}


async def outcomes(scenario: Scenario) -> list[Any]:
    """What each step of a scenario comes to."""
    builder = GraphBuilder()
    scenario.build(builder)
    seen: list[Any] = []
    waiting: dict[str, asyncio.Task[Any]] = {}
    async with aexec.Session(builder.graph()) as session:
        for step in scenario.steps:
            names, feeds = step if isinstance(step, tuple) else (step, {})
            label = ""
            if names.startswith("&"):
                label, names = names[1:].split(" ", 1)
            if names.startswith(">"):
                task = waiting[names[1:].strip()]
            else:
                task = asyncio.ensure_future(_outcome(session, names, feeds))
            done = await _settled(task)
            if label or not done:
                waiting[label or f"step {len(seen)}"] = task
            seen.append("begun" if label else task.result() if done else "waits")
    await asyncio.gather(*waiting.values())
    return seen


def differs(got: Any, wanted: Any) -> bool:
    """Is an outcome another than the one wanted?  An error may say more."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        return bool(got["code"] != wanted["code"] or wanted["message"] not in got["message"])
    return bool(got != wanted)


def is_ours(answer: Any) -> bool:
    return isinstance(answer, dict) and "ours" in answer


@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_are_tensorflows(name: str) -> None:
    got = run_virtual(outcomes(SCENARIOS[name]))
    for number, (step, ours, answer) in enumerate(zip(SCENARIOS[name].steps, got, ANSWERS[name], strict=True)):
        wanted = answer["ours"] if is_ours(answer) else answer
        assert not differs(ours, wanted), f"step {number}, {step}: expected {wanted}, got {ours}"


def test_other_answers_have_a_reason() -> None:
    assert ANSWERS.keys() == SCENARIOS.keys()
    assert OTHERWISE.keys() == {name for name, answers in ANSWERS.items() if any(map(is_ours, answers))}
