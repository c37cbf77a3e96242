"""`RemoteStep`: a step that runs in a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from aexec.framework import errors
from aexec.framework.html_repr import block, facts_table
from aexec.framework.waiting.futures import until_done
from aexec.runtime.session.step_view import StepState

__all__ = ["GRACE", "RemoteStep"]

# Seconds that a step may take to end once it was cancelled or its deadline came, before its connection is closed, which
# cancels it too.
GRACE = 5.0


class RemoteStep:
    """One run in a server.  Made by `RemoteSession.start`; await it for the results.

    Attributes:
        run_id: its name in the server, by which others see and cancel it.
    """

    def __init__(
        self,
        run_id: str,
        run: Callable[[], Awaitable[Any]],
        cancel: Callable[[str], Awaitable[object]],
        timeout: float | None,
    ) -> None:
        """Make a step that has begun.

        Args:
            run: waits for its results.
            cancel: asks the server to cancel it, with a reason.
            timeout: seconds after which it ends with DeadlineExceededError, even if the network fails; None for no
                limit.
        """
        self.run_id = run_id
        self._run = run
        self._tell = cancel
        self._timeout = timeout
        self._state = StepState.RUNNING
        self._reason: str | None = None
        self._loop = asyncio.get_running_loop()
        self._telling: asyncio.Task[None] | None = None
        self._task = self._loop.create_task(self._wait(), name=f"remote step {run_id}")
        # It need not be awaited: an error is not reported if it is not awaited.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def state(self) -> StepState:
        return self._state

    @property
    def done(self) -> bool:
        """True if it has ended, in whichever way."""
        return self._task.done()

    def cancel(self, reason: str = "") -> bool:
        """Ask the step to stop; True if this call is what cancels it.

        May be called from any thread, and any number of times.  The step ends with `CancelledError` when the server
        reports that it has ended there, or cannot be reached.
        """
        if self.done or self._reason is not None:
            return False
        self._reason = reason or "by request"
        self._loop.call_soon_threadsafe(self._begin_to_tell)
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        return self._outcome().__await__()

    async def _outcome(self) -> Any:
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self.cancel("the awaiting task was cancelled")
            await until_done(self._task)
            raise
        return self._task.result()

    async def settle(self) -> None:
        """Wait until nothing of it is under way any more.  Raises nothing of its own."""
        await asyncio.wait([self._task])
        if self._telling is not None:
            await asyncio.wait([self._telling])

    def _begin_to_tell(self) -> None:
        if not self.done:
            self._telling = self._loop.create_task(self._stop(self._reason or ""), name=f"cancel {self.run_id}")

    async def _stop(self, reason: str) -> None:
        try:
            async with asyncio.timeout(GRACE):
                await self._tell(reason)
                await asyncio.wait([self._task])
        except (TimeoutError, errors.OpError):
            self._task.cancel()  # which closes the connection

    async def _wait(self) -> Any:
        try:
            async with asyncio.timeout(None if self._timeout is None else self._timeout + GRACE):
                result = await self._run()
        except asyncio.CancelledError:
            self._state = StepState.CANCELLED
            raise errors.CancelledError(f"Run {self.run_id} was cancelled: {self._reason}") from None
        except TimeoutError:
            self._state = StepState.FAILED
            raise errors.DeadlineExceededError(
                f"Run {self.run_id} has a deadline of {self._timeout} s, and its server does not answer"
            ) from None
        except errors.CancelledError:
            self._state = StepState.CANCELLED
            raise
        except errors.OpError:
            self._state = StepState.FAILED
            raise
        self._state = StepState.SUCCEEDED
        return result

    def _repr_html_(self) -> str:
        return block("RemoteStep", self.run_id, facts_table({"state": self._state.value, "cancelled": self._reason}))

    def __repr__(self) -> str:
        return f"<RemoteStep {self.run_id}: {self._state.value}>"
