"""`tf.random`: random tensors with TensorFlow's arguments, over `aexec.client.random_ops`.

Next to read: `aexec/client/random_seed.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_seed import get_seed
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.namespace import chosen, namespace, refuse
from aexec.framework import errors
from aexec.framework.dtypes import as_dtype
from aexec.graph.nodes.node import Tensor

__all__ = [
    "categorical",
    "multinomial",
    "random_crop",
    "random_poisson",
    "stateless_binomial",
    "stateless_categorical",
    "stateless_normal",
    "stateless_poisson",
    "stateless_truncated_normal",
    "stateless_uniform",
]


def multinomial(
    logits: Any,
    num_samples: Any,
    seed: int | None = None,
    name: str | None = None,
    output_dtype: Any = None,
    dtype: Any = None,
) -> Tensor:
    """`tf.multinomial`: draw classes from logits [batch, classes]; [batch, num_samples], int64 by default."""
    first, second = get_seed(seed)
    wanted = chosen("int64", output_dtype=output_dtype, dtype=dtype)
    return ops.multinomial(logits, num_samples, seed=first, seed2=second, output_dtype=as_dtype(wanted), name=name)


def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None
) -> Tensor:
    """`tf.random.categorical`: `multinomial` with other argument names."""
    return multinomial(logits, num_samples, seed, name, dtype)


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """`tf.random_crop`: a slice of shape `size` at a random position."""
    with name_scope(name or "random_crop"):
        whole, part = convert_to_tensor(value), convert_to_tensor(size, "int32")
        room = ops.shape(whole) - part + 1
        first, second = get_seed(seed)
        most = 2**31 - 1
        drawn = ops.random_uniform_int(ops.shape(room), 0, most, seed=first, seed2=second)
        return ops.slice(whole, drawn % room, part)


def random_poisson(
    lam: Any, shape: Any, dtype: Any = "float32", seed: int | None = None, name: str | None = None
) -> Tensor:
    """`tf.random_poisson`: samples [*shape, *lam.shape]."""
    first, second = get_seed(seed)
    return ops.random_poisson_v2(
        convert_to_tensor(shape, "int32"),
        convert_to_tensor(lam),
        seed=first,
        seed2=second,
        dtype=as_dtype(dtype),
        name=name,
    )


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """`tf.random.stateless_uniform`, of floats."""
    refuse("stateless_uniform", alg=None if alg == "auto_select" else alg)
    wanted = as_dtype(dtype)
    if not wanted.is_floating:
        raise errors.UnsupportedError("stateless_uniform of integers: the op is aexec.ops.stateless_random_uniform_int")
    with name_scope(name or "stateless_random_uniform"):
        low = convert_to_tensor(minval, wanted)
        high = convert_to_tensor(1 if maxval is None else maxval, wanted)
        return ops.stateless_random_uniform(convert_to_tensor(shape, "int32"), seed, dtype=wanted) * (high - low) + low


def _stateless_normal(
    draw: Callable[..., Tensor], scope: str, shape: Any, seed: Any, mean: Any, stddev: Any, dtype: Any
) -> Tensor:
    """Draw numbers with `draw`, whose mean is 0 and deviation 1; shift and scale them."""
    wanted = as_dtype(dtype)
    with name_scope(scope):
        numbers = draw(convert_to_tensor(shape, "int32"), seed, dtype=wanted)
        return numbers * convert_to_tensor(stddev, wanted) + convert_to_tensor(mean, wanted)


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """`tf.random.stateless_normal`."""
    refuse("stateless_normal", alg=None if alg == "auto_select" else alg)
    scope = name or "stateless_random_normal"
    return _stateless_normal(ops.stateless_random_normal, scope, shape, seed, mean, stddev, dtype)


def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """`tf.random.stateless_truncated_normal`."""
    refuse("stateless_truncated_normal", alg=None if alg == "auto_select" else alg)
    scope = name or "stateless_truncated_normal"
    return _stateless_normal(ops.stateless_truncated_normal, scope, shape, seed, mean, stddev, dtype)


def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = "int64", name: str | None = None
) -> Tensor:
    """`tf.random.stateless_categorical`."""
    return ops.stateless_multinomial(logits, num_samples, seed, output_dtype=as_dtype(dtype), name=name)


def stateless_binomial(
    shape: Any, seed: Any, counts: Any, probs: Any, output_dtype: Any = "int32", name: str | None = None
) -> Tensor:
    """`tf.random.stateless_binomial`."""
    chance = convert_to_tensor(probs)
    trials = convert_to_tensor(counts, chance.dtype.base)
    return ops.stateless_random_binomial(shape, seed, trials, chance, dtype=as_dtype(output_dtype), name=name)


def stateless_poisson(shape: Any, seed: Any, lam: Any, dtype: Any = "int32", name: str | None = None) -> Tensor:
    """`tf.random.stateless_poisson`."""
    rates = convert_to_tensor(lam)
    whole = ops.broadcast_to(rates, convert_to_tensor(shape, "int32"))
    return ops.stateless_random_poisson(shape, seed, whole, dtype=as_dtype(dtype), name=name)


__getattr__, __dir__ = namespace(
    __name__,
    {
        "gamma": "aexec.client.random_ops:random_gamma",
        "log_uniform_candidate_sampler": "networks.nn:log_uniform_candidate_sampler",
        "learned_unigram_candidate_sampler": "networks.nn:learned_unigram_candidate_sampler",
        "all_candidate_sampler": "networks.nn:all_candidate_sampler",
        "fixed_unigram_candidate_sampler": "networks.nn:fixed_unigram_candidate_sampler",
        "stateless_multinomial": """functions.random:stateless_categorical | logits num_samples seed
        output_dtype=dtype name""",
        "normal": "aexec.client.random_ops:random_normal",
        "poisson": "functions.random:random_poisson",
        "random_gamma": "aexec.client.random_ops:random_gamma",
        "random_normal": "aexec.client.random_ops:random_normal",
        "random_shuffle": "aexec.client.random_ops:random_shuffle",
        "random_uniform": "aexec.client.random_ops:random_uniform",
        "set_random_seed": "aexec.client.random_seed:set_random_seed",
        "shuffle": "aexec.client.random_ops:random_shuffle",
        "truncated_normal": "aexec.client.random_ops:truncated_normal",
        "uniform": "aexec.client.random_ops:random_uniform",
        "uniform_candidate_sampler": "networks.nn:uniform_candidate_sampler",
    },
    {"Generator": "random ops take seeds: tf.random.stateless_uniform has no state"},
)
