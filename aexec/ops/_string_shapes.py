"""Shape functions of `string_ops`, `parsing_ops`, `lookup_ops`, `io_ops` and `audio_ops`."""

from __future__ import annotations

import re

from aexec.framework import errors
from aexec.framework.common_shape_fns import broadcast_binary, scalar, unchanged_shape, unknown_shape
from aexec.framework.shape_inference import InferenceContext, Shape, ShapeAndType


def _scalars(c: InferenceContext, *indices: int) -> None:
    for index in indices:
        c.with_rank(c.input(index), 0)


def unchanged_with_scalars(c: InferenceContext) -> None:
    """Input 0; the others are scalars."""
    _scalars(c, *range(1, c.num_inputs))
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
    """N-grams, and row splits as input 1."""
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


# Parsing


def decode_raw(c: InferenceContext) -> None:
    """Input 0 with a dimension of unknown size behind."""
    c.set_output(0, c.concatenate(c.input(0), c.vector(None)))


def decode_padded_raw(c: InferenceContext) -> None:
    """Input 0 with a dimension of as many elements as fit into the bytes that input 1 says."""
    length = c.make_dim_for_scalar_input(1)
    width = c.divide(length, c.attr("out_type").size, evenly=True)
    c.set_output(0, c.concatenate(c.input(0), c.vector(width)))


def decode_csv(c: InferenceContext) -> None:
    """Each column is as the records, input 0; the others are defaults."""
    for index in range(1, c.num_inputs):
        default = c.with_rank_at_most(c.input(index), 1)
        if default.rank == 1 and (c.dim(default, 0).value or 0) > 1:
            raise errors.InvalidArgumentError("Shape of a default must be a length-0 or length-1 vector, or a scalar.")
    for index in range(c.num_outputs):
        c.set_output(index, c.input(0))


def parse_tensor(c: InferenceContext) -> None:
    """Anything."""
    unknown_shape(c)


def _set_examples(c: InferenceContext, batch: Shape, num_sparse: int, num_ragged: int = 0) -> None:
    """Sparse features, dense ones, ragged ones, of a scalar or a vector of examples."""
    start = 3 * num_sparse + len(c.attr("dense_shapes"))
    if start + 2 * num_ragged != c.num_outputs:
        raise errors.InvalidArgumentError(
            f"The attrs describe {start + 2 * num_ragged} tensors, but the node has {c.num_outputs} outputs"
        )
    rank = None if batch.dims is None else len(batch.dims) + 1
    for index in range(num_sparse):
        c.set_output(index, c.matrix(None, rank))
        c.set_output(num_sparse + index, c.vector(None))
        c.set_output(2 * num_sparse + index, c.vector(rank))
    for index, shape in enumerate(c.attr("dense_shapes")):
        dense = c.make_shape_from_partial_tensor_shape(shape)
        if dense.dims and dense.dims[0] is None:
            # Rows of varying number are padded to the longest.
            dense = c.replace_dim(dense, 0, None)
        c.set_output(3 * num_sparse + index, c.concatenate(batch, dense))
    for index in range(start, start + num_ragged):
        rows = c.add(c.dim(batch, 0), 1) if batch.dims else c.unknown_dim()
        c.set_output(index, c.vector(None))
        c.set_output(index + num_ragged, c.vector(rows))


def parse_example(c: InferenceContext) -> None:
    """Inputs serialized and names, vectors, and then keys."""
    serialized = c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 1)
    _set_examples(c, serialized, c.attr("Nsparse"))


def parse_single_example(c: InferenceContext) -> None:
    """Input serialized, a scalar."""
    c.with_rank(c.input(0), 0)
    _set_examples(c, c.scalar(), len(c.attr("sparse_keys")))


def parse_example_v2(c: InferenceContext) -> None:
    """A scalar or a vector of examples; ragged features come last."""
    serialized = c.with_rank_at_most(c.input(0), 1)
    _set_examples(c, serialized, c.attr("num_sparse"), len(c.attr("ragged_value_types")))


# Lookup tables


def _check_table(c: InferenceContext) -> None:
    c.with_rank(c.input(0), 0)


