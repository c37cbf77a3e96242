"""Parts of batches: who takes them, and what is kept; the kernels' tests have the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.resources.unbatcher import GradientCollector, Unbatcher

LONG = 3600.0


def part(*values: float) -> Any:
    return np.array(values)


def limited(holder: Any, num_bytes: int) -> Any:
    holder.kept = KeptMemory(MemoryAccount("session", limit=num_bytes))
    return holder


async def test_parts_that_wait_count_as_memory_of_the_session() -> None:
    large = np.zeros(1 << 18)
    unbatcher = limited(Unbatcher(LONG), 1 << 20)
    with pytest.raises(errors.ResourceExhaustedError):
        await unbatcher.exchange(1, [(1, part(1)), (2, large)], None)
    collector = limited(GradientCollector(), 1 << 20)
    with pytest.raises(errors.ResourceExhaustedError):
        collector.give(1, large)


async def test_cancelled_wait_takes_no_part() -> None:
    manager, unbatcher = CancellationManager(), Unbatcher(LONG)
    waiting = asyncio.ensure_future(unbatcher.exchange(1, (), manager))
    await asyncio.sleep(0)
    manager.start_cancel()
    with pytest.raises(errors.CancelledError):
        await waiting
    assert (await unbatcher.exchange(2, [(1, part(5)), (2, part(6))], None)).tolist() == [6]
    assert (await unbatcher.exchange(1, (), None)).tolist() == [5]


async def test_error_of_a_handed_out_part_leaves_no_wait() -> None:
    unbatcher = Unbatcher(LONG)
    parts = [(2, part(1)), (2, part(2))]
    with pytest.raises(errors.AlreadyExistsError, match="Multiple tensors returned for same batch key"):
        await unbatcher.exchange(1, parts, None)
    assert (await unbatcher.exchange(1, [(1, part(3))], None)).tolist() == [3]


async def test_batch_that_wants_what_another_wants_is_refused() -> None:
    collector = GradientCollector()
    first = asyncio.ensure_future(collector.collect([1, 2], None))
    await asyncio.sleep(0)
    with pytest.raises(errors.InvalidArgumentError, match="wanted by more than one batch"):
        await collector.collect([2, 3], None)
    collector.give(2, part(2))
    collector.give(1, part(1))
    assert [p.tolist() for p in await first] == [[1], [2]]


@pytest.mark.parametrize("make", [lambda: Unbatcher(LONG), GradientCollector])
def test_second_event_loop_is_refused(make: Any) -> None:
    holder = make()

    async def use() -> None:
        if isinstance(holder, Unbatcher):
            await holder.exchange(1, [(1, part(1))], None)
        else:
            holder.give(1, part(1))

    asyncio.run(use())
    with pytest.raises(errors.FailedPreconditionError, match="two event loops"):
        asyncio.run(use())
