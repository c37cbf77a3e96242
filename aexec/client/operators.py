"""Operators on tensors: `x + 1`, `a @ b`, `x[1:, ::2]`, `-x`, `x < y`.

Importing this module gives `TensorOperators` (`graph/nodes/node.py`) its operators, which tensors and variables share.
`==` compares tensors by identity, since they are keys of feeds; build `aexec.ops.equal(x, y)` for the elementwise
comparison.

Nodes, and the constants that Python values become, have TensorFlow's names: `x + 0.5` is `add`, of `x` and `add/y`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.client.building import name_scope
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.graph.nodes.node import Tensor, TensorOperators
from aexec.graph.op_functions import convert_to_tensor, create_node
from aexec.graph.tensor_proxy import TensorProxy

__all__: list[str] = []

# Python method → op, for `x op y` and (with the sides swapped) `y op x`; the node has the method's name.
_BINARY = {
    "add": "AddV2",
    "sub": "Sub",
    "mul": "Mul",
    "floordiv": "FloorDiv",
    "mod": "FloorMod",
    "pow": "Pow",
    "matmul": "MatMul",
    "and": "LogicalAnd",
    "or": "LogicalOr",
}
_COMPARISONS = {"lt": "Less", "le": "LessEqual", "gt": "Greater", "ge": "GreaterEqual"}
_UNARY = {"neg": "Neg", "invert": "LogicalNot"}


def _apply(op: str, name: str, left: Any, right: Any) -> Tensor:
    """`left op right` as the node `name`; a side that is not a tensor gets the other's type."""
    if not isinstance(left, Tensor):
        with name_scope(name) as name:
            left = convert_to_tensor(left, right.dtype.base, "x")
    if op == "AddV2" and left.dtype.base is dtypes.string:
        op = "Add"
    elif op == "MatMul" and (left.shape.rank or 2) > 2:
        op = "BatchMatMulV2"
    first, second = ("a", "b") if op == "MatMul" else ("x", "y")
    return create_node(op, {first: left, second: right}, {}, name=name).output(0)


