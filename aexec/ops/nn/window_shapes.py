"""Shape functions of windowed ops: convolutions, pooling, batch normalisation.

A data format is written as its letters, spatial dimensions as the digits 0, 1, 2:
`N01C` is NHWC, `NC012` is NCDHW, and `NC01c` is NCHW_VECT_C with its inner channels.
Source of the rules: core/framework/common_shape_fns.cc and core/ops/nn_ops.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import Dimension, DimensionOrConstant, InferenceContext, Shape

__all__ = [
    "avg_pool",
    "conv",
    "conv_2d",
    "conv_2d_backprop_input",
    "conv_3d",
    "data_format",
    "depthwise_conv_2d",
    "dims_of_format",
    "fused_batch_norm",
    "fused_batch_norm_ex",
    "fused_batch_norm_grad",
    "fused_pad_conv_2d",
    "fused_resize_and_pad_conv_2d",
    "max_pool",
    "max_pool_v2",
    "pool_3d",
    "shape_of_format",
    "windowed_int",
    "windowed_size",
]

_FORMATS = {
    "NHWC": "N01C",
    "NDHWC": "N012C",
    "NCHW": "NC01",
    "NCDHW": "NC012",
    "NCHW_VECT_C": "NC01c",
    "NHWC_VECT_W": "N01Cw",
    "HWNC": "01NC",
    "HWCN": "01CN",
}
_FILTER_FORMATS = {"HWIO": "01IO", "OIHW": "OI01", "OIHW_VECT_I": "OI01i"}


def data_format(c: InferenceContext, default: str = "NHWC") -> str:
    """The letters of attr `data_format`.  Raises InvalidArgumentError if there is no such format."""
    name = c.text("data_format") if "data_format" in c.attrs else default
    try:
        return _FORMATS[name]
    except KeyError:
        raise errors.InvalidArgumentError(f"Invalid data format string: {name}") from None


def dims_of_format(c: InferenceContext, shape: Shape, letters: str) -> dict[str, Dimension]:
    """The dimensions of a shape of known rank by letter."""
    return {letter: c.dim(shape, index) for index, letter in enumerate(letters)}


def shape_of_format(c: InferenceContext, letters: str, dims: Mapping[str, DimensionOrConstant]) -> Shape:
    """The shape whose dimensions are given by letter; inner channels are 4."""
    return c.make_shape([4 if letter in "cw" else dims[letter] for letter in letters])


def windowed_size(
    c: InferenceContext,
    size: Dimension,
    window: DimensionOrConstant,
    stride: int,
    padding: str,
    dilation: int = 1,
    explicit: tuple[int, int] = (-1, -1),
) -> Dimension:
    """Return how many windows fit into a dimension.

    Args:
        size: size of the input.
        window: size of the window, or filter.
        padding: `VALID`, `SAME` or `EXPLICIT`; the latter adds `explicit` before and after.
        dilation: distance between neighbours in the window.

    Raises:
        InvalidArgumentError: a stride or dilation below 1, or a window larger than the input.
    """
    if stride <= 0:
        raise errors.InvalidArgumentError(f"Stride must be > 0, but got {stride}")
    if dilation < 1:
        raise errors.InvalidArgumentError(f"Dilation rate must be >= 1, but got {dilation}")
    if padding == "SAME":
        return c.divide(c.add(size, stride - 1), stride, evenly=False)
    if padding == "EXPLICIT":
        size = c.add(size, sum(explicit))
    if dilation > 1:
        window = c.add(c.multiply(c.subtract(c.make_dim(window), 1), dilation), 1)
    return c.divide(c.add(c.subtract(size, window), stride), stride, evenly=False)


def windowed_int(size: int, window: int, stride: int, padding: str, dilation: int = 1) -> int:
    """Like `windowed_size`, for a size that is known; here a window may be too large by less than a stride."""
    if stride <= 0:
        raise errors.InvalidArgumentError(f"Stride must be > 0, but got {stride}")
    effective = (window - 1) * dilation + 1
    result = -(-size // stride) if padding == "SAME" else int((size - effective + stride) / stride)
    if result < 0:
        raise errors.InvalidArgumentError(
            f"Computed output size would be negative: {result} [input_size: {size}, "
            f"effective_filter_size: {effective}, stride: {stride}]"
        )
    return result


def _four_values(c: InferenceContext, attr: str, op: str, letters: str, name: str | None = None) -> dict[str, int]:
    """A list attr with a value per dimension, by letter.  Inner channels have none."""
    values = c.attr(attr)
    outer = letters.rstrip("cw")
    if len(values) != len(outer):
        raise errors.InvalidArgumentError(
            f"{op} requires the {name or attr} attribute to contain {len(outer)} values, but got: {len(values)}"
        )
    return dict(zip(outer, values, strict=True))


def _check_inner_channels(c: InferenceContext, shape: Shape, letters: str) -> None:
    if letters.endswith("c"):
        c.with_value(c.dim(shape, -1), 4)


def _channels(c: InferenceContext, dims: Mapping[str, Dimension]) -> Dimension:
    return c.multiply(dims["C"], dims["c"]) if "c" in dims else dims["C"]


def _check_depths(depth: Dimension, filter_depth: Dimension, out_depth: Dimension) -> None:
    """Input channels must be a multiple of the filter's: the factor is the number of groups."""
    if depth.value is None or filter_depth.value is None:
        return
    if filter_depth.value == 0:
        raise errors.InvalidArgumentError("Depth of filter must not be 0")
    if depth.value % filter_depth.value:
        raise errors.InvalidArgumentError(
            f"Depth of input ({depth.value}) is not a multiple of input depth of filter ({filter_depth.value})"
        )
    groups = depth.value // filter_depth.value
    if groups > 1 and out_depth.value is not None and out_depth.value % groups:
        raise errors.InvalidArgumentError(
            f"Depth of output ({out_depth.value}) is not a multiple of the number of groups ({groups})"
        )


