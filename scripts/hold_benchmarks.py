"""The group `hold`, by kernel: how late a ticking task is while a worker thread runs the kernel on large inputs.

A kernel in a thread leaves the loop alone as long as it releases the interpreter's lock.  Here each heavy one
runs in a `WorkerPool`, and beside it the plain NumPy expression of the same result, while a task on the loop
wants to wake up every millisecond.  Whatever else uses the machine makes it late too, so only time counts in
which the worker ran, and of several repeats the one in which the task was least late: what a kernel does, it
does each time.  A kernel whose estimate keeps it on the loop makes the task as late as it takes.
Next to read: `kernel_cases.py` and `kernel_array_cases.py` (with NumPy expressions), `kernel_hold_cases.py`.

    scripts/bench hold                                  the table, sorted by lateness
    python scripts/hold_benchmarks.py 'Conv|MatMul'     some kernels
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kernel_array_cases
import kernel_cases
import kernel_hold_cases
from kernel_cases import Case, Data

from aexec.framework.waiting import loop_budget
from aexec.runtime.threads.worker_pool import WorkerPool, limit_blas_threads
from tests.kernels.harness import build
from tests.support.lateness import lateness

__all__ = ["ELEMENTS", "LIMIT_MS", "Held", "measure"]

ELEMENTS = 4_000_000
# Limit of the lateness of a task: the interpreter switches threads every 5 ms.
LIMIT_MS = 10.0
_REPEATS = 5


@dataclass(frozen=True, slots=True, order=True)
class Held:
    """The worst lateness of a task in ms, beside the kernel and beside the NumPy expression.

    `took` is how long the kernel ran.
    """

    late: float
    name: str
    took: float
    numpy: float | None


async def measure(pattern: str = "", *, elements: int = ELEMENTS, repeats: int = _REPEATS) -> list[Held]:
    """Return the cases whose name matches the regular expression, the latest first."""
    pool = WorkerPool(1, 1)
    try:
        await pool.run(limit_blas_threads, 1)
        held = [await _measure(pool, case, elements, repeats) for case in _cases() if re.search(pattern, case.name)]
    finally:
        await pool.close()
    return sorted(held, reverse=True)


def _cases() -> Iterator[Case]:
    for module in (kernel_cases, kernel_array_cases, kernel_hold_cases):
        yield from module.cases()


async def _measure(pool: WorkerPool, case: Case, elements: int, repeats: int) -> Held:
    built, arrays, _ = build(case.op, case.inputs(Data(elements)), **case.attrs)
    # The executor passes 0-d values as NumPy scalars, and constants as they are.
    arguments = [a[()] if a.ndim == 0 and a.dtype != object else a for a in arrays]
    estimate = built.cost(*arguments) if callable(built.cost) else built.cost * sum(a.size for a in arguments)

    def kernel() -> object:
        return built.compute(*arguments)

    if loop_budget.DEFAULT.allows(estimate):
        kernel()  # makes what it keeps
        took = min(_milliseconds(kernel) for _ in range(repeats))
        return Held(took, f"{case.name} (on the loop)", took, None)
    late, took = await _least_late(pool, kernel, repeats)
    numpy = case.numpy
    plain = None if numpy is None else (await _least_late(pool, lambda: numpy(*arguments), repeats))[0]
    return Held(late, case.name, took, plain)


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    with np.errstate(all="ignore"):
        call()
    return (time.perf_counter() - began) * 1e3


async def _least_late(pool: WorkerPool, call: Callable[[], object], repeats: int) -> tuple[float, float]:
    measured = [await lateness(pool, call) for _ in range(repeats)]
    return min(late for late, _ in measured) * 1e3, min(took for _, took in measured) * 1e3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="a regular expression found in the names of the cases")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="size of the inputs (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=_REPEATS, help="of which the best counts (default %(default)s)")
    arguments = parser.parse_args()
    table = asyncio.run(measure(arguments.pattern, elements=arguments.elements, repeats=arguments.repeats))
    print("late ms  NumPy ms   took ms  kernel")
    for held in table:
        plain = "" if held.numpy is None else f"{held.numpy:8.1f}"
        print(f"{held.late:7.1f}  {plain:8}  {held.took:8.1f}  {held.name}")


if __name__ == "__main__":
    main()
