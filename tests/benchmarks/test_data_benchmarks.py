"""The benchmark of datasets: what it says of turns."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
data: Any = importlib.import_module("data_benchmarks")
sys.path.remove(SCRIPTS)


def test_row_has_the_medians_of_rates_and_the_most_memory() -> None:
    ours = [data.Turn(100, seconds, 0.002, 0.001, 2 << 20) for seconds in (1.0, 2.0, 4.0)]
    theirs = [data.Turn(100, 4.0, 0.004, 0.0, megabytes << 20) for megabytes in (7, 9, 8)]
    assert data.row("images", ours, theirs) == "| images | 50 | 25 | 2.00 | 20.0 / 40.0 | 2 / 9 | 1.0 |"


def test_another_environment_is_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TENSORFLOW_PYTHON", raising=False)
    with pytest.raises(SystemExit):
        data.main([])
    assert "TENSORFLOW_PYTHON" in capsys.readouterr().err
