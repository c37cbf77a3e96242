"""Learning rates that depend on the number of steps: tensors to pass to an optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, pi
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_normal
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "inverse_time_decay",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "polynomial_decay",
]


def _progress(learning_rate: Any, global_step: Any, decay_steps: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The rate, the step and the number of steps, as floats of one type."""
    rate = convert_to_tensor(learning_rate, name="learning_rate")
    step = ops.cast(convert_to_tensor(global_step), DstT=rate.dtype.base)
    return rate, step, ops.cast(convert_to_tensor(decay_steps), DstT=rate.dtype.base)


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    *,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """`learning_rate * decay_rate ** (global_step / decay_steps)`; with `staircase` the exponent is rounded down."""
    with name_scope(name or "ExponentialDecay") as scope:
        rate, step, steps = _progress(learning_rate, global_step, decay_steps)
        passed = ops.floor(step / steps) if staircase else step / steps
        return ops.mul(rate, ops.pow(convert_to_tensor(decay_rate, rate.dtype.base), passed), name=scope)


def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    *,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """`learning_rate * exp(-decay_rate * global_step / decay_steps)`."""
    with name_scope(name or "NaturalExpDecay") as scope:
        rate, step, steps = _progress(learning_rate, global_step, decay_steps)
        passed = ops.floor(step / steps) if staircase else step / steps
        return ops.mul(rate, ops.exp(-convert_to_tensor(decay_rate, rate.dtype.base) * passed), name=scope)


def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    *,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """`learning_rate / (1 + decay_rate * global_step / decay_steps)`."""
    with name_scope(name or "InverseTimeDecay") as scope:
        rate, step, steps = _progress(learning_rate, global_step, decay_steps)
        passed = ops.floor(step / steps) if staircase else step / steps
        return ops.real_div(rate, 1.0 + convert_to_tensor(decay_rate, rate.dtype.base) * passed, name=scope)


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    *,
    cycle: bool = False,
    name: str | None = None,
) -> Tensor:
    """From `learning_rate` to `end_learning_rate` in `decay_steps`; with `cycle`, repeatedly, ever more slowly."""
    with name_scope(name or "PolynomialDecay") as scope:
        rate, step, steps = _progress(learning_rate, global_step, decay_steps)
        end = convert_to_tensor(end_learning_rate, rate.dtype.base)
        if cycle:
            # At step 0 the first cycle has already begun.
            rounds = ops.select_v2(ops.equal(step, 0.0), 1.0, ops.ceil(step / steps))
            steps = steps * rounds
        else:
            step = ops.minimum(step, steps)
        left = ops.pow(1.0 - step / steps, convert_to_tensor(power, rate.dtype.base))
        return ops.add_v2((rate - end) * left, end, name=scope)


def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: float = 0.0, name: str | None = None
) -> Tensor:
    """Half a period of a cosine, from `learning_rate` to `alpha` times that: Loshchilov and Hutter 2017."""
    with name_scope(name or "CosineDecay"):
        rate, step, steps = _progress(learning_rate, global_step, decay_steps)
        return rate * _falling(_half_wave(ops.minimum(step, steps) / steps), alpha)


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: float = 2.0,
    m_mul: float = 1.0,
    alpha: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """`cosine_decay` repeatedly, each time `t_mul` times as long, from `m_mul` times as high."""
    with name_scope(name or "SGDRDecay"):
        rate, step, steps = _progress(learning_rate, global_step, first_decay_steps)
        done = step / steps
        if t_mul == 1.0:
            round_ = ops.floor(done)
            within = done - round_
        else:
            log_of = ops.log(1.0 - done * (1.0 - t_mul)) / log(t_mul)
            round_ = ops.floor(log_of)
            began = (1.0 - ops.pow(convert_to_tensor(t_mul, rate.dtype.base), round_)) / (1.0 - t_mul)
            within = (done - began) / ops.pow(convert_to_tensor(t_mul, rate.dtype.base), round_)
        height = ops.pow(convert_to_tensor(m_mul, rate.dtype.base), round_)
        return rate * _falling(_half_wave(within) * height, alpha)


def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    name: str | None = None,
) -> Tensor:
    """`(alpha + 1 - t) * cosine wave + beta`, with t from 0 to 1: Bello et al. 2017."""
    with name_scope(name or "LinearCosineDecay"):
        rate, step, steps = _progress(learning_rate, global_step, decay_steps)
        done = ops.minimum(step, steps) / steps
        wave = 0.5 * (1.0 + ops.cos(done * (2.0 * num_periods * pi)))
        return rate * ((alpha + (1.0 - done)) * wave + beta)


def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Tensor:
    """`linear_cosine_decay` with noise of the normal distribution added to `1 - t`: Bello et al. 2017.

    Args:
        initial_variance: of the noise at step 0; divided by `(1 + step) ** variance_decay` at later ones.
    """
    with name_scope(name or "NoisyLinearCosineDecay"):
        rate, step, steps = _progress(learning_rate, global_step, decay_steps)
        reached = ops.minimum(step, steps)
        variance = initial_variance / ops.pow(1.0 + reached, convert_to_tensor(variance_decay, rate.dtype.base))
        noise = ops.cast(random_normal([]), DstT=rate.dtype.base) * ops.sqrt(variance)
        wave = 0.5 * (1.0 + ops.cos(reached / steps * (2.0 * num_periods * pi)))
        return ops.mul(rate, (alpha + (steps - reached) / steps + noise) * wave + beta)


def _half_wave(done: Tensor) -> Tensor:
    return 0.5 * (1.0 + ops.cos(done * pi))


def _falling(wave: Tensor, alpha: float) -> Tensor:
    return (1.0 - alpha) * wave + alpha


def piecewise_constant(x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None) -> Tensor:
    """`values[0]` as long as `x <= boundaries[0]`, then `values[1]` up to `boundaries[1]`, and so on.

    Raises:
        InvalidArgumentError: not one value more than boundaries.
    """
    if len(boundaries) != len(values) - 1:
        raise errors.InvalidValueError(
            "The length of boundaries should be 1 less than the length of values, "
            f"got {len(boundaries)} and {len(values)}"
        )
    with name_scope(name or "PiecewiseConstant"):
        at = convert_to_tensor(x)
        ends = ops.pack([ops.cast(convert_to_tensor(end), DstT=at.dtype.base) for end in boundaries])
        index = ops.sum(ops.cast(ops.greater(at, ends), DstT=dtypes.int32), [0])
        return ops.gather_v2(ops.pack(list(values)), index, 0)
