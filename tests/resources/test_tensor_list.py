"""How a list of tensors is encoded as a variant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire import variant
from aexec.framework.wire.variant import VariantTensorData
from aexec.resources.tensor_list import TensorList

elements = st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=6)


@given(elements, st.one_of(st.just(-1), st.integers(0, 2**40)), st.sampled_from([None, [], [None]]))
def test_list_comes_back(values: list[int | None], limit: int, shape: list[int | None] | None) -> None:
    arrays = [None if v is None else np.int64(v) for v in values]
    made = TensorList(dtypes.int64, PartialTensorShape(shape), arrays, limit)
    message = variant.encode(made)
    assert message.type_name == "tensorflow::TensorList"
    again = variant.decode(message)
    assert isinstance(again, TensorList)
    assert again.elements == arrays
    assert (again.dtype, again.element_shape, again.max_elements) == (made.dtype, made.element_shape, limit)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x05",
        b"\x80" * 11,
        b"\x01\x09\x01\x00",  # element 9 of one is not set
        b"\x02\x00\x00\x01\x00",  # element 0 twice
        b"\x00\x01\x00\xff",  # no shape
        b"\x00\x63\x00",  # no type
    ],
)
def test_invalid_list_is_refused(metadata: bytes) -> None:
    message = VariantTensorData("tensorflow::TensorList", metadata).to_proto()
    with pytest.raises(errors.InvalidArgumentError):
        variant.decode(message)
