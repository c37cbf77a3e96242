"""Fused ops taken apart, and given to OpenVINO as their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec.delegates.unfusing import parts
from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32
rng = np.random.default_rng(5)
WINDOW: dict[str, Any] = {"strides": [1, 2, 2, 1], "padding": b"SAME"}


def fused(op: str, fused_ops: list[bytes], extra: int, **attrs: Any) -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", F, [None, 8] if op == "_FusedMatMul" else [None, 6, 6, 8])
    shape = {"_FusedMatMul": (8, 4), "_FusedConv2D": (3, 3, 8, 4), "_FusedDepthwiseConv2dNative": (3, 3, 8, 1)}[op]
    out = 8 if "Depthwise" in op else 4
    g.const("w", rng.normal(size=shape).astype(np.float32))
    args = [g.const(f"arg{k}", np.abs(rng.normal(size=out)).astype(np.float32)) for k in range(extra)]
    if op != "_FusedMatMul":
        attrs |= WINDOW
    if op == "_FusedConv2D":
        attrs |= {"TArgs": [F] * extra, "num_host_args": 0}
    g("before", "Neg", "x", T=F)
    g("fused", op, "before", "w", *args, T=F, num_args=extra, fused_ops=fused_ops, **attrs)
    g("y", "Neg", "fused", T=F)
    return g


CASES = [
    ("_FusedConv2D", [b"BiasAdd"], 1, {}),
    ("_FusedConv2D", [b"BiasAdd", b"Relu6"], 1, {}),
    ("_FusedConv2D", [b"BiasAdd", b"LeakyRelu"], 1, {"leakyrelu_alpha": 0.3}),
    ("_FusedConv2D", [b"FusedBatchNorm", b"Relu"], 4, {"epsilon": 0.01}),
    ("_FusedDepthwiseConv2dNative", [b"BiasAdd", b"Relu"], 1, {}),
    ("_FusedMatMul", [b"BiasAdd", b"Elu"], 1, {}),
    ("_FusedMatMul", [b"BiasAdd", b"Add", b"Tanh"], 2, {}),
]


@pytest.mark.parametrize(("op", "fused_ops", "extra", "attrs"), CASES)
async def test_parts_give_what_the_whole_does(
    op: str, fused_ops: list[bytes], extra: int, attrs: dict[str, Any]
) -> None:
    pytest.importorskip("openvino")
    graph = fused(op, fused_ops, extra, **attrs).graph()
    x = rng.normal(size=[3, 8] if op == "_FusedMatMul" else [3, 6, 6, 8]).astype(np.float32)
    answers = []
    for delegates in ((), ("openvino",)):
        async with aexec.Session(graph, config=aexec.SessionConfig(delegates=delegates)) as session:
            call = session.make_callable("y:0", ["x:0"])
            answers.append(await call(x))
            assert call.plan is not None
            assert any(node.op == "_DelegatedRegion" for node in call.plan.nodes) == bool(delegates)
            assert not delegates or call.plan.num_nodes == 1
    np.testing.assert_allclose(answers[1], answers[0], rtol=2e-5, atol=1e-5)


def test_parts() -> None:
    graph = fused("_FusedConv2D", [b"BiasAdd", b"Relu"], 1).graph()
    node = graph.find("fused")
    assert node is not None
    made = parts(node)
    assert made is not None
    assert [(part.op_def.name, part.inputs) for part in made] == [("Conv2D", (0, 1)), ("BiasAdd", (2,)), ("Relu", ())]
    assert made[0].attrs["strides"] == [1, 2, 2, 1]


@pytest.mark.parametrize("fused_ops", [[b"BiasAdd", b"GeluExact"], [b"Relu"], [b"BiasAdd", b"Add"]])
def test_unknown_fused_nodes_are_not_taken_apart(fused_ops: list[bytes]) -> None:
    """A part that is not known, and inputs that are too many or too few."""
    node = fused("_FusedConv2D", fused_ops, 1).graph().find("fused")
    assert node is not None and parts(node) is None


def test_other_ops_have_no_parts() -> None:
    node = fused("_FusedConv2D", [b"BiasAdd"], 1).graph().find("y")
    assert node is not None and parts(node) is None
