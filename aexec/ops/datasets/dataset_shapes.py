"""Shape functions of datasets and iterators."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import InferenceContext

__all__ = ["elements", "no_outputs", "scalars", "vector"]


def no_outputs(c: InferenceContext) -> None:
    """Nothing is given."""


def scalars(c: InferenceContext) -> None:
    """All outputs are scalars."""
    for index in range(c.num_outputs):
        c.set_output(index, c.scalar())


def vector(c: InferenceContext) -> None:
    """A vector of any length."""
    c.set_output(0, c.vector(None))


def elements(c: InferenceContext) -> None:
    """The shapes in attr `output_shapes`, one for each component of an element."""
    shapes = c.attr("output_shapes")
    if len(shapes) != c.num_outputs:
        raise errors.InvalidArgumentError(
            f"`output_shapes` must be the same length as `output_types` ({len(shapes)} vs. {c.num_outputs})"
        )
    for index, shape in enumerate(shapes):
        c.set_output(index, c.make_shape_from_partial_tensor_shape(shape))
