"""The benchmark of whole models: all descriptions of a model compute the same, and the table says what was measured."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
models: Any = importlib.import_module("models")
benchmarks: Any = importlib.import_module("model_benchmarks")
contenders: Any = importlib.import_module("model_contenders")
processes: Any = importlib.import_module("process_benchmarks")
training: Any = importlib.import_module("training_models")
sys.path.remove(SCRIPTS)

SMALL = {model.name: model for model in models.zoo(small=True)}
each_model = pytest.mark.parametrize("name", SMALL)


async def answers(model: Any) -> list[np.ndarray]:
    async with aexec.Session(aexec.Graph.from_bytes(model.graph_def)) as session:
        fetches = [f"{name}:0" for name in model.outputs]
        found: list[np.ndarray] = await session.run(fetches, {f"{name}:0": v for name, v in model.feeds.items()})
        return found


# The zoo


@each_model
async def test_activations_neither_vanish_nor_explode(name: str) -> None:
    for value in await answers(SMALL[name]):
        assert value.size
        assert np.isfinite(value).all()
        assert 1e-6 < np.abs(value).max() < 1e3


@pytest.mark.parametrize("name", [model.name for model in SMALL.values() if model.numpy])
async def test_plain_function_computes_the_same(name: str) -> None:
    (found,) = await answers(SMALL[name])
    np.testing.assert_allclose(SMALL[name].numpy(**SMALL[name].feeds), found, rtol=1e-5, atol=1e-6)


@each_model
async def test_onnx_model_computes_the_same(name: str) -> None:
    reference = pytest.importorskip("onnx.reference")
    model = SMALL[name]
    found = reference.ReferenceEvaluator(importlib.import_module("onnx").load_from_string(model.onnx)).run(
        list(model.outputs), dict(model.feeds)
    )
    for ours, theirs in zip(await answers(model), found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-5)


@each_model
def test_weights_come_from_a_seed(name: str) -> None:
    again = next(model for model in models.zoo(small=True) if model.name == name)
    assert again.graph_def == SMALL[name].graph_def
    for key, value in again.feeds.items():
        np.testing.assert_array_equal(value, SMALL[name].feeds[key])


def test_zoo_has_models_of_every_kind() -> None:
    names = [model.name for model in models.zoo()]
    assert len(set(names)) == len(names)
    assert {name.partition("-")[0] for name in names} >= {model.name.partition("-")[0] for model in SMALL.values()}


def test_loops_are_loops_and_constants_belong_to_them() -> None:
    graph_def = aexec.proto.GraphDef.FromString(SMALL["gru"].graph_def)
    by_op: dict[str, list[Any]] = {}
    for node in graph_def.node:
        by_op.setdefault(node.op, []).append(node)
    assert len(by_op["Merge"]) == len(by_op["NextIteration"]) == 2
    assert {node.input[1] for node in by_op["Merge"]} == {node.name for node in by_op["NextIteration"]}
    assert any(i.startswith("^loop_0/") for node in by_op["Const"] for i in node.input)


# Models that are trained


@pytest.mark.parametrize("model", training.training_zoo(small=True), ids=lambda model: model.name)
async def test_trained_model_learns_its_batch(model: Any) -> None:
    ours = contenders.Aexec()
    await ours.prepare(model, 1)
    losses = [(await ours.run())[0] for _ in range(30)]
    await ours.close()
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


def test_commands_know_their_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmarks.main(["--list"], "training") == 0
    listed = capsys.readouterr().out
    assert "mlp " in listed
    assert "cold-start" not in listed
    with pytest.raises(SystemExit):
        benchmarks.main(["empty"], "training")
    assert "no model 'empty'; there are mlp, cnn, lstm" in capsys.readouterr().err


# Measuring


class Fixed:
    """A contender that gives the same answer at once, or an error when it is prepared."""

    def __init__(self, answer: Any = 1.0, error: Exception | None = None) -> None:
        self.answer, self.error, self.runs, self.closed = answer, error, 0, False

    async def prepare(self, model: Any, threads: int) -> None:
        if self.error is not None:
            raise self.error

    async def run(self) -> list[Any]:
        self.runs += 1
        return [np.asarray(self.answer)]

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def contend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Measures a model with contenders of the given names, in that order."""
    monkeypatch.setattr(benchmarks, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(benchmarks, "TURN_SECONDS", 0)

    async def contend(model: Any = SMALL["chain-1"], **made: Fixed) -> Any:
        monkeypatch.setattr(benchmarks, "CONTENDERS", {name: (lambda f=fixed: f, ()) for name, fixed in made.items()})
        return await benchmarks.measure(model, list(made), threads=1, seconds=0)

    return contend


async def test_contenders_take_turns_and_are_closed(contend: Callable[..., Any]) -> None:
    ours, theirs = Fixed(), Fixed()
    measured = await contend(aexec=ours, tensorflow=theirs)
    assert set(measured.seconds) == {"aexec", "tensorflow"}
    assert measured.notes == []
    assert ours.runs == theirs.runs >= benchmarks.WARM_UP + 3
    assert ours.closed and theirs.closed


async def test_failing_contender_is_left_out(contend: Callable[..., Any]) -> None:
    measured = await contend(
        aexec=Fixed(),
        numpy=Fixed(error=contenders.UnsuitedError()),
        openvino=Fixed(error=RuntimeError("no such op\nat line 3")),
    )
    assert list(measured.seconds) == ["aexec"]
    assert measured.notes == ["OpenVINO failed: no such op"]


@pytest.mark.parametrize("other", [1.01, [1.0], np.int32(2)])
async def test_another_answer_is_noted(contend: Callable[..., Any], other: Any) -> None:
    measured = await contend(aexec=Fixed(1.0), onnxruntime=Fixed(other), tensorflow=Fixed(1.0001))
    assert measured.notes == ["onnxruntime gives another answer"]
    assert "onnxruntime" in measured.seconds


# The table


def test_page_has_times_ratios_and_medians() -> None:
    rows = [
        benchmarks.Measured("small", {"aexec": 1e-5, "numpy": 2e-5, "tensorflow": 4e-5}),
        benchmarks.Measured("large", {"aexec": 0.25, "tensorflow": 0.2}, ["OpenVINO failed: why"]),
    ]
    assert (
        benchmarks.markdown(rows, {"machine": "one"}, ["a hundred at once: fast"])
        == """# Models against other runtimes

Written by `scripts/bench models`: every contender runs the same model with the same weights in one process,
by turns; times are medians in milliseconds, a ratio below 1 means that aexec is faster.

- machine: one

| model | aexec, ms | NumPy loop, ms | TensorFlow, ms | aexec / NumPy loop | aexec / TensorFlow |
|---|---|---|---|---|---|
| small | 0.0100 | 0.0200 | 0.0400 | 0.50 | 0.25 |
| large | 250 |  | 200 |  | 1.25 |
| **median** |  |  |  | **0.50** | **0.75** |

- a hundred at once: fast
- large: OpenVINO failed: why
"""
    )


def test_command_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, figures = tmp_path / "models.md", tmp_path / "models.json"
    command = ["chain-1", "lstm", "--small", "--only", "aexec,numpy", "--seconds", "0", "--threads", "1"]
    assert benchmarks.main([*command, "--loop", "asyncio", "--markdown", str(page), "--json", str(figures)]) == 0
    assert "chain of 1" in capsys.readouterr().out
    assert "| LSTM-8, while loop of 5 steps |" in page.read_text()
    report = json.loads(figures.read_text())
    assert report["threads"] == "1 for each"
    assert [set(row["seconds"]) for row in report["models"]] == [{"aexec", "numpy"}] * 2
    assert all(row["notes"] == [] for row in report["models"])


def test_processes_and_steps_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "models.md"
    command = ["cold-start", "concurrency", "--small", "--only", "aexec", "--seconds", "0", "--markdown", str(page)]
    assert benchmarks.main([*command, "--loop", "asyncio"]) == 0
    text = page.read_text()
    assert "| cold start: a process that runs MobileNetV2 32 once |" in text
    assert "- chain of 5 on 4×4, 100 at once: " in text
    assert "100 at once: " in capsys.readouterr().out


async def test_steps_at_once_have_latencies() -> None:
    found = await processes.concurrency(SMALL["chain-5"], steps=20, repeats=3)
    assert found.steps == 20
    assert 0 < found.median <= found.percentile_99
    assert found.throughput > 0


async def test_excluded_contender_is_not_given_the_model(contend: Callable[..., Any]) -> None:
    kept_out = Fixed()
    model = dataclasses.replace(SMALL["chain-1"], not_for=frozenset({"openvino"}))
    measured = await contend(model, aexec=Fixed(), openvino=kept_out)
    assert list(measured.seconds) == ["aexec"]
    assert kept_out.runs == 0


def test_command_lists_models_and_contenders(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmarks.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert "mobilenet-v2" in listed
    assert "contenders here: aexec, run, " in listed


@pytest.mark.parametrize("arguments", [["nonsense"], ["--only", "nonsense"]])
def test_unknown_name_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmarks.main(arguments)
    assert "'nonsense'; there are" in capsys.readouterr().err
