"""Pooling as layers: `nn.max_pool` and `nn.avg_pool`, with channels last or first.

Next to read: `aexec/nn/pooling.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import nn
from aexec.graph.nodes.node import Tensor
from aexec.layers.convolutional_layers import format_of
from aexec.layers.layer import as_inputs, layer_scope, one_each

__all__ = [
    "average_pooling1d",
    "average_pooling2d",
    "average_pooling3d",
    "max_pooling1d",
    "max_pooling2d",
    "max_pooling3d",
]


def _layer(kind: str, pooled: Callable[..., Tensor], axes: int, what: str) -> Callable[..., Tensor]:
    def layer(
        inputs: Any,
        pool_size: Any,
        strides: Any,
        padding: str = "valid",
        data_format: str = "channels_last",
        name: str | None = None,
    ) -> Tensor:
        with layer_scope(name, kind) as scope:
            x = as_inputs(inputs, axes + 2)
            sizes = one_each(pool_size, axes, "pool_size"), one_each(strides, axes, "strides")
            # For sequences there are several nodes, directly in the layer's scope.
            inside = scope.original_name_scope if axes == 1 else None
            return pooled(x, *sizes, padding.upper(), data_format=format_of(data_format, axes), name=inside)

    layer.__name__ = layer.__qualname__ = kind
    layer.__doc__ = f'The {what} of each window; `padding` is "valid" or "same", `strides` how far windows are apart.'
    return layer


average_pooling1d = _layer("average_pooling1d", nn.avg_pool1d, 1, "mean")
average_pooling2d = _layer("average_pooling2d", nn.avg_pool, 2, "mean")
average_pooling3d = _layer("average_pooling3d", nn.avg_pool3d, 3, "mean")
max_pooling1d = _layer("max_pooling1d", nn.max_pool1d, 1, "largest value")
max_pooling2d = _layer("max_pooling2d", nn.max_pool, 2, "largest value")
max_pooling3d = _layer("max_pooling3d", nn.max_pool3d, 3, "largest value")
