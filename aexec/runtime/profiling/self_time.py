"""Self time: for how long a traced call computed by itself.

What it awaits does not count, nor what other traced calls did within it: a function's body, say, whose nodes run while
its call waits for them, some of them on its own stack.
Next to read: `tracing.py`, which watches calls; `profile.py`, which adds up.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Coroutine, Generator
from time import perf_counter_ns
from typing import Any

__all__ = ["SelfTime", "awaited"]


class _Ended(threading.local):
    """Per thread: nanoseconds of the watched stretches that ended within the one that is on now."""

    nanoseconds = 0


_ended = _Ended()


class SelfTime:
    """Adds up the stretches in which one call computes: each is a `with` block, on whatever thread.

    Attributes:
        nanoseconds: of all stretches, without what was watched within them.
        nested: whether there was any such.
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
    """Await `coroutine`, adding up the stretches between its waits; gives what it returns, raises what it raises."""
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
