"""Which function computes the gradient of which op.

Functions are registered by op, and looked up when `aexec.gradients` walks back over the nodes of a graph.
Next to read: `aexec/autodiff/gradients.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from aexec.framework import errors
from aexec.framework.first_use import FirstUse

__all__ = ["GradientFunction", "global_registry", "gradient", "no_gradient"]

# Called with the node (a `ForwardOp`) and the gradient of each output, None for an output that is not a number.
# Returns # the gradient of each input, None for one that has none; an op with one input may return it without a list.
GradientFunction = Callable[..., Any]

F = TypeVar("F", bound=GradientFunction)


class GradientRegistry:
    """Op → gradient function, or None for an op through which no gradient flows."""

    def __init__(self) -> None:
        self._functions: dict[str, GradientFunction | None] = {}
        self._weak: WeakValueDictionary[str, GradientFunction] = WeakValueDictionary()
        self._taking_rows: set[str] = set()
        self._taking_none: set[str] = set()
        self._first_use = FirstUse()
        self._lock = threading.Lock()

    def load_on_first_use(self, module: str, ops: Iterable[str]) -> None:
        """Import `module`, which may register gradients of `ops`, when one of them is first asked for."""
        self._first_use.add(module, ops)

    def register(self, op: str, function: GradientFunction | None, *, rows: bool = False, zeros: bool = True) -> None:
        """Add the gradient function of an op, or None: no gradient flows through it.

        Args:
            rows: the function takes `IndexedSlices` too; others get them as dense tensors.
            zeros: the function gets zeros if no gradient arrives at an output; else None.

        Raises:
            AlreadyExistsError: the op has one.
        """
        if op in self._first_use and not self._first_use.loading:
            self._first_use.load(op)
        with self._lock:
            if op in self._functions:
                raise errors.DuplicateKeyError(f"A gradient of op '{op}' is registered already")
            self._functions[op] = function
            if rows:
                self._taking_rows.add(op)
            if not zeros:
                self._taking_none.add(op)

    def register_weakly(self, name: str, function: GradientFunction) -> None:
        """Add a gradient function under a unique name, which nodes name, for as long as something else refers to it."""
        self._weak[name] = function

    def takes_rows(self, op: str) -> bool:
        """True if the op's function takes `IndexedSlices`."""
        return op in self._taking_rows

    def takes_none(self, op: str) -> bool:
        """True if the op's function gets None, not zeros, for an output at which no gradient arrives."""
        return op in self._taking_none

    def replace(self, op: str, function: GradientFunction | None) -> None:
        """Like `register`, but replaces what the op had: for a definition of the user's that runs again."""
        with self._lock:
            self._functions[op] = function

    def unregister(self, op: str) -> None:
        """Forget an op's gradient; unknown names are ignored."""
        with self._lock:
            self._functions.pop(op, None)

    def has(self, op: str) -> bool:
        """True if a gradient function, or the lack of a gradient, is registered for the op."""
        if op not in self._functions and op not in self._weak:
            self._first_use.load(op)
        return op in self._functions or op in self._weak

    def lookup(self, op: str) -> GradientFunction | None:
        """The op's gradient function; None if no gradient flows through it.

        Raises:
            NotFoundError: nothing is registered for it.
        """
        if not self.has(op):
            raise errors.NotFoundError(
                f"No gradient defined for op '{op}': register one by @aexec.gradient('{op}'), "
                f"or say aexec.no_gradient('{op}')"
            )
        return self._functions[op] if op in self._functions else self._weak[op]

    def ops(self) -> list[str]:
        """All ops with a gradient function, sorted; imports every family."""
        self._first_use.load_all()
        with self._lock:
            return sorted(op for op, function in self._functions.items() if function is not None)


global_registry = GradientRegistry()


def gradient(*ops: str, rows: bool = False, zeros: bool = True) -> Callable[[F], F]:
    """Register the decorated function as the gradient of `ops`.

    ::

        @aexec.gradient("Cube")
        def cube_gradient(op, grad):
            return 3.0 * grad * aexec.ops.square(op.inputs[0])

    It is called while a graph is being built, with the node, whose `inputs`, `outputs` and `get_attr` it may use, and
    the gradient of each of its outputs; it returns the gradient of each input, or None for an input without.

    Args:
        ops: names of ops.
        rows: the function takes `IndexedSlices`; without it, they are made dense tensors.
        zeros: the function gets zeros if no gradient arrives at an output; if false, None.

    Raises:
        AlreadyExistsError: an op has one.
    """

    def register(function: F) -> F:
        for op in ops:
            global_registry.register(op, function, rows=rows, zeros=zeros)
        return function

    return register


def no_gradient(*ops: str) -> None:
    """Declare that no gradient flows through `ops`.  Raises AlreadyExistsError if one has a gradient."""
    for op in ops:
        global_registry.register(op, None)
