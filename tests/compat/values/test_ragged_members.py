"""Members of ragged tensors that build nested rows, describe the nesting, and merge axes.

Answers are those of TensorFlow 2.21, with its words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

Ragged = tf.RaggedTensor
THREE = [[[0, 1, 2, 3], [4, 5, 6]], [[7, 8, 9]]]  # ragged along two axes
PAIRS = [[[[1, 2]]], [], [[[3, 4], [5, 6]]]]  # of pairs, ragged along two axes


def three() -> Any:
    return Ragged.from_nested_row_splits(list(range(10)), [[0, 2, 3], [0, 4, 7, 10]])


def pairs() -> Any:
    return Ragged.from_row_splits(Ragged.from_row_splits([[1, 2], [3, 4], [5, 6]], [0, 1, 3]), [0, 1, 1, 2])


def value(tensor: Any) -> Any:
    with tf.Session() as sess:
        found = sess.run(tensor)
    return found.to_list() if hasattr(found, "to_list") else found.tolist()


def merged(rows: list[Any], outer: int, inner: int) -> list[Any]:
    """Merge a range of axes of nested lists."""
    if outer > 0:
        return [merged(row, outer - 1, inner - 1) for row in rows]
    for _ in range(inner):
        rows = [item for row in rows for item in row]
    return rows


def test_made_of_nested_rows() -> None:
    assert value(Ragged.from_nested_row_lengths(list(range(6)), [[2, 0, 1], [1, 3, 2]])) == [
        [[0], [1, 2, 3]],
        [],
        [[4, 5]],
    ]
    of_rows = Ragged.from_nested_value_rowids(list(range(6)), [[0, 0, 2], [0, 1, 1, 1, 2, 2]])
    assert value(of_rows) == [[[0], [1, 2, 3]], [], [[4, 5]]]
    more = Ragged.from_nested_value_rowids(list(range(6)), [[0, 0, 2], [0, 1, 1, 1, 2, 2]], [4, 3])
    assert value(more) == [[[0], [1, 2, 3]], [], [[4, 5]], []]
    with pytest.raises(ValueError, match="`nested_nrows` must have the same length"):
        Ragged.from_nested_value_rowids([1], [[0], [0]], [1])


def test_rows_of_one_length() -> None:
    two = Ragged.from_uniform_row_length(list(range(6)), 2)
    assert value(two) == [[0, 1], [2, 3], [4, 5]]
    assert two.shape.as_list() == [3, 2]
    assert value(Ragged.from_uniform_row_length([], 0, nrows=3)) == [[], [], []]
    assert value(Ragged.from_uniform_row_length(Ragged.from_row_splits([1, 2, 3], [0, 1, 1, 2, 3]), 2)) == [
        [[1], []],
        [[2], [3]],
    ]


def test_nested_rows() -> None:
    ragged = three()
    with tf.Session() as sess:
        lengths, rows = sess.run([ragged.nested_row_lengths(), ragged.nested_value_rowids()])
    assert [part.tolist() for part in lengths] == [[2, 1], [4, 3, 3]]
    assert [part.tolist() for part in rows] == [[0, 0, 1], [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]]
    used = tf.identity(ragged.flat_values)
    assert used.op in ragged.consumers()


@pytest.mark.parametrize(("make", "rows", "rank"), [(three, THREE, 3), (pairs, PAIRS, 4)])
def test_axes_are_merged(make: Any, rows: Any, rank: int) -> None:
    for outer in range(rank):
        for inner in range(outer, rank):
            expected = merged(rows, outer, inner)
            assert value(make().merge_dims(outer, inner)) == expected, (outer, inner)
            assert value(make().merge_dims(outer - rank, inner - rank)) == expected
    with pytest.raises(ValueError, match=r"Expected outer_axis \(1\) to be less than or equal to inner_axis \(0\)"):
        make().merge_dims(1, 0)
    with pytest.raises(ValueError, match=f"inner_axis={rank} out of bounds"):
        make().merge_dims(0, rank)


def test_splits_have_another_type() -> None:
    ragged = three().with_row_splits_dtype(tf.int32)
    assert [splits.dtype for splits in ragged.nested_row_splits] == [tf.int32] * 2
    assert value(ragged) == THREE
    with pytest.raises(ValueError, match="must be int32 or int64"):
        ragged.with_row_splits_dtype(tf.float32)


def test_graph_has_no_values() -> None:
    with pytest.raises(ValueError, match="only supported in eager mode"):
        three().numpy()
    with pytest.raises(ValueError, match="can only be used in eager mode"):
        three().to_list()


def test_members_of_values() -> None:
    with tf.Session() as sess:
        found = sess.run(pairs())
    assert found.dtype == np.int32
    assert found.shape == (3, None, None, 2)
    assert [splits.tolist() for splits in found.nested_row_splits] == [[0, 1, 1, 2], [0, 1, 3]]
