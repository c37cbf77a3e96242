"""`PartitionedVariable`: several variables that are the parts of one tensor, `v/part_0`, `v/part_1`, ….

Each part is a variable of its own, possibly on its own device; optimisers and savers see the parts.  Used as a tensor,
the variable is all parts joined.
Next to read: `variable_store.py`, which makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies, name_scope
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import GraphView, Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.tensor_proxy import TensorProxy
from aexec.variables.variable import Variable

__all__ = ["PartitionedVariable", "parts_or_self"]


class PartitionedVariable(TensorProxy):
    """Variables in their order along an axis; `list(variable)` returns them.

    Attributes:
        name: of the whole, `v`.
        partitions: the number of parts along each axis.
    """

    def __init__(
        self, name: str, shape: Sequence[int], dtype: DType, parts: Sequence[Variable], partitions: Sequence[int]
    ) -> None:
        self.name = name
        self.partitions = list(partitions)
        self._shape = PartialTensorShape(shape)
        self._dtype = dtype
        self._parts = list(parts)
        self._axis = next((axis for axis, count in enumerate(partitions) if count > 1), 0)
        self._element: Tensor | None = None

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def graph(self) -> GraphView:
        return self._parts[0].graph

    @property
    def element(self) -> Tensor:
        if self._element is None:
            graph = self.graph
            assert isinstance(graph, Graph)
            with graph:
                self._element = self.as_tensor()
        return self._element

    @property
    def reference(self) -> Tensor:
        """Raises InvalidArgumentError: only the parts can be changed or differentiated by."""
        raise errors.InvalidValueError(
            f"{self!r} has a reference for each part: use `list(variable)` where one is wanted"
        )

    def as_tensor(self) -> Tensor:
        with control_dependencies(None):
            if len(self._parts) == 1:
                whole = self._parts[0].value()
            else:
                with name_scope(f"{self.name}/ConcatPartitions/"):
                    whole = ops.concat_v2([part.value() for part in self._parts], self._axis, name="concat")
            with name_scope(None):
                return ops.identity(whole, name=self.name)

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def static_shape(self) -> PartialTensorShape:
        return self._shape

    def value(self) -> Tensor:
        """The tensor that ops use for it."""
        return self.as_tensor()

    def assign(self, value: Any, *, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Replace the value by a tensor of the whole; return a list of the results of `Variable.assign`, one for each
        part.
        """
        return self._changed("assign", value, use_locking, name, read_value)

    def assign_add(
        self, delta: Any, *, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add to the value.  Arguments as of `assign`."""
        return self._changed("assign_add", delta, use_locking, name, read_value)

    def assign_sub(
        self, delta: Any, *, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract from the value.  Arguments as of `assign`."""
        return self._changed("assign_sub", delta, use_locking, name, read_value)

    def _changed(self, how: str, value: Any, use_locking: bool, name: str | None, read_value: bool) -> list[Any]:
        whole = convert_to_tensor(value, self._dtype)
        sizes = [int(list(part.static_shape)[self._axis] or 0) for part in self._parts]
        pieces = ops.split_v(whole, sizes, self._axis, num_split=len(sizes)) if len(sizes) > 1 else [whole]
        return [
            getattr(part, how)(piece, use_locking=use_locking, name=name, read_value=read_value)
            for part, piece in zip(self._parts, pieces, strict=True)
        ]

    def __repr__(self) -> str:
        parts = f"{len(self)} parts along axis {self._axis}"
        return f"<PartitionedVariable '{self.name}' shape={self.static_shape} dtype={self.dtype} in {parts}>"


def parts_or_self(variable: Any) -> list[Any]:
    """The parts of a partitioned variable; for any other, a list of it alone."""
    return list(variable) if isinstance(variable, PartitionedVariable) else [variable]
