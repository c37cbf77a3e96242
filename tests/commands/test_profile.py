"""`aexec profile`: the table, the data, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aexec
from aexec import cli
from aexec.framework.kernel_contract.node_estimate import EstimateState


@pytest.fixture
def model(tmp_path: Path) -> str:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        aexec.ops.softmax(aexec.ops.square(aexec.ops.square(x, name="first"), name="second"), name="y")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.to_bytes())
    return str(path)


FEED = ["--feed", "x:0=[1, 2, 3]", "--fetch", "y:0", "--runs", "3"]


def test_ops_with_their_calls_and_the_runs_own_times(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", model, *FEED, "--sort", "calls"]) == 0
    first, heading, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{model}: ")
    assert "ms a run (median of 3); traced " in first
    assert heading.split()[:3] == ["op", "nodes", "calls"]
    assert [line.split()[:3] for line in lines] == [["Square", "2", "2"], ["Softmax", "1", "1"], ["all", "3", "3"]]
    # On a busy machine a call may look as if it took long, and the next one is made in a thread.
    assert lines[0].split()[-2:] == ["24B", "inline"] or ("24B" in lines[0].split() and "thread" in lines[0])


def test_nodes_the_first_of_them(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", model, *FEED, "--by", "node", "--sort", "name", "--top", "1"]) == 0
    _, heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["node", "op", "nodes"]
    assert [line.split()[:2] for line in lines] == [["first", "Square"], ["2", "more"], ["all", "3"]]


def test_nodes_have_the_state_of_their_estimates(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", model, *FEED, "--by", "node", "--sort", "name"]) == 0
    _, heading, first, *_ = capsys.readouterr().out.splitlines()
    assert heading.split()[-1] == "estimate"
    begin = heading.index("estimate")
    assert first[begin:].split()[0] in {state.value.split()[0] for state in EstimateState}
    assert cli.main(["profile", model, *FEED, "--by", "node", "--sort", "name", "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)["entries"][0]
    assert (entry["estimate"]["name"], entry["estimate"]["op"]) == ("first", "Square")
    assert entry["estimate"]["scale"] > 0


def test_data(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", model, *FEED, "--json", "--sort", "name"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["by"], report["steps"]) == ("op", 3)
    assert report["run_seconds"] > 0
    assert report["traced_run_seconds"] > 0
    softmax, square = report["entries"]
    assert (softmax["name"], softmax["calls"], softmax["nodes"]) == ("Softmax", 3, 1)
    assert (square["name"], square["calls"], square["nodes"]) == ("Square", 6, 2)
    assert square["requested_bytes"] == 6 * 12
    assert sum(square["where"].values()) == 6 and square["where"].keys() <= {"inline", "thread"}


def test_profile_without_fetches_is_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", model]) == 2
    assert "nothing to do: name at least one --fetch" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--runs", "0"], ["--top", "-1"], ["--by", "scope"], ["--sort", "size"]])
def test_wrong_usage(model: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["profile", model, *FEED, *arguments])
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err
