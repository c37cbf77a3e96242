"""`aexec doctor`: what it looks at, and what it finds wrong."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from aexec import cli
from aexec.commands import doctor_command


@pytest.fixture
def found(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs it; returns the exit status and what was found, by what was looked at."""

    def run(*arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
        status = cli.main(["doctor", "--json", "--port", "0", *arguments])
        told = json.loads(capsys.readouterr().out)
        assert told["ok"] == (status == 0)
        return status, {one["what"]: (one["state"], one["found"]) for one in told["findings"]}

    return run


def test_machine_on_which_the_tests_run_is_well(found: Any) -> None:
    status, all_ = found()
    assert status == 0, all_
    assert {"python", "aexec", "processors", "threads", "blas", "gpu", "temporary files", "port", "address"} <= set(
        all_
    )
    assert {"open files", "memory", "event loop"} <= set(all_)


def test_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--port", "0"]) == 0
    assert "ok       python: 3." in capsys.readouterr().out


def test_port_that_is_taken(found: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, all_ = found("--port", port, "--grpc-port", port)
    assert status == 1 and all_["port"][0] == all_["grpc_port"][0] == "error" and "in use" in all_["port"][1]


@pytest.mark.parametrize(
    ("arguments", "what", "words"),
    [
        (["--host", "0.0.0.0"], "address", "--token-file"),
        (["--token-file", "FOLDER/none"], "tokens", "cannot be read"),
        (["--tls-cert", "FOLDER/none", "--tls-key", "FOLDER/none"], "tls", "none"),
        (["--model", "m=FOLDER/none"], "model m", "No such file"),
        (["--graph", "g=FOLDER/none"], "graph g", "does not exist"),
        (["--model-repository", "FOLDER/none"], "model_repository", "does not exist"),
        (["--state", "FOLDER/none/store"], "state_path", "cannot be written"),
    ],
)
def test_settings_with_which_no_server_starts(
    found: Any, tmp_path: Path, arguments: list[str], what: str, words: str
) -> None:
    status, all_ = found(*(one.replace("FOLDER", str(tmp_path)) for one in arguments))
    assert status == 1 and all_[what][0] == "error" and words in all_[what][1], all_


def test_settings_that_exceed_the_machine(found: Any) -> None:
    status, all_ = found("--max-memory-mb", "1e12", "--max-connections", "100000000")
    assert status == 0
    assert all_["memory"][0] == all_["open files"][0] == "warning"


def test_setting_that_is_wrong_is_told_as_serve_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--port", "99999"]) == 2
    assert "--port: expected" in capsys.readouterr().err


def test_package_that_is_missing_or_too_old(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    required = [
        "numpy>=2.0,<3",
        "no-such-package>=1",
        "scipy>=99",
        'grpcio<2,>=1; extra == "grpc"',
        'x; extra == "none"',
    ]
    monkeypatch.setattr(doctor_command.metadata, "requires", lambda name: required)
    status, all_ = found()
    assert status == 1
    assert all_["package numpy"][0] == "ok"
    assert all_["package no-such-package"] == ("error", "is not installed; wanted >=1")
    assert all_["package scipy"][0] == "error" and all_["package scipy"][1].endswith("; wanted >=99")
    assert all_["extra none"] == ("ok", "not installed")


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    assert doctor_command._folder("f", str(tmp_path / "none"))[1] == "error"


def test_sources_that_are_not_installed(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    def requires(name: str) -> list[str]:
        raise doctor_command.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor_command.metadata, "requires", requires)
    status, all_ = found()
    assert status == 0 and all_["packages"][0] == "warning"


def test_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10))
    assert next(doctor_command._python())[1] == "error"
