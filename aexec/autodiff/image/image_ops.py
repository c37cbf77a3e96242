"""Gradients of resizing, cropping and moving images, and of colours."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import shape_of
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

Grads = tuple[Tensor | None, ...]

no_gradient(
    *"AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation CombinedNonMaxSuppression DrawBoundingBoxes".split(),
    *"DrawBoundingBoxesV2 ExtractGlimpse ExtractGlimpseV2 NonMaxSuppression NonMaxSuppressionV2".split(),
    *"NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps RandomCrop".split(),
    *"SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 HSVToRGB ResizeArea ResizeBilinearGrad".split(),
    "GenerateBoundingBoxProposals",
)


def _resized(op: ForwardOp) -> dict[str, Any]:
    return op.attrs("align_corners", "half_pixel_centers")


@gradient("ResizeBilinear")
def _resize_bilinear(op: ForwardOp, grad: Tensor) -> Grads:
    return ops.resize_bilinear_grad(grad, op.inputs[0], **_resized(op)), None


@gradient("ResizeBicubic")
def _resize_bicubic(op: ForwardOp, grad: Tensor) -> Grads:
    image = op.inputs[0]
    if not image.dtype.is_floating:
        return None, None
    return ops.resize_bicubic_grad(grad, image, **_resized(op)), None


@gradient("ResizeNearestNeighbor")
def _resize_nearest_neighbor(op: ForwardOp, grad: Tensor) -> Grads:
    size = shape_of(op.inputs[0])[1:3]
    return ops.resize_nearest_neighbor_grad(grad, size, **_resized(op)), None


@gradient("ScaleAndTranslate")
def _scale_and_translate(op: ForwardOp, grad: Tensor) -> Grads:
    image, _, scale, translation = op.inputs
    attrs = op.attrs("kernel_type", "antialias")
    return ops.scale_and_translate_grad(grad, image, scale, translation, **attrs), None, None, None


@gradient("CropAndResize")
def _crop_and_resize(op: ForwardOp, grad: Tensor) -> Grads:
    image, boxes, box_index, _ = op.inputs
    by_image = None
    if image.dtype.is_floating:
        attrs = {"T": image.dtype.base, **op.attrs("method")}
        by_image = ops.crop_and_resize_grad_image(grad, boxes, box_index, shape_of(image), **attrs)
    by_boxes = ops.crop_and_resize_grad_boxes(grad, image, boxes, box_index)
    return by_image, by_boxes, None, None


@gradient("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def _image_projective_transform(op: ForwardOp, grad: Tensor) -> Grads:
    """The gradient of the image: the gradient transformed back."""
    image, transforms = op.inputs[:2]
    inputs = {
        "images": grad,
        "transforms": _inverted(transforms),
        "output_shape": shape_of(image)[1:3],
    }
    if op.type.endswith("V3"):
        inputs["fill_value"] = op.inputs[3]
    made = create_node(op.type, inputs, op.attrs("interpolation", "fill_mode")).output(0)
    return (made, *[None] * (len(op.inputs) - 1))


def _inverted(transforms: Tensor) -> Any:
    """[n, 8]: the first eight numbers of the inverses of matrices whose ninth number is 1."""
    ones = ops.ones_like(transforms[:, :1])
    matrices = ops.reshape(ops.concat_v2([transforms, ones], 1), [-1, 3, 3])
    flat = ops.reshape(ops.matrix_inverse(matrices), [-1, 9])
    return flat[:, :8] / flat[:, 8:9]


@gradient("RGBToHSV")
def _rgb_to_hsv(op: ForwardOp, grad: Tensor) -> Tensor:
    """By the largest and the smallest of the three colours; each side of the hexagon is a sixth of the hue.

    For equal colours, where the function has corners, TensorFlow's choices are taken: if two share the largest value,
    blue comes before red, and red before green.
    """
    rgb, hsv = op.inputs[0], op.outputs[0]
    red, green, blue = (rgb[..., i] for i in range(3))
    saturation, value = hsv[..., 1], hsv[..., 2]
    zeros, ones = ops.zeros_like(red), ops.ones_like(red)

    def when(condition: Tensor) -> Any:
        return ops.select_v2(condition, ones, zeros)

    def both(a: Tensor, b: Tensor) -> Any:
        return ops.logical_and(a, b)

    is_red = both(ops.greater_equal(red, blue), ops.greater_equal(red, green))
    is_green = both(ops.greater(green, red), ops.greater_equal(green, blue))
    is_blue = both(ops.greater(blue, red), ops.greater(blue, green))
    largest = [is_red, is_green, is_blue]
    low_red = both(ops.less(red, blue), ops.less(red, green))
    low_green = both(ops.less_equal(green, red), ops.less(green, blue))
    low_blue = both(ops.less_equal(blue, red), ops.less_equal(blue, green))
    smallest = [low_red, low_green, low_blue]
    by_value = [when(largest[i]) for i in range(3)]
    # s = (v - smallest) / v
    lowest = value * (1.0 - saturation)
    by_saturation = [
        ops.div_no_nan(by_value[i] * lowest, ops.square(value)) - ops.div_no_nan(when(smallest[i]), value)
        for i in range(3)
    ]
    spread = value - lowest
    colours = [red, green, blue]
    by_hue = []
    for i in range(3):
        total: Any = zeros
        # If colour k is the largest, 6h = offset + (next - after) / spread, with the colours in a circle.
        for k in range(3):
            following, after = (k + 1) % 3, (k + 2) % 3
            difference = colours[following] - colours[after]
            sign = (ones if i == following else zeros) - (ones if i == after else zeros)
            of_spread = by_value[i] - when(smallest[i])
            slope = ops.div_no_nan(sign * spread - difference * of_spread, ops.square(spread))
            total = total + when(largest[k]) * slope
        by_hue.append(total / 6.0)
    parts = [grad[..., 0] * by_hue[i] + grad[..., 1] * by_saturation[i] + grad[..., 2] * by_value[i] for i in range(3)]
    return ops.pack(parts, axis=-1)
