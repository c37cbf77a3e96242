"""What calls take of memory is known before they run: outputs, and what their kernels say that they need besides.

What is not said is at most some bytes an element, which NumPy's intermediate results and lists of Python's take, and
some megabytes, of blocks that do not grow.  For each op the call that took most, when they were all tried, is made each
time: `python -m tests.kernels.test_memory_of_calls` tries them all, and notes its number in `data/enlarged_calls.json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

import aexec
from aexec.framework import errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.runtime.interpreter.memory_accountant import EXACT_BELOW
from tests.support.programs.enlarged_calls import enlarged_calls
from tests.support.programs.extreme_calls import ExtremeCall, ops_to_run

ELEMENTS = 50_000
# Bytes per element of the inputs or of the outputs, whichever are more, and bytes whatever they are.
UNSAID = 32
SMALL = 4 << 20
# So many times of what a call takes it may reserve, and bytes more: of blocks that its thread keeps.
TOO_MUCH = 3.0
KEPT = {True: 64 << 20, False: SMALL}
GROUPS = 8
# Seconds after which a call that is tried is given up, and those of an op; and of the processor for one that is made
# each time.
LIMIT = 2.0
OF_AN_OP = 5.0
QUICK = 0.2
FILE = Path(__file__).absolute().parent / "data" / "enlarged_calls.json"


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is allocated is traced; some ops write files of names that they are given."""
    monkeypatch.chdir(tmp_path)
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


async def taken(call: ExtremeCall, limit: float | None = None) -> tuple[int, int, int]:
    """Bytes that a call took, and that were counted; elements of the inputs, or of the outputs if they are more.

    Raises OpError if it is refused.
    """
    config = aexec.SessionConfig(graph_passes=(), delegates=(), step_bytes=EXACT_BELOW - 1)
    metadata, options = aexec.RunMetadata(), aexec.RunOptions(timeout=limit)
    async with aexec.Session(aexec.Graph.from_graph_def(call.graph_def), config=config) as session:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        fetched = await session.run(call.fetches, call.feeds, targets=["y"], options=options, metadata=metadata)
        _, peak = tracemalloc.get_traced_memory()
    elements = max(sum(x.size for x in call.feeds.values()), sum(getattr(x, "size", 1) for x in fetched))
    return peak - before, metadata.peak_bytes or 0, elements


def what_is_wrong(call: ExtremeCall, took: int, counted: int, elements: int) -> str:
    unsaid = SMALL + UNSAID * elements
    figures = f"took {took}, counted {counted}, elements {elements}: {call}"
    if took > counted + unsaid:
        return f"{(took - counted) / elements:.0f} bytes an element were not said: {figures}"
    if counted > TOO_MUCH * took + KEPT["Conv" in call.op]:
        return f"much more was reserved: {figures}"
    return ""


async def all_calls(op: str) -> AsyncIterator[tuple[int, str, int, float]]:
    """Number of each call of an op that is not refused, what is wrong with it, bytes that it took, seconds."""
    began, known = time.monotonic(), False
    for number, call in enumerate(enlarged_calls(op, ELEMENTS)):
        if time.monotonic() - began > OF_AN_OP:
            return
        try:
            if not known:  # what it imports is not the call's
                await taken(call.graph(), LIMIT)
                known = True
            start = time.process_time()
            measured = await taken(call.graph(), LIMIT)
        except errors.OpError:
            continue
        yield number, what_is_wrong(call.graph(), *measured), measured[0], time.process_time() - start


@pytest.fixture(scope="module")
def chosen() -> dict[str, int]:
    """Of the ops that can be called so, the call that takes most, by its number."""
    kernel_registry.global_registry.load()
    numbers: dict[str, int] = json.loads(FILE.read_text())
    return numbers


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("group", range(GROUPS))
async def test_memory_of_recorded_calls_is_counted(chosen: dict[str, int], group: int) -> None:
    found = []
    for op in list(chosen)[group::GROUPS]:
        call = next(islice(enlarged_calls(op, ELEMENTS), chosen[op], None)).graph()
        found.append(what_is_wrong(call, *await taken(call)))
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.soak
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("group", range(GROUPS))
async def test_memory_of_generated_calls_is_counted(group: int) -> None:
    found = [wrong for op in ops_to_run()[group::GROUPS] async for _, wrong, _, _ in all_calls(op)]
    assert not any(found), "\n".join(filter(None, found))


async def choose(ops: Iterable[str]) -> dict[str, int]:
    """The number of the call of each op that takes most, of those that are quick."""
    numbers = {}
    for op in ops:
        calls = [(took, number) async for number, _, took, seconds in all_calls(op) if seconds < QUICK]
        if calls:
            numbers[op] = max(calls)[1]
    return numbers


if __name__ == "__main__":  # chooses anew, for some ops or for all
    tracemalloc.start(1)
    os.chdir(tempfile.mkdtemp())
    chosen_ops = sys.argv[1:] or ops_to_run()
    others = {op: number for op, number in json.loads(FILE.read_text()).items() if op not in chosen_ops}
    numbers = others | asyncio.run(choose(chosen_ops))
    FILE.write_text(json.dumps(numbers, indent=0, sort_keys=True) + "\n")
