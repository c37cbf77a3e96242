"""One or more examples of each op that has a gradient: what the numeric test differentiates.

A case is a function of tensors; its arguments are arrays, of which those in `by` are varied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aexec import ops
from tests.autodiff.csr_cases import csr_cases

__all__ = ["CASES", "ELSEWHERE", "Case"]

# Ops whose gradient is no limit of differences of one op, or is tested by itself: where.
ELSEWHERE = {
    **dict.fromkeys(["BlockLSTM", "BlockLSTMV2"], "test_gradients.py::test_recurrent_layers"),
    **dict.fromkeys(
        "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel QuantizeAndDequantize "
        "QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeAndDequantizeV4Grad".split(),
        "test_gradients.py::test_rounding_passes_its_gradient_within_its_range",
    ),
    **dict.fromkeys(
        "Case If PartitionedCall StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile SymbolicGradient "
        "While _If _While".split(),
        "test_functional_ops.py",
    ),
    **dict.fromkeys(["Batch", "Unbatch"], "tests/kernels/data_flow/test_batch_ops.py"),
    "PreventGradient": "test_gradients.py::test_prevented_gradients_say_why",
    "ReadVariableOp": "test_gradients.py::test_variables",
    "ResourceGather": "test_gradients.py::test_variables",
    "ResourceGatherNd": "test_gradients.py::test_variables",
    "RefIdentity": "test_gradients.py::test_variables_by_reference",
    "StatelessParameterizedTruncatedNormal": "test_gradients.py::test_sample_stays_at_its_quantile",
    # The same functions as of StatelessRandomGammaV2, and as of arrays of the third generation.
    "RandomGamma": "cases.py",
    "StatelessRandomGammaV3": "cases.py",
    "TensorArrayGradV3": "test_control_flow.py::test_first_and_second_derivatives",
    **{
        f"TensorArray{part}{version}": "cases.py"
        for part in ("Concat", "Gather", "Read", "Scatter", "Split", "Write")
        for version in ("", "V2")
    },
}


@dataclass(frozen=True)
class Case:
    """A function to be differentiated.

    Attributes:
        op: the op that it is an example of.
        build: tensors → a tensor, or a list of those.
        arguments: values of the tensors.
        by: which arguments are varied; those of floating type, unless it is said.
        static: the op needs shapes that are known.
        epsilon, tolerance: step of the difference quotients; how far they may be off, relative to the largest.
    """

    op: str
    build: Callable[..., Any]
    arguments: Sequence[np.ndarray]
    by: tuple[int, ...] | None = None
    epsilon: float = 1e-5
    tolerance: float = 1e-5
    static: bool = False

    @property
    def varied(self) -> tuple[int, ...]:
        if self.by is not None:
            return self.by
        return tuple(i for i, array in enumerate(self.arguments) if array.dtype.kind in "fc")


CASES: list[Case] = []


def case(op: str, build: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    CASES.append(Case(op, build, [np.asarray(a) for a in arguments], **options))


_random = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    """Numbers that are not near 0, where many functions have a corner."""
    values = _random.uniform(0.3, 2.0, shape) * _random.choice([-1.0, 1.0], shape)
    return values


def positive(*shape: int) -> np.ndarray:
    return _random.uniform(0.3, 2.0, shape)


def unit(*shape: int) -> np.ndarray:
    """Between -0.8 and 0.8, not near 0."""
    return _random.uniform(0.15, 0.8, shape) * _random.choice([-1.0, 1.0], shape)


# Of what computes in single precision.
SINGLE = {"epsilon": 1e-2, "tolerance": 2e-3}


def single(*shape: int) -> np.ndarray:
    return normal(*shape).astype(np.float32)


def complexes(*shape: int) -> np.ndarray:
    return normal(*shape) + 1j * normal(*shape)


def distinct(*shape: int) -> np.ndarray:
    """All different from one another, by more than any step."""
    count = int(np.prod(shape))
    return (_random.permutation(count) / 4.0 + 0.1).reshape(shape)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def _unary(names: str, make: Callable[..., np.ndarray], *, complex_too: bool = False) -> None:
    from aexec.graph.op_functions import snake_case

    for name in names.split():
        function = getattr(ops, snake_case(name))
        case(name, function, make(3, 2))
        if complex_too:
            case(name, function, complexes(3))


_unary("Sin Cos Tan Sinh Cosh Tanh Exp Expm1 Neg Square Sigmoid Asinh", normal, complex_too=True)
_unary("Log Log1p Sqrt Rsqrt Reciprocal Inv", positive, complex_too=True)
_unary("Asin Acos Atan Atanh", unit, complex_too=False)
_unary("Abs Erf Erfc Dawsn FresnelCos FresnelSin Softplus Softsign Elu Selu Relu Relu6 LeakyRelu", normal)
_unary("BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1", normal)
_unary("Lgamma Digamma BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Expint Spence", positive)
_unary("Erfinv", unit)
case("Acosh", ops.acosh, 1.2 + positive(4))
case("Ndtri", ops.ndtri, _random.uniform(0.1, 0.9, 5))
case("Spence", ops.spence, np.array([0.5, 1.0, 1.7]), by=(0,))

# Of each column and row none, one, some or all are zero.
WITH_ZEROS = np.array([[2.0, 0.0, 3.0, -1.0], [0.0, 0.0, 0.0, 0.0], [1.5, -2.0, 0.0, 0.0], [0.5, 0.0, -1.2, 3.0]])

case("Sign", ops.sign, normal(4))
for _name in ("sigmoid_grad", "tanh_grad", "sqrt_grad", "rsqrt_grad", "inv_grad", "reciprocal_grad"):
    _op = "".join(part.capitalize() for part in _name.split("_"))
    case(_op, getattr(ops, _name), positive(4), normal(4))
    case(_op, getattr(ops, _name), complexes(2), complexes(2))
for _name in ("relu_grad", "relu6_grad", "leaky_relu_grad", "elu_grad", "selu_grad", "softplus_grad"):
    _op = "".join(part.capitalize() for part in _name.split("_"))
    case(_op, getattr(ops, _name), normal(4), 0.4 * normal(4))

for _name in "add sub mul add_v2 real_div div squared_difference mul_no_nan div_no_nan".split():
    _op = "".join(part.capitalize() for part in _name.split("_"))
    case(_op, getattr(ops, _name), normal(2, 3), normal(2, 3))
    case(_op, getattr(ops, _name), normal(2, 3), normal(3))
    case(_op, getattr(ops, _name), normal(2, 1), normal(4, 1, 3))
    if _name != "squared_difference":
        case(_op, getattr(ops, _name), complexes(2), complexes(1))
case("Pow", ops.pow, positive(2, 3), normal(3))
case("Pow", ops.pow, complexes(3), complexes(3))
case("Maximum", ops.maximum, normal(2, 3), normal(3))
case("Minimum", ops.minimum, normal(2, 3), normal(3))
case("FloorMod", ops.floor_mod, np.array([5.3, -2.2]), np.array([1.7, 1.5]))
case("Atan2", ops.atan2, normal(3), normal(2, 3))
case("Xdivy", ops.xdivy, normal(3), positive(2, 3))
case("Xlogy", ops.xlogy, normal(3), positive(2, 3))
case("Xlog1py", ops.xlog1py, normal(3), positive(2, 3))
case("NextAfter", ops.next_after, normal(3), normal(3))
case("ClipByValue", ops.clip_by_value, np.array([-2.0, 0.1, 0.7, 3.0]), np.array(-1.0), np.array(1.0))
case("AddN", lambda *x: ops.add_n(list(x)), normal(2), normal(2), normal(2))
case("AccumulateNV2", lambda *x: ops.accumulate_nv2(list(x), shape=[2]), normal(2), normal(2))
case("ComplexAbs", lambda x: ops.complex_abs(x, Tout="float64"), complexes(4))
case("Real", lambda x: ops.real(x, Tout="float64"), complexes(4))
case("Imag", lambda x: ops.imag(x, Tout="float64"), complexes(4))
case("Complex", lambda x, y: ops.complex(x, y, Tout="complex128"), normal(2, 3), normal(2, 3))
case("Conj", ops.conj, complexes(4))
case("Angle", lambda x: ops.angle(x, Tout="float64"), complexes(4))
case("Cast", lambda x: ops.cast(ops.cast(x, DstT="complex128"), DstT="float64"), normal(3))
case("Select", lambda x, y: ops.select([True, False], x, y), normal(2, 3), normal(2, 3))
case("SelectV2", lambda x, y: ops.select_v2([[True], [False]], x, y), normal(3), normal(2, 1))
case("Igamma", ops.igamma, positive(3), positive(3), epsilon=1e-4, tolerance=1e-4)
case("Igammac", ops.igammac, positive(3), positive(3), epsilon=1e-4, tolerance=1e-4)
case("Betainc", ops.betainc, positive(3), positive(3), _random.uniform(0.2, 0.8, 3), by=(2,))
case("Polygamma", ops.polygamma, np.array([1.0, 2.0]), positive(2), by=(1,))
case("Zeta", ops.zeta, np.array([2.5, 3.5]), positive(2), by=(1,))

# Products.
for _a in (False, True):
    for _b in (False, True):
        _left, _right = ((3, 2) if _a else (2, 3)), ((4, 3) if _b else (3, 4))
        _options = {"transpose_a": _a, "transpose_b": _b}
        case("MatMul", lambda x, y, o=_options: ops.mat_mul(x, y, **o), normal(*_left), normal(*_right))
        case("MatMul", lambda x, y, o=_options: ops.mat_mul(x, y, **o), complexes(*_left), complexes(*_right))
        _options = {"adj_x": _a, "adj_y": _b}
        case(
            "BatchMatMul", lambda x, y, o=_options: ops.batch_mat_mul(x, y, **o), normal(2, *_left), normal(2, *_right)
        )
        case(
            "BatchMatMulV2",
            lambda x, y, o=_options: ops.batch_mat_mul_v2(x, y, **o),
            complexes(2, 1, *_left),
            complexes(3, *_right),
        )
case(
    "BatchMatMulV3",
    lambda x, y: ops.batch_mat_mul_v3(x, y, Tout="float64"),
    normal(2, 2, 3),
    normal(3, 2),
)
for _equation, _shapes in {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ijk,ik->j": [(2, 3, 2), (2, 2)],
    "ij->ji": [(2, 3)],
    "ij->j": [(2, 3)],
    "ij->": [(2, 3)],
    "ii->i": [(3, 3)],
    "ii->": [(3, 3)],
    "i->ii": [(3,)],
    "...ij,...jk->...ik": [(2, 1, 2, 3), (4, 3, 2)],
    "...ij,jk->...ik": [(2, 2, 3), (3, 2)],
    "...i,i->...": [(2, 3), (3,)],
    "ab,cb->a": [(2, 3), (4, 3)],
    "i...->...": [(3, 2)],
}.items():
    case("Einsum", lambda *x, e=_equation: ops.einsum(list(x), e), *[normal(*shape) for shape in _shapes])
case("Einsum", lambda *x: ops.einsum(list(x), "ij,jk->ik"), complexes(2, 3), complexes(3, 2))
case("Cross", ops.cross, normal(2, 3), normal(2, 3))
case("L2Loss", ops.l2_loss, normal(2, 3))

# Reductions.
for _name in "sum mean prod max min euclidean_norm".split():
    _op = "".join(part.capitalize() for part in _name.split("_"))
    for _axes in ([], [0], [-1], [0, 2], [0, 1, 2]):
        case(_op, lambda x, f=getattr(ops, _name), a=_axes: f(x, ints(*a)), distinct(2, 3, 2) + 0.5)
    case(_op, lambda x, f=getattr(ops, _name): f(x, ints(1), keep_dims=True), distinct(2, 3) + 0.5)
case("Prod", lambda x: ops.prod(x, ints(1)), np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 2.0], [1.0, 2.0, 3.0]]))
case("Sum", lambda x: ops.sum(x, ints(0)), complexes(2, 2))
case("Mean", lambda x: ops.mean(x, ints(0)), complexes(2, 2))
case("Prod", lambda x: ops.prod(x, ints(0)), complexes(3, 2))
for _exclusive in (False, True):
    for _reverse in (False, True):
        _options = {"exclusive": _exclusive, "reverse": _reverse}
        case("Cumsum", lambda x, o=_options: ops.cumsum(x, 1, **o), normal(2, 4))
        case("Cumprod", lambda x, o=_options: ops.cumprod(x, 1, **o), normal(2, 4))
        case("Cumprod", lambda x, o=_options: ops.cumprod(x, 0, **o), complexes(3))
        for _axis in (0, 1, -1):
            case("Cumprod", lambda x, o=_options, a=_axis: ops.cumprod(x, a, **o), WITH_ZEROS)
        if not _exclusive:
            case("CumulativeLogsumexp", lambda x, o=_options: ops.cumulative_logsumexp(x, 1, **o), normal(2, 4))

# Segments.
_ids = ints(0, 0, 1, 3)
for _name in "segment_sum segment_mean segment_prod segment_max segment_min".split():
    _op = "".join(part.capitalize() for part in _name.split("_"))
    case(_op, lambda x, f=getattr(ops, _name): f(x, _ids), distinct(4, 2) + 0.5)
case("SegmentProd", lambda x: ops.segment_prod(x, _ids), np.array([0.0, 2.0, 3.0, 0.0]))
for _name in "sum prod max min".split():
    _op = f"UnsortedSegment{_name.capitalize()}"
    case(
        _op,
        lambda x, f=getattr(ops, f"unsorted_segment_{_name}"): f(x, ints(2, 0, -1, 1, 0), 3),
        distinct(5, 2) + 0.5,
    )
    case(_op, lambda x, f=getattr(ops, f"unsorted_segment_{_name}"): f(x, ints([1, 0], [0, 1]), 2), distinct(2, 2))
for _name in "sum mean sqrt_n".split():
    _op = "SparseSegment" + {"sum": "Sum", "mean": "Mean", "sqrt_n": "SqrtN"}[_name]
    case(
        _op,
        lambda x, f=getattr(ops, f"sparse_segment_{_name}"): f(x, ints(2, 0, 2, 1), ints(0, 0, 1, 2)),
        normal(4, 2),
    )
    case(
        f"{_op}WithNumSegments",
        lambda x, f=getattr(ops, f"sparse_segment_{_name}_with_num_segments"): f(x, ints(2, 0, 2), ints(0, 0, 2), 4),
        normal(4, 2),
    )

# Arrays.
case("Identity", ops.identity, normal(2))
case("Snapshot", ops.snapshot, normal(2))
case("DeepCopy", ops.deep_copy, normal(2))
case("PlaceholderWithDefault", lambda x: ops.placeholder_with_default(x, shape=[2]), normal(2))
case("IdentityN", lambda x, y: ops.identity_n([x, y]), normal(2), normal(3))
case("EnsureShape", lambda x: ops.ensure_shape(x, shape=[None]), normal(2))
case("CheckNumerics", lambda x: ops.check_numerics(x, message=""), normal(2))
case("CheckNumericsV2", lambda x: ops.check_numerics_v2(x, message=""), normal(2))
case("DebugGradientIdentity", ops.debug_gradient_identity, normal(2))
case("Copy", ops.copy, normal(2))
case("CopyHost", ops.copy_host, normal(2))
case("Reshape", lambda x: ops.reshape(x, [3, -1]), normal(2, 3))
case("ExpandDims", lambda x: ops.expand_dims(x, -2), normal(2, 3))
case("Squeeze", lambda x: ops.squeeze(x, squeeze_dims=[1]), normal(2, 1, 1))
case("BroadcastTo", lambda x: ops.broadcast_to(x, [4, 2, 3]), normal(2, 1))
case("Fill", lambda x: ops.fill([2, 3], x), normal())
case("Tile", lambda x: ops.tile(x, [2, 1, 3]), normal(2, 3, 2))
case("Transpose", lambda x: ops.transpose(x, [2, 0, 1]), normal(2, 3, 2))
case("ConjugateTranspose", lambda x: ops.conjugate_transpose(x, [1, 0]), complexes(2, 3))
case("Reverse", lambda x: ops.reverse(x, [True, False]), normal(2, 3))
case("ReverseV2", lambda x: ops.reverse_v2(x, [1]), normal(2, 3))
case("ReverseSequence", lambda x: ops.reverse_sequence(x, [1, 3], seq_dim=1), normal(2, 3))
case("Roll", lambda x: ops.roll(x, [1, -1], [0, 1]), normal(2, 3))
case("Pack", lambda x, y: ops.pack([x, y], axis=1), normal(2, 3), normal(2, 3))
case("ParallelConcat", lambda x, y: ops.parallel_concat([x, y], shape=[2, 3]), normal(1, 3), normal(1, 3), static=True)
case("Unpack", lambda x: ops.unpack(x, num=3, axis=1), normal(2, 3))
case("Split", lambda x: ops.split(1, x, num_split=2), normal(2, 4))
case("SplitV", lambda x: ops.split_v(x, ints(1, 3), 1, num_split=2), normal(2, 4))
case("ConcatV2", lambda x, y: ops.concat_v2([x, y], 1), normal(2, 1), normal(2, 3))
case("ConcatV2", lambda x, y: ops.concat_v2([x, y], ops.add(1, -2)), normal(2, 1), normal(2, 3))
case("Concat", lambda x, y: ops.concat(0, [x, y]), normal(1, 2), normal(3, 2))
case("Pad", lambda x: ops.pad(x, [[1, 0], [2, 1]]), normal(2, 3))
case("PadV2", lambda x, c: ops.pad_v2(x, [[1, 0], [2, 1]], c), normal(2, 3), normal())
for _mode in ("REFLECT", "SYMMETRIC"):
    case("MirrorPad", lambda x, m=_mode: ops.mirror_pad(x, [[1, 1], [2, 1]], mode=m), normal(3, 4))
    case("MirrorPadGrad", lambda x, m=_mode: ops.mirror_pad_grad(x, [[1, 1], [0, 1]], mode=m), normal(4, 4))
case("Slice", lambda x: ops.slice(x, [0, 1], [2, -1]), normal(2, 3))
case("StridedSlice", lambda x: x[::-1, 1:], normal(3, 4))
case("StridedSlice", lambda x: x[1, ..., None, ::2], normal(2, 3, 4))
case("StridedSliceGrad", lambda x: ops.strided_slice_grad([4], [3], [0], [-2], x), normal(2))
case(
    "TensorStridedSliceUpdate",
    lambda x, v: ops.tensor_strided_slice_update(x, [0], [4], [2], v),
    normal(4, 2),
    normal(2, 2),
)
case("SpaceToBatch", lambda x: ops.space_to_batch(x, [[1, 1], [0, 0]], block_size=2), normal(1, 2, 2, 1))
case("BatchToSpace", lambda x: ops.batch_to_space(x, [[0, 1], [0, 0]], block_size=2), normal(4, 1, 2, 1))
case("SpaceToBatchND", lambda x: ops.space_to_batch_nd(x, [2], [[1, 0]]), normal(1, 3, 2))
case("BatchToSpaceND", lambda x: ops.batch_to_space_nd(x, [2], [[1, 0]]), normal(2, 2, 2))
case("SpaceToDepth", lambda x: ops.space_to_depth(x, block_size=2), normal(1, 4, 2, 1))
case("DepthToSpace", lambda x: ops.depth_to_space(x, block_size=2), normal(1, 2, 1, 4))
for _padding in ("SAME", "VALID"):
    case(
        "ExtractImagePatches",
        lambda x, p=_padding: ops.extract_image_patches(
            x, ksizes=[1, 2, 3, 1], strides=[1, 2, 1, 1], rates=[1, 1, 1, 1], padding=p
        ),
        normal(2, 4, 4, 2),
    )
    case(
        "ExtractVolumePatches",
        lambda x, p=_padding: ops.extract_volume_patches(x, ksizes=[1, 2, 2, 1, 1], strides=[1, 1, 2, 1, 1], padding=p),
        normal(1, 3, 3, 2, 2),
    )
case("Gather", lambda x: ops.gather(x, [[2, 0], [2, 1]]), normal(3, 2))
case("GatherV2", lambda x: ops.gather_v2(x, [2, 0, 2], 0), normal(3, 2))
case("GatherV2", lambda x: ops.gather_v2(x, [[2, 0], [2, 1]], 1), normal(2, 3, 2))
case("GatherV2", lambda x: ops.gather_v2(x, [[2, 0], [2, 1]], 1, batch_dims=1), normal(2, 3, 2))
case("GatherV2", lambda x: ops.gather_v2(x, [[2, 0], [2, 1]], 2, batch_dims=1), normal(2, 2, 3))
case("GatherNd", lambda x: ops.gather_nd(x, [[0, 1], [1, 0], [0, 1]]), normal(2, 2, 2))
case("GatherNd", lambda x: ops.gather_nd(x, [[1], [1]]), normal(2, 2))
case("ScatterNd", lambda x: ops.scatter_nd([[1], [3], [1]], x, [4, 2]), normal(3, 2))
case(
    "ScatterNdNonAliasingAdd",
    lambda x, u: ops.scatter_nd_non_aliasing_add(x, [[1], [0]], u),
    normal(3),
    normal(2),
)
for _name in "add sub update max min".split():
    case(
        f"TensorScatter{_name.capitalize()}",
        lambda x, u, f=getattr(ops, f"tensor_scatter_{_name}"): f(x, [[1], [0]], u),
        distinct(3, 2),
        distinct(2, 2) - 0.07,
    )
case("DynamicPartition", lambda x: ops.dynamic_partition(x, [1, 0, 1, 2], num_partitions=3), normal(4, 2))
for _op, _function in {
    "DynamicStitch": ops.dynamic_stitch,
    "ParallelDynamicStitch": ops.parallel_dynamic_stitch,
}.items():
    case(
        _op,
        lambda x, y, f=_function: f([ints(0, 2), ints([1], [3])], [x, y]),
        normal(2, 2),
        normal(2, 1, 2),
    )
case("DynamicStitch", lambda x, y: ops.dynamic_stitch([ints(0, 2), ints(2, 1)], [x, y]), normal(2), normal(2))

# Layers.
case("Softmax", ops.softmax, normal(2, 3))
case("LogSoftmax", ops.log_softmax, normal(2, 3))
case(
    "SoftmaxCrossEntropyWithLogits",
    lambda x: ops.softmax_cross_entropy_with_logits(x, np.array([[0.2, 0.3, 0.5], [0.1, 0.0, 0.9]]))[0],
    normal(2, 3),
)
case(
    "SoftmaxCrossEntropyWithLogits",
    lambda y: ops.softmax_cross_entropy_with_logits(np.array([[0.2, 0.3, 0.5]]), y)[0],
    positive(1, 3),
)
case(
    "SoftmaxCrossEntropyWithLogits",
    lambda x: ops.softmax_cross_entropy_with_logits(x, np.array([[0.2, 0.3, 0.5]]))[1],
    normal(1, 3),
)
case(
    "SparseSoftmaxCrossEntropyWithLogits",
    lambda x: ops.sparse_softmax_cross_entropy_with_logits(x, ints(2, 0)),
    normal(2, 3),
)
case("TopK", lambda x: ops.top_k(x, k=2)[0], distinct(2, 4))
case("TopKV2", lambda x: ops.top_kv2(x, 2)[0], distinct(2, 2, 4))
case("NthElement", lambda x: ops.nth_element(x, 1), distinct(2, 4))
case("IsotonicRegression", lambda x: ops.isotonic_regression(x, output_dtype="float64")[0], distinct(2, 5))
case(
    "CTCLoss",
    lambda x: ops.ctc_loss(x, np.array([[0, 0], [0, 1], [1, 0]]), ints(0, 1, 1), ints(4, 3))[0],
    normal(4, 2, 3),
)
for _format in ("NHWC", "NCHW"):
    _shape = (2, 3, 3, 2) if _format == "NHWC" else (2, 2, 3, 3)
    case("BiasAdd", lambda x, b, f=_format: ops.bias_add(x, b, data_format=f), normal(*_shape), normal(2))
    case("BiasAddGrad", lambda x, f=_format: ops.bias_add_grad(x, data_format=f), normal(*_shape))
case("BiasAddV1", ops.bias_add_v1, normal(2, 3), normal(3))

_conv = {"strides": [1, 2, 1, 1], "padding": "SAME"}
_depth = {"strides": [1, 2, 2, 1], "padding": "VALID"}
_conv3d = {"strides": [1, 1, 2, 1, 1], "padding": "SAME"}
case("Conv2D", lambda x, w: ops.conv2d(x, w, **_conv), normal(1, 4, 3, 2), normal(2, 2, 2, 2))
case(
    "Conv2D",
    lambda x, w: ops.conv2d(x, w, strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 0, 0, 2, 0, 0]),
    normal(1, 3, 3, 1),
    normal(2, 2, 1, 2),
)
case(
    "Conv2DBackpropInput",
    lambda w, g: ops.conv2d_backprop_input([1, 4, 3, 2], w, g, **_conv),
    normal(2, 2, 2, 2),
    normal(1, 2, 3, 2),
)
case(
    "Conv2DBackpropFilter",
    lambda x, g: ops.conv2d_backprop_filter(x, [2, 2, 2, 2], g, **_conv),
    normal(1, 4, 3, 2),
    normal(1, 2, 3, 2),
)
case(
    "DepthwiseConv2dNative",
    lambda x, w: ops.depthwise_conv2d_native(x, w, **_depth),
    normal(1, 5, 4, 2),
    normal(2, 2, 2, 2),
)
case(
    "DepthwiseConv2dNativeBackpropInput",
    lambda w, g: ops.depthwise_conv2d_native_backprop_input([1, 5, 4, 2], w, g, **_depth),
    normal(2, 2, 2, 2),
    normal(1, 2, 2, 4),
)
case(
    "DepthwiseConv2dNativeBackpropFilter",
    lambda x, g: ops.depthwise_conv2d_native_backprop_filter(x, [2, 2, 2, 2], g, **_depth),
    normal(1, 5, 4, 2),
    normal(1, 2, 2, 4),
)
case("Conv3D", lambda x, w: ops.conv3d(x, w, **_conv3d), normal(1, 2, 3, 2, 1), normal(2, 2, 1, 1, 2))
case(
    "Conv3DBackpropInputV2",
    lambda w, g: ops.conv3d_backprop_input_v2([1, 2, 3, 2, 1], w, g, **_conv3d),
    normal(2, 2, 1, 1, 2),
    normal(1, 2, 2, 2, 2),
)
case(
    "Conv3DBackpropFilterV2",
    lambda x, g: ops.conv3d_backprop_filter_v2(x, [2, 2, 1, 1, 2], g, **_conv3d),
    normal(1, 2, 3, 2, 1),
    normal(1, 2, 2, 2, 2),
)
case(
    "Dilation2D",
    lambda x, w: ops.dilation2d(x, w, strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID"),
    distinct(1, 4, 4, 1),
    0.05 * distinct(2, 2, 1),
)
_pool = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 1, 1], "padding": "SAME"}
_pool3d = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": "VALID"}
_image, _volume = distinct(1, 4, 3, 2), distinct(1, 3, 4, 3, 1).astype(np.float32)
case("AvgPool", lambda x: ops.avg_pool(x, **_pool), _image)
case("AvgPoolGrad", lambda g: ops.avg_pool_grad([1, 4, 3, 2], g, **_pool), normal(1, 2, 3, 2))
case("AvgPool3D", lambda x: ops.avg_pool3d(x, **_pool3d), _volume, **SINGLE)
case("AvgPool3DGrad", lambda g: ops.avg_pool3d_grad([1, 3, 4, 3, 1], g, **_pool3d), single(1, 2, 2, 2, 1), **SINGLE)
case("MaxPool3D", lambda x: ops.max_pool3d(x, **_pool3d), _volume, **SINGLE)
case("MaxPool", lambda x: ops.max_pool(x, **_pool), _image)
_fractional: dict[str, Any] = {
    "pooling_ratio": [1, 1.3, 1.3, 1],
    "overlapping": True,
    "deterministic": True,
    "seed": 1,
}
case("FractionalAvgPool", lambda x: ops.fractional_avg_pool(x, **_fractional)[0], _image)
case("FractionalMaxPool", lambda x: ops.fractional_max_pool(x, **_fractional)[0], _image)
case("MaxPoolV2", lambda x: ops.max_pool_v2(x, [1, 2, 2, 1], [1, 2, 1, 1], padding="SAME"), _image)
case("MaxPoolWithArgmax", lambda x: ops.max_pool_with_argmax(x, **_pool)[0], _image)


case("MaxPoolGrad", lambda g: ops.max_pool_grad(_image, ops.max_pool(_image, **_pool), g, **_pool), normal(1, 2, 3, 2))
case(
    "MaxPoolGradGrad",
    lambda g: ops.max_pool_grad_grad(_image, ops.max_pool(_image, **_pool), g, **_pool),
    normal(1, 4, 3, 2),
)
case(
    "MaxPoolGradV2",
    lambda g: ops.max_pool_grad_v2(
        _image, ops.max_pool(_image, **_pool), g, [1, 2, 2, 1], [1, 2, 1, 1], padding="SAME"
    ),
    normal(1, 2, 3, 2),
)

# Linear algebra.
_square = normal(2, 3, 3) + 3.0 * np.eye(3)
_symmetric = _square + _square.transpose(0, 2, 1)
_definite = _square @ _square.transpose(0, 2, 1) + np.eye(3)
case("Diag", ops.diag, normal(2, 2))
case("DiagPart", ops.diag_part, normal(2, 2))
case("MatrixBandPart", lambda x: ops.matrix_band_part(x, 1, 0), normal(3, 3))
case("MatrixDiag", ops.matrix_diag, normal(2, 3))
case("MatrixDiagPart", ops.matrix_diag_part, normal(2, 3, 4))
case("MatrixSetDiag", ops.matrix_set_diag, normal(2, 3, 4), normal(2, 3))
_band = ints(-1, 1)
case("MatrixDiagV2", lambda d, p: ops.matrix_diag_v2(d, _band, 3, 3, p), normal(3, 3), normal())
case("MatrixDiagV3", lambda d, p: ops.matrix_diag_v3(d, _band, 3, 3, p), normal(3, 3), normal())
case("MatrixDiagPartV2", lambda x: ops.matrix_diag_part_v2(x, _band, np.array(0.0)), normal(3, 3))
case("MatrixDiagPartV3", lambda x: ops.matrix_diag_part_v3(x, _band, np.array(0.0)), normal(3, 3))
case("MatrixSetDiagV2", lambda x, d: ops.matrix_set_diag_v2(x, d, _band), normal(3, 3), normal(3, 3))
case("MatrixSetDiagV3", lambda x, d: ops.matrix_set_diag_v3(x, d, _band), normal(3, 3), normal(3, 3))
case("MatrixInverse", ops.matrix_inverse, _square)
case("MatrixInverse", lambda x: ops.matrix_inverse(x, adjoint=True), _square + 0.3j * normal(2, 3, 3))
case("MatrixDeterminant", ops.matrix_determinant, _square)
case("LogMatrixDeterminant", lambda x: ops.log_matrix_determinant(x)[1], _square)
case("Cholesky", lambda x: ops.cholesky(0.5 * (x + ops.transpose(x, [0, 2, 1]))), _definite)
case("Qr", ops.qr, normal(2, 4, 3))
case("Qr", ops.qr, normal(3, 3))
case("Qr", ops.qr, normal(2, 4))
case("SelfAdjointEigV2", lambda x: _eigen(0.5 * (x + ops.transpose(x, [0, 2, 1]))), _symmetric)
case(
    "SelfAdjointEigV2",
    lambda x: ops.self_adjoint_eig_v2(0.5 * (x + ops.transpose(x, [0, 2, 1])), compute_v=False)[0],
    _symmetric,
)
case("Eig", lambda x: ops.real(ops.eig(x, Tout="complex128", compute_v=False)[0], Tout="float64"), _symmetric)
case("Svd", lambda x: ops.svd(x, compute_uv=False)[0], normal(3, 2))
for _rows, _columns in ((3, 3), (4, 2), (2, 4)):
    case("Svd", lambda x: _singular(x), normal(_rows, _columns))
case("MatrixSquareRoot", ops.matrix_square_root, _definite)
for _adjoint in (False, True):
    case("MatrixSolve", lambda a, b, j=_adjoint: ops.matrix_solve(a, b, adjoint=j), _square, normal(2, 3, 2))
    for _lower in (False, True):
        case(
            "MatrixTriangularSolve",
            lambda a, b, j=_adjoint, w=_lower: ops.matrix_triangular_solve(a, b, lower=w, adjoint=j),
            _square,
            normal(3, 2),
        )
        case(
            "BandedTriangularSolve",
            lambda a, b, j=_adjoint, w=_lower: ops.banded_triangular_solve(a, b, lower=w, adjoint=j),
            positive(2, 4),
            normal(4, 2),
        )
case("MatrixSolveLs", lambda a, b: ops.matrix_solve_ls(a, b, np.array(0.1)), normal(4, 2), normal(4, 2))
case("MatrixSolveLs", lambda a, b: ops.matrix_solve_ls(a, b, np.array(0.1)), normal(2, 4), normal(2, 2))
case("TridiagonalMatMul", ops.tridiagonal_mat_mul, normal(1, 3), normal(1, 3), normal(1, 3), normal(3, 2))
case("TridiagonalSolve", ops.tridiagonal_solve, np.array([[1.0, 0.5, 0], [4, 5, 4], [0, 0.3, 1]]), normal(3, 2))


def _eigen(x: Any) -> Any:
    """Eigenvalues, and what of the eigenvectors does not depend on their signs."""
    e, v = ops.self_adjoint_eig_v2(x)
    return [e, ops.square(v)]


def _singular(x: Any) -> Any:
    """Singular values, and what of the vectors does not depend on their signs."""
    s, u, v = ops.svd(x)
    return [s, ops.square(u), ops.square(v)]


# Images; these compute in single precision.
_picture = normal(1, 3, 3, 2)
for _name in ("bilinear", "bicubic"):
    case(
        f"Resize{_name.capitalize()}",
        lambda x, f=getattr(ops, f"resize_{_name}"): f(x, [5, 4]),
        _picture,
        **SINGLE,
    )
case("ResizeNearestNeighbor", lambda x: ops.resize_nearest_neighbor(x, [5, 4]), _picture)
case(
    "ScaleAndTranslate",
    lambda x: ops.scale_and_translate(x, [4, 4], np.array([1.2, 1.3], np.float32), np.array([0.1, 0.2], np.float32)),
    _picture.astype(np.float32),
    **SINGLE,
)
case(
    "CropAndResize",
    lambda x, b: ops.crop_and_resize(x, b, ints(0), [2, 2]),
    _picture,
    np.array([[0.12, 0.13, 0.83, 0.91]], np.float32),
    **SINGLE,
)
for _op, _more in {"ImageProjectiveTransformV2": [], "ImageProjectiveTransformV3": [np.float32(0.0)]}.items():
    case(
        _op,
        lambda x, o=_op, m=_more: getattr(ops, "image_projective_transform_" + o[-2:].lower())(
            x, np.array([[1, 0, 1, 0, 1, 0, 0, 0]], np.float32), [3, 3], *m, interpolation="NEAREST"
        ),
        _picture,
    )
case("RGBToHSV", ops.rgb_to_hsv, np.array([[0.9, 0.2, 0.4], [0.1, 0.7, 0.3], [0.3, 0.2, 0.8], [0.5, 0.6, 0.1]]))

# Fourier transforms.
for _rank in (1, 2, 3):
    _suffix, _sizes = ("" if _rank == 1 else f"{_rank}d"), (2, 3, 2, 4)[-_rank - 1 :]
    _op = "" if _rank == 1 else f"{_rank}D"
    case(f"FFT{_op}", getattr(ops, f"fft{_suffix}"), complexes(*_sizes))
    case(f"IFFT{_op}", getattr(ops, f"ifft{_suffix}"), complexes(*_sizes))
    for _length in (5, 4, 3):
        _lengths = [*_sizes[1:-1], _length]
        case(
            f"IRFFT{_op}",
            lambda x, f=getattr(ops, f"irfft{_suffix}"), n=_lengths: f(x, n, Treal="float64"),
            complexes(*_sizes[:-1], _length // 2 + 1),
        )
        if _length == 5:
            continue  # the input would be too short
        case(
            f"RFFT{_op}",
            lambda x, f=getattr(ops, f"rfft{_suffix}"), n=_lengths: f(x, n, Tcomplex="complex128"),
            normal(*_sizes),
        )

# Normalisation, in single precision but for the second order, which is written in plain ops.
for _format in ("NHWC", "NCHW"):
    _shape = (2, 3, 2, 2) if _format == "NHWC" else (2, 2, 3, 2)
    for _training in (True, False):
        _options = {"data_format": _format, "is_training": _training, "epsilon": 0.1}
        for _version in ("", "_v2", "_v3"):
            _statistics = [np.zeros(0, np.float32)] * 2 if _training else [single(2), single(2) ** 2]
            case(
                "FusedBatchNorm" + _version.replace("_v", "V"),
                lambda x, s, o, m, v, f=getattr(ops, f"fused_batch_norm{_version}"), k=_options: f(x, s, o, m, v, **k)[
                    0
                ],
                single(*_shape),
                single(2),
                single(2),
                *_statistics,
                by=(0, 1, 2),
                **SINGLE,
            )

            def _grad_of_norm(
                dy: Any, x: Any, s: Any, version: str = _version, k: Any = _options, given: Any = tuple(_statistics)
            ) -> Any:
                forward = getattr(ops, f"fused_batch_norm{version}")(x, s, np.zeros(2, np.float32), *given, **k)
                kept = forward[3:5] if k["is_training"] else given
                more = forward[5:] if version == "_v3" else ()
                return getattr(ops, f"fused_batch_norm_grad{version}")(dy, x, s, *kept, *more, **k)[:3]

            case(
                "FusedBatchNormGrad" + _version.replace("_v", "V"),
                _grad_of_norm,
                single(*_shape),
                single(*_shape),
                single(2),
                epsilon=1e-2,
                tolerance=1e-2,
            )
case(
    "BatchNormWithGlobalNormalization",
    lambda *x: ops.batch_norm_with_global_normalization(*x, variance_epsilon=0.1, scale_after_normalization=True),
    normal(1, 2, 2, 3),
    normal(3),
    positive(3),
    normal(3),
    normal(3),
)
case("LRN", lambda x: ops.lrn(x, depth_radius=1), single(1, 2, 1, 4), **SINGLE)


def _max_3d(name: str, grad: Any) -> Any:
    return getattr(ops, name)(_volume, ops.max_pool3d(_volume, **_pool3d), grad, **_pool3d)


case("MaxPool3DGrad", lambda g: _max_3d("max_pool3d_grad", g), single(1, 2, 2, 2, 1), **SINGLE)
case("MaxPool3DGradGrad", lambda g: _max_3d("max_pool3d_grad_grad", g), single(1, 3, 4, 3, 1), **SINGLE)
case(
    "MaxPoolGradGradV2",
    lambda g: ops.max_pool_grad_grad_v2(
        _image, ops.max_pool(_image, **_pool), g, [1, 2, 2, 1], [1, 2, 1, 1], padding="SAME"
    ),
    normal(1, 4, 3, 2),
)
case("SparseMatMul", lambda a, b: ops.sparse_mat_mul(a, b, a_is_sparse=True), single(2, 3), single(3, 2), **SINGLE)
case("Print", lambda x: ops.print(x, []), normal(2))

# Sparse and ragged tensors.
_places = np.array([[0, 1], [1, 0], [1, 2]])
_size = np.array([2, 3])
for _adjoint_a in (False, True):
    for _adjoint_b in (False, True):
        _inner = 2 if _adjoint_a else 3
        case(
            "SparseTensorDenseMatMul",
            lambda v, b, x=_adjoint_a, y=_adjoint_b: ops.sparse_tensor_dense_mat_mul(
                _places, v, _size, b, adjoint_a=x, adjoint_b=y
            ),
            complexes(3),
            complexes(*((4, _inner) if _adjoint_b else (_inner, 4))),
        )
case("SparseTensorDenseAdd", lambda v, b: ops.sparse_tensor_dense_add(_places, v, _size, b), normal(3), normal(2, 3))
case(
    "SparseAdd",
    lambda a, b: ops.sparse_add(_places, a, _size, np.array([[0, 1], [1, 1]]), b, _size, np.array(0.0))[1],
    normal(3),
    normal(2),
)
case("SparseReorder", lambda v: ops.sparse_reorder(_places[::-1].copy(), v, _size)[1], normal(3))
case("SparseToDense", lambda v, d: ops.sparse_to_dense(_places, _size, v, d), normal(3), normal())
case("SparseToDense", lambda v, d: ops.sparse_to_dense(np.array([1, 3]), np.array([5]), v, d), normal(), normal())
for _keep in (False, True):
    case(
        "SparseReduceSum",
        lambda v, k=_keep: ops.sparse_reduce_sum(_places, v, _size, ints(-1), keep_dims=k),
        normal(3),
    )
case("SparseSoftmax", lambda v: ops.sparse_softmax(_places, v, _size), normal(3))
for _name in ("add", "mul", "div"):
    for _dense in ((2, 3), (3,), (2, 1)):
        case(
            f"SparseDenseCwise{_name.capitalize()}",
            lambda v, d, f=getattr(ops, f"sparse_dense_cwise_{_name}"): f(_places, v, _size, d),
            normal(3),
            normal(*_dense),
        )
case(
    "SparseFillEmptyRows",
    lambda v, d: ops.sparse_fill_empty_rows(np.array([[0, 1], [2, 0]]), v, np.array([4, 3]), d)[1],
    normal(2),
    normal(),
)
case("SparseSlice", lambda v: ops.sparse_slice(_places, v, _size, [0, 1], [2, 2])[1], normal(3))
_splits = np.array([0, 2, 2, 5])
case("RaggedTensorToSparse", lambda v: ops.ragged_tensor_to_sparse([_splits], v)[1], normal(5))
case(
    "RaggedTensorToTensor",
    lambda v, d: ops.ragged_tensor_to_tensor(np.array([3, 2, 2]), v, d, [_splits], row_partition_types=["ROW_SPLITS"]),
    normal(5, 2),
    normal(),
)
case("RaggedGather", lambda v: ops.ragged_gather([_splits], v, ints(2, 0, 2), OUTPUT_RAGGED_RANK=1)[1], normal(5, 2))
case(
    "RaggedFillEmptyRows",
    lambda v, d: ops.ragged_fill_empty_rows(np.array([0, 2]), v, np.array(4), d)[1],
    normal(2),
    normal(),
)

# Samples: with the same seed a sample moves with the parameters.
case(
    "StatelessRandomGammaV2",
    lambda a: ops.stateless_random_gamma_v2([4, 2], [1, 2], a),
    positive(2) + 1.0,
    epsilon=1e-4,
    tolerance=1e-2,
)

# Lists.


def _listed(x: Any) -> Any:
    return ops.tensor_list_from_tensor(x, [2])


def _stacked(handle: Any) -> Any:
    return ops.tensor_list_stack(handle, [2], element_dtype="float64")


def _optional(x: Any, y: Any) -> Any:
    """The product of what an optional value gives, of which one part is given twice."""
    optional = ops.optional_from_value([x, y, ints(1)])
    (a, b, _), (again, *_) = (
        ops.optional_get_value(
            optional, output_types=["float64", "float64", "int32"], output_shapes=[x.shape, y.shape, [1]]
        )
        for _ in range(2)
    )
    return a * b * again


case("OptionalFromValue", _optional, normal(3), normal(3))
case("OptionalGetValue", _optional, normal(2, 1), normal(2, 3))
case("TensorListFromTensor", lambda x: _stacked(_listed(x)), normal(3, 2))
case("TensorListStack", lambda x: _stacked(_listed(x)), normal(3, 2))
case("TensorListPushBack", lambda x, y: _stacked(ops.tensor_list_push_back(_listed(x), y)), normal(2, 2), normal(2))
case("TensorListPopBack", lambda x: ops.tensor_list_pop_back(_listed(x), [2], element_dtype="float64")[1], normal(3, 2))
case(
    "TensorListPopBack",
    lambda x: _stacked(ops.tensor_list_pop_back(_listed(x), [2], element_dtype="float64")[0]),
    normal(3, 2),
)
case("TensorListGetItem", lambda x: ops.tensor_list_get_item(_listed(x), 1, [2], element_dtype="float64"), normal(3, 2))
case("TensorListSetItem", lambda x, y: _stacked(ops.tensor_list_set_item(_listed(x), 1, y)), normal(3, 2), normal(2))
case(
    "TensorListGather",
    lambda x: ops.tensor_list_gather(_listed(x), ints(2, 0, 2), [2], element_dtype="float64"),
    normal(3, 2),
)
case("TensorListScatter", lambda x: _stacked(ops.tensor_list_scatter(x, ints(1, 0), [2])), normal(2, 2))
case("TensorListScatterV2", lambda x: _stacked(ops.tensor_list_scatter_v2(x, ints(1, 0), [2], 3)), normal(2, 2))
case(
    "TensorListScatterIntoExistingList",
    lambda x, y: _stacked(ops.tensor_list_scatter_into_existing_list(_listed(x), y, ints(1))),
    normal(3, 2),
    normal(1, 2),
)
case("TensorListSplit", lambda x: _concatenated(x, "_v2"), normal(4, 2))
case("TensorListConcatV2", lambda x: _concatenated(x, "_v2"), normal(4, 2))
case("TensorListConcat", lambda x: _concatenated(x, ""), normal(4, 2))
case("TensorListResize", lambda x: _stacked(ops.tensor_list_resize(_listed(x), 2)), normal(3, 2))


def _concatenated(x: Any, version: str) -> Any:
    handle = ops.tensor_list_split(x, [-1, 2], np.array([1, 3]))
    if version:
        return ops.tensor_list_concat_v2(handle, [-1, 2], np.zeros(0, np.int64), element_dtype="float64")[0]
    return ops.tensor_list_concat(handle, element_dtype="float64", element_shape=[None, 2])[0]


# Arrays.


def _array(x: Any) -> Any:
    """A tensor array of the rows of `x`: its handle, and its flow."""
    handle, flow = ops.tensor_array_v3(ops.shape(x)[0], dtype="float64")
    return handle, ops.tensor_array_scatter_v3(handle, ops.range(0, ops.shape(x)[0], 1), x, flow)


def _rows_of(handle: Any, flow: Any, count: int) -> Any:
    return ops.tensor_array_gather_v3(handle, ops.range(0, count, 1), flow, dtype="float64")


def _written(x: Any) -> Any:
    handle, flow = ops.tensor_array_v3(1, dtype="float64")
    return _rows_of(handle, ops.tensor_array_write_v3(handle, 0, x, flow), 1)


def _read(x: Any) -> Any:
    handle, flow = _array(x)
    return ops.tensor_array_read_v3(handle, 1, flow, dtype="float64")


def _split_array(x: Any) -> Any:
    handle, flow = ops.tensor_array_v3(2, dtype="float64", dynamic_size=True)
    flow = ops.tensor_array_split_v3(handle, x, np.array([1, 3]), flow)
    return ops.tensor_array_concat_v3(handle, flow, dtype="float64")[0]


case("TensorArrayScatterV3", lambda x: _rows_of(*_array(x), 3), normal(3, 2))
case("TensorArrayGatherV3", lambda x: _rows_of(*_array(x), 3), normal(3, 2))
case("TensorArrayReadV3", _read, normal(3, 2))
case("TensorArrayWriteV3", _written, normal(2))
case("TensorArraySplitV3", _split_array, normal(4, 2))
case("TensorArrayConcatV3", _split_array, normal(4, 2))

# Sparse matrices by rows.
for _op, _build, _arguments in csr_cases(normal, complexes):
    case(_op, _build, *_arguments)
