"""`scripts/run-path`: how many files a warm run goes through, which is not to grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Files of a run, and changes from one to another: what a newcomer has to open, and to turn over.
MOST = {"embedded": (14, 24), "POST, direct": (37, 86), "POST, ordinary": (46, 142)}


def test_run_goes_through_no_more_files_than_it_did() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'server'}"}
    command = [sys.executable, str(ROOT / "scripts" / "run_path.py"), "--json"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    found = json.loads(printed.stdout)
    assert found.keys() == MOST.keys()
    for way, (files, changes) in MOST.items():
        assert found[way]["files"] <= files, way
        assert found[way]["changes"] <= changes, way
