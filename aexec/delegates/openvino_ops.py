"""Which nodes go to OpenVINO: those whose results there are the same, except for float32's last digits.

An allow-list.  Its CPU plugin narrows types with which it does not compute: float64 to float32, int64 to int32.  So
values are float32, bool, and int32 for the arithmetic of shapes.  An op that can fail by the *values* of its inputs (an
index out of range, an integer division by zero) is refused, except for shapes that do not fit, which OpenVINO finds
too.  Every rank is known, and an output's shape depends on constants or such arithmetic only: OpenVINO's C++ code is
not relied on to check a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from aexec.delegates.unfusing import parts
from aexec.framework.dtypes import DType, bool_, float32, int32, int64
from aexec.graph.nodes.node import Node
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["refusal"]

# Checks a node whose types and ranks are right; returns what is wrong with it, or "".
_Check = Callable[[WorkingGraph, Node], str]

# OpenVINO has no fast kernels, or none, for tensors of more dimensions.
_MAX_RANK = 6
# Their outputs after the first are for training.
_BATCH_NORM = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


def refusal(graph: WorkingGraph, node: Node, used: Collection[int]) -> str:
    """Why a node whose outputs `used` are used does not go to OpenVINO, or ""."""
    check = _CHECKS.get(node.op)
    if check is None:
        return f"{node.op} is not among the ops that it is given"
    for endpoint in node.in_edges:
        why = _wrong_value(graph, endpoint, _dtype(graph, endpoint))
        if why and _constant_at(graph, endpoint) is None:
            return f"an input is {why}"
    for slot in used:
        why = _wrong_value(graph, (node.id, slot), node.output_types[slot])
        if why:
            return f"output {slot} is {why}"
    if node.op in _BATCH_NORM and any(used):
        return "another output than the first is used"
    return check(graph, node)


def _dtype(graph: WorkingGraph, endpoint: tuple[int, int]) -> DType:
    return graph.nodes[endpoint[0]].output_types[endpoint[1]]


def _constant_at(graph: WorkingGraph, endpoint: tuple[int, int]) -> Any:
    """The array of a constant, which goes over with a region.  An Identity's input may come from outside of it."""
    return graph.constant(endpoint) if graph.nodes[endpoint[0]].op == "Const" else None


def _wrong_value(graph: WorkingGraph, endpoint: tuple[int, int], dtype: DType) -> str:
    dims = graph.shape(endpoint).dims
    if dims is None:
        return "of unknown rank"
    if len(dims) > _MAX_RANK or 0 in dims:
        return f"of shape {list(dims)}"
    if dtype in (float32, bool_) or (dtype == int32 and len(dims) <= 1):
        return ""
    return f"{dtype} of rank {len(dims)}"


# Checks of one aspect


def _any(graph: WorkingGraph, node: Node) -> str:
    return ""


def _floats(graph: WorkingGraph, node: Node) -> str:
    """All inputs are float32."""
    wrong = next((t for t in node.input_types if t != float32), None)
    return "" if wrong is None else f"of {wrong}"


def _all(*checks: _Check) -> _Check:
    def check(graph: WorkingGraph, node: Node) -> str:
        return next((why for one in checks if (why := one(graph, node))), "")

    return check


def _constant(*positions: int) -> _Check:
    """The inputs at these positions, negative ones from the end, are constants."""

    def check(graph: WorkingGraph, node: Node) -> str:
        for position in positions:
            value = _constant_at(graph, node.in_edges[position])
            if value is None or _dtype(graph, node.in_edges[position]) not in (float32, int32, int64):
                return f"input {position % len(node.in_edges)} is no constant"
        return ""

    return check


def _data_is_float(positions: slice) -> _Check:
    def check(graph: WorkingGraph, node: Node) -> str:
        wrong = next((t for t in node.input_types[positions] if t != float32), None)
        return "" if wrong is None else f"of {wrong}"

    return check


def _text(name: str, *allowed: bytes) -> _Check:
    def check(graph: WorkingGraph, node: Node) -> str:
        value = node.attrs.get(name, allowed[0])
        return "" if value in allowed else f"{name} is {value!r}"

    return check


def _rank(rank: int) -> _Check:
    def check(graph: WorkingGraph, node: Node) -> str:
        dims = graph.shape((node.id, 0)).dims
        return "" if dims is not None and len(dims) == rank else f"rank is not {rank}"

    return check


def _inference(graph: WorkingGraph, node: Node) -> str:
    """For batch normalisation: in training it computes with the batch's own statistics."""
    return "is_training is set" if node.attrs["is_training"] else ""


def _shape_arithmetic_or_floats(graph: WorkingGraph, node: Node) -> str:
    """Floats, or int32 of at most one dimension; not both."""
    return "" if len({*node.input_types}) == 1 else "of mixed types"


