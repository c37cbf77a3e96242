"""The group `hold`, by what a program or a client does: how late a ticking task is meanwhile.

Beside each figure stands how long the work itself would hold the loop if it were done there at a stretch, in the
plainest way.  Time in which this process did not run is the machine's and does not count; of several repeats the
one counts in which the task was least late.  `docs/event-loop.md` says what is behind the figures.

    python scripts/loop_benchmarks.py           the table
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("server", "")]

from aexec_server.http import json_text

import aexec
from aexec.hosting import OnCancel, run_in_thread
from tests.support.programs.graphs import negations

__all__ = ["Held", "measure"]

_TICK = 1e-3
Work = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Held:
    """The worst lateness of a task in ms; and how long the work takes without interruption, if that can be measured."""

    name: str
    late: float
    plain: float | None


async def measure(*, quick: bool = False, repeats: int = 5) -> list[Held]:
    """Return all cases."""
    scale = 10 if quick else 1
    held = []
    async for name, work, plain in _cases(scale):
        late = min([await _lateness(work) for _ in range(2 if quick else repeats)])
        held.append(Held(name, late * 1e3, None if plain is None else min(_seconds(plain) for _ in range(3)) * 1e3))
    return held


async def _lateness(work: Work) -> float:
    """Return by how many seconds a task that wakes up every millisecond was late at worst."""
    worst, task = 0.0, asyncio.ensure_future(work())
    while not task.done():
        asked, ran = time.perf_counter(), time.process_time()
        await asyncio.sleep(_TICK)
        worst = max(worst, min(time.perf_counter() - asked - _TICK, time.process_time() - ran))
    await task
    return worst


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


async def _cases(scale: int) -> AsyncIterator[tuple[str, Work, Callable[[], object] | None]]:
    async with aexec.Session(_graph()) as session:
        numbers = np.random.default_rng(0).random(2_000_000 // scale).tolist()
        name = f"feed a list of {len(numbers):,} numbers"
        yield name, lambda: session.run("size:0", {"x:0": numbers}), lambda: np.asarray(numbers, np.float32)

        large = np.ones((100 << 20) // scale, np.uint8)
        yield f"put {large.nbytes >> 20} MiB under a handle", lambda: _put(session, large), large.copy

        keys = np.array([b"%d" % i for i in range(40_000 // scale)], object)
        feeds = {"keys:0": keys, "values:0": np.ones(len(keys), np.float32)}

        async def through_barrier() -> None:
            await session.run([], feeds, targets=["insert"])
            await session.run("take:1", {"count:0": len(keys)})

        yield f"{len(keys):,} keys into a barrier and out", through_barrier, None

    text = json.dumps(numbers[: len(numbers) // 10]).encode()
    name = f"read {len(text) >> 10:,} KiB of JSON"
    yield name, lambda: run_in_thread(json_text.loads, text, on_cancel=OnCancel.ABANDON), lambda: json.loads(text)
    array = np.asarray(numbers[: len(numbers) // 10])
    name = f"write {array.size:,} numbers as JSON"
    write: Work = lambda: run_in_thread(json_text.array_text, array, on_cancel=OnCancel.ABANDON)  # noqa: E731
    yield name, write, lambda: json.dumps(array.tolist())
    graph = negations(100_000 // scale)
    name = f"place, plan and run {len(graph):,} nodes"
    yield name, lambda: _first_run(graph), None


async def _put(session: aexec.Session, array: Any) -> None:
    session.tensors.delete(await session.tensors.put(array))


async def _first_run(graph: aexec.Graph) -> None:
    async with aexec.Session(graph) as session:
        await session.run("y:0", {"x:0": np.float32(1)})


def _graph() -> aexec.Graph:
    ops = aexec.ops
    with aexec.Graph() as graph:
        ops.size(aexec.placeholder("float32", None, name="x"), name="size")
        barrier = ops.barrier(component_types=["float32"], shapes=[[]], name="barrier")
        keys, values = aexec.placeholder("string", [None], name="keys"), aexec.placeholder("float32", name="values")
        ops.barrier_insert_many(barrier, keys, values, component_index=0, name="insert")
        count = aexec.placeholder("int32", [], name="count")
        ops.barrier_take_many(barrier, count, component_types=["float32"], name="take")
    return graph


def main() -> None:
    """Print the table."""
    print("late ms  at a stretch")
    for held in asyncio.run(measure()):
        plain = "" if held.plain is None else f"{held.plain:9.1f}"
        print(f"{held.late:7.1f}  {plain:12}  {held.name}")


if __name__ == "__main__":
    main()
