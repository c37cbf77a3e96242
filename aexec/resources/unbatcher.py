"""The parts of batches that steps share: who waits for a part by its key, and parts that nobody has asked for yet.

Next to read: `batcher.py`, `aexec/kernels/data_flow/batch_ops.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.waiting.cancellation import CancellationManager, wait

__all__ = ["GradientCollector", "Unbatcher"]

# Parts that are handed out before other tasks of the loop get a turn.
_AT_ONCE = 100


class _OneLoop:
    """What futures of one event loop wait in."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.kept: KeptMemory | None = None

    def _enter(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise errors.FailedPreconditionError("parts of batches cannot be used from two event loops")
        self._loop = loop
        return loop

    def _keep(self, part: Any) -> None:
        if self.kept is not None:
            self.kept.keep((part,))


class Unbatcher(_OneLoop):
    """Gives the parts of batches to the calls with their keys, whichever comes first.

    Args:
        timeout: seconds that a call waits for its part, and a part for its call.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._parts: dict[int, tuple[Any, asyncio.TimerHandle]] = {}

    async def exchange(self, key: int, parts: Iterable[tuple[int, Any]], manager: CancellationManager | None) -> Any:
        """Hand out parts by their keys, and wait for the part with one's own key.

        Args:
            parts: keys and arrays that nothing else writes to.

        Raises:
            AlreadyExistsError: a call with the same key waits, or a part with the same key is there.
            DeadlineExceededError: the part did not come in time.
            CancelledError: cancelled.
            ResourceExhaustedError: the session's limit of kept memory is reached.
        """
        loop = self._enter()
        if key in self._parts:
            part, timer = self._parts.pop(key)
            timer.cancel()
            return part
        if key in self._waiting:
            raise errors.AlreadyExistsError("Multiple session runs with the same batch key.")
        future = self._waiting[key] = loop.create_future()
        try:
            for number, (other, part) in enumerate(parts):
                self._hand_out(loop, other, part)
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
            timer = loop.call_later(self._timeout, _time_is_up, future)
            try:
                return await wait(manager, future, "Unbatch was cancelled")
            finally:
                timer.cancel()
        finally:
            if self._waiting.get(key) is future:
                del self._waiting[key]

    def _hand_out(self, loop: asyncio.AbstractEventLoop, key: int, part: Any) -> None:
        future = self._waiting.pop(key, None)
        if future is not None and not future.done():
            future.set_result(part)
            return
        if key in self._parts:
            raise errors.AlreadyExistsError("Multiple tensors returned for same batch key.")
        self._keep(part)
        self._parts[key] = part, loop.call_later(self._timeout, self._parts.pop, key, None)


def _time_is_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(errors.DeadlineExceededError("Batched data did not arrive within timeout window."))


@dataclass(slots=True, eq=False)
class _Collection:
    """The gradients of one batch.

    Attributes:
        keys: of its parts, in order.
        missing: keys of those that have not come.
        future: completed when all have come.
    """

    keys: Sequence[int]
    missing: set[int]
    future: asyncio.Future[None] = field(repr=False)


class GradientCollector(_OneLoop):
    """Brings together the gradients of a batch's parts, which several calls give, in the call that has the batch."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[int, Any] = {}
        self._wanted: dict[int, _Collection] = {}
        # Keys of gradients that a cancelled call wanted: nobody will ask for them.
        self._unwanted: set[int] = set()

    def give(self, key: int, grad: Any) -> None:
        """Give the gradient of one part, an array that nothing else writes to.

        Raises:
            InvalidArgumentError: it was given already.
            ResourceExhaustedError: the session's limit of kept memory is reached.
        """
        self._enter()
        if key in self._unwanted:
            self._unwanted.discard(key)
            return
        if key in self._given:
            raise errors.InvalidArgumentError("Two runs with the same batch key.")
        self._keep(grad)
        self._given[key] = grad
        collection = self._wanted.pop(key, None)
        if collection is not None:
            collection.missing.discard(key)
            if not collection.missing and not collection.future.done():
                collection.future.set_result(None)

    async def collect(self, keys: Sequence[int], manager: CancellationManager | None) -> list[Any]:
        """Wait for the gradients of parts, in the order of their keys.

        Raises:
            InvalidArgumentError: another call wants one of them, or one is named twice.
            CancelledError: cancelled.
        """
        loop = self._enter()
        missing = {key for key in keys if key not in self._given}
        if len(set(keys)) < len(keys) or any(key in self._wanted for key in missing):
            raise errors.InvalidArgumentError("Missing tensor wanted by more than one batch.")
        if missing:
            collection = _Collection(keys, missing, loop.create_future())
            self._wanted.update(dict.fromkeys(missing, collection))
            try:
                await wait(manager, collection.future, "UnbatchGrad was cancelled")
            except BaseException:
                self._forget(collection)
                raise
        return [self._given.pop(key) for key in keys]

    def _forget(self, collection: _Collection) -> None:
        for key in collection.missing:
            self._wanted.pop(key, None)
        self._unwanted |= collection.missing
        self._drop(key for key in collection.keys if key not in collection.missing)

    def _drop(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._given.pop(key, None)
