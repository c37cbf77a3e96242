from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.memory import allocator as allocators
from aexec.framework.memory.allocator import (
    AllocatorAttributes,
    AllocatorStats,
    CpuAllocator,
    ReusedScratch,
    TrackedAllocations,
    TrackingAllocator,
    watching,
)
from aexec.framework.memory.tensor_buffer import buffer_of
from aexec.framework.op_contract.op_registry import global_registry
from aexec.kernels.common.allocation import allocator as output_allocator


def is_aligned(array: np.ndarray[Any, Any], alignment: int = 64) -> bool:
    return array.ctypes.data % alignment == 0


def test_memory_is_aligned_and_writeable():
    cpu = CpuAllocator()
    for size in (1, 63, 64, 1000):
        memory = cpu.allocate(size)
        assert memory.shape == (size,)
        assert is_aligned(memory)
        memory[:] = 7
    assert is_aligned(cpu.allocate(10, alignment=4096), 4096)


def test_statistics_follow_the_lives_of_arrays():
    cpu = CpuAllocator()
    first, second = cpu.allocate(100), cpu.allocate(300)
    assert cpu.stats() == AllocatorStats(2, 400, 400, 300, None)
    view = first[10:].view(np.int8)
    del first
    assert cpu.stats().bytes_in_use == 400
    del view
    assert cpu.stats() == AllocatorStats(2, 300, 400, 300, None)
    cpu.clear_stats()
    assert cpu.stats() == AllocatorStats(0, 300, 300, 0, None)
    del second
    assert cpu.stats().bytes_in_use == 0
    assert repr(cpu) == "<CpuAllocator cpu: Limit: none, InUse: 0, MaxInUse: 300, NumAllocs: 0, MaxAllocSize: 0>"


def test_sizes_and_ids_are_tracked_through_views():
    cpu = CpuAllocator()
    first, second = cpu.allocate(100), cpu.allocate(50)
    assert cpu.requested_size(first[3:]) == 100
    assert cpu.allocated_size(second) >= 50
    assert [cpu.allocation_id(first), cpu.allocation_id(second[1:])] == [1, 2]
    assert cpu.allocation_id(np.zeros(3)) == 0
    with pytest.raises(errors.InvalidArgumentError, match="is not from allocator cpu"):
        cpu.requested_size(np.zeros(3))


def test_limit_holds_until_memory_comes_back():
    cpu = CpuAllocator("small", limit_bytes=1000)
    kept = cpu.allocate(800)
    with pytest.raises(errors.ResourceExhaustedError, match="300 bytes wanted, 800 of 1000 bytes in use"):
        cpu.allocate(300)
    del kept
    assert cpu.allocate(300).size == 300


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool_, dtypes.complex128, dtypes.bfloat16, dtypes.int8])
def test_aligned_memory_keeps_the_dtype(dtype):
    tensor = CpuAllocator().allocate_tensor((3, 5), dtype)
    assert (tensor.shape, tensor.dtype) == ((3, 5), dtype.np)
    assert tensor.flags.c_contiguous and tensor.flags.writeable
    assert is_aligned(tensor)


def test_tensors_have_their_type_and_shape():
    cpu = CpuAllocator()
    tensor = cpu.allocate_tensor((2, 3), dtypes.float32)
    assert (tensor.shape, tensor.dtype) == ((2, 3), np.float32)
    assert is_aligned(tensor)
    assert cpu.stats().bytes_in_use == 24


@pytest.mark.parametrize(
    ("shape", "dtype"), [((0, 3), dtypes.float32), ((2,), dtypes.string), ((), dtypes.resource), ((2,), dtypes.variant)]
)
def test_empty_tensors_and_objects_take_no_memory(shape, dtype):
    cpu = CpuAllocator()
    tensor = cpu.allocate_tensor(shape, dtype)
    assert tensor.shape == shape
    assert cpu.stats().num_allocs == 0


@pytest.mark.parametrize(("device", "where"), [("", ""), ("/device:CPU:0", " on /device:CPU:0")])
def test_out_of_memory_names_shape_type_device_and_allocator(device, where):
    cpu = CpuAllocator("small", limit_bytes=10)
    with pytest.raises(errors.ResourceExhaustedError) as caught:
        cpu.allocate_tensor((2, 3), dtypes.float32, device)
    expected = f"OOM when allocating tensor with shape[2,3] and type float{where} by allocator small"
    assert caught.value.message.startswith(expected)


def test_more_than_the_machine_has_is_out_of_memory():
    with pytest.raises(errors.ResourceExhaustedError, match=r"OOM when allocating tensor with shape\[1152921504606846"):
        CpuAllocator().allocate_tensor((2**60,), dtypes.int8)


