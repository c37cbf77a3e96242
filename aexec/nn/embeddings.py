"""Look-ups of table rows by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import ops
from aexec.client.building import colocate_with, name_scope
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.partitioned_variable import PartitionedVariable
from aexec.variables.variable import Variable

__all__ = ["embedding_lookup"]


def embedding_lookup(
    params: Any, ids: Any, partition_strategy: str = "mod", max_norm: float | None = None, name: str | None = None
) -> Tensor:
    """The rows `ids` of a table, [*ids.shape, …].

    Args:
        params: the table, or a list of parts of it, or a partitioned variable, whose parts are consecutive ("div").
        partition_strategy: row `i` of n parts is row `i // n` of part `i % n` ("mod"), or the parts are consecutive
            ("div").
        max_norm: rows of a larger norm are scaled down to it.

    Raises:
        InvalidArgumentError: there are no parts, or the strategy is unknown.
    """
    parts = list(params) if isinstance(params, list | tuple | PartitionedVariable) else [params]
    if not parts:
        raise errors.InvalidValueError("Need at least one param")
    if partition_strategy not in ("mod", "div"):
        raise errors.InvalidValueError(f"partition_strategy must be 'mod' or 'div', got {partition_strategy!r}")
    with name_scope(name or "embedding_lookup"):
        rows = convert_to_tensor(ids, name="ids")
        found = _rows_of(parts[0], rows) if len(parts) == 1 else _joined(parts, rows, partition_strategy)
        return found if max_norm is None else _clipped(found, rows, max_norm)


def _rows_of(part: Any, rows: Tensor) -> Tensor:
    if isinstance(part, Variable):
        with colocate_with(part):
            return ops.identity(part.sparse_read(rows))
    return ops.identity(ops.gather_v2(part, rows, 0))


def _joined(parts: Sequence[Any], ids: Tensor, strategy: str) -> Tensor:
    """The rows of several parts: a look-up in each part, stitched together."""
    flat = ops.reshape(ids, [-1])
    count = convert_to_tensor(len(parts), flat.dtype.base)
    if strategy == "mod":
        part_of, row_of = flat % count, flat // count
    else:
        sizes = ops.pack([ops.cast(ops.shape(part)[0], DstT=flat.dtype.base) for part in parts])
        total = ops.sum(sizes, [0])
        each, extra = total // count, total % count
        part_of = ops.maximum(flat // (each + 1), (flat - extra) // each)
        row_of = ops.select_v2(ops.less(part_of, extra), flat % (each + 1), (flat - extra) % each)
    part_of = ops.cast(part_of, DstT="int32")
    places = ops.dynamic_partition(ops.range(0, ops.size(flat), 1), part_of, len(parts))
    asked = ops.dynamic_partition(row_of, part_of, len(parts))
    got = [_rows_of(part, rows) for part, rows in zip(parts, asked, strict=True)]
    joined = ops.parallel_dynamic_stitch(places, got)
    return ops.reshape(joined, ops.concat_v2([ops.shape(ids), ops.shape(joined)[1:]], 0))


def _clipped(found: Tensor, ids: Tensor, most: float) -> Tensor:
    ranks = found.static_shape.rank, ids.static_shape.rank
    if ranks[0] is None or ranks[1] is None:
        raise errors.InvalidValueError("max_norm needs params and ids of known rank")
    axes = list(range(ranks[1], ranks[0]))
    norm = ops.sqrt(ops.sum(ops.square(found), axes, keep_dims=True))
    return found * (most / ops.maximum(norm, most))
