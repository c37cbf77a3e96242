"""`tf.py_func`: a Python function as an op, with TensorFlow's handling of results and errors.

Next to read: `aexec/client/user_ops.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.client.user_ops import op
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["py_func", "py_function"]

_numbers = itertools.count()

# Exceptions of a function → those of the step; any other becomes an UnknownError.
_ERRORS: tuple[tuple[type[Exception], type[errors.OpError]], ...] = (
    (ValueError, errors.InvalidArgumentError),
    (TypeError, errors.InvalidArgumentError),
    (StopIteration, errors.OutOfRangeError),
    (MemoryError, errors.ResourceExhaustedError),
    (NotImplementedError, errors.UnimplementedError),
)


def py_func(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:
    """`tf.py_func`: call a Python function as a user-defined op (`aexec.op`).  Other processes cannot import its graph.

    Args:
        func: called with arrays; returns an array, or a list or tuple with an array per dtype.
        Tout: the dtype of the result, or a list of dtypes.
    """
    if not callable(func):
        raise errors.InvalidValueError(f"Expected func to be callable. Received func={func!r} of type {type(func)}.")
    return _made(func, inp, Tout, stateful, name, None)


def _made(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, stateful: bool, name: str | None, gradient: Any
) -> Any:
    several = isinstance(Tout, list | tuple)
    types = [as_dtype(dtype) for dtype in (Tout if several else [Tout])]
    tensors = [convert_to_tensor(value) for value in inp]
    given = ", ".join(f"x{i}: {tensor.dtype.base}" for i, tensor in enumerate(tensors))
    taken = ", ".join(f"y{i}: {dtype}" for i, dtype in enumerate(types))
    number = next(_numbers)

    def call(*arguments: Any) -> Any:
        arrays = _arrays(_called(func, arguments), types, f"pyfunc_{number}")
        return arrays[0] if len(arrays) == 1 else tuple(arrays) if arrays else None

    made = op(f"PyFunc{number}({given})" + (f" -> {taken}" if types else ""), stateful=stateful, gradient=gradient)(
        call
    )(*tensors, name=name)
    return [made] if several and len(types) == 1 else list(made) if several and types else made


class _Values(np.ndarray):
    """An argument of a function of `py_function`: an array that has `numpy()`, as eager tensors have."""

    def numpy(self) -> Any:
        """The array."""
        return np.asarray(self)


def py_function(func: Any = None, inp: Any = None, Tout: Any = None, name: str | None = None) -> Any:
    """`tf.py_function`: `tf.py_func` of a function whose arguments have `numpy()`.

    It has no gradient: differentiating it raises UnimplementedError.
    """

    def call(*arguments: Any) -> Any:
        return func(*[np.asarray(argument).view(_Values) for argument in arguments])

    return _made(call, inp, Tout, True, name, _no_gradient)


def _no_gradient(op: Any, *grads: Any) -> Any:
    raise errors.UnsupportedError(
        "tf.py_function has no gradient: use aexec.op with `gradient`, or tf.custom_gradient around it"
    )


def _called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call the function, and convert its exceptions to errors of a step; aexec's own errors pass unchanged."""
    try:
        return function(*arguments)
    except errors.OpError:
        raise
    except Exception as error:
        kind = next((ours for pythons, ours in _ERRORS if isinstance(error, pythons)), errors.UnknownError)
        raise kind(f"{type(error).__name__}: {error}") from error


def _arrays(result: Any, types: Sequence[DType], name: str) -> list[Any]:
    """Convert the result to arrays.  Raises InvalidArgumentError if their number or dtypes are not those of `Tout`."""
    found = result if isinstance(result, list | tuple) else [] if result is None else [result]
    if len(found) != len(types):
        raise errors.InvalidArgumentError(
            f"{name} returns {len(found)} values, but expects to see {len(types)} values."
        )
    return [
        _array(value, dtype, f"{i}-th value returned by {name}")
        for i, (value, dtype) in enumerate(zip(found, types, strict=True))
    ]


def _array(value: Any, dtype: DType, which: str) -> Any:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise errors.InvalidArgumentError(f"{which}: {error}") from error
    if array.dtype.kind == "O" and not all(isinstance(item, str | bytes) for item in array.flat):
        raise errors.InternalError(f"{which}: Unsupported object type {type(value).__name__}")
    given = dtypes.string if array.dtype.kind in "OSU" else dtypes.from_numpy(array.dtype)
    if given is not dtype.base:
        raise errors.InvalidArgumentError(f"{which} is {given}, but expects {dtype}")
    return array.astype(object) if given is dtypes.string else array
