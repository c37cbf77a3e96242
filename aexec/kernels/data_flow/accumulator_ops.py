"""Conditional accumulators of gradients, dense and sparse.  Next to read: `aexec/resources/accumulator.py`."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.kernels.common.handles import find_resource, shared
from aexec.resources.accumulator import Accumulator, ConditionalAccumulator, SparseAccumulator

_DTYPES = (dtypes.float16, dtypes.float32, dtypes.float64)

AnyAccumulator = TypeVar("AnyAccumulator", ConditionalAccumulator, SparseAccumulator)


def _maker(kind: type[AnyAccumulator]) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        dtype, shape, is_mean = c.attr("dtype"), c.attr("shape"), c.text("reduction_type") == "MEAN"

        def agree(found: Accumulator[Any]) -> None:
            if type(found) is not kind or found.dtype is not dtype:
                raise errors.InvalidArgumentError(f"{c.name} names {found!r}, which is no {kind.__name__} of {dtype}")

        return shared(c, Accumulator, lambda: kind(dtype, shape, is_mean=is_mean), agree)

    return build


kernel("ConditionalAccumulator", "ResourceConditionalAccumulator", cost=0, dtype=_DTYPES)(
    _maker(ConditionalAccumulator)
)
kernel("SparseConditionalAccumulator", cost=0, dtype=_DTYPES)(_maker(SparseAccumulator))


def _find(c: OpKernelConstruction, context: OpKernelContext, handle: Any, kind: type[AnyAccumulator]) -> AnyAccumulator:
    """The accumulator, which must be of this kind and have the node's type."""
    found = find_resource(context, handle, Accumulator)
    if not isinstance(found, kind):
        raise errors.InvalidArgumentError(f"{c.op} takes no {type(found).__name__}")
    replaced = dict.fromkeys(("gradient", "gradient_values", "average", "values"), found.dtype)
    c.match_signature(
        [replaced.get(arg.name, dtype) for arg, dtype in zip(c.op_def.inputs, c.input_types, strict=True)],
        [replaced.get(arg.name, dtype) for arg, dtype in zip(c.op_def.outputs, c.output_types, strict=True)],
    )
    return found


def _scalar(name: str, value: Any) -> int:
    if np.ndim(value):
        raise errors.InvalidArgumentError(
            f"Argument {name} must be scalar, but had bad shape {shape_text(value.shape)}"
        )
    return int(value)


@kernel("AccumulatorApplyGradient", "ResourceAccumulatorApplyGradient")
def apply_gradient(c: OpKernelConstruction) -> Compute:
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, step: Any, gradient: Any) -> None:
        _find(c, context, handle, ConditionalAccumulator).add(_scalar("local_step", step), gradient)

    return compute


@kernel("SparseAccumulatorApplyGradient", cost=10.0)
def sparse_apply_gradient(c: OpKernelConstruction) -> Compute:
    has_shape = c.attr("has_known_shape")
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, step: Any, indices: Any, values: Any, shape: Any) -> None:
        found = _find(c, context, handle, SparseAccumulator)
        found.add(_scalar("local_step", step), indices, values, shape if has_shape else None)

    return compute


@kernel("AccumulatorTakeGradient", "ResourceAccumulatorTakeGradient", cost=0)
def take_gradient(c: OpKernelConstruction) -> Compute:
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any, count: Any) -> Any:
        found = _find(c, context, handle, ConditionalAccumulator)
        return await found.take(_scalar("num_required", count), context.cancellation, context.worker_pool)

    return compute


@kernel("SparseAccumulatorTakeGradient", cost=0)
def sparse_take_gradient(c: OpKernelConstruction) -> Compute:
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any, count: Any) -> Any:
        found = _find(c, context, handle, SparseAccumulator)
        taken = await found.take(_scalar("num_required", count), context.cancellation, context.worker_pool)
        return taken.indices, taken.values, found.whole_shape(taken.values)

    return compute


@kernel("AccumulatorNumAccumulated", "ResourceAccumulatorNumAccumulated", cost=0)
def num_accumulated(c: OpKernelConstruction) -> Compute:
    c.need_context()
    return lambda context, handle: np.int32(find_resource(context, handle, Accumulator).count)


@kernel("AccumulatorSetGlobalStep", "ResourceAccumulatorSetGlobalStep", cost=0)
def set_global_step(c: OpKernelConstruction) -> Compute:
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, step: Any) -> None:
        find_resource(context, handle, Accumulator).step = _scalar("new_global_step", step)

    return compute
