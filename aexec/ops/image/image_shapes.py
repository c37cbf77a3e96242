"""Shape functions of `image_ops`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.common_shape_fns import check_scalars, unchanged_volume_or_more
from aexec.framework.shape_functions.shape_inference import Dimension, DimensionOrConstant, InferenceContext, ShapeFn


def _set_sized_image(c: InferenceContext, batch: Dimension, size_input: int, channels: Dimension) -> None:
    """[batch, height, width, channels]; an input gives height and width."""
    c.with_value(c.dim(c.with_rank(c.input(size_input), 1), 0), 2)
    value = c.input_tensor(size_input)
    size: list[DimensionOrConstant] = [None, None] if value is None else value.tolist()
    c.set_output(0, c.make_shape((batch, *size, channels)))


def adjust_contrast(c: InferenceContext) -> None:
    """Input 0, at least of rank 3; the factors are scalars."""
    for index in range(1, c.num_inputs):
        c.with_rank(c.input(index), 0)
    unchanged_volume_or_more(c)


def resize(c: InferenceContext) -> None:
    """Images of the size given by input 1."""
    shape = c.with_rank(c.input(0), 4)
    _set_sized_image(c, c.dim(shape, 0), 1, c.dim(shape, 3))


def second_input(c: InferenceContext) -> None:
    """Input 1."""
    c.set_output(0, c.input(1))


def project(c: InferenceContext) -> None:
    """Images of the size given by input 2."""
    shape = c.with_rank(c.input(0), 4)
    _set_sized_image(c, c.dim(shape, 0), 2, c.dim(shape, 3))


def crop_and_resize(c: InferenceContext) -> None:
    """A piece of the size given by input 3 for each box."""
    shape = c.with_rank(c.input(0), 4)
    boxes = c.with_rank(c.input(1), 2)
    box_ind = c.with_rank(c.input(2), 1)
    count = c.merge_dims(c.dim(boxes, 0), c.dim(box_ind, 0))
    c.with_value(c.dim(boxes, 1), 4)
    _set_sized_image(c, count, 3, c.dim(shape, 3))


def crop_and_resize_grad_image(c: InferenceContext) -> None:
    """The images given by input 3."""
    c.set_output(0, c.with_rank(c.make_shape_from_shape_tensor(3), 4))


def crop_and_resize_grad_boxes(c: InferenceContext) -> None:
    """The shape of the boxes, input 2."""
    c.set_output(0, c.input(2))


def extract_glimpse(c: InferenceContext) -> None:
    """A piece of the size given by input 1 for each offset, input 2."""
    noise = c.attr("noise")
    if noise not in (b"", b"uniform") and c.attr("uniform_noise"):
        raise errors.InvalidArgumentError("The uniform_noise should not be True when noise is not uniform")
    shape = c.with_rank(c.input(0), 4)
    offsets = c.with_rank(c.input(2), 2)
    batch = c.merge_dims(c.dim(shape, 0), c.dim(offsets, 0))
    c.with_value(c.dim(offsets, 1), 2)
    _set_sized_image(c, batch, 1, c.dim(shape, 3))


def _channels(c: InferenceContext) -> int | None:
    channels: int = c.attr("channels")
    if channels < 0:
        raise errors.InvalidArgumentError(f"channels must be non-negative, got {channels}")
    return channels or None


def decode(c: InferenceContext) -> None:
    """[height, width, channels] of an encoded image."""
    c.with_rank(c.input(0), 0)
    c.set_output(0, c.make_shape((None, None, _channels(c))))


def decode_any(c: InferenceContext) -> None:
    """Like `decode`, or of unknown rank, since it may be an animation."""
    c.with_rank(c.input(0), 0)
    channels = _channels(c)
    still = not c.attr("expand_animations")
    c.set_output(0, c.make_shape((None, None, channels)) if still else c.unknown_shape())


def decode_webp(c: InferenceContext) -> None:
    """[frames, height, width, channels]."""
    c.with_rank(c.input(0), 0)
    c.set_output(0, c.make_shape((None, None, None, _channels(c))))


def decode_gif(c: InferenceContext) -> None:
    """[frames, height, width, 3]."""
    c.with_rank(c.input(0), 0)
    c.set_output(0, c.make_shape((None, None, None, 3)))


def decode_and_crop_jpeg(c: InferenceContext) -> None:
    """[height, width, channels]; input 1 gives row, column, height, width."""
    c.with_rank(c.input(0), 0)
    channels = _channels(c)
    c.with_value(c.dim(c.with_rank(c.input(1), 1), 0), 4)
    window = c.input_tensor(1)
    size = (None, None) if window is None else tuple(window.tolist()[2:])
    c.set_output(0, c.make_shape((*size, channels)))


def encode(c: InferenceContext) -> None:
    """A string for each image."""
    shape = c.with_rank_at_least(c.input(0), 3)
    c.set_output(0, c.subshape(shape, 0, -3))


def encode_one(c: InferenceContext) -> None:
    """A string for an image."""
    c.with_rank(c.input(0), 3)
    c.set_output(0, c.scalar())


def extract_jpeg_shape(c: InferenceContext) -> None:
    """[height, width, channels] as a vector."""
    c.with_rank(c.input(0), 0)
    c.set_output(0, c.vector(3))


def convert_colors(c: InferenceContext) -> None:
    """Input 0, whose last dimension is 3."""
    shape = c.with_rank_at_least(c.input(0), 1)
    c.set_output(0, c.replace_dim(shape, -1, c.with_value(c.dim(shape, -1), 3)))


def sample_bounding_box(c: InferenceContext) -> None:
    """Begin, size, and the box; further inputs of some versions are a scalar and a seed."""
    size = c.with_rank(c.input(0), 1)
    boxes = c.with_rank(c.input(1), 3)
    if c.num_inputs > 2:
        c.with_rank(c.input(2), 0)
    if c.num_inputs > 3:
        c.with_value(c.dim(c.with_rank(c.input(3), 1), 0), 2)
    c.with_value(c.dim(size, 0), 3)
    c.with_value(c.dim(boxes, 2), 4)
    c.set_output(0, c.vector(3))
    c.set_output(1, c.vector(3))
    c.set_output(2, c.make_shape((1, 1, 4)))


def _suppress(c: InferenceContext, *scalars: int) -> None:
    boxes = c.with_rank(c.input(0), 2)
    scores = c.with_rank(c.input(1), 1)
    check_scalars(c, *scalars)
    c.merge_dims(c.dim(boxes, 0), c.dim(scores, 0))
    c.with_value(c.dim(boxes, 1), 4)


def _suppression(*scalars: int) -> ShapeFn:
    def shape_fn(c: InferenceContext) -> None:
        _suppress(c, *scalars)
        c.set_output(0, c.vector(None))

    return shape_fn


# Inputs: boxes, scores, and these scalars; output: the indices of boxes that are kept.
non_max_suppression = _suppression(2)
non_max_suppression_v2 = _suppression(2, 3)
non_max_suppression_v3 = _suppression(2, 3, 4)


def non_max_suppression_v4(c: InferenceContext) -> None:
    """Indices, padded on request, and the number of valid ones."""
    _suppress(c, 2, 3, 4)
    c.set_output(0, c.vector(c.make_dim_for_scalar_input(2) if c.attr("pad_to_max_output_size") else None))
    c.set_output(1, c.scalar())


def non_max_suppression_v5(c: InferenceContext) -> None:
    """Indices and scores, padded on request, and the number of valid ones."""
    _suppress(c, 2, 3, 4, 5)
    kept = c.vector(c.make_dim_for_scalar_input(2) if c.attr("pad_to_max_output_size") else None)
    c.set_output(0, kept)
    c.set_output(1, kept)
    c.set_output(2, c.scalar())


def non_max_suppression_with_overlaps(c: InferenceContext) -> None:
    """Indices; input 0 has the overlap of each pair of boxes."""
    overlaps = c.with_rank(c.input(0), 2)
    scores = c.with_rank(c.input(1), 1)
    check_scalars(c, 2, 3, 4)
    c.merge_dims(c.dim(overlaps, 0), c.dim(scores, 0))
    c.merge_dims(c.dim(overlaps, 0), c.dim(overlaps, 1))
    c.set_output(0, c.vector(None))


def combined_non_max_suppression(c: InferenceContext) -> None:
    """Boxes, scores, classes and number of valid ones, per image."""
    boxes = c.with_rank(c.input(0), 4)
    scores = c.with_rank(c.input(1), 3)
    check_scalars(c, 2, 3, 4, 5)
    c.merge_dims(c.dim(boxes, 0), c.dim(scores, 0))
    c.merge_dims(c.dim(boxes, 1), c.dim(scores, 1))
    c.with_value(c.dim(boxes, 3), 4)
    per_box, classes = c.dim(boxes, 2).value, c.dim(scores, 2).value
    if per_box is not None and classes is not None and per_box not in (1, classes):
        raise errors.InvalidArgumentError(
            "third dimension of boxes must be either 1 or equal to the third dimension of scores"
        )
    total = c.make_dim_for_scalar_input(3).value
    if total is not None and total <= 0:
        raise errors.InvalidArgumentError("max_total_size should be > 0 ")
    per_class = c.make_dim_for_scalar_input(2).value
    size = total
    if c.attr("pad_per_class"):
        if per_class is not None and per_class <= 0:
            raise errors.InvalidArgumentError("max_output_size_per_class must be > 0 if pad_per_class is set to true ")
        known = total is not None and per_class is not None and classes is not None
        size = min(total or 0, (per_class or 0) * (classes or 0)) if known else None
    batch = c.dim(boxes, 0)
    c.set_output(0, c.make_shape((batch, size, 4)))
    c.set_output(1, c.matrix(batch, size))
    c.set_output(2, c.matrix(batch, size))
    c.set_output(3, c.vector(batch))


def draw_bounding_boxes(c: InferenceContext) -> None:
    """Input 0, grey or coloured images; input 1 holds boxes for each."""
    images = c.with_rank(c.input(0), 4)
    if c.dim(images, 3).value not in (None, 1, 3, 4):
        raise errors.InvalidArgumentError("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)")
    c.with_value(c.dim(c.with_rank(c.input(1), 3), 2), 4)
    c.set_output(0, c.input(0))


def random_crop(c: InferenceContext) -> None:
    """[height, width, channels] as in input 0, height and width as the value of input 1."""
    image = c.with_rank(c.input(0), 3)
    c.merge(c.input(1), c.vector(2))
    size = c.input_tensor(1)
    height, width = (None, None) if size is None else size.tolist()
    for length in (height, width):
        if length is not None and length < -1:
            raise errors.InvalidArgumentError(f"Dimension {length} must be >= 0")
    c.set_output(0, c.make_shape((height, width, c.dim(image, 2))))