def _check_old_table(c: InferenceContext) -> None:
    c.with_value(c.dim(c.with_rank(c.input(0), 1), 0), 2)


def old_table(c: InferenceContext) -> None:
    """A handle of the first kind: a vector of two strings."""
    c.set_output(0, c.vector(2))


def _set_table(c: InferenceContext, key: Shape, value: Shape) -> None:
    c.set_output(0, c.scalar())
    c.set_output_handle_shapes_and_types(
        0, [ShapeAndType(key, c.attr("key_dtype")), ShapeAndType(value, c.attr("value_dtype"))]
    )


def mutable_table(c: InferenceContext) -> None:
    """A handle that knows scalar keys and values."""
    _set_table(c, c.scalar(), c.scalar())


def mutable_table_of_tensors(c: InferenceContext) -> None:
    """A handle that knows scalar keys, and values as attr `value_shape` says."""
    _set_table(c, c.scalar(), c.make_shape_from_partial_tensor_shape(c.attr("value_shape")))


def mutable_dense_table(c: InferenceContext) -> None:
    """A handle that knows keys like input 0, and values as attr `value_shape` says."""
    _set_table(c, c.with_rank_at_most(c.input(0), 1), c.make_shape_from_partial_tensor_shape(c.attr("value_shape")))


def old_table_find(c: InferenceContext) -> None:
    """Unknown; the default is a scalar or a vector."""
    _check_old_table(c)
    c.with_rank_at_most(c.input(2), 1)
    unknown_shape(c)


def table_find(c: InferenceContext) -> None:
    """Values for keys, input 1."""
    _check_table(c)
    data = c.input_handle_shapes_and_types(0)
    if data is None or len(data) != 2:
        unknown_shape(c)
        return
    key, value = data
    for known, attr, name in ((key, "Tin", "key"), (value, "Tout", "value")):
        if known.dtype is not c.attr(attr):
            raise errors.InvalidArgumentError(
                f"Trying to read {'value' if name == 'value' else 'key'} with wrong dtype. "
                f"Expected {known.dtype} got {c.attr(attr)}"
            )
    keys = c.input(1)
    if keys.dims is None or key.shape.dims is None:
        unknown_shape(c)
        return
    if len(keys.dims) < len(key.shape.dims):
        raise errors.InvalidArgumentError(f"Expected keys to have suffix {key.shape} but saw shape: {keys}")
    outer = len(keys.dims) - len(key.shape.dims)
    c.merge(c.subshape(keys, outer), key.shape)
    c.set_output(0, c.concatenate(c.subshape(keys, 0, outer), value.shape))


def table_export(c: InferenceContext) -> None:
    """All keys and values."""
    _check_table(c)
    unknown_shape(c)


def old_table_export(c: InferenceContext) -> None:
    """All keys and values."""
    _check_old_table(c)
    c.set_output(0, c.vector(None))
    c.set_output(1, c.unknown_shape())


def table_in(c: InferenceContext) -> None:
    """Input 0 is a handle."""
    _check_table(c)


def old_table_in(c: InferenceContext) -> None:
    """Input 0 is a handle of the first kind; outputs are scalars."""
    _check_old_table(c)
    scalar(c)


def table_size(c: InferenceContext) -> None:
    """A scalar."""
    _check_table(c)
    c.set_output(0, c.scalar())


def table_initialize(c: InferenceContext) -> None:
    """Keys and values are vectors of one length."""
    _check_table(c)
    keys = c.with_rank(c.input(1), 1)
    c.merge(keys, c.input(2))


def old_table_initialize(c: InferenceContext) -> None:
    """Keys and values are vectors of one length."""
    _check_old_table(c)
    keys = c.with_rank(c.input(1), 1)
    c.merge(keys, c.input(2))


def table_initialize_from_file(c: InferenceContext) -> None:
    """Handle and file name are scalars."""
    _check_table(c)
    c.with_rank(c.input(1), 0)


def old_table_initialize_from_file(c: InferenceContext) -> None:
    """File name is a scalar."""
    _check_old_table(c)
    c.with_rank(c.input(1), 0)


# Files and checkpoints


