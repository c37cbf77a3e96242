"""`scripts/gpu-check --stand-in` goes through all of its parts, and nothing is wrong but the speed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

ROOT = Path(__file__).parent.parent


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "gpu_check.py"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'server'}"},
        check=False,
    )


def test_every_part_runs(tmp_path: Path) -> None:
    kept = tmp_path / "gpu.md"
    done = check(
        "--stand-in", "--markdown", str(kept), *"suite calls signals kernels products copies cancel models".split()
    )
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout
    rows = re.findall(r"^\| (.+?) \|", done.stdout, re.MULTILINE)
    for what in (
        "device suite",
        "calls of kernels",
        "chain of 5 small",
        "4 products",
        "copies of",
        "cancel to end",
        "the step after it",
        "MobileNetV2",
        "event loop",
    ):
        assert any(what in row for row in rows), (what, rows)
    assert not kept.exists(), "figures of a stand-in are none"


def test_part_that_there_is_not_is_refused() -> None:
    done = check("--stand-in", "speed")
    assert done.returncode == 2
    assert "no part 'speed'; there are suite, calls, conformance" in done.stderr


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_missing_cupy_is_reported() -> None:
    done = check()
    assert done.returncode == 1
    assert "GPUs need CuPy: install aexec[cuda12] or aexec[cuda13]" in done.stderr


@pytest.mark.skipif(find_spec("cupy") is not None or which("nvidia-smi") is not None, reason="there may be a GPU")
def test_missing_gpu_is_reported_with_what_can_be_tried() -> None:
    done = subprocess.run([str(ROOT / "scripts" / "gpu-check")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No GPU: nvidia-smi finds none. scripts/gpu-check --stand-in tries everything but the GPU." in done.stderr
