"""Random tensors: new numbers in each run, which equal TensorFlow's for the same seeds."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_seed import get_seed
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["random_gamma", "random_normal", "random_shuffle", "random_uniform", "truncated_normal"]


def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers uniformly distributed in [minval, maxval).

    Args:
        shape: of the result, ints or an int tensor.
        maxval: 1 by default; required for integers.
        dtype: float16, bfloat16, float32, float64, int32 or int64.
        seed: see `set_random_seed`.

    Raises:
        InvalidArgumentError: integers without `maxval`.
    """
    wanted = dtypes.as_dtype(dtype)
    if maxval is None:
        if wanted.is_integer:
            raise errors.InvalidValueError(f"Must specify maxval for integer dtype {wanted}")
        maxval = 1
    with name_scope(name or "random_uniform") as scope:
        size = _shape(shape)
        unit = type(minval) is int and minval == 0 and type(maxval) is int and maxval == 1 and not wanted.is_integer
        if not unit:
            low, high = convert_to_tensor(minval, wanted, "min"), convert_to_tensor(maxval, wanted, "max")
        seed1, seed2 = get_seed(seed)
        if wanted.is_integer:
            return ops.random_uniform_int(size, low, high, seed=seed1, seed2=seed2, name=scope)
        numbers = ops.random_uniform(size, wanted, seed=seed1, seed2=seed2)
        if unit:
            return numbers
        return ops.add_v2(numbers * (high - low), low, name=scope)


def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of a normal distribution.  Arguments as for `random_uniform`."""
    return _normal("random_normal", ops.random_standard_normal, shape, mean, stddev, dtype, seed, name)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of a normal distribution without those that are two `stddev` or more from the mean."""
    return _normal("truncated_normal", ops.truncated_normal, shape, mean, stddev, dtype, seed, name)


def _normal(
    kind: str, draw: Any, shape: Any, mean: Any, stddev: Any, dtype: Any, seed: int | None, name: str | None
) -> Tensor:
    wanted = dtypes.as_dtype(dtype)
    with name_scope(name or kind) as scope:
        size = _shape(shape)
        middle, width = convert_to_tensor(mean, wanted, "mean"), convert_to_tensor(stddev, wanted, "stddev")
        seed1, seed2 = get_seed(seed)
        numbers = draw(size, wanted, seed=seed1, seed2=seed2)
        return ops.add_v2(numbers * width, middle, name=scope)


def random_gamma(
    shape: Any,
    alpha: Any,
    beta: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Samples of gamma distributions, [*shape, *broadcast shape of alpha and beta].

    Args:
        shape: samples per distribution.
        alpha: the shape parameters.
        beta: the inverse scales; 1 by default.
        dtype: float16, bfloat16, float32 or float64.

    A sample is never 0: the least is the smallest normal number of `dtype`.
    """
    wanted = dtypes.as_dtype(dtype)
    with name_scope(name or "random_gamma"):
        size = _shape(shape)
        shapes = convert_to_tensor(alpha, wanted, "alpha")
        rates = convert_to_tensor(1.0 if beta is None else beta, wanted, "beta")
        each = shapes + ops.zeros_like(rates)
        seed1, seed2 = get_seed(seed)
        samples = ops.random_gamma(size, each, seed=seed1, seed2=seed2) / rates
        tiny = float(ml_dtypes.finfo(wanted.np).tiny)
        return ops.maximum(convert_to_tensor(tiny, wanted), samples)


def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """The rows of a tensor, in random order."""
    seed1, seed2 = get_seed(seed)
    return ops.random_shuffle(value, seed=seed1, seed2=seed2, name=name)


def _shape(shape: Any) -> Tensor:
    if isinstance(shape, Tensor | TensorProxy):
        return convert_to_tensor(shape)
    return convert_to_tensor(list(shape), dtypes.int32 if len(shape) == 0 else None, "shape")