def matching_files(c: InferenceContext) -> None:
    """Names that match a pattern or some."""
    c.with_rank_at_most(c.input(0), 1)
    c.set_output(0, c.vector(None))


def read_up_to(c: InferenceContext) -> None:
    """Keys and values."""
    _scalars(c, 0, 1, 2)
    c.set_output(0, c.vector(None))
    c.set_output(1, c.vector(None))


def old_read_up_to(c: InferenceContext) -> None:
    """Keys and values, with handles of the first kind."""
    _check_old_table(c)
    c.with_value(c.dim(c.with_rank(c.input(1), 1), 0), 2)
    c.with_rank(c.input(2), 0)
    c.set_output(0, c.vector(None))
    c.set_output(1, c.vector(None))


def old_reader_restore_state(c: InferenceContext) -> None:
    """A handle of the first kind; the state is a scalar."""
    _check_old_table(c)
    c.with_rank(c.input(1), 0)


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


def merge_checkpoints(c: InferenceContext) -> None:
    """Prefixes to merge, and where to."""
    c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 0)


_SLICE = re.compile(rb"((?:\d+ )*)((?:-|\d+,\d+)(?::(?:-|\d+,\d+))*)")


def restore_v2(c: InferenceContext) -> None:
    """Tensors by name; where a slice of a tensor is asked for, that says its shape."""
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
    """Whatever is in the file; its pattern and the tensor's name are scalars."""
    _scalars(c, 0, 1)
    unknown_shape(c)


def restore_slice(c: InferenceContext) -> None:
    """A tensor by name, or the slice of it that is asked for."""
    _scalars(c, 0, 1, 2)
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


# Sound


def decode_wav(c: InferenceContext) -> None:
    """[samples, channels], and the sample rate."""
    c.with_rank(c.input(0), 0)
    sizes = []
    for attr in ("desired_samples", "desired_channels"):
        wanted = c.attr(attr)
        if wanted < -1:
            raise errors.InvalidArgumentError(f"{attr[8:]} must be non-negative, got {wanted}")
        sizes.append(None if wanted == -1 else wanted)
    c.set_output(0, c.matrix(*sizes))
    c.set_output(1, c.scalar())


def encode_wav(c: InferenceContext) -> None:
    """A scalar for samples and rate."""
    c.with_rank(c.input(0), 2)
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.scalar())


def spectrogram(c: InferenceContext) -> None:
    """[channels, windows, frequencies] of samples and channels."""
    shape = c.with_rank(c.input(0), 2)
    window, stride = c.attr("window_size"), c.attr("stride")
    length = c.dim(shape, 0).value
    windows = None
    if length is not None and stride > 0:
        windows = 0 if length < window else 1 + (length - window) // stride
    frequencies = 1 + (1 << max(window - 1, 0).bit_length()) // 2
    c.set_output(0, c.make_shape((c.dim(shape, 1), windows, frequencies)))


def mfcc(c: InferenceContext) -> None:
    """[channels, windows, coefficients]."""
    shape = c.with_rank(c.input(0), 3)
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.make_shape((c.dim(shape, 0), c.dim(shape, 1), c.attr("dct_coefficient_count"))))


def candidate_sampler(c: InferenceContext) -> None:
    """Sampled candidates, and expected counts of true and of sampled ones."""
    sampled, true = c.attr("num_sampled"), c.attr("num_true")
    if sampled < 1:
        raise errors.InvalidArgumentError("num_sampled must be >=1")
    if true < 1:
        raise errors.InvalidArgumentError("num_true must be >=1")
    classes = c.with_rank(c.input(0), 2)
    c.set_output(0, c.vector(sampled))
    c.set_output(1, c.matrix(c.dim(classes, 0), true))
    c.set_output(2, c.vector(sampled))


def accidental_hits(c: InferenceContext) -> None:
    """Three vectors of one unknown length."""
    classes = c.with_rank(c.input(0), 2)
    c.with_value(c.dim(classes, 1), c.attr("num_true"))
    c.with_rank(c.input(1), 1)
    hits = c.vector(None)
    for index in range(3):
        c.set_output(index, hits)
