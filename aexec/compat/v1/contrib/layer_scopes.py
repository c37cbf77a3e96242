"""Scopes, variable names and collections that all layers of `tf.contrib.layers` share.

Next to read: `layers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import require_graph
from aexec.variables.variable_scope import VariableScope, variable_scope

__all__ = ["collections_of", "contrib_scope", "finished", "known_size", "model_getter", "name_of"]

Collections = Iterable[str] | Mapping[str, Iterable[str]] | None


def collections_of(given: Collections, name: str) -> list[str]:
    """The collections of the variable `name`: the given list for all variables, or the entry of a dict by name."""
    if isinstance(given, Mapping):
        return list(given.get(name, ()))
    return list(given or ())


def model_getter(collections: Collections, renamed: Mapping[str, str]) -> Callable[..., Any]:
    """A custom getter that gives variables contrib's names, and adds them to MODEL_VARIABLES and to collections."""

    def get(getter: Callable[..., Any], name: str, **arguments: Any) -> Any:
        scope, slash, last = name.rpartition("/")
        called = renamed.get(last, last)
        own = list(arguments.get("collections") or [GraphKeys.GLOBAL_VARIABLES])
        arguments["collections"] = [*own, GraphKeys.MODEL_VARIABLES, *collections_of(collections, called)]
        return getter(f"{scope}{slash}{called}", **arguments)

    return get


@contextmanager
def contrib_scope(
    scope: Any, default: str, reuse: Any = None, collections: Collections = None, **renamed: str
) -> Iterator[VariableScope]:
    """The variable scope of a layer, whose variables are the model's; `renamed` has contrib's names of aexec's."""
    getter = model_getter(collections, renamed)
    with variable_scope(scope, default, reuse=reuse, custom_getter=getter) as opened:
        yield opened


# Key of the private collection of (outputs of a layer, name of the layer).
_NAMED = ("aexec.compat.v1.contrib", "named outputs")


def finished(outputs: Tensor, scope: str, collections: Iterable[str] | str | None) -> Tensor:
    """Add a layer's outputs to collections, record the layer's name for `name_of`, and return the outputs."""
    if collections:
        require_graph().collections.add(_NAMED, (outputs, scope))
        for collection in [collections] if isinstance(collections, str) else collections:
            require_graph().collections.add(collection, outputs)
    return outputs


def name_of(outputs: Any) -> str:
    """The name of the layer that made these outputs; the name of their operation if it was no contrib layer."""
    named = (str(name) for found, name in require_graph().collections.get(_NAMED) if found is outputs)
    return next(named, str(outputs.op.name))


def known_size(x: Tensor, axis: int) -> int:
    """The size along an axis.  Raises ValueError if it is unknown."""
    sizes = [] if x.static_shape.rank is None else list(x.static_shape)
    size = sizes[axis] if sizes else None
    if size is None:
        raise errors.InvalidValueError(f"Inputs {x.name} has undefined last dimension: {x.static_shape}")
    return size