def _check_padding(padding: str, explicit: Sequence[int], letters: str) -> None:
    """TensorFlow's rules for `explicit_paddings`: two numbers per dimension, none for batch and channels."""
    if padding != "EXPLICIT":
        if explicit:
            raise errors.InvalidArgumentError(
                "explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"
            )
        return
    outer = letters.rstrip("cw")
    if len(explicit) != 2 * len(outer):
        raise errors.InvalidArgumentError(
            f"explicit_paddings attribute must contain {2 * len(outer)} values, but got: {len(explicit)}"
        )
    if min(explicit) < 0:
        raise errors.InvalidArgumentError("All elements of explicit_paddings must be nonnegative")
    if any(explicit[2 * outer.index(letter) + i] for letter in "NC" for i in (0, 1)):
        raise errors.InvalidArgumentError("Nonzero explicit padding in the batch or depth dimensions is not supported")


def _explicit(explicit: Sequence[int], letters: str, letter: str) -> tuple[int, int]:
    if not explicit:
        return (-1, -1)
    start = 2 * letters.index(letter)
    return (explicit[start], explicit[start + 1])


def conv_2d(c: InferenceContext) -> None:
    """Conv2D and its fused forms: inputs image and filter."""
    letters = data_format(c)
    filter_name = c.text("filter_format") if "filter_format" in c.attrs else "HWIO"
    filter_letters = _FILTER_FORMATS[filter_name]
    shape = c.with_rank(c.input(0), len(letters))
    _check_inner_channels(c, shape, letters)
    filter_shape = c.with_rank(c.input(1), len(letters))
    _check_inner_channels(c, filter_shape, letters)
    dilations = _four_values(c, "dilations", "Conv2D", letters, "dilation")
    strides = _four_values(c, "strides", f"Conv2D on data format {_format_name(c)}", letters, "stride")
    dims = dims_of_format(c, shape, letters)
    weights = dims_of_format(c, filter_shape, filter_letters)
    filter_depth = c.multiply(weights["I"], weights["i"]) if "i" in weights else weights["I"]
    _check_depths(_channels(c, dims), filter_depth, weights["O"])
    padding = c.text("padding")
    explicit = c.attrs.get("explicit_paddings") or []
    _check_padding(padding, explicit, letters)
    out: dict[str, DimensionOrConstant] = {"N": dims["N"]}
    for letter in "01":
        out[letter] = windowed_size(
            c,
            dims[letter],
            weights[letter],
            strides[letter],
            padding,
            dilations[letter],
            _explicit(explicit, letters, letter),
        )
    out["C"] = c.divide(weights["O"], 4, evenly=True) if "c" in dims else weights["O"]
    c.set_output(0, shape_of_format(c, letters, out))


