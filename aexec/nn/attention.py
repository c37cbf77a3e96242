"""Attention: for each query a weighted sum of values, with weights by how well their keys match the query.

Next to read: `aexec/layers/attention_layers.py`, which makes queries, keys and values with weights of its own.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.normalization import dropout

__all__ = ["attention_weights", "dot_product_attention"]

# Added to masked scores: softmax makes them zero, and no row is all infinite.
_FAR = {2: -6e4, 4: -1e9, 8: -1e9}


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    dropout_rate: Any = 0.0,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`softmax(scale * query @ keyᵀ) @ value`: Luong et al. 2015, scaled as by Vaswani et al. 2017.

    Args:
        query: [..., m, size].
        key: [..., n, size].
        value: [..., n, any].
        mask: bools that broadcast to [..., m, n]; False masks a key.
        scale: by default `1 / √size`; 1 for Luong's.
        causal: the i-th query attends to the keys up to the i-th.
        dropout_rate: of the weights.

    Returns:
        [..., m, any], and the weights before dropout, [..., m, n].

    Raises:
        InvalidArgumentError: no scale is given, and the size is unknown.
    """
    with name_scope(name or "dot_product_attention"):
        q, k, v = (convert_to_tensor(one) for one in (query, key, value))
        if scale is None:
            size = list(q.static_shape)[-1] if q.static_shape.rank else None
            if size is None:
                raise errors.InvalidValueError(f"the last dimension of query must be known, got {q.static_shape}")
            scale = 1.0 / sqrt(size)
        scores = ops.batch_mat_mul_v2(q * scale, k, adj_y=True)
        weights = attention_weights(scores, mask, causal=causal)
        kept = dropout(weights, dropout_rate, seed=seed)
        return ops.batch_mat_mul_v2(kept, v), weights


def attention_weights(scores: Any, mask: Any = None, *, causal: bool = False, name: str | None = None) -> Tensor:
    """The softmax of scores [..., m, n] over the keys of each query; other arguments as of `dot_product_attention`."""
    with name_scope(name or "attention_weights"):
        x = convert_to_tensor(scores)
        far = convert_to_tensor(_FAR[x.dtype.base.size], x.dtype.base)
        if mask is not None:
            x = ops.select_v2(convert_to_tensor(mask), x, x + far)
        if causal:
            sizes = ops.shape(x)[-2:]
            earlier = ops.greater_equal(
                ops.expand_dims(ops.range(0, sizes[0], 1), 1), ops.expand_dims(ops.range(0, sizes[1], 1), 0)
            )
            x = ops.select_v2(earlier, x, x + far)
        return ops.softmax(x)
