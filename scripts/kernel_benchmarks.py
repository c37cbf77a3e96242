"""The group `kernels`: each kernel's time as a multiple of the plain NumPy expression's, at 1 k and 1 M elements.

Both are called in turns, so that both see the same machine.  The cases are in `kernel_cases.py`
and `kernel_array_cases.py`.
"""

from __future__ import annotations

import gc
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kernel_array_cases
import kernel_cases
from kernel_cases import Case, Data

from aexec.runtime.threads.worker_pool import limit_blas_threads
from tests.kernels.harness import build

__all__ = ["LIMIT", "SIZES", "Comparison", "kernel_comparisons"]

LIMIT = 3.0
SIZES = {"1 k": 1000, "1 M": 1_000_000}
# Approximate seconds of all calls of one side of a comparison, and number of repeats over which they are spread.
_SECONDS = 0.05
_REPEATS = 9


@dataclass(frozen=True, slots=True, order=True)
class Comparison:
    """The median of the ratios, and the median seconds of a kernel and of the NumPy expression."""

    ratio: float
    name: str
    kernel: float
    numpy: float


def kernel_comparisons(pattern: str = "", *, repeats: int = _REPEATS) -> Iterator[Comparison]:
    """Measure the cases whose name matches the regular expression, at every size.

    BLAS uses one thread, as in a session's workers: with more, each product would wait for cores that other processes
    use.
    """
    limit_blas_threads(1)
    for case in (*kernel_cases.cases(), *kernel_array_cases.cases()):
        if re.search(pattern, case.name):
            for size, n in SIZES.items():
                found = [_compare(case, f"{case.name}, {size}", Data(n), repeats)]
                if found[0].ratio > LIMIT:
                    # A single outlier may be other load on the machine.
                    found += [_compare(case, f"{case.name}, {size}", Data(n), repeats) for _ in range(4)]
                yield statistics.median_low(found)


def _compare(case: Case, name: str, data: Data, repeats: int) -> Comparison:
    built, arrays, _ = build(case.op, case.inputs(data), **case.attrs)
    # The executor passes 0-d values as NumPy scalars, and constants as they are.
    arguments = [a[()] if a.ndim == 0 else a for a in arrays]

    def kernel() -> Any:
        return built.compute(*arguments)

    def plain() -> Any:
        return case.numpy(*arguments)

    with np.errstate(all="ignore"):
        number = _number(plain)
        kernel()
        gc.disable()
        try:
            pairs = [(_seconds(kernel, number), _seconds(plain, number)) for _ in range(repeats)]
        finally:
            gc.enable()
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    return Comparison(ratio, name, statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs))


def _number(call: Callable[[], object]) -> int:
    """Return the number of calls that fill the time of one repeat."""
    call()
    return max(1, int(_SECONDS / _REPEATS / max(1e-7, _seconds(call, 1))))


def _seconds(call: Callable[[], object], number: int) -> float:
    began = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - began) / number


def main() -> None:
    """Print the comparisons of the cases that match the argument, a regular expression."""
    for c in kernel_comparisons(*sys.argv[1:2]):
        print(f"{c.ratio:6.2f}  {c.kernel * 1e6:10.1f} {c.numpy * 1e6:10.1f} us  {c.name}", flush=True)


if __name__ == "__main__":
    main()