def _format_name(c: InferenceContext) -> str:
    return c.text("data_format") if "data_format" in c.attrs else "NHWC"


def conv_3d(c: InferenceContext) -> None:
    """Conv3D: inputs image and filter, of rank 5."""
    shape = c.with_rank(c.input(0), 5)
    filter_shape = c.with_rank(c.input(1), 5)
    letters = "NC012" if c.attrs.get("data_format") == b"NCDHW" else "N012C"
    dilations = _four_values(c, "dilations", "Conv3D", letters, "dilation")
    strides = _four_values(c, "strides", "Conv3D", letters, "stride")
    dims = dims_of_format(c, shape, letters)
    weights = dims_of_format(c, filter_shape, "012IO")
    _check_depths(dims["C"], weights["I"], weights["O"])
    padding = c.text("padding")
    out: dict[str, DimensionOrConstant] = {"N": dims["N"], "C": weights["O"]}
    for letter in "012":
        out[letter] = windowed_size(c, dims[letter], weights[letter], strides[letter], padding, dilations[letter])
    c.set_output(0, shape_of_format(c, letters, out))


def conv(c: InferenceContext) -> None:
    """Conv: 2 or 3 spatial dimensions, `batch_dims` batch dimensions, channels first or last."""
    spatial = "012" if c.input(1).rank == 5 else "01"
    if c.input(0).dims is None or c.input(1).dims is None:
        c.set_output(0, c.unknown_shape())
        return
    batch = c.attrs.get("batch_dims", 1)
    shape, filter_shape = c.input(0), c.with_rank(c.input(1), len(spatial) + 2)
    shape = c.with_rank(shape, batch + len(spatial) + 1)
    letters = f"C{spatial}" if c.attrs.get("data_format") == b"CHANNELS_FIRST" else f"{spatial}C"
    dims = dims_of_format(c, c.subshape(shape, batch), letters)
    weights = dims_of_format(c, filter_shape, f"{spatial}IO")
    _check_depths(dims["C"], weights["I"], weights["O"])
    full = "N" + letters
    strides = dict(zip(full, c.attr("strides"), strict=False))
    dilations = dict(zip(full, c.attr("dilations") or [1] * len(full), strict=False))
    padding = c.text("padding")
    explicit = c.attrs.get("explicit_paddings") or []
    out: dict[str, DimensionOrConstant] = {"C": weights["O"]}
    for letter in spatial:
        before_after = _explicit(explicit, full, letter)
        out[letter] = windowed_size(
            c, dims[letter], weights[letter], strides.get(letter, 1), padding, dilations.get(letter, 1), before_after
        )
    c.set_output(0, c.concatenate(c.subshape(shape, 0, batch), shape_of_format(c, letters, out)))


def depthwise_conv_2d(c: InferenceContext) -> None:
    """DepthwiseConv2dNative: each input channel has `depth_multiplier` filters of its own."""
    shape = c.with_rank(c.input(0), 4)
    filter_shape = c.with_rank(c.input(1), 4)
    letters = "NC01" if c.attrs.get("data_format") == b"NCHW" else "N01C"
    strides = _four_values(c, "strides", "DepthwiseConv2D", letters, "stride")
    dilations = _four_values(c, "dilations", "DepthwiseConv2D", letters)
    dims = dims_of_format(c, shape, letters)
    weights = dims_of_format(c, filter_shape, "01IM")
    depth = c.multiply(c.merge_dims(dims["C"], weights["I"]), weights["M"])
    padding = c.text("padding")
    explicit = c.attrs.get("explicit_paddings") or []
    _check_padding(padding, explicit, letters)
    out: dict[str, DimensionOrConstant] = {"N": dims["N"], "C": depth}
    for letter in "01":
        out[letter] = windowed_size(
            c,
            dims[letter],
            weights[letter],
            strides[letter],
            padding,
            dilations[letter],
            _explicit(explicit, letters, letter),
        )
    c.set_output(0, shape_of_format(c, letters, out))


