"""`tf.layers`: the namespace of layers, as functions and as classes.

Next to read: `layer_objects.py`.
"""

from __future__ import annotations

from aexec import layers
from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_CONVOLUTION = "inputs filters kernel_size strides padding data_format"
_WEIGHTS = """activation use_bias kernel_initializer bias_initializer kernel_regularizer bias_regularizer
activity_regularizer kernel_constraint bias_constraint trainable name reuse"""
_SEPARABLE = """dilation_rate depth_multiplier activation use_bias depthwise_initializer pointwise_initializer
bias_initializer depthwise_regularizer pointwise_regularizer bias_regularizer activity_regularizer
depthwise_constraint pointwise_constraint bias_constraint trainable name reuse"""

_CLASSES = """AveragePooling1D AveragePooling2D AveragePooling3D BatchNormalization Conv1D Conv2D Conv2DTranspose Conv3D
Conv3DTranspose Dense Dropout Flatten MaxPooling1D MaxPooling2D MaxPooling3D SeparableConv1D SeparableConv2D""".split()

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"aexec.layers:{name}" for name in layers.__all__},
        **{
            name: f"aexec.layers:{name} | {_CONVOLUTION} dilation_rate {_WEIGHTS}"
            for name in "conv1d conv2d conv3d".split()
        },
        **{
            name: f"aexec.layers:{name} | {_CONVOLUTION} {_WEIGHTS}"
            for name in "conv2d_transpose conv3d_transpose".split()
        },
        **{
            name: f"aexec.layers:{name} | {_CONVOLUTION} {_SEPARABLE}"
            for name in "separable_conv1d separable_conv2d".split()
        },
        **{name: f"networks.layer_objects:{name}" for name in _CLASSES},
        "Layer": "networks.base_layer:Layer",
        "batch_normalization": """aexec.layers:batch_normalization | inputs axis momentum epsilon center scale
        beta_initializer gamma_initializer moving_mean_initializer moving_variance_initializer beta_regularizer
        gamma_regularizer beta_constraint gamma_constraint training trainable name reuse renorm! renorm_clipping!
        renorm_momentum!0.99 fused virtual_batch_size! adjustment!""",
    },
)
