"""Shape functions of `random_ops`, `stateless_random_ops` and `stateful_random_ops`."""

from __future__ import annotations

from functools import reduce

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import broadcast_shape, check_scalars
from aexec.framework.shape_functions.shape_inference import InferenceContext


def _shape_from(c: InferenceContext, index: int) -> None:
    c.set_output(0, c.make_shape_from_shape_tensor(index))


def _scalar_bounds(c: InferenceContext, minval: int) -> None:
    """The bounds, two inputs from `minval` on, must be scalars."""
    for index, name in ((minval, "minval"), (minval + 1, "maxval")):
        shape = c.input(index)
        if shape.dims:
            raise errors.InvalidArgumentError(f"{name} must be a scalar; got a tensor of shape {shape}")


def _check_seed(c: InferenceContext, index: int) -> None:
    c.with_value(c.dim(c.with_rank(c.input(index), 1), 0), 2)


def multinomial(c: InferenceContext) -> None:
    """[rows of logits, samples]; stateless ones have a seed, input 2."""
    logits = c.with_rank(c.input(0), 2)
    if c.num_inputs > 2:
        _check_seed(c, 2)
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.matrix(c.dim(logits, 0), c.make_dim_for_scalar_input(1)))


def parameterized_truncated_normal(c: InferenceContext) -> None:
    """The shape given by input 0; parameters are scalars or vectors."""
    for index in range(1, 5):
        c.with_rank_at_most(c.input(index), 1)
    _shape_from(c, 0)


def per_parameter(c: InferenceContext) -> None:
    """The shape given by input 0 for each element of input 1."""
    c.set_output(0, c.concatenate(c.make_shape_from_shape_tensor(0), c.input(1)))


def index_shuffle(c: InferenceContext) -> None:
    """A scalar, or a vector if the index, the seed's rows or the largest index are one each."""
    index, seed, largest = (c.with_rank_at_most(c.input(i), rank) for i, rank in enumerate((1, 2, 1)))
    c.with_rank_at_least(seed, 1)
    ranks = [None if shape.dims is None else len(shape.dims) for shape in (index, seed, largest)]
    shapes = zip((index, seed, largest), ranks, (1, 2, 1), strict=True)
    vectors = [shape for shape, rank, of_many in shapes if rank == of_many]
    if vectors:
        c.set_output(0, reduce(c.merge, [c.vector(c.dim(shape, 0)) for shape in vectors]))
    elif None in ranks:
        c.set_output(0, c.unknown_shape())
    else:
        c.set_output(0, c.scalar())


def uniform_int(c: InferenceContext) -> None:
    """The shape given by input 0; bounds are scalars."""
    _scalar_bounds(c, 1)
    _shape_from(c, 0)


def stateless(c: InferenceContext) -> None:
    """The shape given by input 0; input 1 is a seed."""
    _check_seed(c, 1)
    _shape_from(c, 0)


def stateless_uniform_int(c: InferenceContext) -> None:
    """Like `stateless`; bounds are scalars."""
    _scalar_bounds(c, 2)
    stateless(c)


def stateless_truncated_normal(c: InferenceContext) -> None:
    """Like `stateless`; the four parameters are broadcast."""
    stateless(c)
    parameters = c.input(2)
    for index in range(3, 6):
        parameters = broadcast_shape(c, parameters, c.input(index))


def stateless_with_key(c: InferenceContext) -> None:
    """The shape given by input 0; inputs 1 to 3 are key, counter, algorithm."""
    key = c.with_rank(c.input(1), 1)
    c.with_rank(c.input(2), 1)
    c.with_rank(c.input(3), 0)
    c.with_value(c.dim(key, 0), 1)
    _shape_from(c, 0)


def stateless_uniform_int_with_key(c: InferenceContext) -> None:
    """Like `stateless_with_key`; bounds are scalars."""
    _scalar_bounds(c, 4)
    stateless_with_key(c)


def key_and_counter(c: InferenceContext) -> None:
    """Key, counter, and maybe algorithm for a seed."""
    _check_seed(c, 0)
    c.set_output(0, c.vector(1))
    c.set_output(1, c.vector(2))
    for index in range(2, c.num_outputs):
        c.set_output(index, c.scalar())


def stateful(c: InferenceContext) -> None:
    """The shape given by input 2; inputs generator, algorithm, shape."""
    check_scalars(c, 1)
    _shape_from(c, 2)


def stateful_uniform_int(c: InferenceContext) -> None:
    """Like `stateful`; bounds are scalars."""
    _scalar_bounds(c, 3)
    stateful(c)


def stateful_binomial(c: InferenceContext) -> None:
    """The shape given by input 2."""
    _shape_from(c, 2)


def stateful_v1(c: InferenceContext) -> None:
    """The shape given by input 1; inputs generator, shape."""
    _shape_from(c, 1)


def skip(c: InferenceContext) -> None:
    """Inputs generator, algorithm, delta."""
    check_scalars(c, 1, 2)


def read_and_skip(c: InferenceContext) -> None:
    """The generator's state before: counter and key."""
    check_scalars(c, 1, 2)
    c.set_output(0, c.vector(3))
