"""Images: decoding, encoding, resizing, colours, boxes."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.image import image_shapes as shapes

LABEL_TYPES = "{uint8, int8, int16, int32, int64}"
RESIZE_TYPES = "{int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}"

register_op(
    "AdjustContrast(images: T, contrast_factor: float, min_value: float, max_value: float) -> output: float",
    "T: {uint8, int8, int16, int32, int64, float, double}", deprecated=(2, "Use AdjustContrastv2 instead"),
    shape_fn=shapes.adjust_contrast,
)
register_op(
    "AdjustContrastv2(images: T, contrast_factor: float) -> output: T",
    "T: {half, float} = float", shape_fn=shapes.adjust_contrast,
)
register_op(
    "AdjustHue(images: T, delta: float) -> output: T",
    "T: {half, float} = float", shape_fn=common.unchanged_volume_or_more,
)
register_op(
    "AdjustSaturation(images: T, scale: float) -> output: T",
    "T: {half, float} = float", shape_fn=common.unchanged_volume_or_more,
)
register_op(
    "CombinedNonMaxSuppression(boxes: float, scores: float, max_output_size_per_class: int32, max_total_size: "
    "int32, iou_threshold: float, score_threshold: float) -> nmsed_boxes: float, nmsed_scores: float, "
    "nmsed_classes: float, valid_detections: int32",
    "pad_per_class: bool = false", "clip_boxes: bool = true", shape_fn=shapes.combined_non_max_suppression,
)
register_op(
    "CropAndResize(image: T, boxes: float, box_ind: int32, crop_size: int32) -> crops: float",
    "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}",
    "method: {'bilinear', 'nearest'} = 'bilinear'", "extrapolation_value: float = 0.0", shape_fn=shapes.crop_and_resize,
)
register_op(
    "CropAndResizeGradBoxes(grads: float, image: T, boxes: float, box_ind: int32) -> output: float",
    "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}", "method: {'bilinear'} = 'bilinear'",
    shape_fn=shapes.crop_and_resize_grad_boxes,
)
register_op(
    "CropAndResizeGradImage(grads: float, boxes: float, box_ind: int32, image_size: int32) -> output: T",
    "T: {float, half, double}", "method: {'bilinear', 'nearest'} = 'bilinear'",
    shape_fn=shapes.crop_and_resize_grad_image,
)
register_op(
    "DecodeAndCropJpeg(contents: string, crop_window: int32) -> image: uint8",
    "channels: int = 0", "ratio: int = 1", "fancy_upscaling: bool = true", "try_recover_truncated: bool = false",
    "acceptable_fraction: float = 1.0", "dct_method: string = ''", shape_fn=shapes.decode_and_crop_jpeg,
)
register_op("DecodeBmp(contents: string) -> image: uint8", "channels: int = 0", shape_fn=shapes.decode)
register_op("DecodeGif(contents: string) -> image: uint8", shape_fn=shapes.decode_gif)
register_op(
    "DecodeImage(contents: string) -> image: dtype",
    "channels: int = 0", "dtype: {uint8, uint16, float} = uint8", "expand_animations: bool = true",
    shape_fn=shapes.decode_any,
)
register_op(
    "DecodeJpeg(contents: string) -> image: uint8",
    "channels: int = 0", "ratio: int = 1", "fancy_upscaling: bool = true", "try_recover_truncated: bool = false",
    "acceptable_fraction: float = 1.0", "dct_method: string = ''", shape_fn=shapes.decode,
)
register_op(
    "DecodeJxl(contents: string) -> image: dtype",
    "channels: int = 0", "dtype: {uint8} = uint8", shape_fn=shapes.decode,
)
register_op(
    "DecodePng(contents: string) -> image: dtype",
    "channels: int = 0", "dtype: {uint8, uint16} = uint8", shape_fn=shapes.decode,
)
register_op(
    "DecodeWebP(contents: string) -> image: dtype",
    "channels: int = 0", "dtype: {uint8} = uint8", shape_fn=shapes.decode_webp,
)
register_op(
    "DrawBoundingBoxes(images: T, boxes: float) -> output: T",
    "T: {float, half} = float", shape_fn=shapes.draw_bounding_boxes,
)
register_op(
    "DrawBoundingBoxesV2(images: T, boxes: float, colors: float) -> output: T",
    "T: {float, half} = float", shape_fn=common.unchanged_volume_or_more,
)
register_op(
    "EncodeJpeg(image: uint8) -> contents: string",
    "format: {'', 'grayscale', 'rgb'} = ''", "quality: int = 95", "progressive: bool = false",
    "optimize_size: bool = false", "chroma_downsampling: bool = true", "density_unit: {'in', 'cm'} = 'in'",
    "x_density: int = 300", "y_density: int = 300", "xmp_metadata: string = ''", shape_fn=shapes.encode_one,
)
register_op("EncodeJpegVariableQuality(images: uint8, quality: int32) -> contents: string", shape_fn=shapes.encode_one)
register_op(
    "EncodePng(image: T) -> contents: string",
    "compression: int = -1", "T: {uint8, uint16} = uint8", shape_fn=shapes.encode,
)
register_op(
    "ExtractGlimpse(input: float, size: int32, offsets: float) -> glimpse: float",
    "centered: bool = true", "normalized: bool = true", "uniform_noise: bool = true", "noise: string = 'uniform'",
    shape_fn=shapes.extract_glimpse,
)
register_op(
    "ExtractGlimpseV2(input: float, size: int32, offsets: float) -> glimpse: float",
    "centered: bool = true", "normalized: bool = true", "uniform_noise: bool = true", "noise: string = 'uniform'",
    shape_fn=shapes.extract_glimpse,
)
register_op(
    "ExtractJpegShape(contents: string) -> image_shape: output_type",
    "output_type: {int32, int64} = int32", shape_fn=shapes.extract_jpeg_shape,
)
register_op(
    "GenerateBoundingBoxProposals(scores: float, bbox_deltas: float, image_info: float, anchors: float, "
    "nms_threshold: float, pre_nms_topn: int32, min_size: float) -> rois: float, roi_probabilities: float",
    "post_nms_topn: int = 300",
)
register_op(
    "HSVToRGB(images: T) -> output: T",
    "T: {half, bfloat16, float, double} = float", shape_fn=shapes.convert_colors,
)
register_op(
    "ImageProjectiveTransformV2(images: dtype, transforms: float, output_shape: int32) -> transformed_images: dtype",
    "dtype: {uint8, int32, int64, half, bfloat16, float, double}", "interpolation: string",
    "fill_mode: string = 'CONSTANT'", shape_fn=shapes.project,
)
register_op(
    "ImageProjectiveTransformV3(images: dtype, transforms: float, output_shape: int32, fill_value: float) -> "
    "transformed_images: dtype",
    "dtype: {uint8, int32, int64, half, bfloat16, float, double}", "interpolation: string",
    "fill_mode: string = 'CONSTANT'", shape_fn=shapes.project,
)
register_op(
    "NonMaxSuppression(boxes: float, scores: float, max_output_size: int32) -> selected_indices: int32",
    "iou_threshold: float = 0.5", shape_fn=shapes.non_max_suppression,
)
register_op(
    "NonMaxSuppressionV2(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold) -> "
    "selected_indices: int32",
    "T: {half, float} = float", "T_threshold: {half, float} = float", shape_fn=shapes.non_max_suppression_v2,
)
register_op(
    "NonMaxSuppressionV3(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: "
    "T_threshold) -> selected_indices: int32",
    "T: {half, float} = float", "T_threshold: {half, float} = float", shape_fn=shapes.non_max_suppression_v3,
)
register_op(
    "NonMaxSuppressionV4(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: "
    "T_threshold) -> selected_indices: int32, valid_outputs: int32",
    "T: {half, float} = float", "T_threshold: {half, float} = float", "pad_to_max_output_size: bool = false",
    shape_fn=shapes.non_max_suppression_v4,
)
register_op(
    "NonMaxSuppressionV5(boxes: T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T, "
    "soft_nms_sigma: T) -> selected_indices: int32, selected_scores: T, valid_outputs: int32",
    "T: {half, float} = float", "pad_to_max_output_size: bool = false", shape_fn=shapes.non_max_suppression_v5,
)
register_op(
    "NonMaxSuppressionWithOverlaps(overlaps: float, scores: float, max_output_size: int32, overlap_threshold: "
    "float, score_threshold: float) -> selected_indices: int32",
    shape_fn=shapes.non_max_suppression_with_overlaps,
)
register_op(
    "RGBToHSV(images: T) -> output: T",
    "T: {half, bfloat16, float, double} = float", shape_fn=shapes.convert_colors,
)
register_op(
    "RandomCrop(image: T, size: int64) -> output: T",
    "T: {uint8, int8, int16, int32, int64, float, double}", "seed: int = 0", "seed2: int = 0", stateful=True,
    deprecated=(8, "Random crop is now pure Python"), shape_fn=shapes.random_crop,
)
register_op(
    "ResizeArea(images: T, size: int32) -> resized_images: float",
    f"T: {RESIZE_TYPES}", "align_corners: bool = false", shape_fn=shapes.resize,
)
register_op(
    "ResizeBicubic(images: T, size: int32) -> resized_images: float",
    f"T: {RESIZE_TYPES}", "align_corners: bool = false", "half_pixel_centers: bool = false", shape_fn=shapes.resize,
)
register_op(
    "ResizeBicubicGrad(grads: float, original_image: T) -> output: T",
    "T: {float, double}", "align_corners: bool = false", "half_pixel_centers: bool = false",
    shape_fn=shapes.second_input,
)
register_op(
    "ResizeBilinear(images: T, size: int32) -> resized_images: float",
    "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double, bfloat16}",
    "align_corners: bool = false", "half_pixel_centers: bool = false", shape_fn=shapes.resize,
)
register_op(
    "ResizeBilinearGrad(grads: float, original_image: T) -> output: T",
    "T: {float, bfloat16, half, double}", "align_corners: bool = false", "half_pixel_centers: bool = false",
    shape_fn=shapes.second_input,
)
register_op(
    "ResizeNearestNeighbor(images: T, size: int32) -> resized_images: T",
    f"T: {RESIZE_TYPES}", "align_corners: bool = false", "half_pixel_centers: bool = false", shape_fn=shapes.resize,
)
register_op(
    "ResizeNearestNeighborGrad(grads: T, size: int32) -> output: T",
    "T: {uint8, int8, int32, half, float, double, bfloat16}", "align_corners: bool = false",
    "half_pixel_centers: bool = false", shape_fn=shapes.resize,
)
register_op(
    "SampleDistortedBoundingBox(image_size: T, bounding_boxes: float) -> begin: T, size: T, bboxes: float",
    f"T: {LABEL_TYPES}", "seed: int = 0", "seed2: int = 0", "min_object_covered: float = 0.1",
    "aspect_ratio_range: list(float) = [0.75, 1.33]", "area_range: list(float) = [0.05, 1.0]",
    "max_attempts: int = 100", "use_image_if_no_bounding_boxes: bool = false", stateful=True,
    shape_fn=shapes.sample_bounding_box,
)
register_op(
    "SampleDistortedBoundingBoxV2(image_size: T, bounding_boxes: float, min_object_covered: float) -> begin: T, "
    "size: T, bboxes: float",
    f"T: {LABEL_TYPES}", "seed: int = 0", "seed2: int = 0", "aspect_ratio_range: list(float) = [0.75, 1.33]",
    "area_range: list(float) = [0.05, 1.0]", "max_attempts: int = 100", "use_image_if_no_bounding_boxes: bool = false",
    stateful=True, shape_fn=shapes.sample_bounding_box,
)
register_op(
    "ScaleAndTranslate(images: T, size: int32, scale: float, translation: float) -> resized_images: float",
    "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double}", "kernel_type: string = 'lanczos3'",
    "antialias: bool = true", shape_fn=shapes.resize,
)
register_op(
    "ScaleAndTranslateGrad(grads: T, original_image: T, scale: float, translation: float) -> output: T",
    "T: {float}", "kernel_type: string = 'lanczos3'", "antialias: bool = true", shape_fn=shapes.second_input,
)
register_op(
    "StatelessSampleDistortedBoundingBox(image_size: T, bounding_boxes: float, min_object_covered: float, seed: "
    "Tseed) -> begin: T, size: T, bboxes: float",
    f"T: {LABEL_TYPES}", "Tseed: {int32, int64}", "aspect_ratio_range: list(float) = [0.75, 1.33]",
    "area_range: list(float) = [0.05, 1.0]", "max_attempts: int = 100", "use_image_if_no_bounding_boxes: bool = false",
    shape_fn=shapes.sample_bounding_box,
)
