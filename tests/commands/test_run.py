"""`aexec run`: what it prints and writes, and how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aexec import cli
from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder
from tests.test_sources import write_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    """`y` is the square of a vector, `words` a pair of strings of which one is no text, `z` complex."""
    g = GraphBuilder()
    g.placeholder("x", shape=[None])
    g("y", "Square", "x", T=dtypes.float32)
    g.const("words", np.array([b"a", b"\xff"], object), dtypes.string)
    g.const("z", 1j, dtypes.complex64)
    path = tmp_path / "model.pb"
    path.write_bytes(g.graph().to_bytes())
    return str(path)


FEED = ["--feed", "x:0=[1, 2]"]


def test_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", model, *FEED, "--fetch", "y:0", "--fetch", "words", "--json", "--repeat", "3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["outputs"] == {"y:0": [1.0, 4.0], "words:0": ["a", {"b64": "/w=="}]}
    assert printed["dtypes"] == {"y:0": "float32", "words:0": "string"}
    assert printed["shapes"] == {"y:0": [2], "words:0": [2]}
    assert len(printed["seconds"]) == 3


def test_files(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, several in [("y.npy", []), ("y.npz", ["--fetch", "z"])]:
        assert cli.main(["run", model, *FEED, "--fetch", "y", *several, "--out", str(tmp_path / name)]) == 0
    assert np.load(tmp_path / "y.npy").tolist() == [1, 4]
    with np.load(tmp_path / "y.npz") as arrays:
        assert {name: arrays[name].tolist() for name in arrays} == {"y:0": [1, 4], "z:0": 1j}
    assert not capsys.readouterr().out


@pytest.mark.parametrize(("fetches", "read"), [(["y:0"], [1, 4]), (["y:0", "z:0"], {"y:0": [1, 4], "z:0": 1j})])
def test_standard_input_and_output(model: str, fetches: list[str], read: Any) -> None:
    command = [sys.executable, "-m", "aexec.cli", "run", "-", *FEED, "--out", "-"]
    for name in fetches:
        command += ["--fetch", name]
    ended = subprocess.run(command, input=Path(model).read_bytes(), capture_output=True, check=True)
    loaded = np.load(io.BytesIO(ended.stdout))
    assert (loaded.tolist() if len(fetches) == 1 else {name: loaded[name].tolist() for name in loaded}) == read


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do: name at least one --fetch or --target; outputs of"),
        (FEED, "nothing to do"),
        (["--feed", "x", "--fetch", "y"], "--feed 'x': expected TENSOR=VALUE"),
        (["--feed", "x=[1, 2", "--fetch", "y"], "--feed x: '[1, 2' is no JSON"),
        (["--feed", "x=[1, -1e400]", "--fetch", "y"], "--feed x: the number -1e400 does not fit a float64"),
        (
            ["--feed", "x=1,2", "--fetch", "y"],
            "--feed x: '1,2' is neither JSON, such as 3, [[1, 2], [3, 4]] or NaN, nor",
        ),
        (["--feed", "x:0=data.bin", "--fetch", "y"], "the name of an .npy file, and 'x:0' is float"),
        (["--feed", "x=1", "--feed", "x=2", "--fetch", "y"], "--feed x is given twice"),
        (["--fetch", "z", "--device-count", "CPU"], "--device-count 'CPU': expected TYPE=N, such as CPU=2"),
        ([*FEED, "--fetch", "y", "--json", "--out", "-"], "--out - and --json write to standard output"),
        ([*FEED, "--fetch", "y", "--trace", "-", "--out", "-"], "--out - and --trace - write to standard output"),
        (["--fetch", "y", "--out", "y.txt"], "--out y.txt: expected a name that ends in .npy or .npz, or -"),
        (["--fetch", "y", "--fetch", "z", "--out", "y.npy"], "an .npy file holds one value, and there are 2"),
        (["--fetch", "y", "--out", "nowhere/y.npy"], "--out nowhere/y.npy: there is no folder nowhere"),
        (["--fetch", "y", "--trace", "nowhere/t.json"], "--trace nowhere/t.json: there is no folder nowhere"),
    ],
)
def test_wrong_usage(model: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", model, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeat", "0"], "--repeat: expected a whole number of at least 1, got '0'"),
        (["--timeout", "2x"], "no duration"),
    ],
)
def test_options_of_no_meaning(
    model: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", model, *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["none.pb"], 15, "none.pb; No such file or directory"),
        (["none.pb", "--feed", "x=1"], 15, "none.pb; No such file or directory"),
        (["{model}/x", "--fetch", "y"], 15, "model.pb/x; Not a directory"),
        (["{folder}/cut.pb", "--fetch", "y"], 13, "cut.pb: Cannot parse GraphDef: 30 bytes are no such message"),
        (["{model}", "--fetch", "y", "--feed", "x=none.npy"], 15, "--feed x: none.npy; No such file or directory"),
        (["{model}", "--fetch", "y", "--feed", "x={model}/x.npy"], 15, "x.npy; Not a directory"),
        (["{model}", "--fetch", "y", "--feed", "x={folder}/empty.npy"], 13, "--feed x: cannot read"),
        (["{model}", "--fetch", "z", "--json"], 13, "--json cannot print z:0: JSON has no complex numbers; see --out"),
        (["{model}", "--fetch", "words", "--out", "{folder}/w.npy"], 13, "strings have no NumPy file form; see --json"),
    ],
)
def test_missing_or_malformed_files_are_refused(
    model: str, arguments: list[str], status: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.npy").touch()
    (tmp_path / "cut.pb").write_bytes(Path(model).read_bytes()[:30])
    given = [text.format(model=model, folder=tmp_path) for text in arguments]
    assert cli.main(["run", *given]) == status
    assert message in capsys.readouterr().err


def test_trace_on_standard_output_is_alone(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", model, *FEED, "--fetch", "y", "--trace", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["traceEvents"]


def test_run_and_trace_on_several_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = GraphBuilder()
    g.placeholder("x", shape=[None])
    g("y", "Square", "x", T=dtypes.float32, device="/device:SIM:0")
    g("z", "Neg", "y", T=dtypes.float32, device="/device:CPU:1")
    path, trace = tmp_path / "model.pb", tmp_path / "trace.json"
    path.write_bytes(g.graph().to_bytes())
    asked = ["--device-count", "CPU=2", "--device-count", "SIM=1"]
    assert cli.main(["run", str(path), *FEED, "--fetch", "z", *asked, "--trace", str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"z:0": [-1, -4]}
    assert cli.main(["trace-summary", str(trace)]) == 0
    assert "on 3 devices" in capsys.readouterr().out


def test_only_signature_for_callers_is_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those for whoever loads the model are none."""
    model = str(write_model(tmp_path / "model"))
    assert cli.main(["run", model, "--feed", "value=[1, 2]", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"twice": [2, 4]}
    assert cli.main(["run", model, "--feed", "value=[1, 2]", "--signature", "default"]) == 15
    assert "no signature 'default'; there are serving_default\n" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "profile", "trace-summary", "inspect", "graph", "ops", "devices", "token"])
def test_help_says_what_a_command_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    usage, what, *_ = said.split("\n\n")
    assert usage.startswith(f"usage: aexec {command}") and what.rstrip().endswith((".", ":", ","))
    assert "exit status: 0 success" in said and not any(line.endswith(" ") for line in said.splitlines())
