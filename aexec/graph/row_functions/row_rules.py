"""How ops are computed for all rows of a batch at once.

A rule gets a node of the function and its inputs.  Some of the inputs have rows.  It builds nodes that give the batch
of the node's results for each row, or fail.  Each element of a result depends only on elements of the same row.
Next to read: `batched_function.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.row_functions.rebuilt_body import RebuiltBody, Value, require

__all__ = ["ROW_RULES", "Rule"]

Rule = Callable[[RebuiltBody, Node, Sequence[Value]], list[Tensor]]

ROW_RULES: dict[str, Rule] = {}
"""The rules, by op."""


def _rule(ops: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        ROW_RULES.update(dict.fromkeys(ops.split(), rule))
        return rule

    return register


def _tensors(values: Sequence[Value]) -> list[Any]:
    return [value.tensor for value in values]


def _only_first_has_rows(values: Sequence[Value]) -> Value:
    require(values[0].has_rows and not any(value.has_rows for value in values[1:]))
    return values[0]


def _axis(axis: int, rank: int) -> int:
    """The axis of a batch for one of rows."""
    require(-rank <= axis < rank)
    return axis + 1 if axis >= 0 else axis


def _like_array(value: Value, array: Any) -> Any:
    """A constant of the same type as another."""
    return np.asarray(array, value.constant.dtype)


# ---- Element by element


@_rule(
    """Abs Acos Acosh Asin Asinh AsString Atan Atanh Cast Ceil Cos Cosh DecodeBase64 Elu EncodeBase64 Erf
    Erfc Exp Expm1 Floor Identity Inv Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p LogicalNot Neg OnesLike
    PreventGradient Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square
    StaticRegexFullMatch StaticRegexReplace StopGradient StringLength StringLower StringStrip StringToHashBucket
    StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Tan Tanh ZerosLike"""
)
def _element_by_element(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    return body.like(node, _tensors(values))


@_rule(
    """Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual
    LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan NotEqual Pow RealDiv RightShift
    SelectV2 SquaredDifference Sub TruncateDiv TruncateMod Xdivy Xlogy"""
)
def _broadcast(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    require(node.attrs.get("incompatible_shape_error", True))
    rank = max(value.rank for value in values)
    return body.like(node, [body.expanded(value, rank) if value.has_rows else value.tensor for value in values])


@_rule("AddN ClipByValue RegexFullMatch RegexReplace Select StringJoin Substr")
def _of_equal_shapes(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    """Rows of one rank, and scalars that are the same for all rows."""
    ranks = {value.rank for value in values if value.has_rows}
    require(len(ranks) == 1 and all(value.has_rows or not value.rank for value in values))
    return body.like(node, _tensors(values))


# ---- Records


@_rule("DecodeRaw")
def _decode_raw(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    (made,) = body.like(node, _tensors(values))
    return [body.know(made, [-1 if size is None else size for size in values[0].dims] + [-1])]


@_rule("DecodeCSV")
def _decode_csv(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    _only_first_has_rows(values)
    return body.like(node, _tensors(values))


@_rule("ParseExampleV2")
def _parse_example(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    require(not _only_first_has_rows(values).rank and not values[1].constant.size)
    require(not node.attrs["num_sparse"] and not node.attrs["ragged_value_types"])
    _check_fixed(node)
    return body.like(node, _tensors(values))


def _check_fixed(node: Node) -> None:
    """Dense features of fixed length only: others depend on the longest row."""
    require(all(shape.is_fully_defined for shape in node.attrs["dense_shapes"]))


@_rule("ParseSingleExample")
def _parse_single_example(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    require(not _only_first_has_rows(values).rank and not node.attrs["num_sparse"])
    _check_fixed(node)
    none = np.array([], object)
    inputs = {
        "serialized": values[0].tensor,
        "names": none,
        "sparse_keys": none,
        "dense_keys": np.array(node.attrs["dense_keys"], object),
        "ragged_keys": none,
        "dense_defaults": _tensors(values[1:]),
    }
    attrs = {
        "num_sparse": 0,
        "sparse_types": [],
        "ragged_value_types": [],
        "ragged_split_types": [],
        "Tdense": node.attrs["Tdense"],
        "dense_shapes": node.attrs["dense_shapes"],
    }
    return body.node("ParseExampleV2", inputs, attrs)


# ---- Images: ops that take a batch of images anyway get all rows' at once


@_rule("ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor")
def _resize(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    images = _only_first_has_rows(values)
    require(images.rank == 4 and images.dims[0] == 1)
    (flat,) = body.node("Squeeze", {"input": images.tensor}, {"squeeze_dims": [1]})
    (made,) = body.like(node, [flat, *_tensors(values[1:])])
    return body.node("ExpandDims", {"input": made, "dim": np.int32(1)}, {})


@_rule("AdjustContrastv2 AdjustHue AdjustSaturation HSVToRGB RGBToHSV")
def _colours(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    require(_only_first_has_rows(values).rank >= (1 if node.op in ("HSVToRGB", "RGBToHSV") else 3))
    return body.like(node, _tensors(values))


# ---- Shapes


@_rule("Reshape")
def _reshape(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    _only_first_has_rows(values)
    dims = values[1].constant
    require(dims.ndim == 1)
    (made,) = body.node("Reshape", {"tensor": values[0].tensor, "shape": body.shape_of_rows(dims.tolist())}, {})
    return [body.know(made, dims.tolist())]


@_rule("BroadcastTo")
def _broadcast_to(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    _only_first_has_rows(values)
    dims = values[1].constant
    require(dims.ndim == 1 and len(dims) >= values[0].rank and bool((dims >= 0).all()))
    inputs = {
        "input": body.expanded(values[0], len(dims)),
        "shape": body.shape_of_rows(dims.tolist()),
    }
    return [body.know(body.node("BroadcastTo", inputs, {})[0], dims.tolist())]


@_rule("EnsureShape")
def _ensure_shape(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    dims = node.attrs["shape"].dims
    shape = PartialTensorShape(None if dims is None else [None, *dims])
    return body.like(node, _tensors(values), shape=shape)


@_rule("ExpandDims")
def _expand_dims(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    axis = values[1].constant
    require(axis.size == 1)
    changed = _like_array(values[1], _axis(int(axis.item()), _only_first_has_rows(values).rank + 1))
    return body.like(node, [values[0].tensor, changed])


@_rule("Squeeze")
def _squeeze(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    axes, dims = node.attrs["squeeze_dims"], values[0].dims
    if not axes:
        require(None not in dims)
        axes = [axis for axis, size in enumerate(dims) if size == 1]
        if not axes:
            return [values[0].tensor]
    return body.like(node, _tensors(values), squeeze_dims=[_axis(axis, len(dims)) for axis in axes])


@_rule("Transpose")
def _transpose(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    order, rank = values[1].constant, _only_first_has_rows(values).rank
    require(sorted(order.ravel().tolist()) == list(range(rank)))
    return body.like(node, [values[0].tensor, _like_array(values[1], [0, *(order + 1).tolist()])])


@_rule("Pad PadV2 MirrorPad Tile")
def _pad(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    """Paddings [rank, 2], or numbers of repetitions [rank]."""
    given, rank = values[1].constant, _only_first_has_rows(values).rank
    require(given.shape == ((rank,) if node.op == "Tile" else (rank, 2)))
    first = [1] if node.op == "Tile" else [[0, 0]]
    changed = np.concatenate([np.array(first, given.dtype), given])
    return body.like(node, [values[0].tensor, changed, *_tensors(values[2:])])


@_rule("Slice")
def _slice(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    begin, size = values[1].constant, values[2].constant
    rank = _only_first_has_rows(values).rank
    require(begin.shape == size.shape == (rank,))
    changed = [_like_array(values[1], [0, *begin.tolist()]), _like_array(values[2], [-1, *size.tolist()])]
    return body.like(node, [values[0].tensor, *changed])


# The attrs that have a bit for each dimension, and the most dimensions that are looked at.
_MASKS, _MOST_MASKED = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 32


@_rule("StridedSlice")
def _strided_slice(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    begin, end, strides = (value.constant for value in values[1:])
    require(_only_first_has_rows(values).rank >= 0 and begin.ndim == 1 and begin.shape == end.shape == strides.shape)
    changed = [
        _like_array(value, [first, *array.tolist()])
        for value, first, array in zip(values[1:], (0, 0, 1), (begin, end, strides), strict=True)
    ]
    require(all(0 <= node.attrs[name] < 1 << _MOST_MASKED for name in _MASKS))
    masks = {name: node.attrs[name] << 1 for name in _MASKS[2:]}
    whole = {name: node.attrs[name] << 1 | 1 for name in _MASKS[:2]}
    return body.like(node, [values[0].tensor, *changed], **masks, **whole)


# ---- Along an axis


@_rule("All Any ArgMax ArgMin Cumprod Cumsum Max Mean Min Prod ReverseV2 Sum")
def _along_axis(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    axes, rank = values[1].constant, _only_first_has_rows(values).rank
    changed = np.array([_axis(axis, rank) for axis in axes.ravel().tolist()], axes.dtype).reshape(axes.shape)
    return body.like(node, [values[0].tensor, changed])


@_rule("LogSoftmax Softmax")
def _softmax(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    require(values[0].rank >= 1)
    return body.like(node, _tensors(values))


@_rule("Pack")
def _pack(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    ranks = {value.rank for value in values}
    require(len(ranks) == 1 and all(value.has_rows for value in values))
    return body.like(node, _tensors(values), axis=_axis(node.attrs["axis"], ranks.pop() + 1))


@_rule("Unpack")
def _unpack(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    return body.like(node, _tensors(values), axis=_axis(node.attrs["axis"], values[0].rank))


@_rule("ConcatV2")
def _concat(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    *parts, axis = values
    ranks = {value.rank for value in parts}
    require(len(ranks) == 1 and all(value.has_rows for value in parts) and not axis.has_rows)
    require(axis.constant.size == 1)
    changed = _like_array(axis, _axis(int(axis.constant.item()), ranks.pop()))
    return body.like(node, [*_tensors(parts), changed])


@_rule("Split SplitV")
def _split(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    place, whole = (0, 1) if node.op == "Split" else (2, 0)
    require(all(value.has_rows == (position == whole) for position, value in enumerate(values)))
    axis = values[place].constant
    require(axis.size == 1)
    tensors = _tensors(values)
    tensors[place] = _like_array(values[place], _axis(int(axis.item()), values[whole].rank))
    return body.like(node, tensors)


@_rule("OneHot")
def _one_hot(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    rank, axis = _only_first_has_rows(values).rank, node.attrs["axis"]
    require(axis >= -1)
    return body.like(node, _tensors(values), axis=_axis(axis, rank + 1))


@_rule("GatherV2")
def _gather(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    """Rows of a table that is the same for all; or elements along an axis, the same or others for each row."""
    params, indices, axis = values
    require(not node.attrs["batch_dims"] and axis.constant.size == 1)
    at = int(axis.constant.item())
    if not params.has_rows:
        require(at == 0)
        return body.like(node, _tensors(values))
    require(-params.rank <= at < params.rank)
    changed = _like_array(axis, at % params.rank + 1)
    return body.like(node, [params.tensor, indices.tensor, changed], batch_dims=int(indices.has_rows))


@_rule("Gather")
def _gather_rows(body: RebuiltBody, node: Node, values: Sequence[Value]) -> list[Tensor]:
    require(not values[0].has_rows)
    return body.like(node, _tensors(values))
