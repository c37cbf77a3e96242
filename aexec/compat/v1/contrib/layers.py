"""`tf.contrib.layers`: layers with the variables `weights` and `biases`, over `aexec.layers`.

Next to read: `layer_scopes.py`, `optimizing.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import layers as _layers
from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.compat.v1.contrib.arg_scope import add_arg_scope
from aexec.compat.v1.contrib.initializing import xavier_initializer
from aexec.compat.v1.contrib.layer_scopes import contrib_scope, finished, known_size
from aexec.compat.v1.namespace import namespace
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables.initializers import Zeros
from aexec.variables.variable_scope import get_variable, variable_scope

__all__ = [
    "avg_pool2d",
    "bias_add",
    "conv2d",
    "conv2d_transpose",
    "convolution",
    "dropout",
    "embed_sequence",
    "flatten",
    "fully_connected",
    "linear",
    "max_pool2d",
    "one_hot_encoding",
    "repeat",
    "separable_conv2d",
    "softmax",
    "stack",
    "unit_norm",
]

_ZEROS = Zeros()


_XAVIER = xavier_initializer()


def _normalized(
    outputs: Tensor, normalizer_fn: Callable[..., Tensor] | None, params: Any, activation_fn: Any
) -> Tensor:
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(params or {}))
    return outputs if activation_fn is None else activation_fn(outputs)


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Any = nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Tensor:
    """`activation_fn(inputs @ weights + biases)`.  With a `normalizer_fn` there are no biases.

    Args:
        inputs: [batch, …, size]; the size must be known.
        num_outputs: the size of the last axis of the result.

    Returns:
        [batch, …, num_outputs].
    """
    names = {"kernel": "weights", "bias": "biases"}
    with contrib_scope(scope, "fully_connected", reuse, variables_collections, **names) as opened:
        outputs = _layers.dense(
            inputs,
            int(num_outputs),
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=opened,  # type: ignore[arg-type]
        )
        outputs = _normalized(outputs, normalizer_fn, normalizer_params, activation_fn)
        return finished(outputs, opened.name, outputs_collections)


def linear(*args: Any, **kwargs: Any) -> Tensor:
    """`fully_connected` without an activation."""
    made: Tensor = fully_connected(*args, **{"activation_fn": None, **kwargs})
    return made


_FORMATS: dict[str | None, str] = {
    None: "channels_last",
    **dict.fromkeys(("NWC", "NHWC", "NDHWC"), "channels_last"),
    **dict.fromkeys(("NCW", "NCHW", "NCDHW"), "channels_first"),
}


def _format(data_format: str | None) -> str:
    if data_format not in _FORMATS:
        raise errors.InvalidValueError(f"Invalid data_format: {data_format!r}")
    return _FORMATS[data_format]


@add_arg_scope
def convolution(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Any = nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    conv_dims: int | None = None,
) -> Tensor:
    """A convolution over one, two or three axes, which follows from the rank of the inputs.

    Args:
        conv_dims: the number of axes that is expected; None for any.

    Raises:
        ValueError: the rank of the inputs is not `conv_dims` + 2.
    """
    x = convert_to_tensor(inputs)
    axes = (x.static_shape.rank or 0) - 2
    if axes not in (1, 2, 3) or conv_dims not in (None, axes):
        raise errors.InvalidValueError(
            f"Convolution expects input with rank {(conv_dims or 2) + 2}, got {x.static_shape.rank}"
        )
    names = {"kernel": "weights", "bias": "biases"}
    with contrib_scope(scope, "Conv", reuse, variables_collections, **names) as opened:
        layer: Any = (_layers.conv1d, _layers.conv2d, _layers.conv3d)[axes - 1]
        outputs = layer(
            x,
            int(num_outputs),
            kernel_size,
            stride,
            padding,
            _format(data_format),
            rate,
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=opened,
        )
        outputs = _normalized(outputs, normalizer_fn, normalizer_params, activation_fn)
        return finished(outputs, opened.name, outputs_collections)


@add_arg_scope
def conv2d(inputs: Any, num_outputs: int, kernel_size: Any, *args: Any, **kwargs: Any) -> Tensor:
    """`convolution` over two axes."""
    made: Tensor = convolution(inputs, num_outputs, kernel_size, *args, **{**kwargs, "conv_dims": 2})
    return made


@add_arg_scope
def conv2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    activation_fn: Any = nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Tensor:
    """The transposed convolution over two axes; the result is `stride` times as large."""
    names = {"kernel": "weights", "bias": "biases"}
    with contrib_scope(scope, "Conv2d_transpose", reuse, variables_collections, **names) as opened:
        outputs = _layers.conv2d_transpose(
            inputs,
            int(num_outputs),
            kernel_size,
            stride,
            padding,
            _format(data_format),
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=opened,  # type: ignore[arg-type]
        )
        outputs = _normalized(outputs, normalizer_fn, normalizer_params, activation_fn)
        return finished(outputs, opened.name, outputs_collections)


def _depthwise(x: Tensor, sizes: tuple[Any, ...], multiplier: int, padding: str, layout: str, options: Any) -> Tensor:
    """A depthwise convolution: each channel is convolved on its own, to one or several output channels."""
    window, step, rates = ([size] * 2 if isinstance(size, int) else list(size) for size in sizes)
    channels, dtype = known_size(x, 1 if layout == "NCHW" else -1), x.dtype.base
    weights: Any = get_variable(
        "depthwise_weights",
        [*window, channels, multiplier],
        dtype,
        options["depthwise_initializer"],
        regularizer=options["depthwise_regularizer"],
        trainable=options["trainable"],
    )
    strides = [1, 1, *step] if layout == "NCHW" else [1, *step, 1]
    outputs = nn.depthwise_conv2d(x, weights, strides, padding, data_format=layout, dilations=rates)
    if not options["use_bias"]:
        return outputs
    biased = options["bias_initializer"], options["bias_regularizer"], options["trainable"]
    return _biased(outputs, channels * multiplier, layout, *biased)


def _biased(x: Tensor, channels: int, layout: str, initializer: Any, regularizer: Any, trainable: bool) -> Tensor:
    """`x` with a variable `biases` added to its channels."""
    dtype = x.dtype.base
    biases: Any = get_variable("biases", [channels], dtype, initializer, regularizer=regularizer, trainable=trainable)
    return ops.bias_add(x, biases, data_format=layout)


@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Any = None,
    initializer: Any = _ZEROS,
    regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Tensor:
    """Adds a variable `biases` to each channel.

    Raises:
        ValueError: the number of channels is unknown, or the data format is NCHW and the rank is not 4.
    """
    with contrib_scope(scope, "BiasAdd", reuse, variables_collections) as opened:
        x = convert_to_tensor(inputs)
        if data_format == "NCHW" and x.static_shape.rank != 4:
            raise errors.InvalidValueError("Data format NCHW only supports 4D Tensor")
        channels = known_size(x, 1 if data_format == "NCHW" else -1)
        outputs = _biased(x, channels, data_format, initializer, regularizer, trainable)
        return finished(_normalized(outputs, None, None, activation_fn), opened.name, outputs_collections)


@add_arg_scope
def separable_conv2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: Any = 1,
    activation_fn: Any = nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER,
    pointwise_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Tensor:
    """A depthwise convolution, then a 1×1 convolution to `num_outputs` channels; None leaves out the second."""
    names = {"depthwise_kernel": "depthwise_weights", "pointwise_kernel": "pointwise_weights", "bias": "biases"}
    with contrib_scope(scope, "SeparableConv2d", reuse, variables_collections, **names) as opened:
        x = convert_to_tensor(inputs)
        options: Any = {
            "use_bias": normalizer_fn is None and biases_initializer is not None,
            "depthwise_initializer": weights_initializer,
            "pointwise_initializer": pointwise_initializer or weights_initializer,
            "bias_initializer": biases_initializer,
            "depthwise_regularizer": weights_regularizer,
            "pointwise_regularizer": weights_regularizer,
            "bias_regularizer": biases_regularizer,
            "trainable": trainable,
            "name": opened,
        }
        if num_outputs is not None:
            sizes = kernel_size, stride, padding, _format(data_format), rate, depth_multiplier
            outputs = _layers.separable_conv2d(x, int(num_outputs), *sizes, **options)
        else:
            outputs = _depthwise(x, (kernel_size, stride, rate), depth_multiplier, padding, data_format, options)
        outputs = _normalized(outputs, normalizer_fn, normalizer_params, activation_fn)
        return finished(outputs, opened.name, outputs_collections)


def _pool(ours: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    def pool(
        inputs: Any,
        kernel_size: Any,
        stride: Any = 2,
        padding: str = "VALID",
        data_format: str = "NHWC",
        outputs_collections: Any = None,
        scope: str | None = None,
    ) -> Tensor:
        with name_scope(scope or name) as opened:
            outputs = ours(inputs, kernel_size, stride, padding, _format(data_format))
            return finished(outputs, opened.rstrip("/"), outputs_collections)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"`{name}`: pools windows of images, by default two apart and without padding."
    return add_arg_scope(pool)


max_pool2d = _pool(_layers.max_pooling2d, "MaxPool2D")
avg_pool2d = _pool(_layers.average_pooling2d, "AvgPool2D")


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> Tensor:
    """Flatten all axes except the first: [batch, elements]."""
    with name_scope(scope or "Flatten") as opened:
        return finished(_layers.flatten(inputs), opened.rstrip("/"), outputs_collections)


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> Tensor:
    """In training, set elements to 0 with probability 1 - `keep_prob`, and divide the others by `keep_prob`."""
    with contrib_scope(scope, "Dropout") as opened:
        outputs = _layers.dropout(inputs, 1 - keep_prob, noise_shape, seed, is_training)
        return finished(outputs, opened.name, outputs_collections)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Tensor:
    """One-hot encoding of `labels` [batch]: [batch, num_classes], float32."""
    with name_scope(scope or "OneHotEncoding") as opened:
        classes = ops.cast(convert_to_tensor(labels), DstT=dtypes.int64)
        on, off = (convert_to_tensor(value, dtypes.float32) for value in (on_value, off_value))
        return finished(ops.one_hot(classes, num_classes, on, off), opened.rstrip("/"), outputs_collections)


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> Tensor:
    """Look up ids in the variable `embeddings`, [vocab_size, embed_dim].

    Raises:
        ValueError: a size is missing, unless the variable is reused.
    """
    if not reuse and not (vocab_size and embed_dim):
        raise errors.InvalidValueError("Must specify vocab size and embedding dimension when not reusing.")
    with contrib_scope(scope, "EmbedSequence", reuse):
        shape = [vocab_size, embed_dim] if vocab_size and embed_dim else None
        table: Any = get_variable("embeddings", shape, None, initializer, regularizer=regularizer, trainable=trainable)
        if not unique:
            return nn.embedding_lookup(table, ids)
        flat = ops.reshape(ids, [-1])
        each, places = ops.unique(flat)
        rows = ops.gather_v2(nn.embedding_lookup(table, each), places, 0)
        return ops.reshape(rows, ops.concat_v2([ops.shape(ids), [table.static_shape[1]]], 0))


def softmax(logits: Any, scope: str | None = None) -> Tensor:
    """Softmax over the last axis."""
    return nn.softmax(logits, name=scope)


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: str | None = None) -> Tensor:
    """Divide by the Euclidean norm along an axis."""
    with name_scope(scope or "UnitNorm"):
        x = convert_to_tensor(inputs)
        return x / ops.sqrt(epsilon + ops.sum(ops.square(x), [dim], keep_dims=True))


@add_arg_scope
def repeat(inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Apply a layer several times with the same arguments, in the scopes `scope/scope_1`, `scope/scope_2` and so on."""
    scope = kwargs.pop("scope", None)
    with variable_scope(scope, "Repeat"):
        scope = scope or getattr(layer, "__name__", None) or getattr(getattr(layer, "func", None), "__name__", "repeat")
        outputs = inputs
        for number in range(repetitions):
            outputs = layer(outputs, *args, **{**kwargs, "scope": f"{scope}_{number + 1}"})
        return outputs


