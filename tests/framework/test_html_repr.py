"""What notebooks and terminals show: escaped, well formed and of bounded size, whatever things are called."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.devices.device_registry import make_devices
from aexec.errors import CancelledError
from aexec.framework import dtypes
from aexec.framework.html_repr import block, facts_table, lines_table, table
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from aexec.io.checkpoint_v1 import CheckpointV1Reader, CheckpointV1Writer
from aexec.io.tensor_bundle import BundleReader, BundleWriter
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.test_sources import doubling, write_model


class Checker(HTMLParser):
    """The texts of cells, of HTML whose elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("div", "b", "table", "tr", "th", "td", "i")
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data


def html_of(thing: Any) -> str:
    text = thing._repr_html_()
    assert isinstance(text, str) and len(text) < 20_000
    return text


def cells(thing: Any) -> list[str]:
    checker = Checker()
    checker.feed(html_of(thing))
    assert not checker.open
    return checker.cells


class TestTables:
    def test_markup_is_escaped_and_sizes_are_bounded(self) -> None:
        rows = [("<b>" * 100, i) for i in range(100)]
        text = block("<i>", "&", table("t", ["n"], rows, 100), facts_table({"a": "<", "b": None, "c": "", "d": 0}))
        assert text.startswith("<div><b>&lt;i&gt;</b> &amp;<table")
        assert "and 88 more" in text and "t (100)" in text and len(text) < 8000
        assert ">d<" in text and ">0<" in text and ">b<" not in text and ">c<" not in text
        assert "…" in text

    def test_lines(self) -> None:
        assert lines_table("h", []) == ""
        text = lines_table("h", ["x" * 300, *"abcdefghijklmnop"])
        assert "x" * 100 + "…" + "x" * 99 + "<" in text and ">k<" in text and ">m<" not in text and "and 5 more" in text


class TestGraphs:
    def test_graphs_and_tensors(self) -> None:
        graph = doubling()
        assert repr(graph) == "<Graph 3 nodes>"
        assert {"inputs", "x:0", "float", "Mul"} <= {*cells(graph)}
        assert "y:0" in html_of(graph.tensor("y:0")) and "[?]" in cells(graph.tensor("y:0"))

    def test_operations(self) -> None:
        with aexec.Graph():
            x, axis = aexec.placeholder("float32", [2], name="x"), aexec.constant(0)
            with aexec.device("/CPU:0"), aexec.control_dependencies([aexec.ops.no_op(name="before")]):
                y = aexec.ops.sum(x, axis, keep_dims=True, name="y")
        shown = cells(y.op)
        assert html_of(y.op).startswith("<div><b>Sum</b> y<table")
        for text in (
            "device",
            "/device:CPU:0",
            "x:0",
            "float",
            "[2]",
            "y:0",
            "[1]",
            "keep_dims",
            "True",
            "runs after",
            "before",
        ):
            assert text in shown, text
        assert "test_html_repr.py" in "".join(shown)

    def test_node_with_many_inputs(self) -> None:
        with aexec.Graph():
            total = aexec.ops.add_n([aexec.constant(1.0, name=f"c{i}") for i in range(500)], name="total")
        assert repr(total.op) == ("<Node 'total' AddN(c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, … 488 more)>")
        assert "inputs (500)" in cells(total.op)

    def test_names_are_no_markup(self) -> None:
        with aexec.Graph() as graph:
            for i in range(2000):
                aexec.placeholder("float32", name=f"x{i}_" + "n" * 1000 + f"_end{i}")
        signature = Signature.of({f"<script>{i}&'\"": t for i, t in enumerate(graph.nodes[0].outputs)}, {})
        assert "<script>" not in html_of(signature) and "&lt;script&gt;0&amp;&#x27;&quot;" in html_of(signature)
        text = html_of(graph)
        assert "x11_nnn" in text and "n_end11<" in text and "x12_" not in text
        assert "inputs (2000)" in text and "and 1988 more" in text

    def test_signatures_and_models(self, tmp_path: Path) -> None:
        graph = doubling()
        signature = Signature.of({"value": graph.tensor("x:0")}, {"twice": graph.tensor("y:0")})
        assert str(signature) == (
            "tensorflow/serving/predict\n  input value: x:0  float[?]\n  output twice: y:0  float[?]"
        )
        assert {"value", "twice", "x:0", "[?]"} <= {*cells(signature)}
        assert "first: inputs" in cells(MetaGraph(graph, signatures={"first": signature}))
        model = aexec.load_saved_model(write_model(tmp_path / "model"))
        assert "serving_default: outputs" in cells(model) and "twice" in cells(model)


