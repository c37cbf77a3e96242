"""Chooses the class of `Session(source, target)`: by the target's scheme, or one that opens the source first."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph

__all__ = ["class_for_source", "class_for_target", "register_session_class", "set_opening_class"]

# Scheme of a target → class, or "module:name".
_session_classes: dict[str, type[Any] | str] = {}
# For a source that must be read first, such as a path.
_opening_class: type[Any] | None = None


def register_session_class(scheme: str, session_class: type[Any] | str) -> None:
    """Let `Session(graph, target="scheme://…")` be a `session_class(graph, target, config)`.

    The class need not be a subclass of `Session`.  Given as `"module:name"` it is imported at its first use.

    Raises:
        AlreadyExistsError: the scheme has a class.
        InvalidArgumentError: `session_class` is not a class.  Python would initialise the result of a function twice.
    """
    if not isinstance(session_class, type | str):
        raise errors.InvalidArgumentError(f"A session class must be a class, got {session_class!r}")
    if scheme in _session_classes:
        raise errors.AlreadyExistsError(f"A session class for target '{scheme}' is registered already")
    _session_classes[scheme] = session_class


def class_for_target(target: str) -> type[Any]:
    """The class that is registered for a target's scheme.  Raises NotFoundError if there is none."""
    found = _session_classes.get(target.partition("://")[0])
    if found is None:
        raise errors.NotFoundError(
            f"No session class is registered for target '{target}'; "
            f"registered: '' (in process){''.join(f', {t}' for t in sorted(_session_classes))}"
        )
    if isinstance(found, str):
        module, _, name = found.partition(":")
        made: type[Any] = getattr(import_module(module), name)
        return made
    return found


def set_opening_class(opening_class: type[Any]) -> None:
    """Let `Session(source)` be an `opening_class(source, target, config)` if the source must be read first."""
    global _opening_class
    _opening_class = opening_class


def class_for_source(source: object) -> type[Any] | None:
    """The class that opens a source; None if there is nothing to open."""
    if source is None or isinstance(source, Graph | MetaGraph):
        return None
    return getattr(source, "session_class", _opening_class)
