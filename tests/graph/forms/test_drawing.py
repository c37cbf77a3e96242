"""Graphs as drawings: the text for Graphviz, and pictures where its program is."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import graphviz
import pytest

import aexec
from aexec import errors
from aexec.graph.forms.drawing import Drawing

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz' program dot")


def small() -> aexec.Graph:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 2], name="x")
        with aexec.name_scope("layer"):
            w = aexec.constant([[1.0], [2.0]], name="w")
            y = aexec.ops.mat_mul(x, w, name="product")
            with aexec.name_scope("out"), aexec.control_dependencies([y]):
                aexec.ops.relu(y, name="y")
    return graph


def looping() -> aexec.Graph:
    """Frames in frames, with arrows that go back."""
    with aexec.Graph() as graph, aexec.name_scope("outer"):

        def body(i: Any, total: Any) -> Any:
            with aexec.name_scope("inner"):
                inner = aexec.while_loop(lambda j: j < 3, lambda j: j + 1, [i])
            return i + 1, total + inner[0]

        aexec.while_loop(lambda i, _: i < 5, body, [aexec.constant(0), aexec.constant(1)])
    return graph


def check(dot: str) -> None:
    """Is it balanced, with arrows between boxes that are there, once each?"""
    assert dot.startswith("digraph {\n") and dot.endswith("\n}\n")
    depth = 0
    for line in dot.splitlines():
        outside = re.sub(r'"(\\.|[^"\\])*"', "", line)
        assert '"' not in outside, line
        depth += outside.count("{") - outside.count("}")
        assert depth >= (0 if line == "}" else 1)
    boxes = re.findall(r"^ *(n\d+) \[", dot, re.M)
    arrows = re.findall(r"^  (n\d+) -> (n\d+) ", dot, re.M)
    assert len(boxes) == len({*boxes}) and {end for arrow in arrows for end in arrow} <= {*boxes}
    assert len(arrows) == len({*arrows}) and all(start != end for start, end in arrows)


class TestText:
    def test_open_scopes_are_frames(self) -> None:
        drawing = small().show()
        check(drawing.dot)
        assert drawing.dot.split("\n", 4)[4] == (
            """  n0 [label="x\\nPlaceholder", tooltip="x: Placeholder", shape=ellipse, fillcolor="#e5f4e3"]
  subgraph cluster_n1 {
    label="layer"
    n2 [label="w", tooltip="layer/w: Const", shape=plaintext, fillcolor=none]
    n3 [label="product\\nMatMul", tooltip="layer/product: MatMul"]
    subgraph cluster_n4 {
      label="out"
      n5 [label="y\\nRelu", tooltip="layer/out/y: Relu"]
    }
  }
  n0 -> n3 [label="float[?,2]"]
  n2 -> n3 [label="float[2,1]"]
  n3 -> n5 [label="float[?,1]"]
}
"""
        )
        assert drawing.num_boxes == 4 and "4 boxes" in repr(drawing)

    def test_folded_scopes_are_boxes(self) -> None:
        dot = small().show(depth=0).dot
        check(dot)
        assert '  n1 [label="layer\\n3 nodes", tooltip="layer", shape=box3d, fillcolor="#e8eef7"]\n' in dot
        assert '  n0 -> n1 [label="float[?,2]"]\n' in dot and dot.count("->") == 1

    def test_control_edges_are_dashed(self) -> None:
        with aexec.Graph() as graph:
            first = aexec.ops.no_op(name="first")
            with aexec.control_dependencies([first]):
                aexec.ops.no_op(name="second")
        assert "  n0 -> n1 [style=dashed]\n" in graph.show().dot

    def test_several_tensors_are_one_arrow(self) -> None:
        with aexec.Graph() as graph:
            with aexec.name_scope("a"):
                parts = aexec.ops.split(aexec.constant(0), aexec.constant([1.0, 2.0]), num_split=2)
            with aexec.name_scope("b"):
                aexec.ops.add_n([*parts, parts[0]])
        dot = graph.show(depth=0).dot
        assert '  n0 -> n1 [label="3 tensors"]\n' in dot and dot.count("->") == 1

    def test_scope_and_what_it_is_joined_to(self) -> None:
        graph = small()
        with graph:
            for i in range(100):
                with aexec.name_scope(f"user{i}"):
                    aexec.ops.neg(graph.tensor("layer/product:0"), name="neg")
        dot = graph.show("layer/").dot
        check(dot)
        for name in ("x", "user0/", "others"):
            assert f'[label="{name}", tooltip="{name}", shape=plaintext, fillcolor=none, fontcolor=gray50]' in dot, name
        assert "user50/" not in dot
        assert 'label="layer/product' in graph.show("layer/out").dot

    def test_names_are_no_text_of_dot(self) -> None:
        with aexec.Graph() as graph:
            with aexec.device("/job:a/task:1"):
                aexec.ops.no_op(name='a\\b"]/c\n]/')
            aexec.ops.no_op(name="n" * 1_000_000 + "/")
        for drawing in (graph.show(), graph.show(depth=0)):
            check(drawing.dot)
            assert len(drawing.dot) < 5000

    def test_loops_lead_back(self) -> None:
        dot = looping().show().dot
        check(dot)
        assert dot.count("constraint=false") == 3 and "newrank=true" in dot

    def test_too_large_drawings_and_empty_scopes_are_refused(self) -> None:
        with aexec.Graph() as graph:
            for _ in range(101):
                aexec.ops.no_op()
        with pytest.raises(errors.InvalidArgumentError, match="graph has 101 boxes with all of its name scopes folded"):
            graph.show()
        assert graph.show(max_boxes=101).num_boxes == 101
        with pytest.raises(errors.InvalidArgumentError, match="no node lies in a name scope 'a'"):
            graph.show("a")
        assert graph._repr_svg_() is None


class TestPictures:
    @needs_dot
    @pytest.mark.parametrize("graph", [small, looping])
    @pytest.mark.parametrize("depth", [None, 0, 1])
    def test_svg(self, graph: Any, depth: int | None) -> None:
        svg = graph().show(depth=depth)._repr_svg_()
        assert "<svg" in svg and svg.rstrip().endswith("</svg>")

    @needs_dot
    def test_files(self, tmp_path: Path) -> None:
        drawing = small().show()
        for name, head in [
            ("g.svg", b"<?xml"),
            ("g.html", b"<!doctype html>"),
            ("g.PNG", b"\x89PNG"),
            ("g.dot", b"digraph"),
            ("g.gv", b"digraph"),
        ]:
            drawing.save(tmp_path / name)
            assert (tmp_path / name).read_bytes().startswith(head)
        assert "product" in (small()._repr_svg_() or "")

    @pytest.mark.parametrize("name", ["g", "g.txt", "g.dot.jpeg2"])
    def test_unknown_suffixes_are_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=r"name that ends in .svg, .png, .pdf, .html, .dot"):
            small().show().save(tmp_path / name)
        with pytest.raises(errors.NotFoundError, match="No such file or directory"):
            small().show().save(tmp_path / "none" / "g.dot")

    def test_missing_package_or_program_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawing = small().show()
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "graphviz", None)
            with pytest.raises(errors.UnimplementedError, match=r"package graphviz: pip install 'aexec\[graphviz\]'"):
                drawing.render()
            assert small()._repr_svg_() is None
        with monkeypatch.context() as without:
            without.setenv("PATH", "")
            with pytest.raises(errors.UnimplementedError, match="needs the program 'dot' of Graphviz"):
                drawing.render()

    def test_program_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(self: Any, format: str) -> bytes:
            raise graphviz.CalledProcessError(1, "dot", b"", b"syntax error")

        monkeypatch.setattr(graphviz.Source, "pipe", fail)
        with pytest.raises(errors.UnknownError, match="the program 'dot' failed: syntax error"):
            Drawing(small()).render()
