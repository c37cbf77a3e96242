"""The less common functions of `tf.image`: colour spaces, edges, similarity, boxes, JPEG.

Next to read: `../functions/image.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_uniform
from aexec.compat.v1.functions.array_ops import cast, rank_of
from aexec.compat.v1.functions.image import convert_image_dtype, resize_images
from aexec.compat.v1.functions.math_ops import reduce_mean
from aexec.compat.v1.namespace import refuse
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "adjust_gamma",
    "adjust_jpeg_quality",
    "combined_non_max_suppression",
    "image_gradients",
    "is_jpeg",
    "non_max_suppression_overlaps",
    "non_max_suppression_padded",
    "non_max_suppression_with_scores",
    "psnr",
    "random_jpeg_quality",
    "resize_image_with_pad",
    "rgb_to_yiq",
    "rgb_to_yuv",
    "sobel_edges",
    "ssim",
    "ssim_multiscale",
    "yiq_to_rgb",
    "yuv_to_rgb",
]

_YIQ = np.array([[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]])
_FROM_YIQ = np.array([[1, 1, 1], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]])
_YUV = np.array([[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]])
_FROM_YUV = np.array([[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]])


def _colours(images: Any, matrix: Any) -> Tensor:
    """Multiply the colours in the last axis by a matrix."""
    value = convert_to_tensor(images)
    kernel = convert_to_tensor(matrix.astype(value.dtype.base.np))
    flat = ops.mat_mul(ops.reshape(value, [-1, 3]), kernel)
    return ops.reshape(flat, ops.shape(value))


def rgb_to_yiq(images: Any) -> Tensor:
    """`tf.image.rgb_to_yiq`."""
    return _colours(images, _YIQ)


def yiq_to_rgb(images: Any) -> Tensor:
    """`tf.image.yiq_to_rgb`."""
    return _colours(images, _FROM_YIQ)


def rgb_to_yuv(images: Any) -> Tensor:
    """`tf.image.rgb_to_yuv`."""
    return _colours(images, _YUV)


def yuv_to_rgb(images: Any) -> Tensor:
    """`tf.image.yuv_to_rgb`."""
    return _colours(images, _FROM_YUV)


def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Tensor:
    """`tf.image.adjust_gamma`: `gain * image ** gamma`, of numbers in [0, 1].  Raises ValueError if gamma < 0."""
    if isinstance(gamma, int | float) and gamma < 0:
        raise errors.InvalidValueError("Gamma should be a non-negative real number.")
    with name_scope("adjust_gamma"):
        value = convert_to_tensor(image)
        floats = value if value.dtype.is_floating else convert_image_dtype(value, dtypes.float32)
        return convert_image_dtype(
            gain * ops.pow(floats, convert_to_tensor(gamma, floats.dtype.base)), value.dtype.base, True
        )


def image_gradients(image: Any) -> tuple[Tensor, Tensor]:
    """`tf.image.image_gradients`: differences of images [batch, height, width, channels] downwards and to the right."""
    value = convert_to_tensor(image)
    if rank_of(value) != 4:
        raise errors.InvalidValueError(
            f"image_gradients expects a 4D tensor [batch_size, h, w, d], not {value.static_shape}."
        )
    down, right = value[:, 1:] - value[:, :-1], value[:, :, 1:] - value[:, :, :-1]
    return ops.pad(down, [[0, 0], [0, 1], [0, 0], [0, 0]]), ops.pad(right, [[0, 0], [0, 0], [0, 1], [0, 0]])


def sobel_edges(image: Any) -> Tensor:
    """`tf.image.sobel_edges`: [batch, height, width, channels, 2], edges downwards and to the right."""
    value = convert_to_tensor(image)
    channels = value.static_shape[3]
    if channels is None:
        raise errors.InvalidValueError(f"the number of channels of '{value.name}' must be known")
    down = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], np.float32)
    kernel = np.tile(np.stack([down, down.T], -1)[:, :, None], [1, 1, channels, 1])
    padded = ops.mirror_pad(value, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
    found = nn.depthwise_conv2d(padded, convert_to_tensor(kernel), [1, 1, 1, 1], "VALID")
    return ops.reshape(found, ops.concat_v2([ops.shape(value), [2]], 0))


# Likeness


def _as_floats(image: Any, max_val: Any) -> tuple[Tensor, Tensor]:
    value = convert_to_tensor(image)
    most = cast(convert_to_tensor(max_val), value.dtype.base)
    return convert_image_dtype(value, dtypes.float32), convert_image_dtype(most, dtypes.float32)


def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Tensor:
    """`tf.image.psnr`: peak signal-to-noise ratios of images, in decibels."""
    with name_scope(name or "PSNR"):
        (first, most), (second, _) = _as_floats(a, max_val), _as_floats(b, max_val)
        error = reduce_mean(ops.squared_difference(first, second), [-3, -2, -1])
        return 20.0 * ops.log(most) / float(np.log(10.0)) - float(10 / np.log(10)) * ops.log(error)


def _window(size: int, sigma: float) -> Any:
    away = (np.arange(size) - (size - 1) / 2.0) ** 2 * (-0.5 / sigma**2)
    both = away[:, None] + away[None, :]
    weights = np.exp(both - both.max())
    return (weights / weights.sum()).astype(np.float32)[:, :, None, None]


def _ssim_per_channel(a: Tensor, b: Tensor, most: Tensor, size: int, sigma: float, k1: float, k2: float) -> Any:
    """The SSIM index of each window and channel, and its contrast-structure factor."""
    channels = a.static_shape[-1]
    if channels is None:
        raise errors.InvalidValueError(f"the number of channels of '{a.name}' must be known")
    kernel = convert_to_tensor(np.tile(_window(size, sigma), [1, 1, channels, 1]))
    outer = ops.shape(a)[:-3]

    def mean(x: Tensor) -> Tensor:
        flat = ops.reshape(x, ops.concat_v2([[-1], ops.shape(x)[-3:]], 0))
        found = nn.depthwise_conv2d(flat, kernel, [1, 1, 1, 1], "VALID")
        return ops.reshape(found, ops.concat_v2([outer, ops.shape(found)[1:]], 0))

    c1, c2 = ops.square(k1 * most), ops.square(k2 * most)
    mean_a, mean_b = mean(a), mean(b)
    product = mean_a * mean_b * 2.0
    squares = ops.square(mean_a) + ops.square(mean_b)
    luminance = (product + c1) / (squares + c1)
    contrast = (mean(a * b) * 2.0 - product + c2) / (mean(ops.square(a) + ops.square(b)) - squares + c2)
    return luminance * contrast, contrast


def ssim(
    img1: Any,
    img2: Any,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    return_index_map: bool = False,
) -> Tensor:
    """`tf.image.ssim`: the structural similarity index per image, or per window with `return_index_map`."""
    with name_scope("SSIM"):
        (a, most), (b, _) = _as_floats(img1, max_val), _as_floats(img2, max_val)
        both, _ = _ssim_per_channel(a, b, most, filter_size, filter_sigma, k1, k2)
        return reduce_mean(both, [-1]) if return_index_map else reduce_mean(both, [-3, -2, -1])


def ssim_multiscale(
    img1: Any,
    img2: Any,
    max_val: Any,
    power_factors: Any = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333),
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Tensor:
    """`tf.image.ssim_multiscale`: of images [batch, height, width, channels], each scale half as large as the last."""
    with name_scope("MS-SSIM"):
        (a, most), (b, _) = _as_floats(img1, max_val), _as_floats(img2, max_val)
        parts = []
        for scale in range(len(power_factors)):
            if scale:
                a, b = _halved(a), _halved(b)
            both, contrast = _ssim_per_channel(a, b, most, filter_size, filter_sigma, k1, k2)
            last = scale == len(power_factors) - 1
            parts.append(ops.relu(reduce_mean(both if last else contrast, [-3, -2])))
        powers = convert_to_tensor(np.array(power_factors, np.float32))
        return reduce_mean(ops.prod(ops.pow(ops.pack(parts, axis=-1), powers), [-1]), [-1])


def _halved(images: Tensor) -> Tensor:
    """Average pooling of 2×2 pixels; an odd size is first padded by repeating the last row or column."""
    sizes = images.static_shape[1:3]
    if None in sizes:
        raise errors.InvalidValueError(f"the size of '{images.name}' must be known")
    if any(size % 2 for size in sizes if size is not None):
        ends = [[0, 0], *([0, size % 2] for size in sizes if size is not None), [0, 0]]
        images = ops.mirror_pad(images, ends, "SYMMETRIC")
    return ops.avg_pool(images, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")


# Sizes and boxes


def resize_image_with_pad(
    image: Any, target_height: int, target_width: int, method: int = 0, align_corners: bool = False
) -> Tensor:
    """`tf.image.resize_image_with_pad`: keeps the aspect ratio, and fills the rest with zeros."""
    with name_scope("resize_image_with_pad"):
        value = convert_to_tensor(image)
        alone = rank_of(value) == 3
        batch = ops.expand_dims(value, 0) if alone else value
        sizes = ops.cast(ops.shape(batch)[1:3], DstT=dtypes.float32)
        wanted = convert_to_tensor(np.array([target_height, target_width], np.float32))
        ratio = ops.max(sizes / wanted, [0])
        inner = ops.cast(ops.floor(sizes / ratio), DstT=dtypes.int32)
        room = ops.cast(ops.floor((wanted - sizes / ratio) / 2.0), DstT=dtypes.int32)
        offset = ops.maximum(room, 0)
        resized = resize_images(batch, inner, method, align_corners)
        rest = ops.pack([target_height, target_width]) - ops.shape(resized)[1:3] - offset
        ends = ops.pack([ops.concat_v2([[0], part, [0]], 0) for part in (offset, rest)], axis=1)
        padded = ops.pad(resized, ends)
        shape = [*list(batch.static_shape)[:1], target_height, target_width, *list(batch.static_shape)[3:]]
        padded = ops.ensure_shape(padded, shape=shape)
        return ops.squeeze(padded, squeeze_dims=[0]) if alone else padded


_LOWEST = float("-inf")


def non_max_suppression_overlaps(
    overlaps: Any,
    scores: Any,
    max_output_size: Any,
    overlap_threshold: float = 0.5,
    score_threshold: float = _LOWEST,
    name: str | None = None,
) -> Tensor:
    """`tf.image.non_max_suppression_overlaps`: given how much each two boxes overlap."""
    return ops.non_max_suppression_with_overlaps(
        overlaps, scores, max_output_size, overlap_threshold, score_threshold, name=name
    )


def non_max_suppression_padded(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: float = 0.5,
    score_threshold: float = _LOWEST,
    pad_to_max_output_size: bool = False,
    name: str | None = None,
    sorted_input: bool = False,
    canonicalized_coordinates: bool = False,
    tile_size: int = 512,
) -> tuple[Tensor, Tensor]:
    """`tf.image.non_max_suppression_padded`: indices of boxes, and how many are valid."""
    refuse("non_max_suppression_padded", sorted_input=sorted_input, canonicalized_coordinates=canonicalized_coordinates)
    return ops.non_max_suppression_v4(
        boxes,
        scores,
        max_output_size,
        iou_threshold,
        score_threshold,
        pad_to_max_output_size=pad_to_max_output_size,
        name=name,
    )


def non_max_suppression_with_scores(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: float = 0.5,
    score_threshold: float = _LOWEST,
    soft_nms_sigma: float = 0.0,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`tf.image.non_max_suppression_with_scores`: indices of boxes, and scores, which overlaps may lower."""
    found = ops.non_max_suppression_v5(
        boxes,
        scores,
        max_output_size,
        iou_threshold,
        score_threshold,
        soft_nms_sigma,
        pad_to_max_output_size=False,
        name=name,
    )
    return found[0], found[1]


