from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.framework.wire.wire_format import put_varint
from aexec.io.coding import get_varint, name_slice_key
from aexec.io.crc32c import crc32c, mask, masked_crc32c, unmask


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_varints_come_back(value: int, after: bytes) -> None:
    encoded = put_varint(value)
    assert get_varint(b"x" + encoded + after, 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10 + b"\x01"])
def test_varint_that_is_cut_off_or_too_long(data: bytes) -> None:
    with pytest.raises(errors.DataLossError):
        get_varint(data, 0)


def test_known_keys_of_slices() -> None:
    assert name_slice_key(b"a", [(0, -1), (3, 2)]) == b"\0a\0\1\x01\x02\x80\x7f\x83\x82"
    assert name_slice_key(b"\0\xff", []) == b"\0\0\xff\xff\0\0\1\0"
    assert name_slice_key(b"", [(64, 300)]) == b"\0\0\1\x01\x01\xc0\x40\xc1\x2c"


@given(st.lists(st.tuples(st.integers(0, 2**30), st.integers(-1, 2**30)), min_size=1, max_size=1), st.data())
def test_keys_sort_as_the_extents_do(extents: list[tuple[int, int]], data: st.DataObject) -> None:
    other = [(data.draw(st.integers(0, 2**30)), data.draw(st.integers(-1, 2**30)))]
    assert (name_slice_key(b"n", extents) < name_slice_key(b"n", other)) == (extents < other)


def test_known_checksums() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789")
    assert masked_crc32c(b"123456789") == mask(0xE3069283)


@given(st.integers(0, 2**32 - 1))
def test_masking_is_undone(crc: int) -> None:
    assert unmask(mask(crc)) == crc
    assert mask(crc) != crc
