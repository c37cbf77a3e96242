"""The benchmark of memory: the table has medians and ratios, and a process reports by how much it grew."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
memory: Any = importlib.import_module("memory_benchmarks")
sys.path.remove(SCRIPTS)

PEAKS = {
    ("gan", "aexec"): [30.0, 10.0, 20.0],
    ("gan", "tensorflow"): [40.0, 80.0, 50.0],
    ("mobilenet-v2", "aexec"): [12.0],
}


def test_table_has_medians_and_ratios() -> None:
    headings, model, program = memory.rows(PEAKS, small=True)
    assert headings == ["model", "aexec, MiB", "TensorFlow, MiB", "aexec / TensorFlow"]
    assert model[1:] == ["12", "", ""]
    assert program == ["GAN 100–128–784, a step of each, batch 128: training", "20", "50", "0.40"]


def test_page_says_how_it_was_measured() -> None:
    page = memory.markdown(PEAKS, {"machine": "one"}, turns=3, small=True)
    assert page.startswith("# Memory of models and of training steps\n")
    assert "- machine: one\n- processes for each figure: 3\n" in page and page.endswith("| 20 | 50 | 0.40 |\n")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_process_reports_its_growth() -> None:
    peaks = memory.measure(["gan", "mobilenet-v2"], turns=1, small=True, threads=1)
    assert all(1 < peaks[name, "aexec"][0] < 500 for name in ("gan", "mobilenet-v2"))


def test_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        memory.main(["gam"])
    assert "no model 'gam'; there are mobilenet-v2" in capsys.readouterr().err
