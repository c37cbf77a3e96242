"""`tf.image`: images with TensorFlow's arguments, over `aexec.ops`.

Next to read: `aexec/kernels/image/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.client.random_ops import random_uniform
from aexec.client.random_seed import get_seed
from aexec.compat.v1.functions.array_ops import cast, rank_of
from aexec.compat.v1.functions.math_ops import reduce_mean, reduce_std
from aexec.compat.v1.namespace import chosen, namespace
from aexec.framework import errors
from aexec.framework.dtypes import as_dtype, float32
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "ResizeMethod",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "central_crop",
    "convert_image_dtype",
    "crop_to_bounding_box",
    "extract_image_patches",
    "flip_left_right",
    "flip_up_down",
    "grayscale_to_rgb",
    "non_max_suppression",
    "pad_to_bounding_box",
    "per_image_standardization",
    "random_brightness",
    "random_contrast",
    "random_flip_left_right",
    "random_flip_up_down",
    "random_hue",
    "random_saturation",
    "resize_image_with_crop_or_pad",
    "resize_images",
    "rgb_to_grayscale",
    "rot90",
    "sample_distorted_bounding_box",
    "total_variation",
    "transpose_image",
]


class ResizeMethod:
    """`tf.image.ResizeMethod`."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


_RESIZE: dict[int, Callable[..., Tensor]] = {
    0: ops.resize_bilinear,
    1: ops.resize_nearest_neighbor,
    2: ops.resize_bicubic,
    3: ops.resize_area,
}


