"""Large outputs of elementwise kernels are memory of the host's allocator where one is registered."""

from __future__ import annotations

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.framework.memory import allocator as allocators
from aexec.framework.memory.allocator import CpuAllocator


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> CpuAllocator:
    monkeypatch.setattr(allocators, "_makers", dict(allocators._makers))
    monkeypatch.setattr(allocators, "_made", dict(allocators._made))
    made = CpuAllocator("pinned")
    allocators.register_allocator("pinned", lambda: made, priority=10)
    return made


@pytest.mark.parametrize(
    "make", [lambda x, y: x + y, lambda x, y: ops.neg(x), lambda x, y: ops.relu(x), lambda x, y: x * 2.0]
)
async def test_large_outputs_are_its_memory(registered: CpuAllocator, make: object) -> None:
    with aexec.Graph() as graph:
        x, y = aexec.placeholder("float32", [None, None]), aexec.placeholder("float32", [None])
        result = make(x, y)  # type: ignore[operator]
    large, small = np.full((1024, 1024), -1.5, np.float32), np.ones((2, 1024), np.float32)
    row = np.arange(1024, dtype=np.float32)
    async with aexec.Session(graph) as session:
        for _ in range(4):  # interpreted, then compiled
            before = registered.stats().num_allocs
            found = await session.run(result, {x: large, y: row})
            assert registered.stats().num_allocs == before + 1
            await session.run(result, {x: small, y: row})
            assert registered.stats().num_allocs == before + 1
    assert registered.stats().bytes_in_use >= found.nbytes
    async with aexec.Session(graph) as session:
        again = await session.run(result, {x: large[:2], y: row})
    np.testing.assert_array_equal(found[:2], again)


async def test_shapes_that_do_not_fit_are_refused_as_without(registered: CpuAllocator) -> None:
    with aexec.Graph() as graph:
        x, y = aexec.placeholder("float32", [None]), aexec.placeholder("float32", [None])
        result = x + y
    async with aexec.Session(graph) as session:
        with pytest.raises(aexec.errors.InvalidArgumentError, match="Incompatible shapes"):
            await session.run(result, {x: np.ones(1 << 20), y: np.ones(3)})
    assert registered.stats().num_allocs == 0
