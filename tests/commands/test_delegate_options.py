"""`--delegate` of the command line, and what `aexec inspect` says of regions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aexec_server
import pytest

import aexec
from aexec import cli
from tests.support.stand_ins.numpy_delegate import NumpyDelegate, numpy_delegate


@pytest.fixture(autouse=True)
def delegate() -> Iterator[NumpyDelegate]:
    with numpy_delegate() as made:
        yield made


@pytest.fixture
def model(tmp_path: Path) -> str:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        aexec.ops.neg(aexec.ops.exp(x), name="y")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.to_bytes())
    return str(path)


REQUEST = ["--feed", "x:0=[0, 0]", "--fetch", "y:0"]


@pytest.mark.parametrize(("options", "calls"), [([], 0), (["--delegate", "none"], 0), (["--delegate", "numpy"], 1)])
def test_run(
    model: str, options: list[str], calls: int, delegate: NumpyDelegate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", model, *REQUEST, *options]) == 0
    assert "[-1. -1.]" in capsys.readouterr().out
    assert delegate.inferring.count == calls


def test_unknown_delegate_is_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", model, *REQUEST, "--delegate", "nobody"]) == 13
    assert "no delegate 'nobody'" in capsys.readouterr().err


def test_profile_names_the_delegate(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", model, *REQUEST, "--runs", "2", "--delegate", "numpy"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("_DelegatedRegion"))
    assert line.split()[-1] == "delegate"


def test_inspect_shows_the_regions(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "--delegate", "numpy", model]) == 0
    first, ops, ends = capsys.readouterr().out.splitlines()
    assert first.startswith("numpy: 2 nodes, about ") and first.endswith(" ms a run, too small for auto")
    assert ops == "  1 Exp, 1 Neg"
    assert ends == "  from x:0 to y:0"


def test_long_list_of_inputs_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with aexec.Graph() as graph:
        inputs = [aexec.placeholder("float32", [None], name=f"x{k}") for k in range(6)]
        sums = [aexec.ops.add_v2(x, inputs[0]) for x in inputs]
        y = sums[0]
        for other in sums[1:]:
            y = aexec.ops.add_v2(y, other)
    path = tmp_path / "many.pb"
    path.write_bytes(graph.to_bytes())
    assert cli.main(["inspect", "--delegate", "numpy", str(path)]) == 0
    assert "from x0:0, x1:0, x2:0, x3:0 and 2 more to " in capsys.readouterr().out


def test_inspect_says_if_there_are_none(
    model: str, delegate: NumpyDelegate, capsys: pytest.CaptureFixture[str]
) -> None:
    delegate.ops = ()
    assert cli.main(["inspect", "--delegate", "numpy", model]) == 0
    assert capsys.readouterr().out == "no regions\n"


@pytest.mark.parametrize(
    ("options", "delegates"),
    [([], None), (["--delegate", "auto"], "auto"), (["--delegate", "none"], ()), (["--delegate", "numpy"], ("numpy",))],
)
def test_serve(options: list[str], delegates: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[aexec_server.ServerConfig] = []
    monkeypatch.setattr(aexec_server, "serve", lambda config, on_ready: configs.append(config))
    assert cli.main(["serve", *options]) == 0
    assert configs[0].delegates == delegates
