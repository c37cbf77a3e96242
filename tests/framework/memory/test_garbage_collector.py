"""When the collector looks at what: `heap_cases.py`, in a process that has little else in its heap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("heap_cases.py")


def test_heap_cases_pass_in_a_process_of_their_own() -> None:
    command = [sys.executable, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-q", CASES]
    process = subprocess.run(command, capture_output=True, text=True, cwd=CASES.parents[2])
    assert process.returncode == 0, process.stdout + process.stderr
    assert " passed" in process.stdout
