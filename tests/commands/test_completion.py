"""Shells complete what the commands take."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from aexec import cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
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
