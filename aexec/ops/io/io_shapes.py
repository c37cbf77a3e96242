"""Shape functions of `io_ops.py`."""

from __future__ import annotations

import re

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import (
    check_old_handle,
    check_scalars,
    unknown_shape,
)
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape


def matching_files(c: InferenceContext) -> None:
    """The names that match one pattern or several."""
    c.with_rank_at_most(c.input(0), 1)
    c.set_output(0, c.vector(None))


def read_up_to(c: InferenceContext) -> None:
    """Keys and values."""
    check_scalars(c, 0, 1, 2)
    c.set_output(0, c.vector(None))
    c.set_output(1, c.vector(None))


def old_read_up_to(c: InferenceContext) -> None:
    """Keys and values, with handles of the first kind."""
    check_old_handle(c)
    c.with_value(c.dim(c.with_rank(c.input(1), 1), 0), 2)
    c.with_rank(c.input(2), 0)
    c.set_output(0, c.vector(None))
    c.set_output(1, c.vector(None))


def _check_saved(c: InferenceContext, first_tensor: int) -> None:
    c.with_rank(c.input(0), 0)
    for index in range(1, first_tensor):
        c.with_value(c.dim(c.with_rank(c.input(index), 1), 0), c.num_inputs - first_tensor)


def save(c: InferenceContext) -> None:
    """File and names, then a tensor for each name."""
    _check_saved(c, 2)


def save_slices(c: InferenceContext) -> None:
    """File (or prefix), names and slices, then a tensor for each name."""
    _check_saved(c, 3)


def vocabulary_remapping(c: InferenceContext) -> None:
    """A vector of places, and how many words were found; inputs are file names."""
    c.with_rank(c.input(0), 0)
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.vector(c.attr("num_new_vocab")))
    c.set_output(1, c.scalar())


def skipgram(c: InferenceContext) -> None:
    """The vocabulary and its counts, three scalars, and two vectors of `batch_size`."""
    words = c.vector(None)
    for output, shape in enumerate((words, words, *[c.scalar()] * 3, *[c.vector(c.attr("batch_size"))] * 2)):
        c.set_output(output, shape)


def remapped_matrix(c: InferenceContext) -> None:
    """The matrix that the attrs `num_rows` and `num_cols` describe."""
    c.set_output(0, c.matrix(c.attr("num_rows"), c.attr("num_cols")))


def merge_checkpoints(c: InferenceContext) -> None:
    """Inputs: prefixes to merge, and the destination."""
    c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 0)


_SLICE = re.compile(rb"((?:\d+ )*)((?:-|\d+,\d+)(?::(?:-|\d+,\d+))*)")


def restore_v2(c: InferenceContext) -> None:
    """Tensors by name; the spec of a slice gives its shape."""
    c.with_rank(c.input(0), 0)
    c.merge(c.with_rank(c.input(1), 1), c.with_rank(c.input(2), 1))
    slices = c.input_tensor(2)
    if slices is None:
        unknown_shape(c)
        return
    if slices.size != c.num_outputs:
        raise errors.InvalidArgumentError("The number of shape_and_slice doesn't match tensor outputs.")
    for index, text in enumerate(slices.reshape(-1).tolist()):
        c.set_output(index, _slice_shape(c, text))


def restore(c: InferenceContext) -> None:
    """Unknown, since the file decides; its pattern and the tensor's name are scalars."""
    check_scalars(c, 0, 1)
    unknown_shape(c)


def restore_slice(c: InferenceContext) -> None:
    """A tensor by name, or the requested slice of it."""
    check_scalars(c, 0, 1, 2)
    text = c.input_tensor(2)
    c.set_output(0, c.unknown_shape() if text is None else _slice_shape(c, text.item()))


def _slice_shape(c: InferenceContext, text: bytes) -> Shape:
    """`4 5 0,2:-`: the shape of a whole tensor, and per dimension start and length, `-` for all."""
    found = _SLICE.fullmatch(text)
    if found is None:
        return c.unknown_shape()
    whole = [int(size) for size in found[1].split()]
    parts = found[2].split(b":")
    if len(whole) != len(parts):
        return c.unknown_shape()
    return c.make_shape(
        [size if part == b"-" else int(part.split(b",")[1]) for size, part in zip(whole, parts, strict=True)]
    )
