"""Reductions over segments: sorted, unsorted, and by sparse indices."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.math import segment_shapes as shapes

FLOATS = "{bfloat16, half, float, double}"

register_op(
    "SegmentMax(data: T, segment_ids: Tindices) -> output: T",
    "T: realnumbertype", "Tindices: {int32, int64}", shape_fn=shapes.segment_reduction,
)
register_op(
    "SegmentMaxV2(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    "T: realnumbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
register_op(
    "SegmentMean(data: T, segment_ids: Tindices) -> output: T",
    "T: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.segment_reduction,
)
register_op(
    "SegmentMin(data: T, segment_ids: Tindices) -> output: T",
    "T: realnumbertype", "Tindices: {int32, int64}", shape_fn=shapes.segment_reduction,
)
register_op(
    "SegmentMinV2(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    "T: realnumbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
register_op(
    "SegmentProd(data: T, segment_ids: Tindices) -> output: T",
    "T: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.segment_reduction,
)
register_op(
    "SegmentProdV2(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    "T: numbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
register_op(
    "SegmentSum(data: T, segment_ids: Tindices) -> output: T",
    "T: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.segment_reduction,
)
register_op(
    "SegmentSumV2(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    "T: numbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
register_op(
    "SparseSegmentMean(data: T, indices: Tidx, segment_ids: Tsegmentids) -> output: T",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    "sparse_gradient: bool = false", shape_fn=shapes.sparse_segment_reduction,
)
register_op(
    "SparseSegmentMeanGrad(grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32) -> output: T",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    shape_fn=shapes.sparse_segment_reduction_grad,
)
register_op(
    "SparseSegmentMeanGradV2(grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32) -> output: "
    "T, sorted_unique_indices: Tidx",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    shape_fn=shapes.sparse_segment_reduction_grad_v2,
)
register_op(
    "SparseSegmentMeanWithNumSegments(data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments) "
    "-> output: T",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tnumsegments: {int32, int64} = int32",
    "Tsegmentids: {int32, int64} = int32", "sparse_gradient: bool = false",
    shape_fn=shapes.sparse_segment_reduction_with_num_segments,
)
register_op(
    "SparseSegmentSqrtN(data: T, indices: Tidx, segment_ids: Tsegmentids) -> output: T",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    "sparse_gradient: bool = false", shape_fn=shapes.sparse_segment_reduction,
)
register_op(
    "SparseSegmentSqrtNGrad(grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32) -> output: T",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    shape_fn=shapes.sparse_segment_reduction_grad,
)
register_op(
    "SparseSegmentSqrtNGradV2(grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32) -> "
    "output: T, sorted_unique_indices: Tidx",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    shape_fn=shapes.sparse_segment_reduction_grad_v2,
)
register_op(
    "SparseSegmentSqrtNWithNumSegments(data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: "
    "Tnumsegments) -> output: T",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tnumsegments: {int32, int64} = int32",
    "Tsegmentids: {int32, int64} = int32", "sparse_gradient: bool = false",
    shape_fn=shapes.sparse_segment_reduction_with_num_segments,
)
register_op(
    "SparseSegmentSum(data: T, indices: Tidx, segment_ids: Tsegmentids) -> output: T",
    "T: realnumbertype", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    "sparse_gradient: bool = false", shape_fn=shapes.sparse_segment_reduction,
)
register_op(
    "SparseSegmentSumGrad(grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32) -> output: T",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    shape_fn=shapes.sparse_segment_reduction_grad,
)
register_op(
    "SparseSegmentSumGradV2(grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32) -> output: "
    "T, sorted_unique_indices: Tidx",
    f"T: {FLOATS}", "Tidx: {int32, int64} = int32", "Tsegmentids: {int32, int64} = int32",
    shape_fn=shapes.sparse_segment_reduction_grad_v2,
)
register_op(
    "SparseSegmentSumWithNumSegments(data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments) "
    "-> output: T",
    "T: realnumbertype", "Tidx: {int32, int64} = int32", "Tnumsegments: {int32, int64} = int32",
    "Tsegmentids: {int32, int64} = int32", "sparse_gradient: bool = false",
    shape_fn=shapes.sparse_segment_reduction_with_num_segments,
)
register_op(
    "UnsortedSegmentMax(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    "T: realnumbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
register_op(
    "UnsortedSegmentMin(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    "T: realnumbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
register_op(
    "UnsortedSegmentProd(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    "T: numbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
register_op(
    "UnsortedSegmentSum(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    "T: numbertype", "Tindices: {int16, int32, int64}", "Tnumsegments: {int32, int64} = int32",
    shape_fn=common.unsorted_segment_reduction,
)
