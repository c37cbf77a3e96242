"""Small graphs for tests, written node by node.

g = GraphBuilder()
g("x", "Placeholder", dtype=float32)
g("y", "Square", "x", T=float32)
graph = g.graph()
"""

from __future__ import annotations

from typing import Any

import numpy as np

import aexec
from aexec import proto
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.op_contract.op_registry import global_registry
from aexec.framework.wire import attr_value, tensor_codec

# Producer version of graphs of TensorFlow 2.21.
PRODUCER = 2474


class GraphBuilder:
    """Collects NodeDefs; call it once per node."""

    def __init__(self, producer: int = PRODUCER) -> None:
        self.graph_def = proto.GraphDef(versions=proto.VersionDef(producer=producer))

    def __call__(self, name: str, op: str, *inputs: str, device: str = "", **attrs: Any) -> str:
        node = self.graph_def.node.add(name=name, op=op, input=inputs, device=device)
        kinds = {a.name: a.type for a in global_registry.lookup(op).op_def.attrs} if global_registry.has(op) else {}
        for key, value in attrs.items():
            node.attr[key].CopyFrom(attr_value.encode(value, kinds.get(key)))
        return name

    def const(self, name: str, value: Any, dtype: DType | None = None, *controls: str) -> str:
        array = np.asarray(value, None if dtype is None else dtype.np)
        if array.dtype.kind in "SU":
            array = array.astype("S").astype(object)
        dtype = dtype or dtypes.from_numpy(array.dtype)
        node = self.graph_def.node.add(name=name, op="Const", input=controls)
        node.attr["dtype"].type = dtype.enum
        node.attr["value"].tensor.CopyFrom(tensor_codec.to_proto(array, dtype))
        return name

    def placeholder(self, name: str, dtype: DType = dtypes.float32, shape: Any = None) -> str:
        from aexec.framework.shape import PartialTensorShape

        return self(name, "Placeholder", dtype=dtype, shape=PartialTensorShape(shape))

    def graph(self) -> aexec.Graph:
        return aexec.Graph.from_graph_def(self.graph_def)


def chain_over_devices(length: int = 5) -> GraphBuilder:
    """Return `x`, negated `length` times, each time on another of four CPUs; the last is `last`."""
    g = GraphBuilder()
    previous = g.placeholder("x")
    for number in range(length):
        name = "last" if number == length - 1 else f"n{number}"
        previous = g(name, "Neg", previous, device=f"/cpu:{number % 4}", T=dtypes.float32)
    return g


def counting_loop(parallel_iterations: int = 10, dtype: DType = dtypes.int32, device: str = "") -> GraphBuilder:
    """Return `i = 0; while i < n: i += 1`, on a device; feed `n`, fetch `result`."""
    g = GraphBuilder()
    g.placeholder("n", dtype, [])
    g.const("zero", 0, dtype)
    g.const("one", 1, dtype)
    frame = {"frame_name": b"loop", "parallel_iterations": parallel_iterations, "T": dtype, "device": device}
    on = {"T": dtype, "device": device}
    g("enter", "Enter", "zero", **frame)
    g("enter_n", "Enter", "n", is_constant=True, **frame)
    g("enter_one", "Enter", "one", is_constant=True, **frame)
    g("merge", "Merge", "enter", "next", N=2, **on)
    g("less", "Less", "merge", "enter_n", **on)
    g("cond", "LoopCond", "less", device=device)
    g("switch", "Switch", "merge", "cond", **on)
    g("body", "Identity", "switch:1", **on)
    g("add", "AddV2", "body", "enter_one", **on)
    g("next", "NextIteration", "add", **on)
    g("result", "Exit", "switch:0", **on)
    return g


def negations(length: int) -> aexec.Graph:
    """Return `x`, a scalar, negated `length` times; the last is `y`."""
    with aexec.Graph() as graph:
        y = aexec.placeholder("float32", [], name="x")
        for _ in range(length):
            y = aexec.ops.neg(y)
        aexec.ops.identity(y, name="y")
    return graph


def chain(length: int, op: str = "AddV2") -> GraphBuilder:
    """Return `x`, then `length` additions of a constant `c`; the last is `last`."""
    g = GraphBuilder()
    g.placeholder("x")
    g.const("c", np.ones((4, 4), np.float32))
    previous = "x"
    for index in range(length):
        name = "last" if index == length - 1 else f"node{index}"
        previous = g(name, op, previous, "c", T=dtypes.float32)
    return g
