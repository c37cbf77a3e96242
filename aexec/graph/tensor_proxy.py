"""`TensorProxy`: what stands for a tensor where a graph is built, fed, fetched or differentiated; a variable, say.

Whoever takes tensors asks it for the one that is meant there.  What it is made of stays with the modules above.
"""

from __future__ import annotations

from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import GraphView, Tensor, TensorOperators

__all__ = ["TensorProxy"]


class TensorProxy(TensorOperators):
    """Stands for tensors of a graph: its value, and what ops take that change it.

    A subclass says what these are; operators are applied to its value.
    """

    __slots__ = ()

    @property
    def graph(self) -> GraphView:
        """The graph that it is of."""
        return self.element.graph

    @property
    def element(self) -> Tensor:
        """The tensor that runs feed and fetch for it."""
        raise NotImplementedError

    @property
    def reference(self) -> Tensor:
        """The tensor for ops that change what it stands for, and for gradients: a ref, or a resource handle."""
        raise NotImplementedError

    def as_tensor(self) -> Tensor:
        """Its value for an op that is built now; nodes that read it are made in the scopes in force."""
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        """Of its value."""
        return self.element.dtype.base

    @property
    def static_shape(self) -> PartialTensorShape:
        """The static shape of its value."""
        return self.element.static_shape

    @property
    def shape(self) -> PartialTensorShape:
        """The static shape, as programs read it."""
        return self.element.node.shape_as_read(self.static_shape)
