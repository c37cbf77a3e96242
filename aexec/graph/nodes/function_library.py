"""The function library of a graph: FunctionDefs by name, in one flat namespace.

A node whose op is the name of a function calls it.  `graph/function_body.py` turns bodies into graphs.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar

from aexec import proto
from aexec.framework import errors
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire.attr_value import NameAttrList
from aexec.framework.wire.op_def import OpDef

__all__ = ["FunctionLibrary"]

V = TypeVar("V")


class FunctionLibrary:
    """Functions and their gradients by name.

    Attributes:
        built: name → the graph that a function was built as, for functions built in this process.
        made_gradients: function with its attrs → the gradient function that was made for it.

    Args:
        room: most nodes that added functions may have together; None for any number.
    """

    def __init__(self, room: int | None = None) -> None:
        self._functions: MutableMapping[str, proto.FunctionDef] = {}
        self._op_defs: MutableMapping[str, OpDef] = {}
        self._gradients: MutableMapping[str, str] = {}
        self.built: MutableMapping[str, Any] = {}
        self.made_gradients: MutableMapping[Any, NameAttrList] = {}
        self._room = room

    def __len__(self) -> int:
        return len(self._functions)

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def copy(self) -> FunctionLibrary:
        """Return an independent library with the same contents."""
        other = FunctionLibrary()
        other._functions.update(self._functions)
        other._op_defs.update(self._op_defs)
        other._gradients.update(self._gradients)
        other.built.update(self.built)
        other.made_gradients.update(self.made_gradients)
        return other

    def overlay(self, room: int | None = None) -> FunctionLibrary:
        """Return an overlay: it has all functions of this library, also later ones, and keeps its additions to itself.

        Args:
            room: most nodes that functions added to it may have together; None for any number.
        """
        return FunctionLibrary(room).moved_to(self)

    def moved_to(self, library: FunctionLibrary) -> FunctionLibrary:
        """Return a copy of this overlay, with its additions, on top of another library."""
        other = FunctionLibrary(self._room)
        other._functions = ChainMap(_added(self._functions), library._functions)
        other._op_defs = ChainMap(_added(self._op_defs), library._op_defs)
        other._gradients = ChainMap(_added(self._gradients), library._gradients)
        other.built = ChainMap(_added(self.built), library.built)
        other.made_gradients = ChainMap(_added(self.made_gradients), library.made_gradients)
        return other

    def absorb(self, overlay: FunctionLibrary) -> int:
        """Add the additions of an overlay of this library; return the number of nodes of their functions."""
        added = _added(overlay._functions)
        self._functions.update(added)
        self._op_defs.update(_added(overlay._op_defs))
        self._gradients.update(_added(overlay._gradients))
        self.built.update(_added(overlay.built))
        self.made_gradients.update(_added(overlay.made_gradients))
        return sum(len(function.node_def) for function in added.values())

    def merge(self, library: proto.FunctionDefLibrary) -> list[str]:
        """Add all functions and gradients of a message; return the names that are new.

        Raises:
            InvalidArgumentError: a name is taken by another function or by an op, or a function has two gradients.
            ResourceExhaustedError: as `add`.
        """
        added = [f.signature.name for f in steadily(library.function) if self.add(f)]
        for gradient in steadily(library.gradient):
            self.add_gradient(gradient.function_name, gradient.gradient_func)
        return added

    def add(self, function: proto.FunctionDef) -> bool:
        """Add a function; return False if the library has an equal definition already.

        Raises:
            InvalidArgumentError: the name is taken by another function, or by an op.
            ResourceExhaustedError: the library has no room for its nodes.
        """
        name = function.signature.name
        known = self._functions.get(name)
        if known is not None:
            if known == function:
                return False
            raise errors.InvalidArgumentError(
                f"Cannot add function '{name}' because a different function with the same name already exists."
            )
        if op_registry.global_registry.has(name):
            raise errors.InvalidArgumentError(
                f"Cannot add function '{name}' because an op with the same name already exists."
            )
        self._take_room(function)
        self._op_defs[name] = OpDef.from_proto(function.signature)
        # Copy it: a reference to a part of a GraphDef keeps the whole message in memory.
        self._functions[name] = proto.FunctionDef()
        self._functions[name].CopyFrom(function)
        return True

    def _take_room(self, function: proto.FunctionDef) -> None:
        if self._room is None:
            return
        self._room -= len(function.node_def)
        if self._room < 0:
            raise errors.ResourceExhaustedError(
                f"Cannot add function '{function.signature.name}': the functions that were made have too many nodes"
            )

    def add_gradient(self, function: str, gradient: str) -> None:
        """Register `gradient` as the gradient function of `function`."""
        known = self._gradients.setdefault(function, gradient)
        if known != gradient:
            raise errors.InvalidArgumentError(
                f"Cannot assign gradient function '{gradient}' to '{function}' "
                f"because it already has gradient function '{known}'"
            )

    def find(self, name: str) -> proto.FunctionDef | None:
        return self._functions.get(name)

    def get(self, name: str) -> proto.FunctionDef:
        """Return the function of that name.  Raises InvalidArgumentError if there is none."""
        found = self._functions.get(name)
        if found is None:
            raise errors.InvalidArgumentError(f'Failed to find function "{name}" in function library')
        return found

    def op_def(self, name: str) -> OpDef | None:
        """Return the signature of a function as an op definition, or None."""
        return self._op_defs.get(name)

    def gradient(self, name: str) -> str | None:
        """Return the name of the gradient function of `name`, or None."""
        return self._gradients.get(name)

    def gradients(self) -> list[proto.GradientDef]:
        """Return the gradient function of each function that has one."""
        return [proto.GradientDef(function_name=f, gradient_func=g) for f, g in self._gradients.items()]

    def lookup_op(self, op: str) -> OpDef:
        """Return the definition of a node's op: a function of the library, else a registered op.

        Raises:
            NotFoundError: it is neither; the message suggests similar names.
        """
        return self._op_defs.get(op) or op_registry.global_registry.lookup(op).op_def

    def to_proto(self) -> proto.FunctionDefLibrary:
        message = proto.FunctionDefLibrary()
        message.function.extend(self._functions.values())
        message.gradient.extend(self.gradients())
        return message


def _added(table: MutableMapping[str, V]) -> MutableMapping[str, V]:
    """Return the entries that were added to an overlay."""
    return table.maps[0] if isinstance(table, ChainMap) else table
