"""Ops of one's own: a Python function, or a coroutine, becomes an op with a kernel.

::

    @aexec.op("FetchJson(url: string) -> body: string", stateful=True)
    async def fetch_json(url): ...

    with aexec.Graph() as graph:
        body = fetch_json(aexec.placeholder("string", name="url"), name="body")

The function gets the inputs as arrays, which it cannot write to (they may be the caller's, or
other nodes' inputs too), and returns the outputs: an array (or what NumPy makes one of), or a
tuple for several.  Attrs come as keyword arguments.  A coroutine may await anything; if the
step is cancelled, it is cancelled at that await.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors, op_registry
from aexec.framework.dtypes import DType
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Cost, OpKernelConstruction
from aexec.graph.op_functions import make_function

__all__ = ["op"]


def op(
    signature: str, *attrs: str, stateful: bool = False, cost: Cost = 1.0, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as op and kernel; gives the function that adds a node of it to a graph.

    Args:
        signature: `Name(input: type, ...) -> output: type, ...`, in the language of op definitions.
        attrs: `name: type = default` of each attr.
        stateful: running it once is not running it twice (I/O, randomness); such nodes are never
            folded or shared.
        cost: nanoseconds per input element, as `kernel` takes it; a function that may hold up the
            event loop is run in a worker thread once that has been measured.
        options: more of what `op_registry.register_op` takes, e.g. `shape_fn`.

    Raises:
        InvalidArgumentError: a malformed signature.
        AlreadyExistsError: the op is registered already.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        op_registry.register_op(signature, *attrs, stateful=stateful, **options)
        name = signature.partition("(")[0].strip()
        op_def = op_registry.global_registry.lookup(name).op_def
        kernel(name, cost=cost)(functools.partial(_build, function))
        adder = make_function(op_def)
        adder.__doc__ = function.__doc__ or adder.__doc__
        adder.compute = function  # type: ignore[attr-defined]
        return adder

    return register


def _build(function: Callable[..., Any], c: OpKernelConstruction) -> Any:
    attrs = {attr.name: c.attr(attr.name) for attr in c.op_def.attrs if attr.type not in ("type", "list(type)")}
    attrs = {k: v for k, v in attrs.items() if k in inspect.signature(function).parameters}
    convert = functools.partial(_outputs, c.output_types)
    if inspect.iscoroutinefunction(function):

        async def await_and_convert(*inputs: Any) -> Any:
            return convert(await function(*map(_read_only, inputs), **attrs))

        return await_and_convert

    def compute_and_convert(*inputs: Any) -> Any:
        return convert(function(*map(_read_only, inputs), **attrs))

    return compute_and_convert


def _read_only(value: Any) -> Any:
    """A view that cannot be written to; a third of a microsecond, next to nothing for what is read-only already."""
    if type(value) is np.ndarray and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value


def _outputs(types: tuple[DType, ...], result: Any) -> Any:
    """What a user's function returned, as arrays of the declared types."""
    if not types:
        return None
    values = result if isinstance(result, tuple) else (result,)
    if len(values) != len(types):
        raise errors.InternalError(f"the op's function returned {len(values)} values, expected {len(types)}")
    return tuple(_array(value, dtype, slot) for slot, (value, dtype) in enumerate(zip(values, types, strict=True)))


def _array(value: Any, dtype: DType, slot: int) -> Any:
    if dtype is dtypes.string:
        array = np.array(value, object)
        encoded = np.empty(array.shape, object)
        encoded[...] = np.frompyfunc(_to_bytes, 1, 1)(array)
        return encoded
    if dtype.np.kind == "O":
        if isinstance(value, np.ndarray) and value.dtype.kind == "O":
            return value
        boxed = np.empty((), object)
        boxed[()] = value
        return boxed
    array = np.asarray(value)
    if array.dtype == dtype.np:
        return array
    if not np.can_cast(array.dtype, dtype.np, "same_kind") and isinstance(value, np.ndarray | np.generic):
        raise errors.InternalError(f"Output {slot} of type {array.dtype} does not match declared output type {dtype}")
    return array.astype(dtype.np)


def _to_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    raise errors.InternalError(f"a string output must be bytes or str, got {type(item).__name__}")
