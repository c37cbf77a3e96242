"""Batch, layer and instance normalization of `tf.contrib.layers`.

Next to read: `layers.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import layers as _layers
from aexec import nn, ops
from aexec.client.building import control_dependencies
from aexec.compat.v1.contrib.arg_scope import add_arg_scope
from aexec.compat.v1.contrib.layer_scopes import contrib_scope, finished, known_size
from aexec.compat.v1.namespace import refuse
from aexec.framework import dtypes, errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.variables.initializers import Ones, Zeros
from aexec.variables.variable_scope import get_variable

__all__ = ["batch_norm", "instance_norm", "layer_norm"]


# The variables of a batch normalization, and their initial values.
_FIRST = {"beta": Zeros(), "gamma": Ones(), "moving_mean": Zeros(), "moving_variance": Ones()}


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Any = None,
    param_initializers: Any = None,
    param_regularizers: Any = None,
    updates_collections: Any = GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
    adjustment: Any = None,
) -> Tensor:
    """Batch normalization: Ioffe and Szegedy 2015.

    Args:
        decay: decay of the moving averages, in [0, 1).
        updates_collections: collection of the ops that update the averages; None to make the outputs depend on them.
        is_training: a bool, or a scalar bool tensor.
        fused: False to build the layer from several ops.  Otherwise inputs of rank 2 and 4 use one op, and the moving
            variance is that of the sample (divided by n - 1).

    Raises:
        UnimplementedError: an argument is given that aexec does not support: batch_weights, zero_debias_moving_mean,
            renorm, adjustment.
    """
    refuse("batch_norm", batch_weights=batch_weights, zero_debias_moving_mean=zero_debias_moving_mean)
    refuse("batch_norm", renorm=renorm, renorm_clipping=renorm_clipping, adjustment=adjustment)
    x = convert_to_tensor(inputs)
    options: Any = {f"{name}_initializer": first for name, first in {**_FIRST, **(param_initializers or {})}.items()}
    options |= {f"{name}_regularizer": loss for name, loss in (param_regularizers or {}).items()}
    axis = 1 if data_format.startswith("NC") else -1
    is_matrix = fused is not False and x.static_shape.rank == 2
    with contrib_scope(scope, "BatchNorm", reuse, variables_collections) as opened:
        given = ops.reshape(x, [-1, 1, 1, known_size(x, -1)]) if is_matrix else x
        updates = require_graph().collections.get_ref(GraphKeys.UPDATE_OPS)
        before = len(updates)
        outputs = _layers.batch_normalization(
            given,
            -1 if is_matrix else axis,
            decay,
            epsilon,
            center,
            scale,
            **options,
            training=is_training,
            trainable=trainable,
            name=opened,  # type: ignore[arg-type]
            fused=fused,
        )
        made = updates[before:]
        del updates[before:]
        outputs = _updated(outputs, made, updates_collections)
        if is_matrix:
            outputs = ops.reshape(outputs, ops.shape(x))
            outputs = ops.ensure_shape(outputs, shape=list(x.static_shape))
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return finished(outputs, opened.name, outputs_collections)


def _updated(outputs: Tensor, updates: list[Node], collections: Any) -> Tensor:
    """Add the updates to collections, or make the outputs depend on them if there are none; return the outputs."""
    if collections is None:
        with control_dependencies(updates):
            return ops.identity(outputs)
    for collection in [collections] if isinstance(collections, str) else collections:
        for update in updates:
            require_graph().collections.add(collection, update)
    return outputs


def _scaled(
    x: Tensor, axes: list[int], shape: list[int], settings: tuple[bool, bool, bool], broadcast: list[int], epsilon: Any
) -> Tensor:
    """Normalise over axes, then scale and shift by variables `gamma` and `beta` of a shape."""
    center, scale, trainable = settings
    dtype = x.dtype.base
    beta: Any = get_variable("beta", shape, dtype, Zeros(), trainable=trainable) if center else None
    gamma: Any = get_variable("gamma", shape, dtype, Ones(), trainable=trainable) if scale else None
    mean, variance = nn.moments(x, axes, keep_dims=True)
    if broadcast != shape:
        beta, gamma = (None if one is None else ops.reshape(one, broadcast) for one in (beta, gamma))
    return nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Tensor:
    """Layer normalization: Ba et al. 2016.

    Args:
        begin_norm_axis: normalise over this axis and all after it.
        begin_params_axis: `beta` and `gamma` have the sizes of this axis and all after it, which must be known.

    Raises:
        ValueError: an axis does not exist, or a size is unknown.
    """
    with contrib_scope(scope, "LayerNorm", reuse, variables_collections) as opened:
        x = convert_to_tensor(inputs)
        rank = x.static_shape.rank
        if rank is None:
            raise errors.InvalidValueError(f"Inputs {x.name} has undefined rank.")
        begin = begin_norm_axis + rank if begin_norm_axis < 0 else begin_norm_axis
        if begin_params_axis >= rank or begin >= rank:
            raise errors.InvalidValueError(
                f"begin_params_axis ({begin_params_axis}) and begin_norm_axis ({begin_norm_axis}) must be < "
                f"rank(inputs) ({rank})"
            )
        first = begin_params_axis + rank if begin_params_axis < 0 else begin_params_axis
        shape = [known_size(x, axis) for axis in range(first, rank)]
        epsilon = 1e-3 if x.dtype.base is dtypes.float16 else 1e-12
        outputs = _scaled(x, list(range(begin, rank)), shape, (center, scale, trainable), shape, epsilon)
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return finished(outputs, opened.name, outputs_collections)


@add_arg_scope
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Tensor:
    """Instance normalization, Ulyanov et al. 2016: normalises each channel of each example on its own."""
    refuse("instance_norm", param_initializers=param_initializers)
    with contrib_scope(scope, "InstanceNorm", reuse, variables_collections) as opened:
        x = convert_to_tensor(inputs)
        channel = 1 if data_format == "NCHW" else (x.static_shape.rank or 1) - 1
        size, rank = known_size(x, channel), x.static_shape.rank or 0
        axes = [axis for axis in range(1, rank) if axis != channel]
        broadcast = [size] if channel == rank - 1 else [size if axis == channel else 1 for axis in range(rank)]
        outputs = _scaled(x, axes, [size], (center, scale, trainable), broadcast, epsilon)
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return finished(outputs, opened.name, outputs_collections)
