"""Loops of programs that use a `Supervisor`: a thread that calls a function, and a loop of training steps.

Next to read: `supervisor.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aexec.compat.v1.running.coordination import Coordinator
from aexec.framework import errors

__all__ = ["LooperThread", "basic_train_loop"]


class LooperThread(threading.Thread):
    """`tf.train.LooperThread`: calls a function repeatedly until its coordinator is stopped.

    An error in the function stops the coordinator; `coord.join` waits for the thread and raises the error.

    Args:
        coord: the coordinator.
        timer_interval_secs: seconds from one call to the next; None to call without a pause.
        target: the function; by default a subclass overrides `run_loop`.
        args, kwargs: arguments of `target`.

    Raises:
        ValueError: `coord` is not a `Coordinator`, or there are arguments without a target.
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Any] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(coord, Coordinator):
            raise errors.InvalidValueError(f"'coord' argument must be a Coordinator: {coord}")
        if target is None and (args or kwargs):
            raise errors.InvalidValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        super().__init__(daemon=True)
        self._coord = coord
        self._seconds = timer_interval_secs
        self._call = target, tuple(args or ()), dict(kwargs or {})
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Create and start a `LooperThread` with these arguments; return it."""
        looper = LooperThread(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        with self._coord.stop_on_exception():
            self.start_loop()
            due = time.monotonic()
            while not self._is_stopped_before(due):
                due += self._seconds or 0.0
                self.run_loop()
            self.stop_loop()

    def _is_stopped_before(self, due: float) -> bool:
        """Wait until the time `due`, of `time.monotonic`; return True early if the stop is requested."""
        if self._seconds is None:
            return self._coord.should_stop()
        return self._coord.wait_for_stop(max(0.0, due - time.monotonic()))

    def start_loop(self) -> None:
        """Called before the first call."""

    def stop_loop(self) -> None:
        """Called when the stop is requested."""

    def run_loop(self) -> None:
        """Called repeatedly; calls the target."""
        target, args, kwargs = self._call
        if target is not None:
            target(*args, **kwargs)


def basic_train_loop(
    supervisor: Any,
    train_step_fn: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
) -> None:
    """`tf.train.basic_train_loop`: call a function with a supervisor's session until the stop is requested.

    After an AbortedError, the loop continues with a new session.

    Args:
        train_step_fn: called with the session, `*args` and `**kwargs`.
    """
    try:
        while True:
            try:
                with supervisor.managed_session(master, close_summary_writer=False) as session:
                    while not supervisor.should_stop():
                        train_step_fn(session, *(args or ()), **(kwargs or {}))
                return
            except errors.AbortedError:
                continue
    finally:
        if supervisor.summary_writer is not None:
            supervisor.summary_writer.close()
