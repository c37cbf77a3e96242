"""`aexec token`: a token and its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from aexec_server import ServerConfig
from aexec_server.clients.callers import Caller, Quotas, Scope
from aexec_server.clients.token_source import TokenSource

from aexec import cli


def test_line_and_its_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["token", "alice", "--max-runs", "3", "--rate", "2.5"]) == 0
    printed = capsys.readouterr()
    token = printed.err.split()[-1]
    assert printed.out.count("\n") == 1 and token not in printed.out
    source = TokenSource(ServerConfig(tokens=printed.out))
    expected = Caller("alice", frozenset((Scope.RUN, Scope.MANAGE)), Quotas(runs=3))
    assert source.table.identify(f"Bearer {token}") == expected


def test_lines_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens.toml"
    tokens = []
    for name, scopes in (("alice", "run,manage"), ("root", "admin")):
        assert cli.main(["token", name, "--scopes", scopes, "--file", str(path)]) == 0
        tokens.append(capsys.readouterr().out.strip())
    source = TokenSource(ServerConfig(token_file=path))
    assert [source.table.identify(f"Bearer {token}").name for token in tokens] == ["alice", "root"]  # type: ignore[union-attr]
    assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o600
    written = path.read_text()
    assert cli.main(["token", "alice", "--file", str(path)]) == 13
    assert "has tokens of 'alice'" in capsys.readouterr().err and path.read_text() == written


@pytest.mark.parametrize(
    "arguments",
    [["a b"], ["a", "--scopes", "all"], ["a", "--rate", "-1"], ["a", "--burst", "2"], ['a"', "--rate", "1"]],
)
def test_wrong_ones(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["token", *arguments]) == 2
    assert "the token" in capsys.readouterr().err
