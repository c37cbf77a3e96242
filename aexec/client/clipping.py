"""Clipping: of values, and of the norms of tensors and lists of tensors, such as gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["clip_by_average_norm", "clip_by_global_norm", "clip_by_norm", "clip_by_value", "global_norm"]

# A gradient as `aexec.gradients` returns it.
_Clipped = Any


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> _Clipped:
    """Clip values to [clip_value_min, clip_value_max]; of `IndexedSlices`, the values that they have."""
    with name_scope(name or "clip_by_value"):
        return _with_values(t, lambda v: ops.maximum(ops.minimum(v, clip_value_max), clip_value_min))


def clip_by_norm(t: Any, clip_norm: Any, axes: Sequence[int] | None = None, name: str | None = None) -> _Clipped:
    """Scale down to an L2 norm of `clip_norm`, if it is larger: as a whole, or along some axes."""

    def clipped(values: Tensor) -> Tensor:
        over = list(range(values.static_shape.rank or 0)) if axes is None else list(axes)
        total = ops.sum(values * values, over, keep_dims=True)
        # The root of zero is avoided, since its derivative is infinite.
        some = ops.greater(total, 0.0)
        norm = ops.select_v2(some, ops.sqrt(ops.select_v2(some, total, ops.ones_like(total))), total)
        shrunk: Tensor = values * clip_norm / ops.maximum(norm, clip_norm)
        return shrunk

    with name_scope(name or "clip_by_norm"):
        return _with_values(t, clipped)


def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Tensor:
    """Scale down until the L2 norm, divided by the number of elements, is at most `clip_norm`."""
    with name_scope(name or "clip_by_average_norm"):
        values = convert_to_tensor(t)
        over = list(range(values.static_shape.rank or 0))
        count = ops.cast(ops.size(values), DstT=values.dtype.base)
        inverse = ops.rsqrt(ops.sum(values * values, over, keep_dims=True)) * count
        clipped: Tensor = values * clip_norm * ops.minimum(inverse, 1.0 / convert_to_tensor(clip_norm))
        return clipped


def global_norm(t_list: Sequence[Any], name: str | None = None) -> Tensor:
    """The L2 norm of all elements of all tensors of a list; None entries are ignored.

    Raises:
        InvalidArgumentError: there is no tensor in the list.
    """
    values = [t.values if isinstance(t, IndexedSlices) else convert_to_tensor(t) for t in t_list if t is not None]
    if not values:
        raise errors.InvalidValueError("global_norm needs at least one tensor")
    with name_scope(name or "global_norm") as scope:
        halves = ops.pack([ops.l2_loss(value) for value in values])
        return ops.sqrt(ops.sum(halves, [0]) * 2.0, name=f"{scope}global_norm")


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[_Clipped], Tensor]:
    """Scale down all tensors of a list together, until their `global_norm` is at most `clip_norm`.

    Args:
        use_norm: their norm, if it is known.

    Returns:
        The list, and the norm before scaling.  If that is not finite, everything is NaN.
    """
    if not isinstance(t_list, Sequence) or isinstance(t_list, str):
        raise errors.InvalidTypeError(f"`t_list` should be a sequence of tensors, got {type(t_list).__name__}")
    norm = global_norm(t_list, name) if use_norm is None else convert_to_tensor(use_norm)
    with name_scope(name or "clip_by_global_norm"):
        limit = convert_to_tensor(clip_norm, norm.dtype.base)
        scale = limit * ops.minimum(1.0 / norm, 1.0 / limit)
        scale = scale + (norm - norm)  # NaN if the norm is not finite
        return [None if t is None else _with_values(t, lambda v: ops.identity(v * scale)) for t in t_list], norm


def _with_values(t: Any, change: Any) -> _Clipped:
    if isinstance(t, IndexedSlices):
        return t._replace(values=change(t.values))
    return change(convert_to_tensor(t))
