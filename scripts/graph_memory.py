"""What a graph takes in memory: bytes per node, and how many times the size of its file.

The graph is one like a converted model's, without its weights: layers of small nodes with long
names.  It is loaded in a fresh process each for resident memory and for what Python allocates
(tracemalloc).
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

import aexec
from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire import attr_value, tensor_codec

F, I = dtypes.float32, dtypes.int32  # noqa: E741
WIDTH = 64


class _Writer:
    """Writes the nodes of a graph, in scopes."""

    def __init__(self) -> None:
        self.message = proto.GraphDef(versions=proto.VersionDef(producer=2474))

    def node(self, name: str, op: str, *inputs: str, **attrs: object) -> str:
        node = self.message.node.add(name=name, op=op, input=inputs)
        for key, value in attrs.items():
            node.attr[key].CopyFrom(attr_value.encode(value))
        return name

    def const(self, name: str, value: object) -> str:
        array = np.asarray(value, np.int32)
        node = self.message.node.add(name=name, op="Const")
        node.attr["dtype"].type = I.enum  # type: ignore[assignment]
        node.attr["value"].tensor.CopyFrom(tensor_codec.to_proto(array, I))
        return name

    def variable(self, name: str, shape: list[int]) -> str:
        attrs = {"dtype": F, "shape": aexec.framework.shape.PartialTensorShape(shape), "shared_name": name.encode()}
        self.node(name, "VarHandleOp", container=b"", _class=[b"loc:@" + name.encode()], **attrs)
        return self.node(f"{name}/Read/ReadVariableOp", "ReadVariableOp", name, dtype=F)

    def layer(self, scope: str, x: str) -> str:
        """Write 31 nodes: a dense layer, heads split and joined, an activation, a residual connection."""
        for part in ("query", "value"):
            dense = f"{scope}/self_attention/{part}"
            kernel = self.variable(f"{dense}/kernel", [WIDTH, WIDTH])
            y = self.node(f"{dense}/MatMul", "MatMul", x, kernel, T=F, transpose_a=False, transpose_b=False)
            bias = self.variable(f"{dense}/bias", [WIDTH])
            y = self.node(f"{dense}/BiasAdd", "BiasAdd", y, bias, T=F, data_format=b"NHWC")
            shape = self.node(f"{dense}/Shape", "Shape", y, T=F, out_type=I)
            bounds = [self.const(f"{dense}/strided_slice/stack{i}", [v]) for i, v in (("", 0), ("_1", 1), ("_2", 1))]
            masks = {f"{m}_mask": 0 for m in ("begin", "ellipsis", "end", "new_axis")}
            batch = self.node(
                f"{dense}/strided_slice", "StridedSlice", shape, *bounds, T=I, Index=I, shrink_axis_mask=1, **masks
            )
            heads = self.const(f"{dense}/Reshape/shape/1", 8)
            packed = self.node(f"{dense}/Reshape/shape", "Pack", batch, heads, heads, T=I, N=3, axis=0)
            y = self.node(f"{dense}/Reshape", "Reshape", y, packed, T=F, Tshape=I)
            order = self.const(f"{dense}/transpose/perm", [0, 2, 1])
            y = self.node(f"{dense}/transpose", "Transpose", y, order, T=F, Tperm=I)
            x = self.node(f"{dense}/Reshape_1", "Reshape", y, f"{dense}/Shape", T=F, Tshape=I)
        y = self.node(f"{scope}/activation/Relu", "Relu", x, T=F)
        return self.node(f"{scope}/residual/add", "AddV2", x, y, T=F)


def write(path: Path, nodes: int) -> None:
    """Write a graph of about `nodes` nodes: up to a layer more."""
    writer = _Writer()
    x = writer.node("x", "Placeholder", dtype=F, shape=aexec.framework.shape.PartialTensorShape([None, WIDTH]))
    layer = 0
    while len(writer.message.node) < nodes - 1:
        x = writer.layer(f"model/transformer/encoder/layer_{layer}", x)
        layer += 1
    writer.node("y", "Identity", x, T=F)
    path.write_bytes(writer.message.SerializeToString())


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(path: Path, *, traced: bool) -> None:
    """Load the graph and print the memory that it takes."""
    data = path.read_bytes()
    aexec.Graph.load(_first_nodes(path))  # loads what every graph needs
    gc.collect()
    if traced:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0] if traced else resident()
    began = time.perf_counter()
    graph = aexec.Graph.load(path)
    loaded = time.perf_counter() - began
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] if traced else resident()
    what = "Python's allocations" if traced else "resident memory"
    taken = after - before
    print(
        f"{what:22} {taken / 2**20:7.1f} MiB  {taken / len(graph):7.0f} bytes/node  {taken / len(data):5.2f} x file"
        + ("" if traced else f"   loaded in {loaded:.2f} s, {loaded / len(graph) * 1e6:.1f} us/node")
    )


def _first_nodes(path: Path) -> Path:
    small = path.with_suffix(".small.pb")
    if not small.exists():
        write(small, 100)
    return small


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000, help="how many nodes (%(default)s)")
    parser.add_argument("--measure", choices=["resident", "traced"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help="a graph of yours instead")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.file, traced=arguments.measure == "traced")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "graph.pb"
        if arguments.file is None:
            write(path, arguments.nodes)
        print(f"{path.stat().st_size / 2**20:.1f} MiB on disk")
        sys.stdout.flush()
        for kind in ("resident", "traced"):
            command = [sys.executable, __file__, "--measure", kind, "--file", str(path)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
