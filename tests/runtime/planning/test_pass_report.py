"""Reports of graph passes, from a session and from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec import cli
from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32


def small_model() -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", F, [None, 4, 4, 2])
    g.const("w", np.ones((3, 3, 2, 3), np.float32))
    g("conv", "Conv2D", "x", "w", T=F, strides=[1, 1, 1, 1], padding=b"SAME")
    g("times", "Mul", "conv", g.const("two", np.float32(2)), T=F)
    g("bias", "BiasAdd", "times", g.const("b", np.ones(3, np.float32)), T=F)
    g("relu", "Relu", "bias", T=F)
    g("y", "Neg", "relu", T=F)
    return g


async def test_rewrites_of_a_callable_are_reported() -> None:
    async with aexec.Session(small_model().graph()) as session:
        report = await session.rewrites(session.make_callable("y:0", ["x:0"]))
        assert report.written == 8
        assert report.run == {"_FusedConv2D": 1, "Neg": 1}
        parts = ["conv (Conv2D)", "times (Mul)", "bias (BiasAdd)", "relu (Relu)"]
        assert report.joined == {"relu": ("_FusedConv2D", parts)}
        # What is fetched is not joined.
        report = await session.rewrites(session.make_callable(["bias:0", "y:0"], ["x:0"]))
        assert report.joined == {"bias": ("_FusedConv2D", parts[:3])}


async def test_reads_and_updates_that_are_in_no_order() -> None:
    g = GraphBuilder()
    g.const("one", np.float32(1))
    for name in ("v", "w"):
        g(name, "VariableV2", shape=(), dtype=F)
    g("rv", "Neg", "v", T=F)
    g("uw", "AssignAdd", "w", "rv", T=F)
    g("rw", "Neg", "w", "^uv", T=F)
    g("uv", "AssignAdd", "v", "one", T=F)
    g("rv2", "Neg", "v", "^uw", T=F)
    async with aexec.Session(g.graph()) as session:
        report = await session.rewrites(session.make_callable(["rw:0", "rv2:0"]))
        assert report.unordered == [("rv2", "uv")], "the read of w was made first"
        assert str(report).endswith("in no order, as it would contradict that of others:\n  rv2 reads what uv updates")
        report = await session.rewrites(session.make_callable("rv:0"))
        assert report.unordered == [] and "order" not in str(report)


def test_inspect_command_prints_rewrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(small_model().graph_def.SerializeToString())
    assert cli.main(["inspect", "--passes", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "joined:\n  relu: _FusedConv2D of conv (Conv2D), times (Mul), bias (BiasAdd), relu (Relu)\n" in printed
