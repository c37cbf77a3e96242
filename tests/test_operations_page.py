"""The commands of docs/operations.md for a new operator, in one shell, on a free port."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.examples import examples

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "operations.md"
MARK = "@@ end of an example"
STEPS = [example for example in examples(PAGE) if example.why_not == "run by tests/test_operations_page.py"]


def free_ports(count: int) -> list[str]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(one.getsockname()[1]) for one in taken]
    for one in taken:
        one.close()
    return ports


@pytest.mark.time_limit(600)
@pytest.mark.skipif(not all(map(shutil.which, ("bash", "curl", "openssl"))), reason="needs bash, curl and openssl")
def test_operator_gets_from_nothing_to_an_upgrade(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "aexec").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aexec "$@"\n')
    (tools / "aexec").chmod(0o755)
    folder = tmp_path / "folder"
    folder.mkdir()
    port, usual = free_ports(2)

    def here(text: str) -> str:
        return text.replace("8443", port).replace("8500", usual)

    # The first command has no settings of its own.
    first, *others = [f"{here(step.source)}\necho '{MARK}'" for step in STEPS]
    script = "\n".join(["set -eu", f"export AEXEC_SERVE_PORT={usual}", first, "unset AEXEC_SERVE_PORT", *others])
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'server'}",
    }
    done = subprocess.run(
        ["bash", "-c", f"trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    printed = done.stdout.split(f"{MARK}\n")
    assert len(printed) == len(STEPS) + 1 and "Traceback" not in logs
    for step, text in zip(STEPS, printed, strict=False):  # the last is what follows them
        told = text.replace(port, "8443").replace(usual, "8500")
        assert not (wrong := step.expected is not None and step.difference(told)), wrong


def test_each_command_of_the_first_section_is_run_or_says_why_not() -> None:
    section = PAGE.read_text("utf-8").partition("## From nothing to a server")[2].partition("\n## ")[0]
    notes = re.findall(r"^```sh(.*)$", section, re.M)
    assert notes.count(" not-run: run by tests/test_operations_page.py") == len(STEPS) == len(notes) - 1 >= 9