def stack(inputs: Any, layer: Callable[..., Any], stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Apply a layer once per entry of a list of arguments, in the scopes `scope/scope_1`, `scope/scope_2` and so on."""
    scope = kwargs.pop("scope", None)
    if not isinstance(stack_args, list | tuple):
        raise errors.InvalidValueError("stack_args need to be a list or tuple")
    with variable_scope(scope, "Stack"):
        scope = scope or getattr(layer, "__name__", None) or getattr(getattr(layer, "func", None), "__name__", "stack")
        outputs = inputs
        for number, given in enumerate(stack_args):
            own = given if isinstance(given, list | tuple) else [given]
            outputs = layer(outputs, *own, **{**kwargs, "scope": f"{scope}_{number + 1}"})
        return outputs


__getattr__, __dir__ = namespace(
    __name__,
    {
        "l1_l2_regularizer": "aexec.variables.regularizers:l1_l2_regularizer",
        **{name: f"contrib.regularizing:{name}" for name in "apply_regularization sum_regularizer".split()},
        "l1_regularizer": "contrib.regularizing:l1_regularizer",
        "l2_regularizer": "contrib.regularizing:l2_regularizer",
        **{name: f"contrib.initializing:{name}" for name in ("variance_scaling_initializer", "xavier_initializer")},
        **{name: f"contrib.normalizing:{name}" for name in "batch_norm instance_norm layer_norm".split()},
        "optimize_loss": "contrib.optimizing:optimize_loss",
        "OPTIMIZER_CLS_NAMES": "contrib.optimizing:OPTIMIZER_CLS_NAMES",
        "utils": "contrib.slim_utils",
        "xavier_initializer_conv2d": "contrib.initializing:xavier_initializer",
        "convolution2d": "contrib.layers:conv2d",
        "convolution2d_transpose": "contrib.layers:conv2d_transpose",
        "separable_convolution2d": "contrib.layers:separable_conv2d",
        "relu": "contrib.layers:fully_connected",
        "safe_embedding_lookup_sparse": "networks.nn:safe_embedding_lookup_sparse",
    },
    {
        name: f"use tf.feature_column.{new}"
        for name, new in {
            "bucketized_column": "bucketized_column",
            "crossed_column": "crossed_column",
            "embedding_column": "embedding_column",
            "input_from_feature_columns": "input_layer",
            "joint_weighted_sum_from_feature_columns": "linear_model",
            "one_hot_column": "indicator_column",
            "real_valued_column": "numeric_column",
            "sequence_input_from_feature_columns": "sequence_numeric_column, and tf.contrib.feature_column",
            "shared_embedding_columns": "shared_embedding_columns",
            "sparse_column_with_hash_bucket": "categorical_column_with_hash_bucket",
            "sparse_column_with_integerized_feature": "categorical_column_with_identity",
            "sparse_column_with_keys": "categorical_column_with_vocabulary_list",
            "sparse_column_with_vocabulary_file": "categorical_column_with_vocabulary_file",
            "weighted_sparse_column": "weighted_categorical_column",
            "weighted_sum_from_feature_columns": "linear_model",
        }.items()
    },
)
