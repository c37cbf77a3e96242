"""`ForwardOp`: the node that a gradient function differentiates, as that function sees it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from aexec.framework import errors
from aexec.graph.nodes.node import Node, Tensor

__all__ = ["ForwardOp"]


class ForwardOp:
    """A node whose gradient is being built.

    Its tensors are read through `seen`: within the gradient of a loop or of a function's body, a value of the forward
    pass is replaced by the one that was kept of it.

    Attributes:
        node: the node itself.
        call: unique name, in the graph, of the call of `gradients`.
    """

    def __init__(self, node: Node, seen: Callable[[Tensor], Tensor] | None = None, call: str = "gradients") -> None:
        self.node = node
        self.call = call
        self._seen = seen

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def type(self) -> str:
        """The op's name, such as `MatMul`."""
        return self.node.op

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The data inputs, in the order of the op's signature."""
        nodes = self.node.graph.nodes
        return self._values(tuple(Tensor(nodes[i], slot) for i, slot in self.node.in_edges))

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        return self._values(self.node.outputs)

    def seen(self, tensor: Tensor) -> Tensor:
        """The tensor that represents a tensor of the forward pass where the gradient is built."""
        return tensor if self._seen is None else self._seen(tensor)

    def _values(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors if self._seen is None else tuple(map(self._seen, tensors))

    def get_attr(self, name: str) -> Any:
        """An attr as a Python value; text as str.

        Raises:
            NotFoundError: the op has no such attr.
        """
        try:
            value = self.node.attrs[name]
        except KeyError:
            raise errors.UnknownNameError(
                f"op '{self.type}' of node '{self.name}' has no attr '{name}'; it has {sorted(self.node.attrs)}"
            ) from None
        return value.decode() if isinstance(value, bytes) else value

    def attrs(self, *names: str) -> dict[str, Any]:
        """Some attrs by name, to be given to another node.  Raises NotFoundError as `get_attr`."""
        return {name: self.get_attr(name) for name in names}

    def __repr__(self) -> str:
        return f"<ForwardOp of {self.node!r}>"
