"""`Tensor`: a name for one output of a node while a graph is being built.

It holds no data: what flows at run time is a plain array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aexec.framework.dtypes import DType
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape

if TYPE_CHECKING:
    from aexec.graph.graph import Endpoint, Graph, Node

__all__ = ["Tensor"]


class Tensor:
    """Output `index` of `node`; two of them are equal if they mean the same output."""

    __slots__ = ("index", "node")

    # NumPy must not try to broadcast over it: `array + tensor` is ours to build.
    __array_priority__ = 100

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index

    @property
    def graph(self) -> Graph:
        return self.node.graph

    @property
    def name(self) -> str:
        """`node:index`, as feeds and fetches name it."""
        return f"{self.node.name}:{self.index}"

    @property
    def op(self) -> Node:
        """The node that produces it."""
        return self.node

    @property
    def dtype(self) -> DType:
        return self.node.output_types[self.index]

    @property
    def shape(self) -> PartialTensorShape:
        """The inferred static shape; of unknown rank if nothing is known."""
        shapes = self.node.shapes
        return UNKNOWN_RANK if shapes is None else shapes[self.index]

    @property
    def endpoint(self) -> Endpoint:
        return (self.node.id, self.index)

    if TYPE_CHECKING:
        # Defined in `aexec/client/operators.py`, for each of them builds a node.
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __getitem__(self, key: Any) -> Tensor: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.node is other.node and self.index == other.index

    def __hash__(self) -> int:
        return hash((id(self.node), self.index))

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of {self.name} is not known while the graph is built; use switch/merge or a fetched value"
        )

    def __repr__(self) -> str:
        return f"<Tensor '{self.name}' shape={self.shape} dtype={self.dtype.name}>"
