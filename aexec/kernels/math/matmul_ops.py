"""Matrix products: MatMul, BatchMatMul and its versions, SparseMatMul.

The products themselves are BLAS's, called through NumPy (or CuPy).  The kernels add TensorFlow's rules: which ranks are
allowed, that half and bfloat16 accumulate in float32 and round once, that integers wrap. A successful call makes one
rank check; NumPy finds sizes that do not match, and `explain` then makes TensorFlow's message.
Next to read: `einsum_ops.py`, which reduces general contractions to these products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction, of_shapes
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import WATCHED_CALLS, announce_scratch
from aexec.framework.shape import shape_text
from aexec.kernels.common import products

__all__ = [
    "BLAS_TYPES",
    "LARGE",
    "LOW_PRECISION_TYPES",
    "PRODUCT_COST",
    "announce_wider_product",
    "batch_product",
    "explained_by",
    "mat_mul_error",
    "product_ns",
]

Product = Callable[[Any, Any], Any]

BLAS_TYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
LOW_PRECISION_TYPES = (dtypes.float16, dtypes.bfloat16)
INTEGER_TYPES = (dtypes.int16, dtypes.int32, dtypes.int64)
MATMUL_TYPES = (*BLAS_TYPES, *LOW_PRECISION_TYPES, *INTEGER_TYPES)

# Up to this many multiplications NumPy's plain integer loop is faster than converting to float64.
_PLAIN_INTEGER_WORK = 16_384
# float64 holds every integer up to here, so sums of products below it are exact.
_EXACT_IN_FLOAT64 = 2**53

# Nanoseconds per multiply-add on one core, by NumPy type; integers go through float64.
_NS_PER_STEP = {
    dtypes.float32.np: 0.025,
    dtypes.float64.np: 0.05,
    dtypes.complex64.np: 0.1,
    dtypes.complex128.np: 0.2,
    dtypes.float16.np: 0.05,
    dtypes.bfloat16.np: 0.05,
}
_NS_PER_INTEGER_STEP = 0.2


@of_shapes
def product_ns(a: Any, b: Any, *_: Any) -> float:
    """Estimated nanoseconds of a (batched) product of a, not transposed, and b, transposed or not.  Never raises."""
    return _product_ns(a, b, -1)


@of_shapes
def _transposed_product_ns(a: Any, b: Any, *_: Any) -> float:
    """Like `product_ns`, with a transposed."""
    return _product_ns(a, b, -2)


def _product_ns(a: Any, b: Any, common_axis: int) -> float:
    if a.ndim < 2 or b.ndim < 2:
        return 0.0
    common = a.shape[common_axis] or 1
    steps: float = max(a.size * b.shape[-1] * b.shape[-2], b.size * a.shape[-1] * a.shape[-2]) / common
    return 300.0 + steps * _NS_PER_STEP.get(a.dtype, _NS_PER_INTEGER_STEP)


def _of_attrs(attrs: Mapping[str, Any]) -> Callable[..., float]:
    return _transposed_product_ns if attrs.get("transpose_a", attrs.get("adj_x")) else product_ns


PRODUCT_COST = AttrCost(_of_attrs)


def explained_by(describe: Callable[..., errors.OpError]) -> Callable[..., errors.OpError]:
    """An `explain` that replaces NumPy's error about sizes by that of `describe(*inputs)`."""

    def explain(exception: Exception, *inputs: Any) -> errors.OpError:
        if isinstance(exception, ValueError):
            return describe(*inputs)
        if isinstance(exception, MemoryError):
            return errors.ResourceExhaustedError(f"OOM: {exception}")
        return errors.UnknownError(f"{type(exception).__name__}: {exception}")

    return explain


def _integer_product(product: Product) -> Product:
    """`product` for integers: by float64 BLAS if that is exact, otherwise unchanged (wrapping around)."""

    def multiply(a: Any, b: Any) -> Any:
        if a.size * b.shape[-1] > _PLAIN_INTEGER_WORK:
            longest_sum = a.shape[-1] * _largest_magnitude(a) * _largest_magnitude(b)
            if longest_sum < _EXACT_IN_FLOAT64:
                announce_wider_product(a, b, 8, 2 * 8)
                exact = product(a.astype(np.float64), b.astype(np.float64))
                # Through int64, as only a cast between integers wraps around.
                return exact.astype(np.int64).astype(a.dtype, copy=False)
        return product(a, b)

    return multiply


