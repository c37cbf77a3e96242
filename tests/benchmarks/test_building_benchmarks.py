"""The benchmark of building graphs builds what it says, in both libraries' words."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import aexec

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
benchmarks: Any = importlib.import_module("building_benchmarks")
sys.path.remove(SCRIPTS)


def test_operations_are_counted() -> None:
    builder = benchmarks.Aexec()
    with aexec.Graph() as graph:
        builder.operations(25)
        assert len(graph.nodes) == 25
    with aexec.Graph() as graph:
        y, weights = builder.network(4)
        made = len(graph.nodes)
        builder.gradients(y, weights)
        assert made == 4 * 3 + 4 + 2
        assert len(graph.nodes) >= made + 4 * 3


def test_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmarks.main(["--operations", "20", "--network", "12", "--repeats", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" s")[0].rpartition(" ")[0] for line in lines] == [
        "operations (20): aexec",
        "gradients (12): aexec",
    ]
