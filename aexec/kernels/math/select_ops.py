"""Select and SelectV2: take each element from one of two tensors, depending on a condition.

Next to read: `aexec/kernels/array/gather_scatter_ops.py`, which takes rows by index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import check_same_shape, shape_text
from aexec.kernels.common.array_module import chooser
from aexec.kernels.common.elementwise import broadcast_error

__all__: list[str] = []


@kernel("Select", T=dtypes.ALL)
def select(c: OpKernelConstruction) -> Compute:
    """Does not broadcast, but the condition may be a scalar, or a vector that selects rows."""
    where = chooser(c.xp, c.output_types[0].np)

    def compute(condition: Any, then: Any, otherwise: Any) -> Any:
        if condition.ndim == 0:
            _check_branches(then, otherwise)
            return then if condition else otherwise
        if condition.ndim == 1 and then.ndim != 1:
            _check_rows(condition, then)
            _check_branches(then, otherwise)
            condition = condition.reshape((*condition.shape, *(1,) * (then.ndim - 1)))
        else:
            check_same_shape(c.name, c.op, condition, then, otherwise)
        return where(condition, then, otherwise)

    return compute


def _check_branches(then: Any, otherwise: Any) -> None:
    if then.shape != otherwise.shape:
        raise errors.InvalidArgumentError(
            "'then' and 'else' must have the same size.  but received: "
            f"{shape_text(then.shape)} vs. {shape_text(otherwise.shape)}"
        )


def _check_rows(condition: Any, then: Any) -> None:
    if then.ndim == 0:
        raise errors.InvalidArgumentError(f"'then' must be at least a vector, but saw shape: {shape_text(then.shape)}")
    if len(then) != len(condition):
        raise errors.InvalidArgumentError(
            f"Number of batches of 'then' must match size of 'cond', but saw: {len(then)} vs. {len(condition)}"
        )


@kernel("SelectV2", T=dtypes.ALL)
def select_v2(c: OpKernelConstruction) -> Compute:
    """All three inputs broadcast."""
    c.explain = _select_error
    where, on_host = chooser(c.xp, c.output_types[0].np), c.xp is np

    def compute(condition: Any, then: Any, otherwise: Any) -> Any:
        if then.shape == otherwise.shape:
            if condition.ndim == 0:
                return then if condition else otherwise
            if on_host and 0 < condition.size < then.size and condition.ndim <= then.ndim:
                return _where_broadcast(condition, then, otherwise)
        return where(condition, then, otherwise)

    return compute


def _where_broadcast(condition: Any, then: Any, otherwise: Any) -> Any:
    """`np.where` of a condition for whole rows, such as the sequences of a batch that have ended, in less time.

    `then` and `otherwise` are arrays of one shape, and the condition has fewer elements.
    """
    out = otherwise.copy()
    try:
        np.copyto(out, then, where=condition)
    except ValueError:  # the condition is longer on some axis, or does not broadcast
        return np.where(condition, then, otherwise)
    return out


def _select_error(exc: BaseException, condition: Any, then: Any, otherwise: Any) -> errors.OpError:
    error = broadcast_error(exc, condition, then, otherwise)
    if not isinstance(error, errors.InvalidArgumentError):
        return error
    return errors.InvalidArgumentError(
        f"condition {shape_text(condition.shape)}, then {shape_text(then.shape)}, "
        f"and else {shape_text(otherwise.shape)} must be broadcastable"
    )
