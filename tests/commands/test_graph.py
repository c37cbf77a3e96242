"""`aexec graph`: drawings of graphs in files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import aexec
from aexec import cli
from tests.test_sources import write_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    with aexec.Graph() as graph, aexec.name_scope("layer"):
        aexec.ops.square(aexec.placeholder("float32", [2], name="x"), name="y")
    (tmp_path / "model.pb").write_bytes(graph.to_bytes())
    return str(tmp_path / "model.pb")


def test_text_on_standard_output(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["graph", model]) == 0
    assert "y\\nSquare" in capsys.readouterr().out
    assert cli.main(["graph", model, "--depth", "0"]) == 0
    assert "layer\\n2 nodes" in capsys.readouterr().out
    assert cli.main(["graph", model, "--max-boxes", "1", "--out", "-"]) == 0
    assert "layer\\n2 nodes" in capsys.readouterr().out
    assert cli.main(["graph", model, "--scope", "layer"]) == 0
    assert "subgraph" not in capsys.readouterr().out


def test_saved_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["graph", str(write_model(tmp_path / "model"))]) == 0
    assert capsys.readouterr().out.startswith("digraph {")


def test_files(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "g.dot"
    assert cli.main(["graph", model, "--out", str(out)]) == 0
    assert out.read_text().startswith("digraph {") and not capsys.readouterr().out


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz' program dot")
def test_picture(model: str, tmp_path: Path) -> None:
    out = tmp_path / "g.svg"
    assert cli.main(["graph", model, "--out", str(out)]) == 0
    assert "</svg>" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--out", "g.txt"], 2, "--out g.txt: expected a name that ends in .svg, .png, .pdf, .html, .dot, .gv, or -"),
        (["--out", "none/g.svg"], 2, "--out none/g.svg: there is no folder none"),
        (["--scope", "none"], 13, "INVALID_ARGUMENT: no node lies in a name scope 'none'"),
    ],
)
def test_wrong_usage(
    model: str, arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["graph", model, *arguments]) == status
    assert message in capsys.readouterr().err


def test_missing_dot_program_is_named(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert cli.main(["graph", model, "--out", "g.svg"]) == 22
    assert "needs the program 'dot' of Graphviz" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main(["graph", model, "--depth", "-1"])
    assert ended.value.code == 2