def test_many_threads_allocate_and_drop():
    cpu = CpuAllocator()

    def work() -> None:
        kept = []
        for i in range(200):
            kept.append(cpu.allocate(10))
            if i % 3:
                kept.pop(0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = cpu.stats()
    assert (stats.num_allocs, stats.bytes_in_use) == (800, 0)


def test_tracking_allocator_records_what_goes_through_it():
    cpu = CpuAllocator()
    elsewhere = cpu.allocate(1000)
    tracking = TrackingAllocator(cpu)
    first = tracking.allocate(100)
    second = tracking.allocate(50)
    del first
    third = tracking.allocate_tensor((5,), dtypes.float64)
    used = tracking.used()
    assert (used.allocator_name, used.total_bytes, used.peak_bytes, used.live_bytes) == ("cpu", 190, 150, 90)
    assert used.allocator_bytes_in_use == 1000 + 90
    assert [r.alloc_bytes for r in used.allocation_records] == [100, 50, -100, 40]
    assert tracking.requested_size(third) == 40
    assert tracking.allocation_id(third) == cpu.allocation_id(third)
    assert tracking.allocated_size(second) == cpu.allocated_size(second)
    tracking.clear_stats()
    assert tracking.stats() == cpu.stats()
    assert cpu.stats().num_allocs == 0
    del elsewhere


def test_attributes_are_subsets_of_each_other():
    none, host, gpu = AllocatorAttributes.NONE, AllocatorAttributes.ON_HOST, AllocatorAttributes.GPU_COMPATIBLE
    assert none.is_subset_of(host)
    assert host.is_subset_of(host | gpu)
    assert not (host | gpu).is_subset_of(host)


def test_allocator_of_highest_priority_is_the_cpus(monkeypatch):
    monkeypatch.setattr(allocators, "_makers", dict(allocators._makers))
    monkeypatch.setattr(allocators, "_made", dict(allocators._made))
    assert allocators.cpu_allocator() is allocators.get_allocator("cpu")
    allocators.register_allocator("pinned", lambda: CpuAllocator("pinned"), priority=10)
    assert allocators.cpu_allocator().name == "pinned"
    assert allocators.cpu_allocator() is allocators.cpu_allocator()
    assert allocators.allocator_names() == ["pinned", "cpu"]
    with pytest.raises(errors.AlreadyExistsError, match="'pinned' is registered already"):
        allocators.register_allocator("pinned", CpuAllocator)
    with pytest.raises(errors.NotFoundError, match="no allocator named 'gpu'; there are cpu, pinned"):
        allocators.get_allocator("gpu")


def test_allocator_that_tracks_nothing_says_so():
    class Plain(allocators.Allocator):
        name = "plain"

        def allocate(self, num_bytes, alignment=64):
            return np.empty(num_bytes, np.uint8)

        def stats(self):
            return AllocatorStats()

        def clear_stats(self):
            pass

    plain = Plain()
    array = plain.allocate_tensor((2,), dtypes.int32)
    assert plain.allocation_id(array) == 0
    with pytest.raises(errors.UnimplementedError, match="plain does not track allocation sizes"):
        plain.allocated_size(array)


def test_array_at_the_address_of_a_dead_one_keeps_its_entry():
    """Memory may die after a call has accounted for the dead, and its address be used again by that call."""
    cpu = CpuAllocator()
    first = cpu.allocate(100)
    second = cpu.allocate(200)
    cpu._live[1] = cpu._live[1]._replace(owner=id(buffer_of(second)))  # as if the first had been there
    del first
    assert cpu.stats().bytes_in_use == 200
    assert cpu.allocation_id(second) == 2
    assert cpu.requested_size(second) == 200


def test_large_outputs_come_from_the_devices_allocator_and_small_ones_while_they_are_watched():
    taken = allocators.get_allocator("cpu")
    construction = OpKernelConstruction(
        name="n", op_def=global_registry.lookup("Fill").op_def, attrs={}, input_types=[], output_types=[dtypes.float32]
    )
    allocate = output_allocator(construction)
    before = taken.stats().num_allocs
    small, large = allocate([3]), allocate((1 << 20, np.int64(2)))
    assert (small.shape, large.shape, is_aligned(large)) == ((3,), (1 << 20, 2), True)
    assert taken.stats().num_allocs == before + 1
    assert not allocate([1 << 20], np.zeros).any()
    with allocators.tracking_allocations() as tracked:
        allocate(np.array([2, 2]))
    assert [used.total_bytes for used in tracked.used()] == [16]
    assert allocators.WATCHED_CALLS == [0]


def test_reused_scratch_counts_what_most_is_taken_at_a_time() -> None:
    announced: list[int] = []

    class Watcher(TrackedAllocations):
        def announce_scratch(self, num_bytes: int) -> None:
            announced.append(num_bytes)

    with watching(Watcher()):
        scratch = ReusedScratch()
        for num_bytes in (100, 30, 100, 150, 10):
            scratch.announce(num_bytes)
    assert announced == [100, 50]
