"""Functions of `tf.nn` that programs use less: transposed convolutions of any rank, and labels of CTC.

Next to read: `nn.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import nn, ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.control_flow_ops import map_fn
from aexec.framework import dtypes
from aexec.framework.errors import InvalidValueError
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["collapse_repeated", "conv1d_transpose", "conv_transpose", "ctc_unique_labels"]


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
    """`tf.nn.conv_transpose`: with one, two or three axes in space, as many as `output_shape` has."""
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
    """`tf.nn.collapse_repeated`: labels [batch, time] without repetitions, zeros behind them, and their lengths."""
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


def ctc_unique_labels(labels: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """`tf.nn.ctc_unique_labels`: the different labels of each row of [batch, time], and which one each label is."""

    def of_row(row: Any) -> list[Tensor]:
        different, places = ops.unique(row)
        lacking = ops.size(places) - ops.size(different)
        return [ops.cast(ops.pad(different, ops.pack([ops.pack([0, lacking])])), DstT="int64"), places]

    with name_scope(name or "ctc_unique_labels"):
        found, places = map_fn(of_row, convert_to_tensor(labels), dtype=["int64", "int32"])
        return found, places
