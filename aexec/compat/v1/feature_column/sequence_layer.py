"""`sequence_input_layer`: concatenates the tensors of columns of sequences, for a recurrent network.

Next to read: `inputs.py`, its counterpart for examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies
from aexec.compat.v1.feature_column.column import OfSequences, SequenceColumn, in_order
from aexec.compat.v1.feature_column.features import FeatureValues
from aexec.compat.v1.feature_column.inputs import check_batches, weights_in
from aexec.compat.v1.functions.array_ops import concat
from aexec.compat.v1.functions.control_flow_ops import assert_equal
from aexec.compat.v1.functions.variables import variable_scope
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor

__all__ = ["sequence_input_layer"]


def sequence_input_layer(
    features: Mapping[Any, Any],
    feature_columns: Any,
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
) -> OfSequences:
    """`tf.contrib.feature_column.sequence_input_layer`: concatenate columns of sequences, in the order of their names.

    Args:
        features: name → tensor or sparse tensor, [batch, time, …].
        feature_columns: columns of numeric sequences, and embedding or indicator columns of sequences of ids.
        weight_collections, trainable: as in `input_layer`.

    Returns:
        The tensor, [batch, time, elements of all columns], float32; and the lengths of the sequences, [batch], int64.
        A run fails with InvalidArgumentError if an example's sequences differ in length.

    Raises:
        ValueError: a column is not of sequences; also for the reasons of `input_layer`.
    """
    columns = in_order(feature_columns)
    for column in columns:
        if not isinstance(column, SequenceColumn):
            raise errors.InvalidValueError(
                "All feature_columns must be of type _SequenceDenseColumn. You can wrap a sequence_categorical_column "
                f"with an embedding_column or indicator_column. Given (type {type(column).__name__}): {column}"
            )
    weights = weights_in(weight_collections, trainable)
    with variable_scope(None, "sequence_input_layer"):
        values = FeatureValues(features)
        parts, lengths = [], []
        for column in columns:
            assert isinstance(column, SequenceColumn)
            with variable_scope(None, column.scope_name):
                found = column.of_sequences(values, weights)
                parts.append(_flat(column, found.values))
                lengths.append(found.lengths)
        check_batches(columns, parts)
        return OfSequences(concat(parts, 2), _one_of_all(lengths))


def _flat(column: SequenceColumn, tensor: Tensor) -> Tensor:
    """Reshape a column's tensor to [batch, time, elements]."""
    sizes = ops.shape(tensor)
    return ops.reshape(tensor, ops.pack([sizes[0], sizes[1], column.variable_shape.num_elements()]))


def _one_of_all(lengths: Sequence[Tensor]) -> Tensor:
    first, *others = lengths
    message = "columns of a layer have sequences of several lengths"
    with control_dependencies([assert_equal(first, other, message=message) for other in others]):
        return ops.identity(first)
