"""Types of the public interface, as type checkers see them: misspelt names are errors, results keep their types."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.time_limit(600)

ROOT = Path(__file__).parent.parent.parent
SNIPPETS = Path(__file__).parent / "snippets.py"
WRONG = {
    number for number, line in enumerate(SNIPPETS.read_text("utf-8").splitlines(), 1) if line.endswith("  # wrong")
}


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_mypy() -> None:
    """With the project's settings, so that mypy knows the package already where it has checked that."""
    printed = run(sys.executable, "-m", "mypy", str(SNIPPETS))
    found = {int(n): line for line in printed.splitlines() for n in re.findall(r"snippets\.py:(\d+): error", line)}
    assert set(found) == WRONG, printed


def test_pyright(tmp_path: Path) -> None:
    """basedpyright is pyright with its own copy of node, so that nothing is fetched when it runs."""
    pyright = shutil.which("basedpyright", path=str(Path(sys.executable).parent))
    if pyright is None:
        pytest.skip("basedpyright is not installed")
    settings = {"typeCheckingMode": "standard", "include": [str(SNIPPETS)], "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    printed = run(pyright, "--project", str(tmp_path), "--pythonpath", sys.executable, "--outputjson")
    errors = [d for d in json.loads(printed)["generalDiagnostics"] if d["severity"] == "error"]
    assert {d["range"]["start"]["line"] + 1 for d in errors} == WRONG, json.dumps(errors, indent=1)