class TestSessions:
    async def test_session(self, tmp_path: Path) -> None:
        opening = aexec.Session(tmp_path / "none.pb")
        assert "await it" in html_of(opening)
        async with aexec.Session(doubling()) as session:
            assert "3 nodes" in html_of(session) and "x:0" in cells(session)
            assert "devices" in cells(session)
            assert "closed" not in html_of(session)
        assert "closed" in html_of(session)
        async with aexec.Session(write_model(tmp_path / "model")) as session:
            assert "serving_default: inputs" in cells(session) and "twice" in cells(session)
            assert "value" in cells(session.signature())

    async def test_step(self) -> None:
        gate = gates.Gate()
        g = GraphBuilder()
        g.const("c", 1.5, dtypes.float32)
        g("y", "TestGate", "c", key=gate.key, T=dtypes.float32)
        async with aexec.Session(g.graph()) as session:
            step = session.start("y:0")
            await gate.entered.wait()
            assert repr(step).startswith(f"<Step {step.id} running, 0 ready, 1 running (")
            shown = cells(step)
            assert shown[:2] == ["state", "running"] and "at work" in shown
            assert any("TestGate" in cell for cell in shown)
            assert {"steps", "running"} <= {*cells(session)}
            step.cancel("<b>enough</b>")
            with pytest.raises(CancelledError):
                await step
            shown = cells(step)
            assert shown[1] == "cancelled" and f"Step {step.id} was cancelled: <b>enough</b>" in shown
            assert "at work" not in shown

    async def test_queue(self) -> None:
        with aexec.Graph() as graph:
            aexec.ops.fifo_queue_v2(component_types=["float32", "string"], shapes=[[2], []], capacity=5, name="q")
            aexec.ops.fifo_queue_v2(component_types=["int32"], name="unshaped")
        async with aexec.Session(graph) as session:
            queue = session.queue("q")
            await queue.put(([1.0, 2.0], "a"))
            shown = cells(queue)
            for text in ("1 of 5", "enqueued", "float", "[2]", "string", "0 enqueues and 0 dequeues waiting"):
                assert text in shown, text
            assert "1 of 5, 0 enqueues and 0 dequeues waiting" in repr(queue)
            assert {"queues", "q", "1 of 5"} <= {*cells(session)}
            await queue.close()
            assert "1 of 5, closed" in cells(queue)
            assert "int32" in cells(session.queue("unshaped"))

    def test_device(self) -> None:
        device = make_devices({})[0]
        assert device.name in repr(device)
        assert "CPU" in cells(device) and "type" in cells(device)


class TestCheckpoints:
    def test_checkpoints_of_both_formats_are_shown(self, tmp_path: Path) -> None:
        with BundleWriter(str(tmp_path / "v2")) as writer:
            writer.add("w<b>", np.zeros((2, 3), np.float32))
            for i in range(20):
                writer.add(f"x{i}", np.zeros((), np.int32))
        old = CheckpointV1Writer(str(tmp_path / "v1"))
        old.add("w", np.zeros((2, 3), np.float32), dtypes.float32)
        old.finish()
        with BundleReader(str(tmp_path / "v2")) as reader:
            shown = cells(reader)
            assert repr(reader) == f"<BundleReader of '{tmp_path}/v2', shards 1>"
        assert shown[:6] == ["tensors (21)", "type", "shape", "w<b>", "float", "[2,3]"] and "and 9 more" in shown
        reader_of_old = CheckpointV1Reader(str(tmp_path / "v1"))
        assert cells(reader_of_old) == ["tensors", "type", "shape", "w", "float", "[2,3]"]
        assert repr(reader_of_old) == f"<CheckpointV1Reader of '{tmp_path}/v1', tensors 1>"

    def test_corrupt_checkpoint_is_not_readable(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        with BundleWriter(str(tmp_path / "v2")) as writer:
            writer.add("w", np.zeros(2))
        with BundleReader(str(tmp_path / "v2")) as reader:
            monkeypatch.setattr(reader, "_table", {"w": b"\xff"})
            monkeypatch.setattr(type(reader), "keys", lambda self: iter(["w"]))
            monkeypatch.setattr(reader, "_entry", lambda key, name: reader._parsed_entry(b"\xff", name))
            assert cells(reader) == ["is not readable", "entry of w is no BundleEntryProto"]
