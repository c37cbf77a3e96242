"""`RebuiltBody`: a function's body while it is rebuilt for batches, and the values in it.

Next to read: `row_rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.graph.func_graph import FuncGraph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import create_node

__all__ = ["NotRowWiseError", "RebuiltBody", "Value", "require"]


class NotRowWiseError(Exception):
    """The function has no form for batches."""


def require(condition: bool) -> None:
    """Raise NotRowWiseError unless the condition holds."""
    if not condition:
        raise NotRowWiseError


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the body.

    Attributes:
        tensor: of the new body.
        has_rows: True if its first dimension is the batch's; else it is the same for all rows.
    """

    tensor: Tensor
    has_rows: bool

    @property
    def rank(self) -> int:
        """The rank in one row.  Raises NotRowWiseError if it is unknown."""
        rank = self.tensor.static_shape.rank
        if rank is None:
            raise NotRowWiseError
        return rank - self.has_rows

    @property
    def dims(self) -> tuple[int | None, ...]:
        """The sizes in one row, as far as they are known.  Raises NotRowWiseError if the rank is unknown."""
        dims = self.tensor.static_shape.dims
        if dims is None:
            raise NotRowWiseError
        return tuple(dims[1:] if self.has_rows else dims)

    @property
    def constant(self) -> Any:
        """Its array.  Raises NotRowWiseError unless it is a constant."""
        node = self.tensor.node
        while node.op == "Identity":
            node = node.graph.nodes[node.in_edges[0][0]]
        require(node.op == "Const")
        return node.attrs["value"].array


class RebuiltBody:
    """Builds the body of a function of batches.

    Args:
        graph: the new body.
        rows: its argument int64 [1], the number of rows.
    """

    def __init__(self, graph: FuncGraph, rows: Tensor) -> None:
        self._graph = graph
        self._rows = rows

    def node(self, op: Any, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[Tensor]:
        """Add a node; inputs that are arrays become constants.  Raises OpError if it is not valid."""
        return list(create_node(op, inputs, attrs, graph=self._graph).outputs)

    def like(self, node: Node, tensors: Sequence[Any], **changed: Any) -> list[Tensor]:
        """Add a node like one of the function, with other inputs, which may be arrays, and some other attrs."""
        ranges = node.op_def.input_ranges(node.attrs)
        inputs = {
            arg.name: (
                list(tensors[slice(*ranges[arg.name])])
                if arg.number_attr or arg.type_list_attr
                else tensors[ranges[arg.name][0]]
            )
            for arg in node.op_def.inputs
        }
        attrs = {name: value for name, value in node.attrs.items() if not name.startswith("_")}
        return self.node(node.op_def, inputs, {**attrs, **changed})

    def expanded(self, value: Value, rank: int) -> Tensor:
        """The rows with further dimensions of size 1 in front, until each has this rank."""
        tensor = value.tensor
        for _ in range(rank - value.rank):
            (tensor,) = self.node("ExpandDims", {"input": tensor, "dim": np.int32(1)}, {})
        return tensor

    def shape_of_rows(self, dims: Sequence[int]) -> Tensor:
        """int64: the number of rows, followed by these sizes."""
        parts = {"values": [self._rows, np.array(dims, np.int64)], "axis": np.int32(0)}
        return self.node("ConcatV2", parts, {})[0]

    def know(self, tensor: Tensor, dims: Sequence[int]) -> Tensor:
        """Note that rows have these sizes, negative ones if unknown; returns the tensor."""
        tensor.node.shapes = (PartialTensorShape([None, *(None if size < 0 else size for size in dims)]),)
        return tensor
