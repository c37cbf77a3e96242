"""The less common functions of `tf.nn`: transposed convolutions, CTC losses, averages of losses.

Next to read: `nn.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import nn, ops
from aexec.client.building import control_dependencies, name_scope
from aexec.compat.v1.functions.check_ops import assert_integer, assert_scalar
from aexec.compat.v1.functions.control_flow_ops import assert_non_negative, map_fn
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes
from aexec.framework.errors import InvalidValueError
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "collapse_repeated",
    "compute_average_loss",
    "conv1d_transpose",
    "conv_transpose",
    "ctc_beam_search_decoder_v2",
    "ctc_loss_v2",
    "ctc_unique_labels",
    "scale_regularization_loss",
]


def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: str | None = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`tf.nn.conv1d_transpose`: of [batch, width, channels], or [batch, channels, width] for `NCW`."""
    if data_format not in (None, "NWC", "NCW"):
        raise InvalidValueError(f"data_format must be NWC or NCW, not {data_format}")
    return nn.conv1d_transpose(
        input, filters, convert_to_tensor(output_shape, dtypes.int32), strides, padding,
        data_format=data_format or "NWC", dilations=1 if dilations is None else dilations, name=name,
    )  # fmt: skip


def conv_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """`tf.nn.conv_transpose`: a transposed convolution over one, two or three axes, by the rank of the result."""
    shape = convert_to_tensor(output_shape, dtypes.int32)
    dims = shape.static_shape.dims
    rank = dims[0] - 2 if dims and dims[0] is not None else 0
    if not 1 <= rank <= 3:
        raise InvalidValueError(f"`output_shape` must be of length 3, 4 or 5. Received: {output_shape}")
    first = bool(data_format) and str(data_format).startswith("NC")
    function = (nn.conv1d_transpose, nn.conv2d_transpose, nn.conv3d_transpose)[rank - 1]
    letters = ("W", "HW", "DHW")[rank - 1]
    return function(
        input, filters, shape, strides, padding, data_format=f"NC{letters}" if first else f"N{letters}C",
        dilations=1 if dilations is None else dilations, name=name,
    )  # fmt: skip


def collapse_repeated(labels: Any, seq_length: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """`tf.nn.collapse_repeated`: merge repeated labels [batch, time]; return them, padded with 0, and their lengths."""
    with name_scope(name or "collapse_repeated_labels"):
        labels, seq_length = convert_to_tensor(labels), convert_to_tensor(seq_length)
        time = ops.shape(labels)[1]
        differs = ops.not_equal(labels[:, 1:], labels[:, :-1])
        begins = ops.concat_v2([ops.fill(ops.pack([ops.shape(labels)[0], 1]), True), differs], 1)
        within = ops.less(ops.range(0, time, 1), ops.expand_dims(ops.cast(seq_length, DstT="int32"), 1))
        kept = ops.logical_and(begins, within)
        lengths = ops.sum(ops.cast(kept, DstT=seq_length.dtype.base), [1])
        places = ops.where(kept)
        column = ops.cumsum(ops.cast(kept, DstT="int64"), 1) - 1
        target = ops.pack([places[:, 0], ops.gather_nd(column, places)], axis=1)
        longest = ops.max(ops.concat_v2([[0], ops.cast(lengths, DstT="int64")], 0), [0])
        size = ops.pack([ops.cast(ops.shape(labels)[0], DstT="int64"), longest])
        return ops.scatter_nd(target, ops.gather_nd(labels, places), size), lengths


def ctc_beam_search_decoder_v2(
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1
) -> tuple[list[SparseTensor], Tensor]:
    """`tf.nn.ctc_beam_search_decoder_v2`: repeated labels of a path are not merged."""
    paths, scores = nn.ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths, merge_repeated=False)
    return [SparseTensor(*path) for path in paths], scores


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Tensor:
    """`tf.nn.ctc_loss_v2`: the CTC loss of dense or sparse labels.

    Args:
        labels: [batch, labels], an integer, or a SparseTensor.
        label_length: number of labels of each example, [batch]; ignored for sparse labels.
        unique: the result of `ctc_unique_labels`; ignored.
        blank_index: class id of the blank; 0 by default, required for sparse labels.

    Raises:
        InvalidArgumentError: labels are sparse, and `blank_index` is None.
    """
    if isinstance(labels, SparseTensor):
        if blank_index is None:
            raise InvalidValueError("Argument `blank_index` must be provided when labels is a SparseTensor.")
        rows = labels
    else:
        dense = ops.cast(convert_to_tensor(labels), DstT=dtypes.int32)
        longest = ops.shape(dense)[1]
        lengths = ops.cast(ops.expand_dims(label_length, 1), DstT=dtypes.int32)
        places = ops.where(ops.less(ops.range(0, longest, 1), lengths))
        rows = SparseTensor(places, ops.gather_nd(dense, places), ops.shape(dense, out_type=dtypes.int64))
    return nn.ctc_loss(
        rows,
        logits,
        ops.cast(convert_to_tensor(logit_length), DstT=dtypes.int32),
        time_major=logits_time_major,
        blank_index=blank_index or 0,
        name=name,
    )


