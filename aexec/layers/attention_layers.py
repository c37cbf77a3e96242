"""Attention with weights: with several heads, and additive.

Next to read: `aexec/nn/attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.graph.nodes.node import Tensor
from aexec.layers.layer import as_inputs, chosen, known_size, layer_scope
from aexec.variables.initializers import Constant, Initializer, Zeros
from aexec.variables.variable_scope import get_variable, variable_scope
from aexec.variables.variable_store import Reuse

__all__ = ["additive_attention", "multi_head_attention"]


def multi_head_attention(
    query: Any,
    value: Any,
    num_heads: int,
    key_dim: int,
    key: Any = None,
    value_dim: int | None = None,
    *,
    mask: Any = None,
    causal: bool = False,
    dropout_rate: float = 0.0,
    training: Any = False,
    use_bias: bool = True,
    output_dim: int | None = None,
    kernel_initializer: Initializer | None = None,
    seed: int | None = None,
    name: str | None = None,
    reuse: Reuse = None,
) -> tuple[Tensor, Tensor]:
    """Several attentions side by side, each with its own projections of the inputs: Vaswani et al. 2017.

    Weights are `query/kernel` [size, heads, key_dim], `key/kernel`, `value/kernel` [size, heads, value_dim],
    `attention_output/kernel` [heads, value_dim, output_dim], and a `bias` for each.

    Args:
        query: [batch, m, size].
        value: [batch, n, size]: `query` itself, for self-attention.
        key: [batch, n, size]; by default `value`.
        value_dim: by default `key_dim`.
        mask: bools, [batch, m, n] or [m, n]; False masks a key.
        causal: the i-th query attends to the keys up to the i-th.
        dropout_rate: of the attention weights, in training.
        output_dim: by default the size of `query`.

    Returns:
        [batch, m, output_dim], and the attention weights, [batch, heads, m, n].
    """
    with layer_scope(name, "multi_head_attention", reuse):
        q, v = as_inputs(query, 3), as_inputs(value, 3)
        k = v if key is None else as_inputs(key, 3)

        def weights(shape: list[int], of_bias: list[int]) -> tuple[Any, Any]:
            kernel = get_variable("kernel", shape, q.dtype.base, kernel_initializer)
            return kernel, get_variable("bias", of_bias, q.dtype.base, Zeros()) if use_bias else None

        def heads(called: str, x: Tensor, size: int) -> Tensor:
            """[batch, time, size] as [batch, heads, time, size of a head]."""
            with variable_scope(called):
                kernel, bias = weights([known_size(x, -1, called), num_heads, size], [num_heads, size])
                made = ops.einsum([x, kernel], "bti,ihs->bths")
                return ops.transpose(made if bias is None else made + bias, [0, 2, 1, 3])

        of_value = value_dim or key_dim
        parts = heads("query", q, key_dim), heads("key", k, key_dim), heads("value", v, of_value)
        allowed = None
        if mask is not None:
            allowed = as_inputs(mask)
            if allowed.static_shape.rank == 3:
                allowed = ops.expand_dims(allowed, 1)

        def attended(rate: float) -> Callable[[], tuple[Tensor, Tensor]]:
            return lambda: nn.dot_product_attention(*parts, mask=allowed, causal=causal, dropout_rate=rate, seed=seed)

        mixed, shares = chosen(training, attended(dropout_rate), attended(0.0)) if dropout_rate else attended(0.0)()
        with variable_scope("attention_output"):
            size = output_dim or known_size(q, -1, "query")
            kernel, bias = weights([num_heads, of_value, size], [size])
            outputs = ops.einsum([mixed, kernel], "bhts,hso->bto")
            return outputs if bias is None else outputs + bias, shares


def additive_attention(
    query: Any,
    value: Any,
    units: int,
    *,
    mask: Any = None,
    normalize: bool = False,
    kernel_initializer: Initializer | None = None,
    name: str | None = None,
    reuse: Reuse = None,
) -> tuple[Tensor, Tensor]:
    """Attention whose scores are `v · tanh(query @ wq + value @ wm)`: Bahdanau et al. 2015.

    Weights are `query_layer/kernel`, `memory_layer/kernel` [size, units] and `attention_v` [units]; with `normalize`,
    also `attention_g`, to which the length of `attention_v` is normalised, and `attention_b`.

    Args:
        query: [batch, size], such as the state of a decoder; or [batch, m, size].
        value: [batch, n, size].
        mask: bools, [batch, n] or [batch, m, n].

    Returns:
        [batch, size] and the attention weights, [batch, n]; or [batch, m, size] and [batch, m, n].
    """
    with layer_scope(name, "additive_attention", reuse):
        q, v = as_inputs(query), as_inputs(value, 3)
        single = q.static_shape.rank == 2
        dtype = q.dtype.base

        def projected(called: str, x: Tensor) -> Tensor:
            size = known_size(x, -1, called)
            with variable_scope(called):
                kernel = get_variable("kernel", [size, units], dtype, kernel_initializer)
                outer = ops.shape(x)[:-1]
                flat = ops.mat_mul(ops.reshape(x, [-1, size]), kernel)
                return ops.reshape(flat, ops.concat_v2([outer, [units]], 0))

        memory = projected("memory_layer", v)
        asked = projected("query_layer", ops.expand_dims(q, 1) if single else q)
        direction = get_variable("attention_v", [units], dtype, kernel_initializer)
        towards: Any = direction
        if normalize:
            length = get_variable("attention_g", [], dtype, Constant(units**-0.5))
            shift = get_variable("attention_b", [units], dtype, Zeros())
            asked = asked + shift
            towards = length * direction * ops.rsqrt(ops.sum(ops.square(direction), [0]))
        with name_scope("scores"):
            together = ops.tanh(ops.expand_dims(asked, 2) + ops.expand_dims(memory, 1))
            scores = ops.sum(towards * together, [3])
        allowed = mask
        if mask is not None:
            allowed = as_inputs(mask)
            if allowed.static_shape.rank == 2:
                allowed = ops.expand_dims(allowed, 1)
        shares = nn.attention_weights(scores, allowed)
        mixed = ops.batch_mat_mul_v2(shares, v)
        if single:
            return ops.squeeze(mixed, squeeze_dims=[1]), ops.squeeze(shares, squeeze_dims=[1])
        return mixed, shares