def _binary(op: str, name: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    return (
        lambda self, other: _apply(op, name, _operand(self), other),
        lambda self, other: _apply(op, name, other, _operand(self)),
    )


def _operand(of: Tensor | TensorProxy) -> Tensor:
    return of.as_tensor() if isinstance(of, TensorProxy) else of


def _unary(op: str) -> Callable[..., Tensor]:
    return lambda self: create_node(op, {_ONLY_INPUT[op]: _operand(self)}, {}).output(0)


def _abs(self: Tensor | TensorProxy) -> Tensor:
    value = _operand(self)
    return create_node("ComplexAbs" if value.dtype.is_complex else "Abs", {"x": value}, {}).output(0)


def _truediv(left: Any, right: Any) -> Tensor:
    """Division as in Python 3: integers are divided in float64 (float32 for the narrow ones), as in TensorFlow."""
    dtype = (left if isinstance(left, Tensor) else right).dtype.base
    if not dtype.is_integer:
        return _apply("RealDiv", "truediv", left, right)
    wide = dtypes.float32 if dtype.size <= 2 else dtypes.float64
    with name_scope("truediv") as scope:
        sides = convert_to_tensor(left, dtype, "x"), convert_to_tensor(right, dtype, "y")
        x, y = [create_node("Cast", {"x": side}, {"DstT": wide}).output(0) for side in sides]
        return create_node("RealDiv", {"x": x, "y": y}, {}, name=scope).output(0)


def _getitem(self: Tensor | TensorProxy, key: Any) -> Tensor:
    """`x[1]`, `x[1:, ..., None]`: a StridedSlice.  Bounds are Python ints or scalar int tensors.

    `x[mask]`, for a mask of bools of known rank, has the elements for which it is true, as rows.
    """
    value = _operand(self)
    if getattr(key, "dtype", None) == np.bool_ and not isinstance(key, np.bool_):
        return _masked(value, key)
    parts = key if isinstance(key, tuple) else (key,)
    begin: list[Any] = []
    end: list[Any] = []
    strides: list[Any] = []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for index, part in enumerate(parts):
        bit = 1 << index
        low: Any = 0
        high: Any = 0
        step: Any = 1
        if part is Ellipsis:
            masks["ellipsis_mask"] |= bit
        elif part is None:
            masks["new_axis_mask"] |= bit
        elif isinstance(part, slice):
            low, high, step = part.start, part.stop, 1 if part.step is None else part.step
            masks["begin_mask"] |= bit if low is None else 0
            masks["end_mask"] |= bit if high is None else 0
            low, high = 0 if low is None else low, 0 if high is None else high
        elif isinstance(part, int | np.integer) and not isinstance(part, bool):
            masks["shrink_axis_mask"] |= bit
            low, high = int(part), int(part) + 1
            masks["end_mask"] |= bit if high == 0 else 0
        elif isinstance(part, Tensor) and part.dtype.base in (dtypes.int32, dtypes.int64):
            masks["shrink_axis_mask"] |= bit
            low, high = part, part + 1
        else:
            raise errors.InvalidTypeError(
                f"a tensor is indexed by ints, slices, `...` and None, got {part!r} of type {type(part).__name__}"
            )
        begin.append(low)
        end.append(high)
        strides.append(step)
    with name_scope("strided_slice") as scope:
        wide = any(isinstance(item, Tensor) and item.dtype.base is dtypes.int64 for item in begin + end + strides)
        dtype = dtypes.int64 if wide else dtypes.int32
        bounds = {"begin": _stack(begin, dtype), "end": _stack(end, dtype), "strides": _stack(strides, dtype)}
        return create_node("StridedSlice", {"input": value, **bounds}, masks, name=scope).output(0)


def _masked(value: Tensor, mask: Any) -> Tensor:
    with name_scope("boolean_mask") as scope:
        keep = convert_to_tensor(mask, name="mask")
        rank = keep.static_shape.rank
        if not rank:
            raise errors.InvalidValueError(f"a mask has a known rank of 1 at least, not the shape {keep.static_shape}")
        shape = create_node("Shape", {"input": value}, {}).output(0)
        sizes = create_node("ConcatV2", {"values": [[-1], shape[rank:]], "axis": 0}, {}).output(0)
        rows = create_node("Reshape", {"tensor": value, "shape": sizes}, {}).output(0)
        chosen = create_node(
            "Where", {"input": create_node("Reshape", {"tensor": keep, "shape": [-1]}, {}).output(0)}, {}
        )
        places = create_node("Squeeze", {"input": chosen.output(0)}, {"squeeze_dims": [1]}).output(0)
        return create_node("GatherV2", {"params": rows, "indices": places, "axis": 0}, {}, name=scope).output(0)


def _stack(items: list[Any], dtype: DType) -> Tensor:
    """Bounds as a vector of a type: a constant if none of them is a tensor."""
    if not any(isinstance(item, Tensor) for item in items):
        return convert_to_tensor(np.array(items, dtype.np), name="stack")
    with name_scope("stack") as scope:
        values = [_bound(item, dtype, str(index)) for index, item in enumerate(items)]
        return create_node("Pack", {"values": values}, {}, name=scope).output(0)


def _bound(item: Any, dtype: DType, name: str) -> Tensor:
    if isinstance(item, Tensor) and item.dtype.base is dtypes.int32 and dtype is dtypes.int64:
        return create_node("Cast", {"x": item}, {"DstT": dtype}, name=name).output(0)
    return convert_to_tensor(item, dtype, name)


def _array(self: Tensor, *dtype: Any, **settings: Any) -> Any:
    raise errors.InvalidValueError(
        f"{self!r} has no value while the graph is built, so NumPy cannot read it; run it, or call the op of that name"
    )


def _iter(self: TensorOperators) -> Any:
    raise TypeError(f"{self!r} cannot be iterated over while the graph is built; use aexec.ops.unpack")


def _install() -> None:
    for method, op in _BINARY.items():
        forward, reflected = _binary(op, method)
        setattr(TensorOperators, f"__{method}__", forward)
        setattr(TensorOperators, f"__r{method}__", reflected)
    for method, op in _COMPARISONS.items():
        setattr(TensorOperators, f"__{method}__", _binary(op, op)[0])
    for method, op in _UNARY.items():
        setattr(TensorOperators, f"__{method}__", _unary(op))
    others: dict[str, Callable[..., Any]] = {
        "__abs__": _abs,
        "__truediv__": lambda self, other: _truediv(_operand(self), other),
        "__rtruediv__": lambda self, other: _truediv(other, _operand(self)),
        "__getitem__": _getitem,
        "__iter__": _iter,
    }
    for name, function in others.items():
        setattr(TensorOperators, name, function)
    setattr(Tensor, "__array__", _array)  # noqa: B010  else NumPy makes an array of objects


_ONLY_INPUT = {"Neg": "x", "LogicalNot": "x"}
_install()
