"""Graphs with datasets, written node by node."""

from __future__ import annotations

from typing import Any

import aexec
from aexec.framework import dtypes
from aexec.framework.dtypes import DType, int64
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder

__all__ = ["SCALAR", "DatasetGraph", "gate_function"]

SCALAR = PartialTensorShape([])


def gate_function(key: int) -> Any:
    """`Gated(x) -> x`, which waits at the gate with this key."""
    return function_def(
        "Gated(x: int64) -> y: int64", body=[("g", "TestGate", ["x"], {"T": int64, "key": key})], ret={"y": "g:y:0"}
    )


class DatasetGraph(GraphBuilder):
    """A graph with datasets of single components; `next` is the first component of an iterator's next element."""

    def dataset(self, name: str, op: str, *inputs: str, dtype: DType = int64, shape: Any = SCALAR, **attrs: Any) -> str:
        return self(name, op, *inputs, output_types=[dtype], output_shapes=[shape], **attrs)

    def numbers(self, stop: int, name: str = "numbers") -> str:
        """A dataset of 0, 1, …, stop - 1."""
        bounds = [self.const(f"{name}/{part}", value, int64) for part, value in zip("abc", (0, stop, 1), strict=True)]
        return self.dataset(name, "RangeDataset", *bounds)

    def with_count(self, name: str, op: str, source: str, count: int, **attrs: Any) -> str:
        """A dataset of an op that takes a dataset and a number."""
        return self.dataset(name, op, source, self.const(f"{name}/count", count, int64), **attrs)

    def mapped(self, name: str, source: str, function: Any, op: str = "MapDataset", *others: str) -> str:
        if not any(known.signature.name == function.signature.name for known in self.graph_def.library.function):
            self.graph_def.library.function.append(function)
        return self.dataset(name, op, source, *others, f=NameAttrList(function.signature.name), Targuments=[])

    def batched(self, name: str, source: str, size: int) -> str:
        count = self.const(f"{name}/size", size, int64)
        keep = self.const(f"{name}/drop", False, dtypes.bool_)
        return self.dataset(name, "BatchDatasetV2", source, count, keep, shape=PartialTensorShape([None]))

    def iterated(self, dataset: str, shape: Any = SCALAR) -> aexec.Graph:
        """The graph with an iterator over a dataset: run `begin`, then fetch `next:0`."""
        self.dataset("iterator", "IteratorV2", shape=shape, shared_name=b"numbers", container=b"")
        self("begin", "MakeIterator", dataset, "iterator")
        self.dataset("next", "IteratorGetNext", "iterator", shape=shape)
        return self.graph()
