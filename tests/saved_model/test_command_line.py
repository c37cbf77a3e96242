"""`aexec run` and `aexec inspect` of a directory with a SavedModel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec import cli

WORDS = 'words=[["the","fox"],["brown","unknown"]]'


def test_running_a_signature(models: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = str(models / "tf1_vocabulary")
    assert cli.main(["run", model, "--signature", "serving_default", "--feed", WORDS]) == 0
    printed = capsys.readouterr().out
    assert "ids  int64[2, 2]\n[[0 3]\n [2 4]]" in printed
    assert "sum  float32[2, 3]" in printed
    out = tmp_path / "out.npz"
    chosen = ["run", model, "--signature", "serving_default", "--fetch", "ids", "--feed", WORDS, "--out", str(out)]
    assert cli.main(chosen) == 0
    with np.load(out) as arrays:
        assert arrays["ids"].tolist() == [[0, 3], [2, 4]]
        assert list(arrays) == ["ids"]
    by_tensor = ["run", model, "--tags", "serve", "--fetch", "LookupTableFindV2", "--feed", 'words:0=[["fox"]]']
    assert cli.main(by_tensor) == 0
    assert "LookupTableFindV2:0  int64[1, 1]\n[[3]]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--signature", "other"], 15, "no signature 'other'; there are serving_default"),
        (["--signature", "serving_default", "--fetch", "x"], 15, "signature has no output 'x'; there are ids, sum"),
        (["--signature", "serving_default", "--feed", "x=1"], 13, "no input 'x'; there are words"),
        (["--signature", "serving_default"], 13, "input 'words' is not given"),
        (["--tags", "train,gpu", "--target", "x"], 15, "tags: { gpu train } in"),
        ([], 13, "input 'words' is not given"),
    ],
)
def test_wrong_arguments_are_refused(
    models: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, message: str
) -> None:
    assert cli.main(["run", str(models / "tf1_vocabulary"), *arguments]) == status
    assert message in capsys.readouterr().err


def test_graph_has_no_signatures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "g.pb").write_bytes(b"")
    assert cli.main(["run", str(tmp_path / "g.pb"), "--signature", "s"]) == 13
    assert "is no SavedModel and has no signatures" in capsys.readouterr().err
    assert cli.main(["run", str(tmp_path), "--fetch", "s"]) == 15
    assert "Could not find SavedModel" in capsys.readouterr().err


def test_newest_version_of_a_directory_of_versions_is_inspected(
    models: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number in ("2", "10", "9" * 30, "notes"):
        (tmp_path / number).mkdir()
    shutil.copytree(models / "tf1_vocabulary", tmp_path / "10" / "model.savedmodel")
    with aexec.Graph() as graph:
        aexec.constant(1.0, name="one")
    (tmp_path / "2" / "graph.pb").write_bytes(graph.to_bytes())
    assert cli.main(["inspect", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "signature serving_default" in printed.out and f"versions 2, 10: reading {tmp_path / '10'}" in printed.err
    shutil.rmtree(tmp_path / "10")
    assert cli.main(["run", str(tmp_path), "--fetch", "one"]) == 0
    assert "1." in capsys.readouterr().out
    (tmp_path / "2" / "graph.pb").unlink()
    assert cli.main(["inspect", str(tmp_path)]) == 15
    assert "Could not find SavedModel" in capsys.readouterr().err


def test_inspecting(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(models / "tf1_vocabulary")
    assert cli.main(["inspect", model]) == 0
    printed = capsys.readouterr().out
    for line in (
        "SavedModel for serve",
        "signature serving_default (tensorflow/serving/predict):",
        "  input words: words:0  string[?,?]",
        "  output sum: Sum:0  float",
        "  emb  float[5, 3]",
        "  Const:0  vocab.txt",
    ):
        assert line in printed
    assert cli.main(["inspect", model, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["saved_model"]
    assert report["init_op"] == "InitializeTableFromTextFileV2"
    assert list(report["variables"]) == ["emb"]
    assert report["incomplete"] is None


def test_inspecting_incomplete_model(models: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes((models / "tf1_vocabulary" / "saved_model.pb").read_bytes())
    assert cli.main(["inspect", str(folder)]) == 0
    assert "incomplete: " in capsys.readouterr().out
