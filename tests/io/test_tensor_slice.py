from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors, proto
from aexec.io.tensor_slice import TensorSlice, parse_shape_and_slice

extents = st.one_of(st.just((0, -1)), st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)))


@given(st.lists(extents, max_size=4).map(tuple))
def test_text_and_message_come_back(boxes: tuple[tuple[int, int], ...]) -> None:
    box = TensorSlice(boxes)
    assert TensorSlice.parse(str(box)) == box
    assert TensorSlice.from_proto(box.to_proto()) == box


def test_slice_of_a_shape() -> None:
    shape, box = parse_shape_and_slice("70 3 5,24:-")
    assert shape == (70, 3)
    assert box.within(shape) == (slice(5, 29), slice(0, 3))
    assert box.shape(shape) == (24, 3)
    assert TensorSlice.full(2).shape(shape) == shape
    assert str(box) == "5,24:-"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("3", "Need least two elements in shape_and_slice specification: 3"),
        ("", "Need least two elements"),
        ("x 0,2", "Non numerical dimension in shape_and_slice: x 0,2"),
        ("-1 0,2", "Non numerical dimension"),
        ("3 a,2", "Expected a pair of numbers or '-' but got 'a,2': string = a,2"),
        ("3 1", "Expected a pair of numbers"),
        ("3 -1,2", "Expected non-negative start and positive length but got start = -1, length = 2: string = -1,2"),
        ("3 0,0", "positive length"),
        ("3 0,1:-", "2 dimensions, not 1"),
    ],
)
def test_invalid_slices_are_refused(spec: str, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        parse_shape_and_slice(spec)


def test_slice_beyond_its_shape() -> None:
    with pytest.raises(errors.InternalError, match=r"Extent in dimension 0 out of bounds: shape = \[3\], slice = 2,2"):
        parse_shape_and_slice("3 2,2")


def test_impossible_messages() -> None:
    message = proto.TensorSliceProto()
    message.extent.add(start=-1, length=2)
    with pytest.raises(errors.DataLossError):
        TensorSlice.from_proto(message)