def _elements_of_product(a: Any, b: Any) -> int:
    return math.prod((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))


def announce_wider_product(a: Any, b: Any, itemsize: int, product_bytes: int) -> None:
    """Announce copies of both factors with `itemsize` bytes per element, and their product with `product_bytes`."""
    if WATCHED_CALLS[0] and min(a.ndim, b.ndim) >= 2:
        announce_scratch(itemsize * (a.size + b.size) + product_bytes * _elements_of_product(a, b))


def _largest_magnitude(a: Any) -> int:
    return max(int(a.max()), -int(a.min())) if a.size else 0


def _low_precision_product(product: Product, np_dtype: np.dtype[Any]) -> Product:
    """`product` with float32 sums, rounded once at the end."""

    def multiply(a: Any, b: Any) -> Any:
        announce_wider_product(a, b, 4, 4)
        return product(a.astype(np.float32), b.astype(np.float32)).astype(np_dtype)

    return multiply


def _native_product(product: Product, wide: Product, np_dtype: np.dtype[Any]) -> Product:
    """CuPy's own `product`, whose sums are float32 and use the units for such types; old CuPy lacks bfloat16."""

    def multiply(a: Any, b: Any) -> Any:
        try:
            return product(a, b).astype(np_dtype, copy=False)
        except TypeError:
            return wide(a, b)

    return multiply


def _mixed_product(xp: Any, dtype: DType) -> Product:
    """Product of two different types (a `BatchMatMulV3`) in the type of the result."""
    product = _any_batch_product(xp)
    if dtype in LOW_PRECISION_TYPES:
        return _low_precision_product(product, dtype.np)

    # For int8 and uint8, 10**11 terms are needed to exceed the integers that float64 holds exactly.
    def multiply(a: Any, b: Any) -> Any:
        announce_wider_product(a, b, 8, 2 * 8)
        return product(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(dtype.np)

    return multiply


def _typed(product: Product, xp: Any, dtype: DType) -> Product:
    """`product` adapted to arrays of one type."""
    if dtype in BLAS_TYPES:
        return product
    if dtype in LOW_PRECISION_TYPES:
        wide = _low_precision_product(product, dtype.np)
        return wide if xp is np else _native_product(product, wide, dtype.np)
    return _integer_product(product)


def batch_product(xp: Any, dtype: DType) -> Product:
    """Product of the last two axes of two arrays of `dtype`; leading axes broadcast."""
    return _typed(_any_batch_product(xp), xp, dtype)


def _any_batch_product(xp: Any) -> Product:
    return products.batch_product if xp is np else xp.matmul


# MatMul


def mat_mul_error(a: Any, b: Any) -> errors.InvalidArgumentError:
    """The error for a and b, not yet transposed, that have no product."""
    if a.ndim != b.ndim:
        return errors.InvalidArgumentError(
            f"In[0] and In[1] has different ndims: {shape_text(a.shape)} vs. {shape_text(b.shape)}"
        )
    if a.ndim != 2:
        return errors.InvalidArgumentError(f"In[0] and In[1] ndims must be == 2: {a.ndim}")
    return _size_error(a, b)


def _size_error(a: Any, b: Any) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"Matrix size-incompatible: In[0]: {shape_text(a.shape)}, In[1]: {shape_text(b.shape)}"
    )


# The method has the least overhead of all ways to multiply two matrices.  But it fills its result with zeros under the
# interpreter's lock, so that in a thread it stops the event loop; `matmul` therefore makes the large ones. The method
# also takes other ranks, with other rules, so its callers allow only rank 2.
LARGE = 1 << 20


def _product(xp: Any) -> Product:
    matmul = partial(products.matrix_product, xp)

    def multiply(a: Any, b: Any) -> Any:
        return a.dot(b) if a.size * b.size < LARGE else matmul(a, b)

    return multiply