def ctc_unique_labels(labels: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """`tf.nn.ctc_unique_labels`: the distinct labels of each row, padded with 0, and each label's index among them.

    Both have the shape of `labels`, [batch, time].
    """

    def of_row(row: Any) -> list[Tensor]:
        different, places = ops.unique(row)
        lacking = ops.size(places) - ops.size(different)
        return [ops.cast(ops.pad(different, ops.pack([ops.pack([0, lacking])])), DstT="int64"), places]

    with name_scope(name or "ctc_unique_labels"):
        found, places = map_fn(of_row, convert_to_tensor(labels), dtype=["int64", "int32"])
        return found, places


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None) -> Tensor:
    """`tf.nn.compute_average_loss`: the weighted sum of losses over the number of examples, a float32 scalar.

    Args:
        per_example_loss: [batch, …], floating.
        sample_weight: broadcast to the losses; the two may differ by a last axis of size 1.
        global_batch_size: number of examples; by default the batch size.  The result for 0 is 0.

    Raises:
        InvalidArgumentError: the loss is a scalar, or a rank is unknown.
    """
    losses = convert_to_tensor(per_example_loss)
    dtype = losses.dtype.base
    if not losses.static_shape.rank:
        raise InvalidValueError(f"per_example_loss needs a known rank of 1 at least, and has {losses.static_shape}")
    if sample_weight is not None:
        losses = ops.cast(_weighted(losses, sample_weight), DstT=dtype)
    size = convert_to_tensor(ops.shape(losses)[0] if global_batch_size is None else global_batch_size)
    assert_scalar(size, message="global_batch_size must be scalar.")
    assert_integer(size, message="global_batch_size must be an integer.")
    with control_dependencies([assert_non_negative(size, message="global_batch_size must be non-negative.")]):
        total = ops.sum(ops.reshape(losses, [-1]), [0])
        return ops.div_no_nan(total, ops.cast(size, DstT=dtype))


def _weighted(losses: Tensor, sample_weight: Any) -> Tensor:
    """Losses times weights, float32."""
    losses = ops.cast(losses, DstT=dtypes.float32)
    weights = ops.cast(convert_to_tensor(sample_weight), DstT=dtypes.float32)
    rank, other = losses.static_shape.rank, weights.static_shape.rank
    if rank is None or other is None:
        raise InvalidValueError("the rank of sample_weight must be known")
    if other == rank + 1:
        weights = ops.squeeze(weights, squeeze_dims=[-1])
    elif other and other == rank - 1:
        weights = ops.expand_dims(weights, -1)
    return losses * weights


def scale_regularization_loss(regularization_loss: Any) -> Tensor:
    """`tf.nn.scale_regularization_loss`: the sum of losses; there is one replica."""
    return ops.sum(ops.reshape(convert_to_tensor(regularization_loss), [-1]), [0])
