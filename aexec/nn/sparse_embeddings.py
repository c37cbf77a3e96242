"""Look-ups of table rows by a varying number of ids per example, combined to one row.

Next to read: `embeddings.py`, which looks up rows.
"""

from __future__ import annotations

from typing import Any, Literal

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import dtypes, errors
from aexec.framework.sparse_tensor import SparseTensor
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.embeddings import embedding_lookup

__all__ = ["Combiner", "embedding_lookup_sparse", "safe_embedding_lookup_sparse"]

Combiner = Literal["mean", "sqrtn", "sum"]

_COMBINERS = ("mean", "sqrtn", "sum")


def embedding_lookup_sparse(
    params: Any,
    sp_ids: SparseTensor[Any],
    sp_weights: SparseTensor[Any] | None = None,
    partition_strategy: str = "mod",
    *,
    combiner: Combiner = "mean",
    max_norm: float | None = None,
    name: str | None = None,
) -> Tensor:
    """For each example the rows of a table with its ids, combined.

    Args:
        params, partition_strategy, max_norm: as of `embedding_lookup`.
        sp_ids: [batch, …], integers; only examples at the end may have no id.
        sp_weights: factors of the rows, at the positions of the ids; None for 1 each.
        combiner: "sum" of the rows, "mean" (that, divided by the sum of the weights), or "sqrtn" (divided by the root
            of the sum of their squares).

    Returns:
        [batch, …].

    Raises:
        InvalidArgumentError: the combiner is unknown; and what `embedding_lookup` raises.
    """
    if combiner not in _COMBINERS:
        raise errors.InvalidValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {combiner!r}")
    with name_scope(name or "embedding_lookup_sparse") as scope:
        example = convert_to_tensor(sp_ids.indices)[:, 0]
        example = ops.cast(example, DstT=dtypes.int32)
        ids, places = ops.unique(convert_to_tensor(sp_ids.values))
        rows = embedding_lookup(params, ids, partition_strategy, max_norm)
        if sp_weights is None:
            put_together = {
                "sum": ops.sparse_segment_sum,
                "mean": ops.sparse_segment_mean,
                "sqrtn": ops.sparse_segment_sqrt_n,
            }
            return put_together[combiner](rows, places, example, name=scope)
        weights = convert_to_tensor(sp_weights.values)
        if weights.dtype.base is not rows.dtype.base:
            weights = ops.cast(weights, DstT=rows.dtype.base)
        each = ops.gather_v2(rows, places, 0)
        more = ops.fill(ops.expand_dims(ops.rank(each) - 1, 0), 1)
        shaped = ops.reshape(weights, ops.concat_v2([ops.shape(weights), more], 0))
        total = ops.segment_sum(each * shaped, example)
        if combiner == "sum":
            return ops.identity(total, name=scope)
        if combiner == "mean":
            return ops.div_no_nan(total, ops.segment_sum(shaped, example), name=scope)
        return ops.div_no_nan(total, ops.sqrt(ops.segment_sum(ops.square(shaped), example)), name=scope)


def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: SparseTensor[Any],
    sparse_weights: SparseTensor[Any] | None = None,
    *,
    combiner: Combiner = "mean",
    default_id: int | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
    name: str | None = None,
) -> Tensor:
    """`embedding_lookup_sparse` with ids of any rank, some of which may be negative, and with examples without ids.

    Negative ids are ignored, and so are ids whose weight is not positive, unless rows are summed.

    Args:
        sparse_ids: [batch, …, n].
        default_id: the row for examples without ids; by default zeros.

    Returns:
        [batch, …, *row].
    """
    with name_scope(name or "embedding_lookup"):
        whole = ops.cast(convert_to_tensor(sparse_ids.dense_shape), DstT=dtypes.int64)
        outer = whole[:-1]
        # One row for each example, whatever its axes.
        flat = ops.pack([ops.prod(outer, [0]), whole[-1]])
        ids, shape = _reshaped(sparse_ids, whole, flat), flat
        weights = None if sparse_weights is None else _reshaped(sparse_weights, whole, flat)
        valid = ops.greater_equal(ids.values, ops.zeros_like(ids.values))
        if weights is not None and combiner != "sum":
            valid = ops.logical_and(valid, ops.greater(weights.values, ops.zeros_like(weights.values)))
        kept = ops.reshape(ops.where(valid), [-1])
        ids = SparseTensor(ops.gather_v2(ids.indices, kept, 0), ops.gather_v2(ids.values, kept, 0), shape)
        fill = convert_to_tensor(default_id or 0, ids.values.dtype.base)
        indices, values, is_empty, _ = ops.sparse_fill_empty_rows(ids.indices, ids.values, shape, fill)
        if weights is not None:
            of_kept = ops.gather_v2(weights.values, kept, 0)
            one = convert_to_tensor(1.0, of_kept.dtype.base)
            _, of_kept, _, _ = ops.sparse_fill_empty_rows(ids.indices, of_kept, shape, one)
            weights = SparseTensor(indices, of_kept, shape)
        found = embedding_lookup_sparse(
            embedding_weights,
            SparseTensor(indices, values, shape),
            weights,
            partition_strategy,
            combiner=combiner,
            max_norm=max_norm,
        )
        if default_id is None:
            ones = ops.fill(ops.expand_dims(ops.rank(found) - 1, 0), 1)
            empty = ops.reshape(is_empty, ops.concat_v2([ops.shape(is_empty), ones], 0))
            found = ops.select_v2(empty, ops.zeros_like(found), found)
        row = ops.cast(ops.shape(found)[1:], DstT=dtypes.int64)
        return ops.reshape(found, ops.concat_v2([outer, row], 0))


def _reshaped(sparse: SparseTensor[Any], whole: Tensor, flat: Tensor) -> SparseTensor[Tensor]:
    indices, _ = ops.sparse_reshape(sparse.indices, whole, flat)
    return SparseTensor(indices, convert_to_tensor(sparse.values), flat)