def combined_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size_per_class: Any,
    max_total_size: Any,
    iou_threshold: float = 0.5,
    score_threshold: float = _LOWEST,
    pad_per_class: bool = False,
    clip_boxes: bool = True,
    name: str | None = None,
) -> Any:
    """`tf.image.combined_non_max_suppression`: of a batch of images, over all classes."""
    return ops.combined_non_max_suppression(
        boxes,
        scores,
        max_output_size_per_class,
        max_total_size,
        iou_threshold,
        score_threshold,
        pad_per_class=pad_per_class,
        clip_boxes=clip_boxes,
        name=name,
    )


# JPEG


def is_jpeg(contents: Any, name: str | None = None) -> Tensor:
    """`tf.image.is_jpeg`: whether a file begins as JPEG files do."""
    with name_scope(name or "is_jpeg"):
        return ops.equal(ops.substr(contents, 0, 3), np.array(b"\xff\xd8\xff", object))


def adjust_jpeg_quality(image: Any, jpeg_quality: Any, dct_method: str = "", name: str | None = None) -> Tensor:
    """`tf.image.adjust_jpeg_quality`: encode an image as JPEG of a quality in [0, 100], and decode it."""
    with name_scope(name or "adjust_jpeg_quality"):
        value = convert_to_tensor(image)
        channels = value.static_shape[2]
        bytes_ = convert_image_dtype(value, dtypes.uint8, saturate=True)
        coded = ops.encode_jpeg_variable_quality(bytes_, convert_to_tensor(jpeg_quality, dtypes.int32))
        decoded = ops.decode_jpeg(coded, channels=channels, dct_method=dct_method)
        return convert_image_dtype(decoded, value.dtype.base, saturate=True)


def random_jpeg_quality(image: Any, min_jpeg_quality: int, max_jpeg_quality: int, seed: int | None = None) -> Tensor:
    """`tf.image.random_jpeg_quality`: `adjust_jpeg_quality` with a random quality in [min, max)."""
    if not 0 <= min_jpeg_quality < max_jpeg_quality <= 100:
        raise errors.InvalidValueError(
            "`min_jpeg_quality` must be less than `max_jpeg_quality`, both between 0 and 100."
        )
    quality = random_uniform([], min_jpeg_quality, max_jpeg_quality, seed=seed, dtype=dtypes.int32)
    return adjust_jpeg_quality(image, quality)
