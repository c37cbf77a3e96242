"""The less common hooks of `tf.train`, and the timer that programs use in hooks.

Next to read: `training.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from aexec.compat.v1.running.training import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from aexec.compat.v1.values.framework_ops import get_global_step
from aexec.framework import errors

__all__ = ["FeedFnHook", "FinalOpsHook", "GlobalStepWaiterHook", "SecondOrStepTimer"]


class SecondOrStepTimer:
    """`tf.train.SecondOrStepTimer`: tells whether an action is due, every so many steps or seconds.

    Raises:
        ValueError: both intervals are given, or neither.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if every_secs is None and every_steps is None:
            raise errors.InvalidValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise errors.InvalidValueError("Can not provide both every_secs and every_steps.")
        self._every_secs, self._every_steps = every_secs, every_steps
        self.reset()

    def reset(self) -> None:
        """Forget the last time, so that the action is due at the next step."""
        self._last: tuple[int, float] | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether the action is due at a step; False at the step of the last time."""
        if self._last is None:
            return True
        if self._last[0] == step:
            return False
        if self._every_secs is not None:
            return time.time() >= self._last[1] + self._every_secs
        return self._every_steps is not None and step >= self._last[0] + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Record that the action was done at a step.

        Returns:
            Seconds and steps since the last time; (None, None) the first time.
        """
        now, before = time.time(), self._last
        self._last = step, now
        return (None, None) if before is None else (now - before[1], step - before[0])

    def last_triggered_step(self) -> int | None:
        """The step at which the action was last done; None before the first time."""
        return None if self._last is None else self._last[0]


class FeedFnHook(SessionRunHook):
    """`tf.train.FeedFnHook`: feeds each step with the dict that a function returns."""

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())


class FinalOpsHook(SessionRunHook):
    """`tf.train.FinalOpsHook`: runs fetches at the end of the training.

    Attributes:
        final_ops_values: the values of the fetches; None before the end.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Mapping[Any, Any] | None = None) -> None:
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self.final_ops_values: Any = None

    def end(self, session: Any) -> None:
        if self._final_ops is not None:
            self.final_ops_values = session.run(self._final_ops, feed_dict=self._final_ops_feed_dict)


class GlobalStepWaiterHook(SessionRunHook):
    """`tf.train.GlobalStepWaiterHook`: blocks the first step until other workers have reached a global step.

    Raises:
        RuntimeError: the graph has no global step.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._waited = wait_until_step <= 0

    def begin(self) -> None:
        self._step = get_global_step()
        if self._step is None:
            raise RuntimeError("Global step should be created to use _GlobalStepWaiterHook.")

    def before_run(self, run_context: SessionRunContext) -> None:
        while not self._waited:
            self._waited = run_context.session.run(self._step) >= self._wait_until_step
            if not self._waited:
                time.sleep(0.5)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Nothing to do."""