@kernel("MatMul", T=MATMUL_TYPES, cost=PRODUCT_COST)
def mat_mul(c: OpKernelConstruction) -> Product:
    """Return the product of two matrices; `transpose_*` transposes without conjugating."""
    c.explain = explained_by(mat_mul_error)
    dtype = c.attr("T").base
    transposed = (c.attr("transpose_a"), c.attr("transpose_b"))
    if dtype in BLAS_TYPES:
        return _BLAS_MAT_MUL[transposed](partial(products.matrix_product, c.xp))
    product = _typed(_product(c.xp), c.xp, dtype)
    transpose_a, transpose_b = transposed

    def compute(a: Any, b: Any) -> Any:
        if a.ndim == b.ndim == 2:
            return product(a.T if transpose_a else a, b.T if transpose_b else b)
        raise mat_mul_error(a, b)

    return compute


# The four common cases are written out: another call, or a test of the attrs, would cost as much as a small product.


def _mul_nn(matmul: Product) -> Product:
    def multiply(a: Any, b: Any) -> Any:
        if a.ndim == b.ndim == 2:
            return a.dot(b) if a.size * b.size < LARGE else matmul(a, b)
        raise mat_mul_error(a, b)

    return multiply


def _mul_nt(matmul: Product) -> Product:
    def multiply(a: Any, b: Any) -> Any:
        if a.ndim == b.ndim == 2:
            return a.dot(b.T) if a.size * b.size < LARGE else matmul(a, b.T)
        raise mat_mul_error(a, b)

    return multiply


def _mul_tn(matmul: Product) -> Product:
    def multiply(a: Any, b: Any) -> Any:
        if a.ndim == b.ndim == 2:
            return a.T.dot(b) if a.size * b.size < LARGE else matmul(a.T, b)
        raise mat_mul_error(a, b)

    return multiply


def _mul_tt(matmul: Product) -> Product:
    def multiply(a: Any, b: Any) -> Any:
        if a.ndim == b.ndim == 2:
            return a.T.dot(b.T) if a.size * b.size < LARGE else matmul(a.T, b.T)
        raise mat_mul_error(a, b)

    return multiply


_BLAS_MAT_MUL = {
    (False, False): _mul_nn,
    (False, True): _mul_nt,
    (True, False): _mul_tn,
    (True, True): _mul_tt,
}


# BatchMatMul


def batch_product_error(x: Any, y: Any) -> errors.InvalidArgumentError:
    """The error for x and y without a product that broadcasts leading axes, in TensorFlow's order of checks."""
    for i, operand in enumerate((x, y)):
        if operand.ndim < 2:
            return errors.InvalidArgumentError(f"In[{i}] ndims must be >= 2: {operand.ndim}")
    try:
        np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        return errors.InvalidArgumentError(
            f"In[0] and In[1] must have compatible batch dimensions: {shape_text(x.shape)} vs. {shape_text(y.shape)}"
        )
    return _size_error(x, y)


def _same_batch_error(x: Any, y: Any) -> errors.InvalidArgumentError:
    """Like `batch_product_error`, for the first version, whose leading axes do not broadcast."""
    if x.ndim != y.ndim:
        return errors.InvalidArgumentError(
            f"In[0] and In[1] has different ndims: {shape_text(x.shape)} vs. {shape_text(y.shape)}"
        )
    if x.ndim < 2:
        return errors.InvalidArgumentError(f"In[0] and In[1] ndims must be >= 2: {x.ndim}")
    for i, (m, n) in enumerate(zip(x.shape[:-2], y.shape[:-2], strict=True)):
        if m != n:
            return errors.InvalidArgumentError(
                f"In[0].dim({i}) and In[1].dim({i}) must be the same: {shape_text(x.shape)} vs {shape_text(y.shape)}"
            )
    return _size_error(x, y)


def _adjoint(conjugate: bool) -> Callable[[Any], Any]:
    def turned(x: Any) -> Any:
        announce_scratch(x.nbytes)
        return x.conj().swapaxes(-1, -2)

    return turned if conjugate else lambda x: x.swapaxes(-1, -2)


def _adjointed(product: Product, c: OpKernelConstruction, left: DType, right: DType) -> Product:
    """`product` with the node's `adj_x` and `adj_y` applied to its inputs."""
    adj_x, adj_y = c.attr("adj_x"), c.attr("adj_y")
    turn_x, turn_y = _adjoint(left.is_complex), _adjoint(right.is_complex)
    if adj_x and adj_y:
        return lambda x, y: product(turn_x(x), turn_y(y))
    if adj_x:
        return lambda x, y: product(turn_x(x), y)
    if adj_y:
        return lambda x, y: product(x, turn_y(y))
    return product


