"""Bars for long work: which work has them, and how rich's and tqdm's show it."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import aexec
from aexec.client import progress_bars as module
from aexec.client.progress_bars import RichBars, make_bars
from aexec.framework import progress
from aexec.io import tensor_bundle
from tests.support.stand_ins.heard_progress import Heard


def variables(count: int = 3, size: int = 100) -> tuple[aexec.Graph, aexec.training.Saver]:
    with aexec.Graph() as graph:
        for number in range(count):
            aexec.get_variable(f"v{number}", initializer=np.full([size], number, np.float32))
        with aexec.control_dependencies([aexec.global_variables_initializer()]):
            aexec.ops.no_op(name="init")
        saver = aexec.training.Saver()
    return graph, saver


async def test_restoring_says_how_many_bytes_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_bundle, "_PIECE", 256)
    graph, saver = variables()
    heard = Heard()
    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        path = await saver.save(session, str(tmp_path / "model.ckpt"))
        with progress.listening(heard):
            await saver.restore(session, path)
        assert (await session.run("v2:0"))[0] == 2
    assert heard.works == [("restoring model.ckpt", 1200, "B", [256, 144] * 3, "closed")]


async def test_slices_of_a_tensor_count(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        aexec.get_variable(
            "v",
            [6],
            initializer=aexec.initializers.ones,
            partitioner=aexec.fixed_size_partitioner(3),
        )
        with aexec.control_dependencies([aexec.global_variables_initializer()]):
            aexec.ops.no_op(name="init")
        saver = aexec.training.Saver()
    heard = Heard()
    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        path = await saver.save(session, str(tmp_path / "model.ckpt"))
        with progress.listening(heard):
            await saver.restore(session, path)
    ((_, total, _, amounts, _),) = heard.works
    assert sum(amounts) == total == 24


async def test_opening_a_model_says_how_far_it_is(tmp_path: Path) -> None:
    graph, _ = variables(count=300)
    assert len(graph) >= 1000
    (tmp_path / "g.pb").write_bytes(graph.to_bytes())
    heard = Heard()
    with progress.listening(heard):
        async with aexec.Session(tmp_path / "g.pb") as session:
            assert len(session.graph) == len(graph)
    ((what, total, unit, amounts, end),) = heard.works
    assert (what, unit, end) == ("importing a graph", "steps", "closed")
    assert sum(amounts) == total == 2 * len(graph)


def test_small_graphs_have_no_bar() -> None:
    graph, _ = variables()
    heard = Heard()
    with progress.listening(heard):
        aexec.Graph.from_bytes(graph.to_bytes())
    assert not heard.works


def test_bars_of_rich_appear_when_work_takes_long() -> None:
    now = 0.0
    file = io.StringIO()
    bars = RichBars(Console(file=file, force_terminal=True, width=100), delay=0.5, clock=lambda: now)
    short = bars.open("short", 10, "things")
    short.advance(10)
    short.close()
    assert not file.getvalue()
    long, other = bars.open("long", 4000, "B"), bars.open("other", 3, "things")
    now = 0.6
    long.advance(1500)
    other.advance(1)
    long.close()
    other.close()
    bars.close()
    text = file.getvalue()
    assert "short" not in text
    assert "long" in text and "1.5 kB/4.0 kB" in text and "other" in text and "1/3 things" in text


def test_bars_need_a_terminal_or_a_notebook() -> None:
    file = io.StringIO()
    bars = RichBars(Console(file=file), delay=0.0)
    bar = bars.open("work", 3, "things")
    bar.advance(3)
    bar.close()
    bars.close()
    assert not file.getvalue().strip()


@pytest.mark.parametrize("library", ["rich", "tqdm"])
async def test_bars_of_what_is_begun_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    if library == "tqdm":
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    graph, saver = variables()
    file = io.StringIO()
    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        path = await saver.save(session, str(tmp_path / "model.ckpt"))
        with aexec.progress_bars(delay=0.0, file=file):
            await saver.restore(session, path)
        shown = file.getvalue()
        await saver.restore(session, path)
    assert "restoring model.ckpt" in shown and file.getvalue() == shown


def test_notebooks_without_widgets_have_bars_of_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"tqdm"}

    def find(name: str) -> Any:
        return importlib.util.find_spec("json") if name in found else None

    monkeypatch.setattr(module, "find_spec", find)
    assert not isinstance(make_bars(), RichBars)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert isinstance(make_bars(), RichBars)
    found.add("ipywidgets")
    assert not isinstance(make_bars(), RichBars)
