"""Shape functions of `string_ops.py`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import broadcast_binary, check_scalars, unchanged_shape
from aexec.framework.shape_functions.shape_inference import InferenceContext


def unchanged_with_scalars(c: InferenceContext) -> None:
    """Input 0; the others are scalars."""
    check_scalars(c, *range(1, c.num_inputs))
    unchanged_shape(c)


def string_format(c: InferenceContext) -> None:
    """A scalar; attr `template` has a placeholder for each input."""
    template, placeholder = c.attr("template"), c.attr("placeholder")
    count = template.count(placeholder) if placeholder else 0
    if count != c.num_inputs:
        raise errors.InvalidArgumentError(
            f"num placeholders in template and num inputs must match: {count} vs. {c.num_inputs}"
        )
    c.set_output(0, c.scalar())


def string_join(c: InferenceContext) -> None:
    """The shape of the inputs that are not scalars."""
    shapes = [c.input(i) for i in range(c.num_inputs)]
    if all(shape.dims == () for shape in shapes):
        c.set_output(0, c.scalar())
        return
    out = c.unknown_shape()
    for shape in shapes:
        if shape.dims:
            out = c.merge(out, shape)
    c.set_output(0, out)


def string_n_grams(c: InferenceContext) -> None:
    """N-grams, and row splits of the shape of input 1."""
    c.with_rank(c.input(0), 1)
    splits = c.with_rank(c.input(1), 1)
    c.set_output(0, c.vector(None))
    c.set_output(1, splits)


def string_split(c: InferenceContext) -> None:
    """A sparse matrix; inputs vector and separator."""
    c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.matrix(None, 2))
    c.set_output(1, c.vector(None))
    c.set_output(2, c.vector(2))


def substr(c: InferenceContext) -> None:
    """Input 0 and positions broadcast; positions and lengths have one shape."""
    position, length = c.input(1), c.input(2)
    if length.dims is not None:
        c.with_rank(position, len(length.dims))
    if not position.is_compatible_with(length):
        raise errors.InvalidArgumentError(f"pos and len shapes must match: {position} vs. {length}")
    broadcast_binary(c)


def unicode_decode(c: InferenceContext) -> None:
    """Row splits, characters, and maybe offsets."""
    c.set_output(0, c.vector(c.add(c.num_elements(c.input(0)), 1)))
    for index in range(1, c.num_outputs):
        c.set_output(index, c.vector(None))


def unicode_encode(c: InferenceContext) -> None:
    """A string for each row of characters; inputs values, row splits."""
    c.with_rank(c.input(0), 1)
    splits = c.with_rank(c.input(1), 1)
    c.set_output(0, c.vector(c.subtract(c.dim(splits, 0), 1)))
