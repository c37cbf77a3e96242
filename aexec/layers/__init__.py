"""`aexec.layers`: layers that make their weights themselves, as functions.

::

    h = aexec.layers.conv2d(images, 32, 3, activation=aexec.nn.relu)  # conv2d/kernel, conv2d/bias
    h = aexec.layers.batch_normalization(h, training=training)
    logits = aexec.layers.dense(aexec.layers.flatten(h), 10)

`get_variable` makes the weights in a variable scope of the layer.  So initializers, regularizers, sharing and
partitioners of an enclosing `variable_scope` apply to them.  Functions, names, order and first values are those of
`tf.compat.v1.layers`, with attention added.
Begin with `core_layers.py`.
"""

from aexec.layers.attention_layers import additive_attention, multi_head_attention
from aexec.layers.convolutional_layers import (
    conv1d,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    separable_conv1d,
    separable_conv2d,
)
from aexec.layers.core_layers import dense, dropout, flatten
from aexec.layers.normalization_layers import batch_normalization
from aexec.layers.pooling_layers import (
    average_pooling1d,
    average_pooling2d,
    average_pooling3d,
    max_pooling1d,
    max_pooling2d,
    max_pooling3d,
)

__all__ = [
    "additive_attention",
    "average_pooling1d",
    "average_pooling2d",
    "average_pooling3d",
    "batch_normalization",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "dense",
    "dropout",
    "flatten",
    "max_pooling1d",
    "max_pooling2d",
    "max_pooling3d",
    "multi_head_attention",
    "separable_conv1d",
    "separable_conv2d",
]
