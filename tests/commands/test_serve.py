"""`aexec serve`: what it is given, and what is wrong with that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aexec_server
import pytest

import aexec
from aexec import cli


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations with which servers would have been started."""
    configs: list[Any] = []
    monkeypatch.setattr(aexec_server, "serve", lambda config, on_ready: configs.append(config))
    return configs


def test_models(served: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    with aexec.Graph() as graph:
        x, size = aexec.placeholder("float32", name="x"), aexec.placeholder("float32", name="s")
        aexec.ops.mul(x, size, name="y")
    path.write_bytes(graph.to_bytes())
    arguments = ["serve", "--model", f"m={path}", "--model", f"n={path}", "--model-versions", "2"]
    arguments += ["--model-inputs", "m:image=x:0,size=s", "--model-outputs", "m:label=y:0"]
    arguments += ["--batch", "m=8,2ms"]
    assert cli.main([*arguments, "--model-repository", str(tmp_path)]) == 0
    (config,) = served
    assert config.models["m"].inputs == {"image": "x:0", "size": "s:0"}
    assert config.models["m"].outputs == {"label": "y:0"} and config.models["m"].versions == 2
    assert (config.models["m"].batching.max_rows, config.models["m"].batching.max_delay) == (8, 0.002)
    assert config.models["n"].batching is None
    assert not config.models["n"].inputs and config.model_repository == str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--model", "m"], 2, "--model: expected NAME=PATH, got 'm'"),
        (["--graph", "m="], 2, "--graph: expected NAME=PATH, got 'm='"),
        (["--model", "m=PATH", "--model", "m=PATH"], 2, "the name m is given twice"),
        (["--model", "m=PATH/none"], 15, "none; No such file or directory"),
        (["--model", "m=PATH/model.keras"], 13, "model.keras is a Keras model"),
        (["--model", "m=PATH/text.pb"], 13, "Cannot parse GraphDef"),
        (["--model", "m=PATH"], 15, "has neither a saved_model.pb nor a folder whose name is a version's number"),
        (["--model-inputs", "m:x=x:0"], 2, "--model-inputs names model m, which no --model gives"),
        (["--model", "m=PATH", "--model-inputs", "m:x"], 2, "expected NAME:KEY=TENSOR,KEY=TENSOR"),
        (["--model", "m=PATH", "--model-inputs", "m:x=x:0"], 13, "A signature needs both inputs and outputs"),
        (["--model", "m=PATH/graph.pb", "--batch", "m=8"], 2, "expected NAME=ROWS,TIME"),
        (["--model", "m=PATH/graph.pb", "--batch", "m=0,2ms"], 2, "expected NAME=ROWS,TIME, of at least 1 row"),
        (["--batch", "m=8,2ms"], 2, "--batch names model m, which no --model gives"),
        (["--model", "m=PATH/graph.pb", "--batch", "m=8,2h"], 13, "waits for at most 60 s"),
        (["--model-repository", "PATH/none"], 15, "none; No such directory"),
        (["--graph", "m=PATH", "--model", "m=PATH/graph.pb"], 13, "'m' is the name of both a graph and a model"),
    ],
)
def test_refusals(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    for name in ("graph.pb", "model.keras"):
        (tmp_path / name).touch()
    (tmp_path / "text.pb").write_text("no graph")
    assert cli.main(["serve", *(a.replace("PATH", str(tmp_path)) for a in arguments)]) == status
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_line_at_the_start_tells_sessions_from_models_that_are_yet_to_be_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(aexec_server, "serve", lambda config, on_ready: on_ready("http://here"))
    (tmp_path / "graph.pb").touch()
    path = tmp_path / "graph.pb"
    assert cli.main(["serve", "--model", f"m={path}", "--graph", f"g={path}"]) == 0
    assert cli.main(["serve", "--model", f"m={path}"]) == 0
    first, where, second, _ = capsys.readouterr().out.splitlines()
    assert first == "aexec serves on http://here; models to load: m; sessions: g; Ctrl-C stops it"
    assert where == "Open http://here for the console, http://here/docs for the API"
    assert second == "aexec serves on http://here; models to load: m; sessions: none yet; Ctrl-C stops it"


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("http://0.0.0.0:8500", "http://localhost:8500"),
        ("https://[::]:8500", "https://localhost:8500"),
        ("http://10.0.0.0:8500", "http://10.0.0.0:8500"),
    ],
)
def test_page_is_one_that_a_browser_opens(address: str, page: str) -> None:
    assert cli._page_of(address) == page
