"""Where the gradient of a function comes from, for whoever has to run `SymbolicGradient`.

What makes it is above all that runs functions (`aexec/autodiff/symbolic_gradient.py`), and is handed in from there.
"""

from __future__ import annotations

from collections.abc import Callable

from aexec import proto
from aexec.framework import errors
from aexec.framework.attr_value import NameAttrList
from aexec.graph.function_library import FunctionLibrary

__all__ = ["gradient_function", "set_gradient_maker"]

# Of a library, the versions of its graph, and a function of the library: adds the gradient function to the library.
GradientMaker = Callable[[FunctionLibrary, proto.VersionDef, NameAttrList], NameAttrList]

_makers: list[GradientMaker] = []


def set_gradient_maker(maker: GradientMaker) -> None:
    """From now on it makes the gradients of functions."""
    _makers[:] = [maker]


def gradient_function(library: FunctionLibrary, versions: proto.VersionDef, function: NameAttrList) -> NameAttrList:
    """The function that computes the gradient of a function: that which the library names, or else one that is made.

    It takes the function's arguments and a gradient for each result, and gives one for each argument.

    Raises:
        NotFoundError: a node of the body has no gradient.
        UnimplementedError: nothing is there that makes gradients, or it cannot make this one.
    """
    named = library.gradient(function.name)
    if named is not None:
        return NameAttrList(named, {})
    if not _makers:
        raise errors.UnimplementedError(f"the gradient of function '{function.name}': aexec.autodiff is not there")
    return _makers[0](library, versions, function)