def fused_pad_conv_2d(c: InferenceContext) -> None:
    """FusedPadConv2D: inputs image, paddings and filter."""
    _padded_conv(c, c.with_rank(c.input(0), 4), 1)


def fused_resize_and_pad_conv_2d(c: InferenceContext) -> None:
    """FusedResizeAndPadConv2D: inputs image, its new height and width, paddings and filter."""
    shape = c.with_rank(c.input(0), 4)
    c.with_rank(c.input(1), 1)
    size = c.input_tensor(1)
    height, width = (None, None) if size is None else size.reshape(-1).tolist()[:2]
    shape = c.replace_dim(c.replace_dim(shape, 1, c.make_dim(height)), 2, c.make_dim(width))
    _padded_conv(c, shape, 2)


def _padded_conv(c: InferenceContext, shape: Shape, first: int) -> None:
    """The convolution of an image with padding; input `first` are the paddings, the next one is the filter."""
    c.merge(c.with_rank(c.input(first), 2), c.matrix(4, 2))
    paddings = c.input_tensor(first)
    if paddings is None:
        shape = c.unknown_shape_of_rank(4)
    else:
        if paddings.min() < 0:
            raise errors.InvalidArgumentError("Paddings must be non-negative")
        added = paddings.sum(axis=1).tolist()
        shape = c.make_shape([c.add(c.dim(shape, i), more) for i, more in enumerate(added)])
    filter_shape = c.with_rank(c.input(first + 1), 4)
    strides = c.attr("strides")
    if len(strides) != 4:
        raise errors.InvalidArgumentError(
            f"Operation requires the stride attribute to contain 4 values, but got: {len(strides)}"
        )
    c.merge_dims(c.dim(shape, 3), c.dim(filter_shape, 2))
    padding = c.text("padding")
    rows, cols = (windowed_size(c, c.dim(shape, i), c.dim(filter_shape, i - 1), strides[i], padding) for i in (1, 2))
    c.set_output(0, c.make_shape([c.dim(shape, 0), rows, cols, c.dim(filter_shape, 3)]))


def conv_2d_backprop_input(c: InferenceContext) -> None:
    """The image given by input 0; inputs sizes, filter, gradient."""
    letters = data_format(c)
    grad = dims_of_format(c, c.with_rank(c.input(2), 4), letters)
    filter_shape = c.with_rank(c.input(1), 4)
    c.merge_dims(grad["C"], c.dim(filter_shape, 3))
    sizes = c.make_shape_from_shape_tensor(0)
    if sizes.dims is None:
        sizes = c.with_rank(sizes, 4)
    rank = sizes.rank
    if rank == 4:
        dims = dims_of_format(c, sizes, letters)
        c.merge_dims(dims["N"], grad["N"])
    elif rank == 2:
        dims = {"0": c.dim(sizes, 0), "1": c.dim(sizes, 1), "C": c.dim(filter_shape, 2)}
    else:
        raise errors.InvalidArgumentError(
            f"Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: {rank}"
        )
    c.set_output(0, shape_of_format(c, letters, {**dims, "N": grad["N"]}))


def _pool(
    c: InferenceContext, name: str, ksize: Sequence[int], strides: Sequence[int], letters: str, pooled: str
) -> None:
    shape = c.with_rank(c.input(0), len(letters))
    _check_inner_channels(c, shape, letters)
    outer = letters.rstrip("cw")
    for values, what in ((strides, "stride"), (ksize, "ksize")):
        if len(values) != len(outer):
            raise errors.InvalidArgumentError(
                f"{name} requires the {what} attribute to contain {len(outer)} values, but got: {len(values)}"
            )
    dims = dims_of_format(c, shape, letters)
    padding = c.text("padding")
    explicit = c.attrs.get("explicit_paddings") or []
    _check_padding(padding, explicit, letters)
    out: dict[str, DimensionOrConstant] = dict(dims)
    for letter in pooled:
        place = outer.index(letter)
        before_after = (0, 0) if letter == "C" else _explicit(explicit, letters, letter)
        out[letter] = windowed_size(c, dims[letter], ksize[place], strides[place], padding, explicit=before_after)
    c.set_output(0, shape_of_format(c, letters, out))


