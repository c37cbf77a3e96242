"""`namespace`: turns a module into a table of TensorFlow's names, with their implementations or reasons for absence.

::

    _NAMES = {"abs": "ops:abs", "matmul": "functions.math_ops:matmul"}
    __getattr__, __dir__ = namespace(__name__, _NAMES, {"foo": "use bar"})

Implementations are imported when they are first used.  Next to read: `__init__.py`, the largest of the tables.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any

from aexec.framework import errors

__all__ = ["chosen", "listed", "made_with", "namespace", "refuse", "renamed", "unknown"]

_HERE = __name__.rpartition(".")[0]


def namespace(
    module: str, names: Mapping[str, str], missing: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module.

    Args:
        module: its name.
        names: TensorFlow's name → `where:attribute`, or `where` for a module.  `ops:` and places that begin with
            `aexec` are aexec's; other places are in the rooms beside this module.  After a `|` are TensorFlow's
            names of arguments, as `renamed` takes them.
        missing: TensorFlow's name → what to use instead, or why it is missing.
    """
    why = missing or {}

    def get(name: str) -> Any:
        if name in names:
            found = _find(name, names[name])
            setattr(sys.modules[module], name, found)
            return found
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        raise AttributeError(f"{module} has no {name!r}: {why.get(name) or unknown(module, name)}", name=name)

    def listed() -> list[str]:
        own = getattr(sys.modules[module], "__all__", ())
        return sorted({*own, *names})

    return get, listed


def _find(name: str, where: str) -> Any:
    where, _, arguments = where.partition("|")
    place, _, attribute = where.strip().partition(":")
    if place == "ops":
        place = "aexec.ops"
    elif place.partition(".")[0] != "aexec":
        place = f"{_HERE}.{place}"
    found: Any = importlib.import_module(place)
    if attribute:
        found = getattr(found, attribute)
    return renamed(found, arguments, name) if arguments else found


def unknown(module: str, name: str) -> str:
    from aexec.graph.op_functions import function_names, snake_case

    if (function := snake_case(name)) in function_names():
        return f"the op of that name is aexec.ops.{function}"
    near = difflib.get_close_matches(name, dir(sys.modules[module]), n=3)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"docs/from-tensorflow.md says what there is{hint}"


def chosen(default: Any = None, /, **values: Any) -> Any:
    """The value of the one argument that is given, of several names that TensorFlow has for the same argument.

    Args:
        default: the result if all values are None; `...` if one must be given.

    Raises:
        ValueError: more than one value is given, or none although one must be.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) > 1:
        raise errors.InvalidValueError(f"Cannot specify both {' and '.join(given)}: they mean the same")
    if not given and default is ...:
        raise errors.InvalidValueError(f"{next(iter(values))} must be given")
    return next(iter(given.values()), default)


def refuse(function: str, **values: Any) -> None:
    """Raise UnimplementedError if an argument is given that aexec does not support."""
    for name, value in values.items():
        if value is not None and not (isinstance(value, int | float) and value == 0):
            raise errors.UnsupportedError(f"{function}: {name}={value!r} is not supported")


def listed(argument: str, value: Any) -> list[Any]:
    """Return a list or tuple of tensors as a list.  Raises TypeError for other values, arrays included."""
    if not isinstance(value, list | tuple):
        raise errors.InvalidTypeError(f"Expected list for '{argument}' argument, not {value!r:.100}.")
    return list(value)


def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    try:
        return signature(function).parameters
    except ValueError:
        return {}  # a function written in C may not have a signature


def renamed(
    ours: Callable[..., Any], arguments: str, name: str, of: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A function of aexec with TensorFlow's order and names of arguments.

    Args:
        arguments: names in TensorFlow's order: `theirs`, or `theirs=ours` if they differ; `theirs=` if the argument
            is ignored here; `theirs!` if it is not supported; `theirs!value` if only this value is supported.
            Arguments that are missing, or None, get aexec's defaults.
        name: of the function.
        of: the function whose parameters these are; by default `ours`.
    """
    names: dict[str, str] = {}
    unsupported: dict[str, str] = {}
    for argument in arguments.split():
        theirs, equals, mine = argument.partition("=")
        theirs, refused, only = theirs.partition("!")
        names[theirs] = "" if refused else mine if equals else theirs
        if refused:
            unsupported[theirs] = only
    given_to_ours = _parameters(ours) if of is None else _parameters(of)
    needed = {name for name, parameter in given_to_ours.items() if parameter.default is Parameter.empty}
    defaults = {theirs: given_to_ours[name].default for theirs, name in names.items() if name in given_to_ours}
    defaults |= {theirs: _literal(only) for theirs, only in unsupported.items() if only}
    accepted = Signature(
        [
            Parameter(theirs, Parameter.POSITIONAL_OR_KEYWORD, default=None if name in needed else defaults.get(theirs))
            for theirs, name in names.items()
        ]
    )

    def call(*values: Any, **named: Any) -> Any:
        try:
            given = accepted.bind(*values, **named).arguments
        except TypeError as error:
            raise TypeError(f"{name}(): {error}; signature: {name}{accepted}") from None
        passed: dict[str, Any] = {}
        for key, value in given.items():
            if key in unsupported and str(value) != unsupported[key]:
                refuse(name, **{key: value})
            if names[key] and (value is not None or names[key] in needed):
                if names[key] in passed:
                    raise errors.InvalidValueError(f"{name}: {key} and another argument mean the same")
                passed[names[key]] = value
        return ours(**passed)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"TensorFlow's `{name}`, over `{getattr(ours, '__module__', '')}.{getattr(ours, '__name__', '')}`."
    call.__signature__ = accepted  # type: ignore[attr-defined]
    call.renames = ours, names, frozenset(unsupported)  # type: ignore[attr-defined]
    return call


def _literal(text: str) -> Any:
    """Evaluate a word of a table as a Python literal; a word that is no literal is a string."""
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def _bound(method: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the parameters of a method, without the first."""

    def call(*values: Any, **named: Any) -> Any:
        return method(None, *values, **named)

    call.__signature__ = Signature(list(signature(method).parameters.values())[1:])  # type: ignore[attr-defined]
    return call


def made_with(ours: type, arguments: str, *bases: type, **members: Any) -> Any:
    """A class of aexec that is made with TensorFlow's arguments, and may be subclassed.

    Args:
        ours: the class.
        arguments: as of `renamed`.
        bases: its base classes; by default `ours`.
        members: further attributes.
    """
    prepare = renamed(dict, arguments, ours.__name__, _bound(ours.__init__))  # type: ignore[misc]

    def begin(self: Any, *values: Any, **named: Any) -> None:
        ours.__init__(self, **prepare(*values, **named))  # type: ignore[misc]

    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [own, *signature(prepare).parameters.values()]
    begin.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    doc = f"TensorFlow's `{ours.__name__}`, over `{ours.__module__}.{ours.__name__}`."
    return type(ours.__name__, bases or (ours,), {"__init__": begin, "__doc__": doc, **members})
