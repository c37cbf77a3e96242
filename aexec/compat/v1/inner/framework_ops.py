"""`tensorflow.python.framework.ops`: names of nodes, and conversions of several values.

Next to read: `aexec/compat/v1/values/framework_ops.py`, which has the public part.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework.errors import InvalidTypeError
from aexec.graph.func_graph import FuncGraph

__all__ = [
    "EagerTensor",
    "convert_n_to_tensor",
    "default_session",
    "inside_function",
    "internal_convert_n_to_tensor",
    "internal_convert_to_tensor",
    "prepend_name_scope",
    "strip_name_scope",
    "uid",
]

_numbers = itertools.count(1)


class EagerTensor:
    """No tensor is one: there is no eager execution."""


def internal_convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    as_ref: bool = False,
    preferred_dtype: Any = None,
    ctx: Any = None,
) -> Any:
    """`tf.convert_to_tensor`; of a variable its reference with `as_ref`."""
    if as_ref and hasattr(value, "reference"):
        return value.reference
    return convert_to_tensor(value, dtype, name, preferred_dtype)


def convert_n_to_tensor(values: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None) -> Any:
    """The tensors of several values; their names are numbered."""
    if not isinstance(values, Iterable):
        raise InvalidTypeError("values must be iterable.")
    names = (None if name is None else f"{name}_{index}" for index in itertools.count())
    return [convert_to_tensor(v, dtype, n, preferred_dtype) for v, n in zip(values, names, strict=False)]


def internal_convert_n_to_tensor(
    values: Any, dtype: Any = None, name: str | None = None, as_ref: bool = False, preferred_dtype: Any = None
) -> Any:
    """The same, with `as_ref` as of `internal_convert_to_tensor`."""
    return [internal_convert_to_tensor(value, dtype, None, as_ref, preferred_dtype) for value in values]


def default_session(session: Any) -> AbstractContextManager[Any]:
    """`session.as_default()`."""
    found: AbstractContextManager[Any] = session.as_default()
    return found


def inside_function() -> bool:
    """Whether the current graph is the body of a function."""
    return isinstance(get_default_graph(), FuncGraph)


def uid() -> int:
    """A number that no call gave before."""
    return next(_numbers)


def strip_name_scope(name: str, export_scope: str | None) -> str:
    """A node's name without a scope at its beginning; also in `^NAME` and `loc:@NAME`."""
    if not export_scope:
        return name
    return re.sub(rf"^(\^|loc:@|){re.escape(export_scope.rstrip('/'))}/", r"\1", name)


def prepend_name_scope(name: str, import_scope: str | None) -> str:
    """A node's name with a scope before it; also in `^NAME` and `loc:@NAME`."""
    if not import_scope:
        return name
    return re.sub(r"^(\^|loc:@|)", lambda found: f"{found[1]}{import_scope.rstrip('/')}/", name, count=1)
