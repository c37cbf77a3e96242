"""Shells complete what the commands take."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aexec import cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh", "fish"])
def test_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "trace-summary" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="asks bash")
def test_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    ask = 'COMP_WORDS=(aexec run --rep); COMP_CWORD=2; _shtab_aexec; printf "%s\\n" "${COMPREPLY[@]}"'
    script = f"{capsys.readouterr().out}\n{ask}\n"
    ended = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["--repeat"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="asks fish")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [("aexec comp", "completion"), ("aexec run --rep", "--repeat"), ("aexec serve --reuse", "--reuse-port")],
)
def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, wanted: str) -> None:
    assert cli.main(["completion", "fish"]) == 0
    (tmp_path / "aexec.fish").write_text(capsys.readouterr().out)
    ask = f"source {tmp_path}/aexec.fish; complete --do-complete '{line}'"
    ended = subprocess.run(
        ["fish", "--no-config", "-c", ask],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert [found.split("\t")[0] for found in ended.stdout.splitlines()] == [wanted]
