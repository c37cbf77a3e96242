"""Checks of parameters and values, made if `validate_args` is set.

Next to read: `parameters.py`.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from aexec import ops
from aexec.client.building import control_dependencies
from aexec.compat.v1.functions.check_ops import assert_rank_at_least
from aexec.compat.v1.functions.control_flow_ops import (
    assert_equal,
    assert_greater_equal,
    assert_less_equal,
    assert_non_negative,
)
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Node, Tensor

__all__ = ["after", "check_counts", "check_event_size", "check_fits"]


def after(checks: list[Node], x: Tensor) -> Tensor:
    """Return `x`; a run that computes it also runs `checks`, and fails if one does."""
    with control_dependencies(checks):
        return ops.identity(x)


def _whole(x: Tensor, dtype: dtypes.DType, message: str) -> Node:
    return assert_equal(x, ops.cast(ops.cast(x, DstT=dtype), DstT=x.dtype.base), message=message)


def check_counts(counts: Tensor) -> Tensor:
    """Return `counts`; a run fails if an element is negative or not whole."""
    checks = [assert_non_negative(counts, message=f"'{counts.name}' must be non-negative.")]
    if counts.dtype.is_floating:
        message = f"'{counts.name}' cannot contain fractional components."
        checks.append(_whole(counts, dtypes.int64, message))
    return after(checks, counts)


def check_fits(x: Tensor, dtype: dtypes.DType) -> Tensor:
    """Return `x`; a run fails if an element is negative, not whole, or too large for `dtype`: bool or an integer."""
    checks = [assert_non_negative(x, message="Elements must be non-negative.")]
    most = 1 if dtype is dtypes.bool_ else int(np.iinfo(dtype.np).max)
    if x.dtype.is_floating:
        checks.append(_whole(x, dtype, f"Elements must be {dtype.name}-equivalent."))
    elif x.dtype.is_integer and int(np.iinfo(x.dtype.base.np).max) > most:
        checks.append(assert_less_equal(x, most, message=f"Elements cannot exceed {most}."))
    return after(checks, x)


def check_event_size(x: Tensor) -> Tensor:
    """Return `x`, [..., classes].  If the number of classes is only known in a run, the run checks it.

    Raises:
        ValueError: there are fewer than two classes, or more than a float of this dtype can count.
    """
    few = "A categorical-distribution parameter must have at least 2 events."
    flat = "A categorical-distribution parameter must have at least 1 dimension."
    most = 2 ** (int(ml_dtypes.finfo(x.dtype.base.np).nmant) + 1)
    sizes = x.static_shape.dims
    if sizes == ():
        raise errors.InvalidValueError(flat)
    size = sizes[-1] if sizes else None
    if size is None:
        found = ops.shape(x)[-1]
        many = f"Number of classes exceeds `dtype` precision, i.e., {x.dtype.name} dtype cannot exceed {most} shape."
        checks = [
            assert_rank_at_least(x, 1, message=flat),
            assert_greater_equal(found, 2, message=few),
            assert_less_equal(found, most, message=many),
        ]
        return after(checks, x)
    if size < 2:
        raise errors.InvalidValueError(few)
    if size > most:
        raise errors.InvalidValueError(
            f"Number of classes exceeds `dtype` precision, i.e., {x.dtype.name} implies shape ({size}) cannot exceed "
            f"{most}."
        )
    return x
