from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from aexec.framework import dtypes
from aexec.framework.memory.tensor_buffer import (
    STRING_BYTES,
    allocation_description,
    allocation_id,
    buffer_of,
    dtype_of,
    measuring_ns,
    memory_bytes,
    num_bytes,
    tensor_description,
)
from aexec.framework.state.resource_manager import ResourceHandle, make_handle_tensor


def test_views_share_their_buffer():
    array = np.arange(12.0)
    views = [array[2:], array.reshape(3, 4), array[::-1][1:3], array.view(np.int64), array.reshape(3, 4).T[1:]]
    assert all(buffer_of(array) is buffer_of(view) for view in views)
    assert buffer_of(array[:2]) is buffer_of(array[5:])
    assert buffer_of(array) is not buffer_of(array.copy())


def test_borrowed_memory_belongs_to_the_lender():
    lender = bytearray(16)
    first, second = np.frombuffer(lender, np.int32), np.frombuffer(memoryview(lender)[4:], np.int32)
    assert buffer_of(first) is buffer_of(second)
    assert buffer_of(first) is lender


def test_memory_mapped_arrays_share_the_map(tmp_path):
    mapped = np.memmap(tmp_path / "data", np.int32, "w+", shape=8)
    assert buffer_of(mapped[:2]) is buffer_of(mapped[4:])


def test_strings_count_with_their_contents_each_object_once():
    few = [b"abc", b"defgh", 7]
    array = np.empty((50_000, 2), object)
    array[:] = few[:2]
    array[40_000:, 1] = few[2]
    array[49_999, 0] = b"x" * 1000
    assert num_bytes(array) == 8 * array.size + 3 + 5 + 1000
    assert num_bytes(array[::2]) == 4 * array.size + 3 + 5
    assert measuring_ns(array) > 1e6 and measuring_ns(np.ones(50_000)) == 0


def test_allocation_ids_are_of_buffers_and_never_used_again():
    array = np.zeros(3)
    first = allocation_id(array)
    assert allocation_id(array) == first == allocation_id(array[1:])
    assert allocation_id(array.copy()) != first
    seen = {first}
    for _ in range(20):
        temporary = np.zeros(3)
        seen.add(allocation_id(temporary))
        del temporary
        gc.collect(0)
    assert len(seen) == 21
    assert allocation_id(np.float32(1)) == 0


@pytest.mark.parametrize(
    ("array", "dtype", "size"),
    [
        (np.zeros((2, 3), np.float32), dtypes.float32, 24),
        (np.float64(1), dtypes.float64, 8),
        (np.array([b"ab", b"c"], object), dtypes.string, 16 + 3),
        (np.empty((0,), object), dtypes.string, 0),
        (make_handle_tensor(ResourceHandle()), dtypes.resource, 8),
        (np.array(None, object), dtypes.variant, 8),
    ],
)
def test_types_and_sizes_of_arrays(array, dtype, size):
    assert dtype_of(array) is dtype
    assert num_bytes(array) == size


def test_strings_count_once_and_with_what_python_needs_for_them():
    few = [b"%d" % i * 20 for i in range(7)]
    array = np.array(few * 3000, object)  # more than are looked at together
    assert num_bytes(array) == array.nbytes + 7 * 20
    assert memory_bytes(array) == num_bytes(array) + 7 * STRING_BYTES
    distinct = np.array([b"%06d" % i for i in range(9000)] + [None], object)
    for view in (distinct, distinct[::-1], distinct[:-1].reshape(90, 100).T):
        assert num_bytes(view) == view.nbytes + 9000 * 6
    assert memory_bytes(np.zeros(5)) == 40


def test_measuring_strings_takes_little_itself():
    array = np.full(1_000_000, b"x", object)
    tracemalloc.start()
    try:
        assert memory_bytes(array) == array.nbytes + 1 + STRING_BYTES
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


def test_descriptions():
    array = np.zeros((2, 3), np.float32)
    message = tensor_description(array)
    assert message.dtype == 1
    assert [d.size for d in message.shape.dim] == [2, 3]
    allocation = message.allocation_description
    assert allocation.requested_bytes == allocation.allocated_bytes == 24
    assert allocation.allocator_name == "cpu"
    assert allocation.ptr == array.ctypes.data
    assert allocation.allocation_id == allocation_id(array)
    assert tensor_description(np.zeros(1, np.int8), dtypes.qint8).dtype == dtypes.qint8.enum
    assert allocation_description(np.float32(1)).requested_bytes == 4
