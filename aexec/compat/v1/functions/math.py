"""`tf.math`: the namespace of mathematical functions; `tf` has most of them as well.

Next to read: `math_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.shapes import real_type
from aexec.client.building import name_scope
from aexec.compat.v1.namespace import namespace
from aexec.framework.dtypes import complex64, complex128, float64, string
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["NAMES", "abs", "add", "angle", "complex", "conj", "imag", "log_sigmoid", "logical_xor", "real", "round"]


def abs(x: Any, name: str | None = None) -> Tensor:
    """`tf.abs`: also of complex numbers."""
    value = convert_to_tensor(x)
    if not value.dtype.is_complex:
        return ops.abs(value, name=name)
    return ops.complex_abs(value, Tout=real_type(value.dtype), name=name)


def add(x: Any, y: Any, name: str | None = None) -> Tensor:
    """`tf.add`: also of strings."""
    left = convert_to_tensor(x, y.dtype.base if isinstance(y, Tensor | TensorProxy) else None, "x")
    return (ops.add if left.dtype.base is string else ops.add_v2)(left, y, name=name)


def round(x: Any, name: str | None = None) -> Tensor:
    """`tf.round`: integers are returned unchanged."""
    value = convert_to_tensor(x)
    return value if value.dtype.is_integer else ops.round(value, name=name)


def real(input: Any, name: str | None = None) -> Tensor:
    """`tf.real`: real numbers are returned unchanged."""
    value = convert_to_tensor(input)
    return ops.real(value, Tout=real_type(value.dtype), name=name) if value.dtype.is_complex else value


def imag(input: Any, name: str | None = None) -> Tensor:
    """`tf.imag`: zeros for real numbers."""
    value = convert_to_tensor(input)
    if not value.dtype.is_complex:
        return ops.zeros_like(value, name=name)
    return ops.imag(value, Tout=real_type(value.dtype), name=name)


def angle(input: Any, name: str | None = None) -> Tensor:
    """`tf.angle`: for real numbers 0, or pi if they are negative."""
    value = convert_to_tensor(input)
    if value.dtype.is_complex:
        return ops.angle(value, Tout=real_type(value.dtype), name=name)
    return ops.select_v2(value < 0, np.pi * ops.ones_like(value), ops.zeros_like(value), name=name)


def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """`tf.complex`: of the complex type whose parts have the type of `real`."""
    part = convert_to_tensor(real, name="real")
    whole = complex128 if part.dtype.base is float64 else complex64
    return ops.complex(part, imag, Tout=whole, name=name)


def conj(x: Any, name: str | None = None) -> Tensor:
    """`tf.conj`: real numbers are returned unchanged."""
    value = convert_to_tensor(x)
    return ops.conj(value, name=name) if value.dtype.is_complex else value


def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """`tf.math.log_sigmoid`."""
    with name_scope(name or "LogSigmoid"):
        return -ops.softplus(-convert_to_tensor(x))


def logical_xor(x: Any, y: Any, name: str = "LogicalXor") -> Tensor:
    """`tf.logical_xor`."""
    return ops.not_equal(convert_to_tensor(x, name="x"), y, name=name)


# Names that `tf` has, too.
NAMES = {
    **{
        # Ops with the same name.
        name: f"ops:{name}"
        for name in """acos acosh asin asinh atan atan2 atanh betainc ceil cos cosh cross digamma div_no_nan
        erf erfc exp expm1 floor greater greater_equal igamma igammac invert_permutation is_finite is_inf is_nan
        less less_equal lgamma log log1p logical_and logical_not logical_or maximum minimum polygamma pow
        reciprocal rint rsqrt segment_max segment_mean segment_min segment_prod segment_sum sigmoid sign sin sinh
        sqrt square squared_difference tan tanh unsorted_segment_max unsorted_segment_min unsorted_segment_prod
        unsorted_segment_sum zeta""".split()
    },
    **{
        name: f"functions.math_ops:{name}"
        for name in """accumulate_n add_n argmax argmin confusion_matrix count_nonzero cumprod cumsum divide equal
        not_equal reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum
        scalar_mul""".split()
    },
    **{name: f"functions.math:{name}" for name in "abs add angle conj imag real round".split()},
    "floordiv": "ops:floor_div",
    "floormod": "ops:floor_mod",
    "logical_xor": "functions.math:logical_xor",
    "mod": "ops:floor_mod",
    "multiply": "ops:mul",
    "negative": "ops:neg",
    "subtract": "ops:sub",
    "truediv": "functions.math_ops:divide",
}

__getattr__, __dir__ = namespace(
    __name__,
    {
        **NAMES,
        **{name: f"functions.math_ops:{name}" for name in "bincount reduce_std reduce_variance top_k".split()},
        **{name: f"ops:{name}" for name in "erfinv ndtri softplus softsign xdivy xlogy".split()},
        "bessel_i0e": "ops:bessel_i0e",
        "bessel_i1e": "ops:bessel_i1e",
        "ceil": "ops:ceil",
        "in_top_k": "networks.nn:in_top_k",
        "l2_normalize": "networks.nn:l2_normalize",
        "log_softmax": "networks.nn:log_softmax",
        "multiply_no_nan": "ops:mul_no_nan",
        "nextafter": "ops:next_after",
        "softmax": "networks.nn:softmax",
        **{
            name: f"numerics.special:{name}"
            for name in """cumulative_logsumexp erfcinv lbeta polyval reciprocal_no_nan reduce_euclidean_norm
            sobol_sample unsorted_segment_sqrt_n""".split()
        },
        **{name: f"ops:{name}" for name in "bessel_i0 bessel_i1 xlog1py".split()},
        **{name: f"functions.check_ops:{name}" for name in "is_non_decreasing is_strictly_increasing".split()},
        "divide_no_nan": "ops:div_no_nan",
        "special": "numerics.special",
        "unsorted_segment_mean": "functions.math_ops:unsorted_segment_mean",
        "zero_fraction": "networks.nn:zero_fraction",
    },
    dict.fromkeys(("approx_max_k", "approx_min_k"), "there is no kernel of its op: use tf.math.top_k"),
)