def _gather_of_shape(graph: WorkingGraph, node: Node) -> str:
    """Picks elements at constant positions from a vector of known length: how shapes are taken apart."""
    params = graph.shape(node.in_edges[0]).dims
    indices = _constant_at(graph, node.in_edges[1])
    if _dtype(graph, node.in_edges[0]) != int32 or params is None or len(params) != 1 or params[0] is None:
        return "it gathers from no shape"
    if indices is None or not ((indices >= 0) & (indices < params[0])).all():
        return "its indices are no constants in range"
    return ""


def _strided(graph: WorkingGraph, node: Node) -> str:
    if any(_constant_at(graph, endpoint) is None for endpoint in node.in_edges[1:4]):
        return "its bounds are no constants"
    return ""


def _fused(graph: WorkingGraph, node: Node) -> str:
    return "" if parts(node) is not None else f"fused_ops is {node.attrs['fused_ops']}"


def _reduced(graph: WorkingGraph, node: Node) -> str:
    return _constant(1)(graph, node) or _types(float32, int32)(graph, node)


def _types(*dtypes: DType) -> _Check:
    """The first input has one of these types."""
    return lambda graph, node: "" if node.input_types[0] in dtypes else f"of {node.input_types[0]}"


def _cast(graph: WorkingGraph, node: Node) -> str:
    pair = (node.input_types[0], node.output_types[0])
    if pair in ((bool_, float32), (int32, float32), (float32, float32)) and not node.attrs.get("Truncate"):
        return ""
    return f"from {pair[0]} to {pair[1]}"


_nhwc = _text("data_format", b"NHWC")
_float_image = _all(_floats, _nhwc, _rank(4))

_CHECKS: dict[str, _Check] = {
    **dict.fromkeys(
        # Elementwise, of one input.
        "Abs Neg Exp Log Log1p Sqrt Rsqrt Square Reciprocal Inv Sigmoid Tanh Relu Relu6 Elu Selu LeakyRelu Softplus "
        "Softsign Erf Erfc Sin Cos Floor Ceil Sign "
        # Elementwise, with broadcasting.
        "RealDiv Div Maximum Minimum Pow SquaredDifference AddN "
        "Less LessEqual Greater GreaterEqual Equal NotEqual "
        # Products, and ops along one dimension.
        "MatMul BatchMatMul BatchMatMulV2 Einsum Softmax LogSoftmax".split(),
        _floats,
    ),
    **dict.fromkeys("Add AddV2 Sub Mul".split(), _shape_arithmetic_or_floats),
    **dict.fromkeys("LogicalAnd LogicalOr LogicalNot Identity StopGradient Shape".split(), _any),
    **dict.fromkeys("Select SelectV2".split(), _data_is_float(slice(1, None))),
    "BiasAdd": _all(_floats, _nhwc),
    "Conv2D": _float_image,
    "DepthwiseConv2dNative": _float_image,
    "_FusedConv2D": _all(_float_image, _fused),
    "_FusedDepthwiseConv2dNative": _all(_float_image, _fused),
    "_FusedMatMul": _all(_floats, _fused),
    "MaxPool": _float_image,
    "AvgPool": _float_image,
    **dict.fromkeys(_BATCH_NORM, _all(_float_image, _inference)),
    **dict.fromkeys("Mean Sum Prod Max Min".split(), _reduced),
    "Reshape": _all(_types(float32, int32), lambda graph, node: "" if node.input_types[1] == int32 else "of int64"),
    "Squeeze": _types(float32, int32),
    "ExpandDims": _all(_constant(1), _types(float32, int32)),
    "Transpose": _all(_constant(1), _types(float32)),
    "ConcatV2": _all(_constant(-1), _types(float32, int32)),
    "Concat": _all(_constant(0), lambda graph, node: "" if node.input_types[1] in (float32, int32) else "no floats"),
    "Split": _all(_constant(0), _data_is_float(slice(1, None))),
    "SplitV": _all(_constant(1, 2), _types(float32)),
    "Pack": _types(float32, int32),
    "Unpack": _types(float32, int32),
    "Slice": _all(_constant(1, 2), _types(float32, int32)),
    "StridedSlice": _all(_strided, _types(float32, int32)),
    "GatherV2": _all(_constant(2), _gather_of_shape),
    "Pad": _all(_constant(1), _types(float32)),
    "PadV2": _all(_constant(1, 2), _types(float32)),
    "MirrorPad": _all(_constant(1), _types(float32)),
    "Tile": _all(_constant(1), _types(float32)),
    "ClipByValue": _all(_constant(1, 2), _floats),
    "SpaceToBatchND": _all(_constant(1, 2), _types(float32)),
    "BatchToSpaceND": _all(_constant(1, 2), _types(float32)),
    "ResizeBilinear": _all(_constant(1), _rank(4), _types(float32)),
    "ResizeNearestNeighbor": _all(_constant(1), _rank(4), _types(float32)),
    "Conv2DBackpropInput": _all(_data_is_float(slice(1, None)), _nhwc, _rank(4)),
    "SpaceToDepth": _float_image,
    "DepthToSpace": _float_image,
    "Cast": _cast,
}