def _broadcasting(product: Product, c: OpKernelConstruction) -> Product:
    c.explain = explained_by(batch_product_error)

    def compute(x: Any, y: Any) -> Any:
        if x.ndim < 2 or y.ndim < 2:
            raise batch_product_error(x, y)
        return product(x, y)

    return compute


@kernel("BatchMatMul", T=MATMUL_TYPES, cost=PRODUCT_COST)
def batch_mat_mul(c: OpKernelConstruction) -> Product:
    """Return products of the matrices in the last two axes; all other axes must be equal."""
    c.explain = explained_by(_same_batch_error)
    dtype = c.attr("T").base
    product = _adjointed(batch_product(c.xp, dtype), c, dtype, dtype)

    def compute(x: Any, y: Any) -> Any:
        if x.ndim < 2 or x.shape[:-2] != y.shape[:-2] or x.ndim != y.ndim:
            raise _same_batch_error(x, y)
        return product(x, y)

    return compute


@kernel("BatchMatMulV2", T=MATMUL_TYPES, cost=PRODUCT_COST)
def batch_mat_mul_v2(c: OpKernelConstruction) -> Product:
    """Return products of the matrices in the last two axes; all other axes broadcast."""
    dtype = c.attr("T").base
    return _broadcasting(_adjointed(batch_product(c.xp, dtype), c, dtype, dtype), c)


def batch_mat_mul_v3(c: OpKernelConstruction) -> Product:
    """Like BatchMatMulV2, with a separate result type: int8 and uint8 to int32, or mixed with bfloat16."""
    left, right, out = (c.attr(name).base for name in ("Ta", "Tb", "Tout"))
    product = batch_product(c.xp, out) if left is right is out else _mixed_product(c.xp, out)
    return _broadcasting(_adjointed(product, c, left, right), c)


_BYTES = (dtypes.int8, dtypes.uint8)
for _left, _right, _out in (
    *(((t,), (t,), t) for t in (*BLAS_TYPES, *INTEGER_TYPES)),
    ((dtypes.bfloat16, *_BYTES), (dtypes.bfloat16,), dtypes.bfloat16),
    ((dtypes.bfloat16,), _BYTES, dtypes.bfloat16),
    (_BYTES, _BYTES, dtypes.int32),
):
    kernel("BatchMatMulV3", Ta=_left, Tb=_right, Tout=(_out,), cost=PRODUCT_COST)(batch_mat_mul_v3)


# SparseMatMul


def _sparse_mat_mul_error(a: Any, b: Any) -> errors.InvalidArgumentError:
    for name, operand in (("a", a), ("b", b)):
        if operand.ndim != 2:
            return errors.InvalidArgumentError(f"{name} is not a matrix")
    return errors.InvalidArgumentError(f"Matrix size incompatible: a: {shape_text(a.shape)}, b: {shape_text(b.shape)}")


_FLOAT_OR_BFLOAT16 = (dtypes.float32, dtypes.bfloat16)


@kernel("SparseMatMul", Ta=_FLOAT_OR_BFLOAT16, Tb=_FLOAT_OR_BFLOAT16, cost=PRODUCT_COST)
def sparse_mat_mul(c: OpKernelConstruction) -> Product:
    """Return the product of two dense matrices in float32; the hint that one is mostly zeros is of no use to BLAS."""
    c.explain = explained_by(_sparse_mat_mul_error)
    transpose_a, transpose_b = c.attr("transpose_a"), c.attr("transpose_b")
    product, narrow = _product(c.xp), dtypes.bfloat16 in c.input_types

    def compute(a: Any, b: Any) -> Any:
        if a.ndim != 2 or b.ndim != 2:
            raise _sparse_mat_mul_error(a, b)
        a, b = a.T if transpose_a else a, b.T if transpose_b else b
        if narrow:
            announce_wider_product(a, b, 4, 0)
        return product(a.astype(np.float32, copy=False), b.astype(np.float32, copy=False))

    return compute