def avg_pool(c: InferenceContext) -> None:
    """AvgPool over rows and columns."""
    _pool(c, "AvgPool", c.attr("ksize"), c.attr("strides"), data_format(c), "01")


def max_pool(c: InferenceContext) -> None:
    """MaxPool over rows, columns and channels."""
    _pool(c, "MaxPool", c.attr("ksize"), c.attr("strides"), data_format(c), "01C")


def max_pool_v2(c: InferenceContext) -> None:
    """MaxPool whose window and strides are the last two inputs."""
    letters = data_format(c)
    c.with_rank(c.input(0), len(letters))
    for index in (c.num_inputs - 2, c.num_inputs - 1):
        c.with_value(c.dim(c.with_rank(c.input(index), 1), 0), 4)
    ksize = c.input_tensor(c.num_inputs - 2)
    if ksize is None:
        c.set_output(0, c.unknown_shape())
        return
    strides = c.input_tensor(c.num_inputs - 1)
    if strides is None:
        c.set_output(0, c.unknown_shape())
        return
    _pool(c, "MaxPool", ksize.reshape(-1).tolist(), strides.reshape(-1).tolist(), letters, "01C")


def pool_3d(c: InferenceContext) -> None:
    """AvgPool3D and MaxPool3D."""
    shape = c.with_rank(c.input(0), 5)
    letters = "NC012" if c.attrs.get("data_format") == b"NCDHW" else "N012C"
    strides = c.attr("strides")
    if len(strides) != 5:
        raise errors.InvalidArgumentError(
            f"Pool3D ops require the stride attribute to contain 5 values, but got: {len(strides)}"
        )
    ksize = _four_values(c, "ksize", "Pool3D", letters)
    steps = dict(zip(letters, strides, strict=True))
    dims = dims_of_format(c, shape, letters)
    padding = c.text("padding")
    out: dict[str, DimensionOrConstant] = dict(dims)
    for letter in "012":
        out[letter] = windowed_size(c, dims[letter], ksize[letter], steps[letter], padding)
    c.set_output(0, shape_of_format(c, letters, out))


def fused_batch_norm(c: InferenceContext) -> None:
    """Image, and vectors as long as it has channels; inputs image, scale, offset, mean, variance."""
    letters = data_format(c)
    shape = c.with_rank(c.input(0), len(letters))
    training = c.attr("is_training") and c.attrs.get("exponential_avg_factor", 1.0) == 1.0
    place = letters.index("C")
    channels = c.dim(shape, place)
    for index in range(1, 3 if training else 5):
        channels = c.merge_dims(channels, c.dim(c.with_rank(c.input(index), 1), 0))
    c.set_output(0, c.replace_dim(shape, place, channels))
    for index in range(1, 5):
        c.set_output(index, c.vector(channels))
    for index in range(5, c.num_outputs):
        c.set_output(index, c.unknown_shape())


def fused_batch_norm_ex(c: InferenceContext) -> None:
    """Like `fused_batch_norm`; channels come in fours."""
    fused_batch_norm(c)
    channels = c.dim(c.output(0), data_format(c).index("C"))
    if channels.value is not None and channels.value % 4:
        raise errors.InvalidArgumentError("_FusedBatchNormEx channel dimension must be divisible by 4.")


def fused_batch_norm_grad(c: InferenceContext) -> None:
    """Gradients of image, scale and offset; inputs gradient, image, scale and two reserves."""
    letters = data_format(c)
    grad = c.with_rank(c.input(0), len(letters))
    image = c.with_rank(c.input(1), len(letters))
    place = letters.index("C")
    channels = c.merge_dims(c.dim(grad, place), c.dim(image, place))
    for index in range(2, 5):
        channels = c.merge_dims(channels, c.dim(c.with_rank(c.input(index), 1), 0))
    c.set_output(0, c.replace_dim(grad, place, channels))
    c.set_output(1, c.vector(channels))
    c.set_output(2, c.vector(channels))
    c.set_output(3, c.vector(0))
    c.set_output(4, c.vector(0))
