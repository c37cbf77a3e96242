"""Finds the gradient functions that `SymbolicGradient` nodes run.

`aexec/autodiff/symbolic_gradient.py` makes them.  It is a layer above the modules that run functions, so it registers
itself here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aexec import proto
from aexec.framework import errors
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.nodes.function_library import FunctionLibrary

__all__ = ["MAX_NESTING", "gradient_function", "set_gradient_maker"]

# Most levels of gradients of functions that themselves compute gradients.  Each level makes twice as many functions,
# each with twice as many nodes.
MAX_NESTING = 4

# Takes a library, the versions of its graph, and a function; adds the function's gradient function to the library.
GradientMaker = Callable[[FunctionLibrary, proto.VersionDef, NameAttrList], NameAttrList]

_makers: list[GradientMaker] = []
# The functions whose gradients are being made: each one needs the gradient of the next.
_under_way: ContextVar[tuple[str, ...]] = ContextVar("aexec_function_gradients", default=())


def set_gradient_maker(maker: GradientMaker) -> None:
    """Register the function that makes gradient functions."""
    _makers[:] = [maker]


def gradient_function(library: FunctionLibrary, versions: proto.VersionDef, function: NameAttrList) -> NameAttrList:
    """Return the gradient function of a function: the one that the library names, else a new one.

    A new one is made once for each function with its attrs, and kept in the library.  It takes the function's arguments
    and one gradient for each result, and returns one gradient for each argument.

    Raises:
        NotFoundError: a node of the body has no gradient.
        UnimplementedError: no gradient maker is registered, or it cannot make this gradient.
        ResourceExhaustedError: gradients of functions are nested too deeply.
    """
    named = library.gradient(function.name)
    if named is not None:
        return NameAttrList(named, {})
    if not _makers:
        raise errors.UnimplementedError(f"the gradient of function '{function.name}': aexec.autodiff is not there")
    key = attr_value.hashable(function)
    made = library.made_gradients.get(key)
    if made is None:
        with _nested(function.name):
            made = library.made_gradients[key] = _makers[0](library, versions, function)
    return made


@contextmanager
def _nested(name: str) -> Iterator[None]:
    names = (*_under_way.get(), name)
    if len(names) > MAX_NESTING:
        listed = ", ".join(f"'{one[:100]}'" for one in names)
        raise errors.ResourceExhaustedError(
            f"The gradient of function '{name}': gradients of functions are nested more than {MAX_NESTING} deep, "
            f"in {listed}"
        )
    token = _under_way.set(names)
    try:
        yield
    finally:
        _under_way.reset(token)
