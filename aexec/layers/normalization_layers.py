"""Batch normalisation that keeps moving averages for inference.

The operations that update the averages are in the collection `update_ops`: a training op must wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from aexec import nn, ops
from aexec.client.building import colocate_with, control_dependencies, name_scope
from aexec.framework import dtypes, errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.layers.layer import Activation, as_inputs, chosen, known_size, layer_scope
from aexec.variables.initializers import Initializer, Ones, Zeros
from aexec.variables.regularizers import Regularizer
from aexec.variables.variable import Variable
from aexec.variables.variable_scope import get_variable
from aexec.variables.variable_store import Reuse

__all__ = ["batch_normalization"]

_ZEROS, _ONES = Zeros(), Ones()


def batch_normalization(
    inputs: Any,
    axis: int | Sequence[int] = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Initializer | None = _ZEROS,
    gamma_initializer: Initializer | None = _ONES,
    moving_mean_initializer: Initializer | None = _ZEROS,
    moving_variance_initializer: Initializer | None = _ONES,
    beta_regularizer: Regularizer | None = None,
    gamma_regularizer: Regularizer | None = None,
    beta_constraint: Activation | None = None,
    gamma_constraint: Activation | None = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Reuse = None,
    fused: bool | None = None,
) -> Tensor:
    """Normalise inputs to mean `beta` and standard deviation `gamma` for each channel: Ioffe and Szegedy 2015.

    In training, mean and variance are those of the batch, and two operations of `GraphKeys.UPDATE_OPS` move the
    averages `moving_mean` and `moving_variance` towards them; otherwise these averages are used. ::

        with aexec.control_dependencies(aexec.get_collection(aexec.GraphKeys.UPDATE_OPS)):
            step = optimizer.minimize(loss)

    Args:
        inputs: their sizes along `axis` must be known.
        axis: the axis of the channels, or several.
        momentum: the fraction of the averages that each step keeps.
        center, scale: use a `beta`, a `gamma`.
        training: a bool, or a bool scalar of the graph.
        fused: use one op, for one axis of channels of images or volumes; by default if the inputs are such.  The
            averages then get the sample variance, n / (n - 1) times that of the batch.

    Raises:
        InvalidArgumentError: sizes are unknown, an axis does not exist, or `fused` for inputs that are not images.
    """
    with layer_scope(name, "batch_normalization", reuse):
        x = as_inputs(inputs)
        rank, axes, data_format = _axes_of_channels(x, axis, fused)
        sizes = {at: known_size(x, at, f"dimension {at}") for at in axes}
        shape = list(sizes.values()) if len(axes) == 1 else [sizes.get(at, 1) for at in range(rank)]
        dtype = dtypes.float32 if x.dtype.base.size == 2 else x.dtype.base

        def weight(called: str, first: Initializer | None, **options: Any) -> Variable:
            made: Variable = get_variable(called, shape, dtype, first, **options)
            return made

        gamma = beta = None
        learned = partial(weight, trainable=trainable)
        if scale:
            gamma = learned("gamma", gamma_initializer, regularizer=gamma_regularizer, constraint=gamma_constraint)
        if center:
            beta = learned("beta", beta_initializer, regularizer=beta_regularizer, constraint=beta_constraint)
        moving = (
            weight("moving_mean", moving_mean_initializer, trainable=False, partitioner=False),
            weight("moving_variance", moving_variance_initializer, trainable=False, partitioner=False),
        )
        if fused is not False and data_format is not None:
            return _fused(x, gamma, beta, moving, shape, data_format, training, momentum, epsilon)
        broadcast = None if axes == [rank - 1] or len(axes) > 1 else [sizes.get(at, 1) for at in range(rank)]
        reduced = [at for at in range(rank) if at not in axes]
        return _in_steps(x, gamma, beta, moving, reduced, broadcast, training, momentum, epsilon)


def _axes_of_channels(x: Tensor, axis: int | Sequence[int], fused: bool | None) -> tuple[int, list[int], str | None]:
    """The rank of inputs, the axes of their channels, and the data format for the fused op, or None."""
    rank = x.static_shape.rank
    if rank is None:
        raise errors.InvalidValueError("the rank of the inputs must be known")
    axes = [axis] if isinstance(axis, int) else list(axis)
    if any(not -rank <= at < rank for at in axes):
        raise errors.InvalidValueError(f"Invalid axis: {axes}, for inputs of shape {x.static_shape}")
    axes = sorted(at % rank for at in axes)
    data_format = {4: {1: "NCHW", 3: "NHWC"}, 5: {1: "NCDHW", 4: "NDHWC"}}.get(rank, {}).get(axes[0])
    if len(axes) > 1:
        data_format = None
    if fused and data_format is None:
        raise errors.InvalidValueError(
            f"fused batch normalization is for one axis of channels of images or volumes, got axis {axes} "
            f"of shape {x.static_shape}"
        )
    return rank, axes, data_format


def _fused(
    x: Tensor,
    gamma: Variable | None,
    beta: Variable | None,
    moving: tuple[Variable, Variable],
    shape: Sequence[int],
    data_format: str,
    training: Any,
    momentum: float,
    epsilon: float,
) -> Tensor:
    scale = convert_to_tensor(gamma) if gamma is not None else ops.fill(list(shape), 1.0)
    offset = convert_to_tensor(beta) if beta is not None else ops.fill(list(shape), 0.0)
    options: dict[str, Any] = {"epsilon": epsilon, "data_format": data_format}
    outputs, mean, variance = chosen(
        training,
        lambda: nn.fused_batch_norm(x, scale, offset, **options),
        lambda: nn.fused_batch_norm(x, scale, offset, *moving, is_training=False, **options),
    )
    if training is not False:
        # Without training the averages stay unchanged.
        kept: Any = momentum
        if training is not True:
            kept = chosen(training, lambda: convert_to_tensor(momentum), lambda: convert_to_tensor(1.0))
        _collect([_moved(moving[0], mean, kept), _moved(moving[1], variance, kept)])
    made: Tensor = outputs
    return made


def _in_steps(
    x: Tensor,
    gamma: Variable | None,
    beta: Variable | None,
    moving: tuple[Variable, Variable],
    reduced: Sequence[int],
    broadcast: Sequence[int] | None,
    training: Any,
    momentum: float,
    epsilon: float,
) -> Tensor:
    means: tuple[Any, Any] = moving
    narrow = x.dtype.base.size == 2
    value = ops.cast(x, DstT=dtypes.float32) if narrow else x
    if training is not False:
        several = moving[0].static_shape.rank != 1
        of_batch = nn.moments(value, reduced, keep_dims=several)
        mean = chosen(training, lambda: of_batch[0], lambda: ops.identity(moving[0]))
        means = mean, chosen(training, lambda: of_batch[1], lambda: ops.identity(moving[1]))
        updates: list[Node] = []
        for average, of_now in zip(moving, means, strict=True):
            if training is True:
                updates.append(_moved(average, of_now, momentum))
            else:
                updates.append(_moved_if(training, average, of_now, momentum))
        _collect(updates)

    def shaped(tensor: Any) -> Any:
        return tensor if tensor is None or broadcast is None else ops.reshape(tensor, list(broadcast))

    outputs = nn.batch_normalization(value, shaped(means[0]), shaped(means[1]), shaped(beta), shaped(gamma), epsilon)
    return ops.cast(outputs, DstT=x.dtype.base) if narrow else outputs


def _moved(average: Variable, value: Tensor, kept: Any) -> Node:
    """Move an average towards a value; `kept` is the fraction of it that stays."""
    with name_scope("AssignMovingAvg") as scope, colocate_with(average):
        rest = 1.0 - kept
        moved: Node = average.assign_sub((average.value() - value) * rest, read_value=False, name=scope)
        return moved


def _moved_if(training: Any, average: Variable, value: Tensor, kept: float) -> Node:
    """Move the average if `training`."""

    def moved() -> Tensor:
        with control_dependencies([_moved(average, value, kept)]):
            return average.read_value()

    made: Node = chosen(training, moved, lambda: ops.identity(average)).op
    return made


def _collect(updates: Sequence[Node]) -> None:
    require_graph().collections.get_ref(GraphKeys.UPDATE_OPS).extend(updates)
