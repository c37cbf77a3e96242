"""Self time: for how long a traced call itself computed.

Waits do not count, nor do traced calls inside it, such as the nodes of a called function, some of which run on the
call's own stack.
Next to read: `tracing.py`, which watches calls; `profile.py`, which adds the times up.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Coroutine, Generator
from time import perf_counter_ns
from typing import Any

__all__ = ["SelfTime", "awaited"]


class _Ended(threading.local):
    """For each thread, the ns of watched blocks that ended inside the present one."""

    nanoseconds = 0


_ended = _Ended()


class SelfTime:
    """Adds up the time in which one call computes: each part is a `with` block, on any thread.

    Attributes:
        nanoseconds: the time of all blocks, without watched blocks inside them.
        nested: True if there were such blocks.
    """

    __slots__ = ("_began", "_outer", "nanoseconds", "nested")

    def __init__(self) -> None:
        self.nanoseconds = 0
        self.nested = False

    def __enter__(self) -> None:
        self._outer, _ended.nanoseconds = _ended.nanoseconds, 0
        self._began = perf_counter_ns()

    def __exit__(self, *exc_info: object) -> None:
        elapsed = perf_counter_ns() - self._began
        self.nanoseconds += elapsed - _ended.nanoseconds
        self.nested |= _ended.nanoseconds > 0
        _ended.nanoseconds = self._outer + elapsed


async def awaited(coroutine: Coroutine[Any, Any, Any], self_time: SelfTime) -> Any:
    """Await a coroutine, adding up its time between waits; return or raises as it does."""
    return await _driven(coroutine, self_time)


@types.coroutine
def _driven(coroutine: Coroutine[Any, Any, Any], self_time: SelfTime) -> Generator[Any, Any, Any]:
    step, argument = coroutine.send, None
    while True:
        try:
            with self_time:
                wanted = step(argument)
        except StopIteration as end:
            return end.value
        try:
            step, argument = coroutine.send, (yield wanted)
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            step, argument = coroutine.throw, error
