"""What people at a terminal see, and programs do not."""

from __future__ import annotations

import io

import pytest

from aexec.commands.progress_bar import progress_bar
from aexec.commands.terminal import counted_progress, say_error


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_on_terminals_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    say_error("NOT_FOUND: [x]")
    assert capsys.readouterr().err == "aexec: NOT_FOUND: [x]\n"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    say_error("NOT_FOUND: [x]")
    assert terminal.getvalue() == "\x1b[1;31maexec:\x1b[0m NOT_FOUND: [x]\n"


def test_bar_tells_how_many_and_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar("running", 3) as advance:
        for _ in range(3):
            advance()
    assert "running" in terminal.getvalue() and "3/3" in terminal.getvalue()


def test_progress_is_not_shown_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with counted_progress("running", 3) as advance:
        advance()
    assert not capsys.readouterr().err
