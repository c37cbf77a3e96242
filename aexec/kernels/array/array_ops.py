"""Kernels that make constants, pass tensors on, return their shape, or view them in another shape.

Nearly all of them return views: their time does not depend on the size of the tensor, so they always run inline.  The
compute callables check nothing if NumPy succeeds; if NumPy raises, the op's check gives the reason in TensorFlow's
words.
Next to read: `concat_ops.py` (joining and splitting), `fill_ops.py` (making and repeating), `reverse_ops.py`,
`pad_ops.py`, `unique_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AtMost, AttrCost, PerOutput
from aexec.framework.shape import MAX_RANK, PartialTensorShape, check_max_rank, shape_text
from aexec.framework.wire.attr_value import TensorAttr
from aexec.kernels.array.constant_inputs import freeze, is_frozen
from aexec.kernels.common.allocation import allocator, explain_with
from aexec.kernels.common.array_module import reducer
from aexec.kernels.common.registration import DEVICE_TYPES, INDEX, on_any_device, on_host

_ON_HOST = (dtypes.int32, dtypes.string, dtypes.resource)
_NO_VARIANT = tuple(t for t in DEVICE_TYPES if t is not dtypes.variant)
_TRANSPOSE_TYPES = (*dtypes.ALL, dtypes.float8_e5m2, dtypes.float8_e4m3fn)


# ---- constants and placeholders


def _const_builder(c: OpKernelConstruction) -> Compute:
    dtype, value, tensor = c.attr("dtype"), c.attr("value"), c.attrs["value"]
    # NumPy's dtype does not distinguish strings from handles, or integers from quantised ones.
    given = tensor.dtype if isinstance(tensor, TensorAttr) else dtypes.from_numpy(value.dtype)
    if given is not dtype:
        raise errors.InvalidArgumentError(f"Type mismatch between value ({given}) and dtype ({dtype})")
    value = freeze(value)  # an array of the host: the plan's executor copies it to the device, once
    return lambda: value


kernel("Const", "HostConst", cost=0)(_const_builder)
kernel("Const", device="DEFAULT", cost=0, dtype=(*_NO_VARIANT, dtypes.variant, *dtypes.QUANTIZED))(_const_builder)
kernel("Const", device="DEFAULT", host_memory=("output",), cost=0, dtype=[dtypes.int32])(_const_builder)
kernel("HostConst", device="DEFAULT", host_memory=("output",), cost=0)(_const_builder)


@kernel("Placeholder", "PlaceholderV2", device=("CPU", "DEFAULT"), cost=0)
def placeholder(c: OpKernelConstruction) -> Compute:
    """Raises: it runs only if nothing was fed, since the plan replaces fed placeholders."""
    shape: PartialTensorShape = c.attr("shape")
    message = f"You must feed a value for placeholder tensor '{c.name}' with dtype {c.attr('dtype')}"
    if shape.rank:
        message += f" and shape {shape}"

    def compute() -> Any:
        raise errors.InvalidArgumentError(message)

    return compute


# ---- passing on


@on_any_device("Identity", "StopGradient", all_memory=("input", "output"), host_types=_ON_HOST, cost=0)
@on_any_device("PlaceholderWithDefault", all_memory=("input", "output"), host_types=_ON_HOST, type_attr="dtype", cost=0)
@kernel("PreventGradient", "DebugGradientIdentity", device="DEFAULT", cost=0, T=DEVICE_TYPES)
@kernel("PreventGradient", "DebugGradientIdentity", cost=0)
@kernel("Snapshot", cost=0, T=(*dtypes.NUMBER, dtypes.bool_))
def identity(c: OpKernelConstruction) -> Compute:
    return lambda x: x


@kernel("GuaranteeConst", cost=0)
def guarantee_const(c: OpKernelConstruction) -> Compute:
    """Return its input as a constant; refuses handles, since the resource behind one may change."""
    if c.input_types[0] is not dtypes.resource:
        return identity(c)

    def compute(_: Any) -> Any:
        raise errors.InvalidArgumentError("Input tensor cannot be a resource variable handle.")

    return compute


@kernel("IdentityN", device="DEFAULT", cost=0)
def identity_n(c: OpKernelConstruction) -> Compute:
    return lambda *inputs: inputs


@kernel("DeepCopy", "Copy", "CopyHost")
def deep_copy(c: OpKernelConstruction) -> Compute:
    """Return a copy.  The objects of strings, handles and variants are immutable and stay shared."""
    copy: Compute = c.xp.array
    return copy


kernel("DeepCopy", device="DEFAULT", host_memory=("x", "y"), T=[dtypes.int32])(on_host(deep_copy))
kernel("Copy", device="DEFAULT")(deep_copy)
kernel("CopyHost", device="DEFAULT", host_memory=("input", "output"))(on_host(deep_copy))


# ---- shape queries


def _shape_function(dtype: dtypes.DType) -> Compute:
    """`x -> vector of its dimensions`; keeps the last result, as shapes repeat from step to step."""
    known: tuple[tuple[int, ...], Any] = ((-1,), None)
    numpy_dtype = dtype.np

    def shape_of(x: Any) -> Any:
        nonlocal known
        shape = x.shape
        seen, answer = known
        if shape == seen:
            return answer
        try:
            answer = np.array(shape, numpy_dtype)
        except OverflowError:
            largest = max(shape)
            raise errors.InvalidArgumentError(
                f"Shape output type is 32-bit  but dim {shape.index(largest)} is {largest}"
            ) from None
        answer.flags.writeable = False
        known = (shape, answer)
        return answer

    return shape_of


_SHAPE: Any = {"host_memory": ("output",), "all_memory": ("input", "output"), "cost": 0}


@on_any_device("Shape", **_SHAPE, out_type=INDEX)
def shape(c: OpKernelConstruction) -> Compute:
    return _shape_function(c.attr("out_type"))


@on_any_device("ShapeN", **_SHAPE, device_types=_NO_VARIANT, out_type=INDEX)
def shape_n(c: OpKernelConstruction) -> Compute:
    functions = [_shape_function(c.attr("out_type")) for _ in c.output_types]
    return lambda *inputs: tuple([f(x) for f, x in zip(functions, inputs, strict=True)])


@on_any_device("Size", **_SHAPE, out_type=INDEX)
def size(c: OpKernelConstruction) -> Compute:
    make = c.attr("out_type").np.type
    known: tuple[int, Any] = (-1, None)

    def compute(x: Any) -> Any:
        nonlocal known
        count = x.size
        seen, answer = known
        if count != seen:
            answer = make(count)
            known = (count, answer)
        return answer

    def check(x: Any) -> None:
        raise errors.InvalidArgumentError("Number of elements was larger than representable by 32-bit output type")

    c.explain = explain_with(check)
    return compute


_RANKS = tuple(np.int32(rank) for rank in range(256))


@on_any_device(
    "Rank",
    **_SHAPE,
    host_types=(dtypes.int32, dtypes.bool_),
    device_types=[t for t in DEVICE_TYPES if t is not dtypes.bool_],
)
def rank(c: OpKernelConstruction) -> Compute:
    return lambda x: _RANKS[x.ndim]


# ---- other shapes of the same elements


def _reshape_cost(x: Any, shape: Any) -> float:
    """A contiguous array is viewed; others (transposed, sliced) are copied."""
    return 0.0 if x.flags.c_contiguous else float(x.size)


@on_any_device(
    "Reshape",
    host_memory=("shape",),
    all_memory=("tensor", "shape", "output"),
    device_types=_NO_VARIANT,
    cost=AtMost(1.0, _reshape_cost),
    Tshape=INDEX,
)
def reshape(c: OpKernelConstruction) -> Compute:
    known: tuple[Any, Any] = (None, None)

    def compute(x: Any, shape: Any) -> Any:
        nonlocal known
        constant, dims = known
        try:
            if shape is not constant:
                if shape.ndim > 1 or shape.size > MAX_RANK:  # a matrix without columns may have a billion rows
                    return x.reshape(_reshape_dims(x.shape, shape))
                dims = shape.tolist()
                # NumPy takes any negative size for "the rest", TensorFlow -1 only.
                if dims and min(dims) < -1:
                    return x.reshape(_reshape_dims(x.shape, shape))
                if is_frozen(shape):
                    known = (shape, dims)
            return x.reshape(dims)
        except (ValueError, TypeError):
            return x.reshape(_reshape_dims(x.shape, shape))

    return compute


def _reshape_dims(old: Sequence[int], sizes: Any) -> list[int]:
    """The dimensions that `sizes` asks for.

    If `sizes` holds a zero, zero dimensions of the input do not count when -1 is computed: [0,3] in the shape [-1,0]
    becomes [3,0].

    Raises:
        InvalidArgumentError: sizes is not a vector, two are -1, one is below -1, or the number of elements differs.
    """
    # Graphs of old producers pass a scalar for a vector of one element.
    if sizes.ndim > 1:
        raise errors.InvalidArgumentError(f"sizes input must be 1-D, not {shape_text(sizes.shape)}")
    check_max_rank(sizes.size)
    dims = [int(size) for size in sizes.ravel()]
    unknown = -1
    for i, size in enumerate(dims):
        if size == -1:
            if unknown != -1:
                raise errors.InvalidArgumentError(f"Only one input size may be -1, not both {unknown} and {i}")
            unknown = i
        elif size < 0:
            raise errors.InvalidArgumentError(f"Size {i} must be non-negative, not {size}")
    product = math.prod(size for size in dims if size > 0)
    if product > 2**63 - 1:
        raise errors.InvalidArgumentError(f"Shape [{', '.join(map(str, dims))}] has too many elements")
    elements = math.prod(old)
    if unknown != -1:
        countable = math.prod(size for size in old if size > 0) if 0 in dims else elements
        dims[unknown] = countable // product
        if product * dims[unknown] != countable and not (0 in dims and 0 in old):
            raise errors.InvalidArgumentError(
                f"Input to reshape is a tensor with {countable} values, but the requested shape "
                f"requires a multiple of {product}"
            )
    if math.prod(dims) != elements:
        raise errors.InvalidArgumentError(
            f"Input to reshape is a tensor with {elements} values, but the requested shape has {math.prod(dims)}"
        )
    return dims


# Index that puts a new axis at a position: from the front for 0 and up, from the back below.
_FULL = slice(None)
_NEW_AXIS: dict[int, tuple[Any, ...]] = {
    axis: (*[_FULL] * axis, None) if axis >= 0 else (..., None, *[_FULL] * (-axis - 1)) for axis in range(-256, 256)
}


@on_any_device(
    "ExpandDims",
    host_memory=("dim",),
    all_memory=("input", "dim", "output"),
    device_types=_NO_VARIANT,
    cost=0,
    Tdim=INDEX,
)
def expand_dims(c: OpKernelConstruction) -> Compute:
    known: tuple[Any, Any] = (None, None)

    def compute(x: Any, dim: Any) -> Any:
        nonlocal known
        constant, index = known
        if dim is not constant:
            index = _NEW_AXIS[dim.item()]
            if is_frozen(dim):
                known = (dim, index)
        return x[index]

    def check(x: Any, dim: Any) -> None:
        if dim.size != 1:
            raise errors.InvalidArgumentError("'dim' must be a tensor with a single value")
        if not -1 - x.ndim <= dim.item() <= x.ndim:
            raise errors.InvalidArgumentError(
                f"Tried to expand dim index {dim.item()} for tensor with {x.ndim} dimensions."
            )

    c.explain = explain_with(check)
    return compute


@on_any_device("Squeeze", all_memory=("input", "output"), device_types=_NO_VARIANT, cost=0)
def squeeze(c: OpKernelConstruction) -> Compute:
    dims = c.attr("squeeze_dims")

    def check(x: Any) -> None:
        for dim in dims:
            if not -x.ndim <= dim < x.ndim:
                raise errors.InvalidArgumentError(
                    f"Tried to squeeze dim index {dim} for tensor with {x.ndim} dimensions."
                )
        for dim in sorted(dim % x.ndim for dim in dims):
            if x.shape[dim] != 1:
                raise errors.InvalidArgumentError(
                    f"Can not squeeze dim[{dim}], expected a dimension of 1, got {x.shape[dim]}"
                )

    c.explain = explain_with(check)
    if not dims:
        return lambda x: x.squeeze()
    axes = tuple(sorted(set(dims)))
    if axes[0] < 0 <= axes[-1]:
        # An axis may be given twice, counted from either end; NumPy refuses that.
        return lambda x: x.squeeze(tuple({axis + x.ndim if -x.ndim <= axis < 0 else axis for axis in axes}))
    return lambda x: x.squeeze(axes)


# Nanoseconds per number that is conjugated in the order of the result.
_CONJUGATE_NS = 6.0


def _conjugate_transpose_ns(attrs: Mapping[str, Any]) -> float:
    return _CONJUGATE_NS if attrs["T"].is_complex else 0.0


@kernel("Transpose", host_memory=("perm",), cost=0, T=_TRANSPOSE_TYPES)
@kernel("ConjugateTranspose", host_memory=("perm",), cost=AttrCost(_conjugate_transpose_ns), T=_TRANSPOSE_TYPES)
def transpose(c: OpKernelConstruction) -> Compute:
    """Return a view: a consumer that needs contiguous elements copies them (BLAS does not)."""
    known: tuple[Any, Any] = (None, None)

    def compute(x: Any, perm: Any) -> Any:
        nonlocal known
        constant, axes = known
        if perm is not constant:
            if perm.ndim != 1 or perm.size > x.ndim:
                _check_permutation(x, perm)
            axes = perm.tolist()
            if is_frozen(perm):
                known = (perm, axes)
        return x.transpose(axes)

    c.explain = explain_with(_check_permutation)
    if c.op == "ConjugateTranspose" and c.attr("T").is_complex:
        return lambda x, perm: compute(x, perm).conj()
    return compute


def _check_permutation(x: Any, perm: Any) -> None:
    if perm.ndim != 1:
        raise errors.InvalidArgumentError(f"perm must be rank 1, got shape {shape_text(perm.shape)}")
    if perm.size != x.ndim:
        raise errors.InvalidArgumentError(
            f"transpose expects a vector of size {x.ndim}. But input(1) is a vector of size {perm.size}"
        )
    axes = [axis + x.ndim if axis < 0 else axis for axis in perm.tolist()]
    for axis in axes:
        if not 0 <= axis < x.ndim:
            raise errors.InvalidArgumentError(f"{axis} is out of range [0 .. {x.ndim})")
    for axis in range(x.ndim):
        if axis not in axes:
            raise errors.InvalidArgumentError(f"{axis} is missing from {{{','.join(map(str, axes))}}}.")


# ---- checks that pass their input on


@on_any_device(
    "EnsureShape",
    all_memory=("input", "output"),
    host_types=(*_ON_HOST, dtypes.bool_),
    device_types=[t for t in DEVICE_TYPES if t is not dtypes.bool_],
    cost=0,
)
def ensure_shape(c: OpKernelConstruction) -> Compute:
    expected: PartialTensorShape = c.attr("shape")
    name = c.name
    passed: tuple[int, ...] | None = None

    def compute(x: Any) -> Any:
        nonlocal passed
        if x.shape != passed:
            if not expected.is_compatible_with(x.shape):
                raise errors.InvalidArgumentError(
                    f"Shape of tensor {name} {shape_text(x.shape)} is not compatible with expected shape {expected}."
                )
            passed = x.shape
        return x

    return compute


@kernel("CheckNumerics", "CheckNumericsV2", T=dtypes.FLOAT, scratch=3)
def check_numerics(c: OpKernelConstruction) -> Compute:
    message = c.attr("message").decode(errors="replace")
    signed = c.op == "CheckNumericsV2"
    xp = c.xp
    isfinite, all_true = xp.isfinite, reducer(xp, "logical_and")

    def compute(x: Any) -> Any:
        if all_true(isfinite(x), None):
            return x
        raise errors.InvalidArgumentError(f"{message} : Tensor had {_found(x)} values")

    def _found(x: Any) -> str:
        infinite = xp.isinf(x)
        kinds = []
        if signed:
            kinds += ["-Inf"] if (infinite & (x < 0)).any() else []
            kinds += ["+Inf"] if (infinite & (x > 0)).any() else []
        elif infinite.any():
            kinds.append("Inf")
        if xp.isnan(x).any():
            kinds.append("NaN")
        return ", ".join(kinds[:-1]) + ", and " + kinds[-1] if len(kinds) > 2 else " and ".join(kinds)

    return compute


# ---- uninitialised tensors


@kernel(
    "Empty",
    host_memory=("shape",),
    cost=PerOutput(0.3),
    dtype=[t for t in dtypes.ALL if t not in (dtypes.resource, dtypes.variant)],
)
def empty(c: OpKernelConstruction) -> Compute:
    """Return zeros, whether `init` asks for them or not: fresh memory may hold another user's data."""
    allocate, make = allocator(c), c.xp.zeros

    def compute(shape: Any) -> Any:
        if shape.ndim != 1:
            raise errors.InvalidArgumentError(f"shape must be a vector of int32, got shape {shape_text(shape.shape)}")
        return allocate(shape.tolist(), make)

    return compute


@on_any_device("RefIdentity", all_memory=("input", "output"), host_types=_ON_HOST, cost=0)
def ref_identity(c: OpKernelConstruction) -> Compute:
    return lambda cell: cell
