"""`TensorProxy`: base class of objects that stand for a tensor when a graph is built, run or differentiated.

A variable is one.  Code that takes tensors asks it for the tensor that it means; subclasses are in higher layers.
"""

from __future__ import annotations

from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import GraphView, Tensor, TensorOperators

__all__ = ["TensorProxy"]


class TensorProxy(TensorOperators):
    """Stands for tensors of a graph: one for its value, one for ops that change it.

    A subclass defines them.  Operators are applied to its value.
    """

    __slots__ = ()

    @property
    def graph(self) -> GraphView:
        """The graph that it belongs to."""
        return self.element.graph

    @property
    def element(self) -> Tensor:
        """The tensor that is fed and fetched for it."""
        raise NotImplementedError

    @property
    def reference(self) -> Tensor:
        """The tensor for ops that change it, and for gradients: a ref or a resource handle."""
        raise NotImplementedError

    def as_tensor(self) -> Tensor:
        """Return its value for a new node; nodes that read the value are built in the scopes in force."""
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        """The dtype of its value."""
        return self.element.dtype.base

    @property
    def static_shape(self) -> PartialTensorShape:
        """The static shape of its value."""
        return self.element.static_shape

    @property
    def shape(self) -> PartialTensorShape:
        """The static shape for programs; in graphs of `aexec.compat.v1` a `tf.TensorShape`."""
        return self.element.node.shape_as_read(self.static_shape)