def resize_images(
    images: Any,
    size: Any,
    method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Tensor:
    """`tf.image.resize_images`: of one image, or of several."""
    if preserve_aspect_ratio:
        raise errors.UnsupportedError("resize_images: preserve_aspect_ratio is not supported")
    with name_scope(name or "resize"):
        several, alone = _batch(images)
        found = _RESIZE[method](several, convert_to_tensor(size), align_corners=align_corners)
        return ops.squeeze(found, squeeze_dims=[0]) if alone else found


def _batch(images: Any) -> tuple[Tensor, bool]:
    x = convert_to_tensor(images)
    alone = rank_of(x) == 3
    return (ops.expand_dims(x, 0) if alone else x), alone


def _flip(name: str, axis: int) -> Callable[..., Tensor]:
    def flip(image: Any) -> Tensor:
        x = convert_to_tensor(image)
        return ops.reverse_v2(x, [rank_of(x) - 3 + axis])

    flip.__name__ = flip.__qualname__ = name
    flip.__doc__ = f"`tf.image.{name}`: of one image, or of several."
    return flip


flip_up_down = _flip("flip_up_down", 0)
flip_left_right = _flip("flip_left_right", 1)


def _random_flip(name: str, axis: int) -> Callable[..., Tensor]:
    def flip(image: Any, seed: int | None = None) -> Tensor:
        with name_scope(name):
            x = convert_to_tensor(image)
            if rank_of(x) == 3:
                chance = random_uniform([], 0, 1.0, seed=seed)
                turned = ops.reverse_v2(x, [axis])
                return ops.select_v2(ops.less(chance, 0.5), turned, x)
            count = ops.shape(x)[0]
            flips = cast(ops.round(random_uniform(ops.pack([count]), 0, 1.0, seed=seed)), x.dtype)
            flips = ops.reshape(flips, ops.pack([count, 1, 1, 1]))
            return flips * ops.reverse_v2(x, [axis + 1]) + (1 - flips) * x

    flip.__name__ = flip.__qualname__ = name
    flip.__doc__ = f"`tf.image.{name}`: each image with even chances."
    return flip


random_flip_up_down = _random_flip("random_flip_up_down", 0)
random_flip_left_right = _random_flip("random_flip_left_right", 1)


def transpose_image(image: Any, name: str | None = None) -> Tensor:
    """`tf.image.transpose_image`."""
    x = convert_to_tensor(image)
    return ops.transpose(x, [1, 0, 2] if rank_of(x) == 3 else [0, 2, 1, 3], name=name)


def per_image_standardization(image: Any) -> Tensor:
    """`tf.image.per_image_standardization`: mean 0 and deviation 1."""
    with name_scope("per_image_standardization"):
        x = cast(image, float32)
        axes = [axis - 3 + rank_of(x) for axis in range(3)]
        pixels = cast(ops.prod(ops.shape(x)[-3:], [0]), float32)
        mean = reduce_mean(x, axes, keepdims=True)
        found: Tensor = (x - mean) / ops.maximum(reduce_std(x, axes, keepdims=True), ops.rsqrt(pixels))
        return found


def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> Tensor:
    """`tf.image.convert_image_dtype`: maps the whole range of one type to that of the other; floats have [0, 1]."""
    with name_scope(name or "convert_image"):
        x, wanted = convert_to_tensor(image), as_dtype(dtype)
        given = x.dtype.base
        if given is wanted:
            return x
        if given.is_floating and wanted.is_floating:
            return cast(x, wanted)
        if given.is_integer and wanted.is_floating:
            unit: Tensor = cast(x, wanted) * (1.0 / given.max)
            return unit
        if given.is_floating:
            scaled: Tensor = x * (wanted.max + 0.5)
            if saturate:
                scaled = ops.minimum(ops.maximum(scaled, float(wanted.min)), float(wanted.max))
            return cast(scaled, wanted)
        raise errors.UnsupportedError(f"convert_image_dtype: from {given} to {wanted}; go over float32")


def _as_floats(image: Any, change: Callable[[Tensor], Tensor], saturate: bool = True) -> Tensor:
    x = convert_to_tensor(image)
    found = change(x if x.dtype.is_floating else convert_image_dtype(x, float32))
    return convert_image_dtype(found, x.dtype.base, saturate=saturate)


def adjust_brightness(image: Any, delta: Any) -> Tensor:
    """`tf.image.adjust_brightness`."""
    with name_scope("adjust_brightness"):
        return _as_floats(image, lambda x: x + cast(delta, x.dtype))


def adjust_contrast(images: Any, contrast_factor: Any) -> Tensor:
    """`tf.image.adjust_contrast`."""
    with name_scope("adjust_contrast"):
        return _as_floats(images, lambda x: ops.adjust_contrastv2(x, contrast_factor))


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`tf.image.random_brightness`."""
    return adjust_brightness(image, random_uniform([], -max_delta, max_delta, seed=seed))


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`tf.image.random_contrast`."""
    return adjust_contrast(image, random_uniform([], lower, upper, seed=seed))


def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Tensor:
    """`tf.image.adjust_saturation`: also of integers."""
    with name_scope(name or "adjust_saturation"):
        return _as_floats(image, lambda x: ops.adjust_saturation(x, saturation_factor))


def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Tensor:
    """`tf.image.adjust_hue`: also of integers."""
    with name_scope(name or "adjust_hue"):
        return _as_floats(image, lambda x: ops.adjust_hue(x, delta))


def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`tf.image.random_saturation`: a factor of [lower, upper).  Raises ValueError unless 0 ≤ lower < upper."""
    if upper <= lower:
        raise errors.InvalidValueError("upper must be > lower.")
    if lower < 0:
        raise errors.InvalidValueError("lower must be non-negative.")
    return adjust_saturation(image, random_uniform([], lower, upper, seed=seed))


def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`tf.image.random_hue`: an offset of [-max_delta, max_delta).  Raises ValueError unless 0 ≤ max_delta ≤ 0.5."""
    if max_delta > 0.5:
        raise errors.InvalidValueError("max_delta must be <= 0.5.")
    if max_delta < 0:
        raise errors.InvalidValueError("max_delta must be non-negative.")
    return adjust_hue(image, random_uniform([], -max_delta, max_delta, seed=seed))


def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: int | None = None,
    seed2: int | None = None,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = None,
    area_range: Any = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`tf.image.sample_distorted_bounding_box`: begin and size of a random crop, and its bounding box."""
    first, second = get_seed(seed) if seed or not seed2 else (seed, seed2)
    return ops.sample_distorted_bounding_box_v2(
        image_size,
        bounding_boxes,
        convert_to_tensor(min_object_covered, float32),
        seed=first,
        seed2=second,
        aspect_ratio_range=aspect_ratio_range,
        area_range=area_range,
        max_attempts=max_attempts,
        use_image_if_no_bounding_boxes=use_image_if_no_bounding_boxes,
        name=name,
    )


def rgb_to_grayscale(images: Any, name: str | None = None) -> Tensor:
    """`tf.image.rgb_to_grayscale`."""
    with name_scope(name or "rgb_to_grayscale"):
        weights = convert_to_tensor([0.2989, 0.587, 0.114])
        return _as_floats(images, lambda x: ops.sum(x * cast(weights, x.dtype), [-1], keep_dims=True), saturate=False)


def grayscale_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """`tf.image.grayscale_to_rgb`."""
    x = convert_to_tensor(images)
    return ops.tile(x, [1] * (rank_of(x) - 1) + [3], name=name)


def crop_to_bounding_box(
    image: Any, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> Tensor:
    """`tf.image.crop_to_bounding_box`."""
    x = convert_to_tensor(image)
    rows = slice(offset_height, offset_height + target_height)
    columns = slice(offset_width, offset_width + target_width)
    found: Tensor = x[rows, columns] if rank_of(x) == 3 else x[:, rows, columns]
    return found


def pad_to_bounding_box(
    image: Any, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> Tensor:
    """`tf.image.pad_to_bounding_box`, of images of known size, with zeros."""
    x = convert_to_tensor(image)
    height, width = x.static_shape[-3], x.static_shape[-2]
    if height is None or width is None:
        raise errors.InvalidValueError(f"pad_to_bounding_box: the size of '{x.name}' must be known")
    below, right = target_height - offset_height - height, target_width - offset_width - width
    sides = [[offset_height, below], [offset_width, right], [0, 0]]
    return ops.pad(x, sides if rank_of(x) == 3 else [[0, 0], *sides])


def central_crop(image: Any, central_fraction: float) -> Tensor:
    """`tf.image.central_crop`, of images of known size."""
    x = convert_to_tensor(image)
    height, width = x.static_shape[-3], x.static_shape[-2]
    if height is None or width is None:
        raise errors.InvalidValueError(f"central_crop: the size of '{x.name}' must be known")
    top, left = int((height - height * central_fraction) / 2), int((width - width * central_fraction) / 2)
    return crop_to_bounding_box(x, top, left, height - 2 * top, width - 2 * left)


def total_variation(images: Any, name: str | None = None) -> Tensor:
    """`tf.image.total_variation`: the sum of absolute differences of neighbouring pixels, per image."""
    with name_scope(name or "total_variation"):
        x = convert_to_tensor(images)
        axes = list(range(rank_of(x) - 3, rank_of(x)))
        down, across = (x[1:] - x[:-1], x[:, 1:] - x[:, :-1]) if len(axes) == rank_of(x) else _differences(x)
        return ops.sum(ops.abs(down), axes) + ops.sum(ops.abs(across), axes)


def _differences(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:, 1:] - x[:, :-1], x[:, :, 1:] - x[:, :, :-1]


def non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    name: str | None = None,
) -> Tensor:
    """`tf.image.non_max_suppression`."""
    return ops.non_max_suppression_v3(boxes, scores, max_output_size, iou_threshold, score_threshold, name=name)


def extract_image_patches(
    images: Any,
    ksizes: Any = None,
    strides: Any = None,
    rates: Any = None,
    padding: str | None = None,
    name: str | None = None,
    sizes: Any = None,
) -> Tensor:
    """`tf.extract_image_patches`."""
    windows = [int(size) for size in chosen(..., ksizes=ksizes, sizes=sizes)]
    return ops.extract_image_patches(images, windows, list(strides), list(rates), padding or "VALID", name=name)


def resize_image_with_crop_or_pad(image: Any, target_height: int, target_width: int) -> Tensor:
    """`tf.image.resize_image_with_crop_or_pad`: cropped, or padded with zeros, to a size, around the middle."""
    with name_scope("crop_to_bounding_box"):
        value = convert_to_tensor(image)
        axes = value.static_shape.rank
        if axes not in (3, 4):
            raise errors.InvalidValueError(f"'image' must have either 3 or 4 dimensions, got {value.static_shape}")
        sizes = ops.shape(value)
        begin, size, before, after = [], [], [], []
        for axis in range(axes):
            target = {axes - 3: target_height, axes - 2: target_width}.get(axis)
            now = sizes[axis]
            kept = now if target is None else ops.minimum(now, target)
            missing = now - now if target is None else ops.maximum(target - now, 0)
            begin.append((now - kept) // 2)
            size.append(kept)
            before.append(missing // 2)
            after.append(missing - missing // 2)
        cut = ops.slice(value, ops.pack(begin), ops.pack(size))
        made = ops.pad(cut, ops.pack([ops.pack(before), ops.pack(after)], axis=1))
        known = list(value.static_shape)
        known[axes - 3 : axes - 1] = [target_height, target_width]
        return ops.ensure_shape(made, shape=known)


def rot90(image: Any, k: int = 1, name: str | None = None) -> Tensor:
    """`tf.image.rot90`: rotates by `k` quarters counter-clockwise."""
    with name_scope(name or "rot90"):
        value = convert_to_tensor(image)
        rank = value.static_shape.rank
        if rank not in (3, 4):
            raise errors.InvalidValueError(f"'image' must have either 3 or 4 dimensions, got {value.static_shape}")
        turned = [*range(rank - 3), rank - 2, rank - 3, rank - 1]
        for _ in range(k % 4):
            value = ops.reverse_v2(ops.transpose(value, turned), [rank - 3])
        return ops.identity(value)


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"ops:{name}"
            for name in """decode_and_crop_jpeg decode_bmp decode_gif decode_jpeg decode_png encode_jpeg encode_png
            hsv_to_rgb resize_area rgb_to_hsv""".split()
        },
        **{
            name: f"ops:{name} | images size align_corners name half_pixel_centers"
            for name in "resize_bicubic resize_bilinear resize_nearest_neighbor".split()
        },
        **{
            name: f"numerics.images:{name}"
            for name in """adjust_gamma adjust_jpeg_quality combined_non_max_suppression image_gradients is_jpeg
            non_max_suppression_overlaps non_max_suppression_padded non_max_suppression_with_scores psnr
            random_jpeg_quality resize_image_with_pad rgb_to_yiq rgb_to_yuv sobel_edges ssim ssim_multiscale yiq_to_rgb
            yuv_to_rgb""".split()
        },
        "extract_jpeg_shape": "ops:extract_jpeg_shape",
        "crop_and_resize": """ops:crop_and_resize | image boxes box_ind crop_size method extrapolation_value name
        box_indices=box_ind""",
        "decode_image": "ops:decode_image | contents channels dtype name expand_animations",
        "draw_bounding_boxes": "ops:draw_bounding_boxes | images boxes name colors!",
        "extract_glimpse": "ops:extract_glimpse | input size offsets centered normalized uniform_noise name",
        "random_crop": "functions.random:random_crop",
        "extract_patches": "functions.image:extract_image_patches | images sizes strides rates padding name",
        "resize_with_crop_or_pad": "functions.image:resize_image_with_crop_or_pad",
        "resize": "functions.image:resize_images",
        "transpose": "functions.image:transpose_image",
    },
)
