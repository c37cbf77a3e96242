from __future__ import annotations

import gc

import numpy as np
import pytest

from aexec.framework import dtypes
from aexec.framework.resource_manager import ResourceHandle, make_handle_tensor
from aexec.framework.tensor_buffer import (
    aligned_empty,
    allocation_description,
    allocation_id,
    buffer_of,
    dtype_of,
    is_aligned,
    is_exclusively_owned,
    num_bytes,
    shares_buffer,
    tensor_description,
)


def test_views_share_their_buffer():
    array = np.arange(12.0)
    views = [array[2:], array.reshape(3, 4), array[::-1][1:3], array.view(np.int64), array.reshape(3, 4).T[1:]]
    assert all(shares_buffer(array, view) for view in views)
    assert shares_buffer(array[:2], array[5:])
    assert not shares_buffer(array, array.copy())


def test_borrowed_memory_belongs_to_the_lender():
    lender = bytearray(16)
    first, second = np.frombuffer(lender, np.int32), np.frombuffer(memoryview(lender)[4:], np.int32)
    assert shares_buffer(first, second)
    assert buffer_of(first) is lender


def test_memory_mapped_arrays_share_the_map(tmp_path):
    mapped = np.memmap(tmp_path / "data", np.int32, "w+", shape=8)
    assert shares_buffer(mapped[:2], mapped[4:])


def test_exclusively_owned_means_that_nobody_else_can_see_it():
    array = np.zeros(3)
    assert is_exclusively_owned(array)
    other = array
    assert not is_exclusively_owned(array)
    del other
    assert is_exclusively_owned(array)


def test_a_view_elsewhere_makes_it_shared():
    array = np.zeros(3)
    view = array[1:]
    assert not is_exclusively_owned(array)
    assert not is_exclusively_owned(view)
    del array
    assert is_exclusively_owned(view)
    second = view[:1]
    assert not is_exclusively_owned(view)
    del second
    assert is_exclusively_owned(view)


def test_known_holders_do_not_count():
    held = [np.zeros(3)]
    array = held[0]
    assert not is_exclusively_owned(array)
    assert is_exclusively_owned(array, holders=2)


def test_read_only_and_borrowed_arrays_are_never_owned():
    array = np.zeros(3)
    array.flags.writeable = False
    assert not is_exclusively_owned(array)
    borrowed = np.frombuffer(bytearray(8), np.uint8)
    assert not is_exclusively_owned(borrowed)
    scalar = np.float32(1)
    assert not is_exclusively_owned(scalar)


@pytest.mark.parametrize("alignment", [16, 64, 4096])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex128, dtypes.bfloat16.np, np.int8])
def test_aligned_memory_keeps_the_dtype(alignment, dtype):
    array = aligned_empty((3, 5), dtype, alignment)
    assert array.dtype == dtype
    assert array.shape == (3, 5)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert is_aligned(array, alignment)
    assert is_exclusively_owned(array)


def test_alignment_of_empty_and_object_arrays():
    assert aligned_empty((0, 3), np.float32).shape == (0, 3)
    assert is_aligned(aligned_empty((0, 3), np.float32))
    assert aligned_empty((2,), object).tolist() == [None, None]
    assert aligned_empty((), np.float32).shape == ()
    assert not is_aligned(aligned_empty((4,), np.float32)[1:])


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
