"""`scripts/bench native`: every loop has a row, and is measured with it and without it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from aexec import native

SCRIPTS = str(Path(__file__).parents[2] / "scripts")


@pytest.mark.skipif(native.loops is None, reason="aexec was installed without a C compiler")
def test_calls_are_made_with_the_loops_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    benchmarks: Any = importlib.import_module("native_benchmarks")
    sys.modules.pop("native_benchmarks")
    loops, seen = native.loops, []
    monkeypatch.setattr(benchmarks, "cases", lambda: [("a call", lambda: seen.append(native.loops))])
    (figure,) = benchmarks.figures(2)
    assert figure.name == "a call" and figure.value >= 0 and figure.baseline >= 0
    assert seen == [loops, None, loops, None] and native.loops is loops
