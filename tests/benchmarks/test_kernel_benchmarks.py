"""The kernel benchmark compares like with like: its NumPy expressions compute what the kernels do."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import build

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
CASES = [
    *importlib.import_module("kernel_cases").cases(),
    *importlib.import_module("kernel_array_cases").cases(),
]
Data: Any = importlib.import_module("kernel_cases").Data
sys.path.remove(SCRIPTS)

# Where NumPy's answer is as good as TensorFlow's, but another one.
DIFFERENT = {
    "AvgPool 3x3": "padding takes part in the mean",
    "FakeQuantWithMinMaxArgs": "zero is not moved onto a step",
    "MaxPoolWithArgmax": "positions within the window, not the image",
    "Svd": "the singular values come in the middle",
    "Unique": "in ascending order, not as they come",
    "UniqueWithCounts": "in ascending order, not as they come",
}


def plain(value: Any) -> list[Any]:
    """The outputs as vectors of complex128."""
    values = value if isinstance(value, tuple | list) else (value,)
    return [np.asarray(v).astype(np.complex128).ravel() for v in values]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_expression_computes_the_same(case: Any) -> None:
    built, arrays, _ = build(case.op, case.inputs(Data(400)), **case.attrs)
    with np.errstate(all="ignore"):
        ours, theirs = plain(built.compute(*arrays)), plain(case.numpy(*arrays))
    assert len(theirs) <= len(ours)  # batch normalisation has outputs for its gradient
    if case.name not in DIFFERENT:
        for a, b in zip(ours, theirs, strict=False):
            np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-2)


def test_names_tell_the_cases_apart() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert set(names) >= set(DIFFERENT)


def test_comparison_has_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    benchmarks: Any = importlib.import_module("kernel_benchmarks")
    found = list(benchmarks.kernel_comparisons("^Square$", repeats=1))
    assert [c.name for c in found] == ["Square, 1 k", "Square, 1 M"]
    assert all(c.kernel > 0 and c.numpy > 0 and c.ratio == c.kernel / c.numpy for c in found)
