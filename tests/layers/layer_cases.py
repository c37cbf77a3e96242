"""Layers that TensorFlow and aexec build in the same words.

A case is a function of the module of layers, of inputs by name, and of `relu` and `l2`, a cost of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES", "INPUTS"]

_rng = np.random.default_rng(11)


def _normal(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype(np.float32)


INPUTS = {
    "rows": _normal(4, 3),
    "words": _normal(2, 5, 3),
    "images": _normal(2, 5, 6, 3),
    "first": _normal(2, 3, 5, 6),
    "volumes": _normal(2, 3, 4, 4, 2),
}

# (layers, inputs, relu, l2, training) → outputs; `training` is a bool scalar that is fed with true.
Case = Callable[[Any, dict[str, Any], Any, Any, Any], Any]


def _network(layers: Any, x: dict[str, Any], relu: Any, l2: Any, training: Any) -> Any:
    h = layers.conv2d(x["images"], 4, 3, activation=relu, kernel_regularizer=l2)
    h = layers.batch_normalization(h, training=training)
    h = layers.max_pooling2d(h, 2, 1)
    h = layers.flatten(h)
    h = layers.dense(h, 5, activation=relu)
    h = layers.batch_normalization(h, training=training)
    return layers.dense(h, 2, name="logits")


def _shared(layers: Any, x: dict[str, Any], relu: Any, l2: Any, training: Any) -> Any:
    h = layers.dense(x["rows"], 3, name="step", activation=relu)
    return layers.dense(h, 3, name="step", reuse=True)


CASES: dict[str, Case] = {
    "dense": lambda layers, x, relu, l2, t: layers.dense(x["rows"], 2, activation=relu),
    "dense of words": lambda layers, x, relu, l2, t: layers.dense(
        x["words"], 2, use_bias=False, activity_regularizer=l2
    ),
    "shared": _shared,
    "conv1d": lambda layers, x, relu, l2, t: layers.conv1d(x["words"], 2, 3, padding="same", activation=relu),
    "conv1d apart": lambda layers, x, relu, l2, t: layers.conv1d(x["words"], 2, 2, dilation_rate=2),
    "conv2d": lambda layers, x, relu, l2, t: layers.conv2d(
        x["images"], 2, (3, 2), strides=2, padding="same", bias_regularizer=l2
    ),
    "conv2d apart": lambda layers, x, relu, l2, t: layers.conv2d(x["images"], 2, 2, dilation_rate=(2, 3)),
    "conv3d": lambda layers, x, relu, l2, t: layers.conv3d(x["volumes"], 2, 2, strides=(1, 2, 1), activation=relu),
    "conv2d transposed": lambda layers, x, relu, l2, t: layers.conv2d_transpose(x["images"], 2, 3, strides=2),
    "conv2d transposed, same": lambda layers, x, relu, l2, t: layers.conv2d_transpose(
        x["images"], 2, (2, 3), strides=(1, 2), padding="same", activation=relu
    ),
    "conv3d transposed": lambda layers, x, relu, l2, t: layers.conv3d_transpose(x["volumes"], 2, 2, strides=2),
    "separable1d": lambda layers, x, relu, l2, t: layers.separable_conv1d(x["words"], 4, 3, depth_multiplier=2),
    "separable2d": lambda layers, x, relu, l2, t: layers.separable_conv2d(
        x["images"], 4, 3, padding="same", activation=relu, pointwise_regularizer=l2
    ),
    "batch norm": lambda layers, x, relu, l2, t: layers.batch_normalization(x["rows"], training=True),
    "batch norm, used": lambda layers, x, relu, l2, t: layers.batch_normalization(x["rows"]),
    "batch norm, chosen": lambda layers, x, relu, l2, t: layers.batch_normalization(
        x["rows"], training=t, momentum=0.9
    ),
    "batch norm of images": lambda layers, x, relu, l2, t: layers.batch_normalization(
        x["images"], training=True, scale=False
    ),
    "batch norm of images, chosen": lambda layers, x, relu, l2, t: layers.batch_normalization(
        x["images"], training=t, center=False, gamma_regularizer=l2
    ),
    "batch norm of images, in steps": lambda layers, x, relu, l2, t: layers.batch_normalization(
        x["images"], training=True, fused=False
    ),
    "batch norm, another axis": lambda layers, x, relu, l2, t: layers.batch_normalization(
        x["words"], axis=1, training=True
    ),
    "batch norm, two axes": lambda layers, x, relu, l2, t: layers.batch_normalization(
        x["words"], axis=[1, 2], training=t
    ),
    "batch norm, channels first": lambda layers, x, relu, l2, t: layers.batch_normalization(
        x["first"], axis=1, training=False
    ),
    "batch norm of volumes": lambda layers, x, relu, l2, t: layers.batch_normalization(x["volumes"], training=True),
    "dropout": lambda layers, x, relu, l2, t: layers.dropout(x["rows"], 0.4, seed=7, training=True),
    "dropout, chosen": lambda layers, x, relu, l2, t: layers.dropout(x["rows"], 0.4, seed=7, training=t),
    "dropout, not now": lambda layers, x, relu, l2, t: layers.dropout(x["rows"]),
    "flatten": lambda layers, x, relu, l2, t: layers.flatten(x["volumes"]),
    "flatten, channels first": lambda layers, x, relu, l2, t: layers.flatten(x["first"], data_format="channels_first"),
    "average1d": lambda layers, x, relu, l2, t: layers.average_pooling1d(x["words"], 2, 1, padding="same"),
    "average2d": lambda layers, x, relu, l2, t: layers.average_pooling2d(x["images"], (2, 3), 2),
    "average3d": lambda layers, x, relu, l2, t: layers.average_pooling3d(x["volumes"], 2, 1),
    "max1d": lambda layers, x, relu, l2, t: layers.max_pooling1d(x["words"], 2, 2),
    "max2d": lambda layers, x, relu, l2, t: layers.max_pooling2d(x["images"], 3, (1, 2), padding="same"),
    "max3d": lambda layers, x, relu, l2, t: layers.max_pooling3d(x["volumes"], 2, 2, name="pooled"),
    "network": _network,
}
