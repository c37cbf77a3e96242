"""`tf.train.ProfilerHook`: traces of steps of a training, for a browser and for TensorBoard.

Next to read: `aexec/compat/v1/running/timeline.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from aexec import proto, training
from aexec.compat.v1.running.more_hooks import SecondOrStepTimer
from aexec.compat.v1.running.summary import FileWriterCache
from aexec.compat.v1.running.timeline import Timeline
from aexec.compat.v1.values.framework_ops import get_global_step
from aexec.queues.coordinator import Coordinator
from aexec.runtime.config import RunOptions
from aexec.training.session_run_hook import Training

__all__ = ["ProfilerHook"]


class ProfilerHook(training.SessionRunHook):
    """`tf.train.ProfilerHook`: writes `timeline-STEP.json` every so many steps or seconds; the first interval has none.

    The same measurements are added to the events of the folder, under the tag `step_STEP`.  Raises ValueError unless
    exactly one of `save_steps` and `save_secs` is given.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._folder = output_dir
        self._shows = {"show_dataflow": show_dataflow, "show_memory": show_memory}
        # Steps so far; None until a step has run in this session.
        self._count: int | None = None
        self._due = False

    def begin(self) -> None:
        """Raises RuntimeError if the graph has no global step."""
        self._writer = FileWriterCache.get(self._folder)
        if get_global_step() is None:
            raise RuntimeError("Global step should be created to use ProfilerHook.")

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        self._count = None
        self._timer.update_last_triggered_step(await session.global_step() or 0)

    async def before_run(self, context: training.SessionRunContext) -> training.SessionRunArgs | None:
        self._due = self._count is not None and self._timer.should_trigger_for_step(self._count + 1)
        return training.SessionRunArgs([], options=RunOptions(trace=True)) if self._due else None

    async def after_run(self, context: training.SessionRunContext, values: training.SessionRunValues) -> None:
        self._count = values.global_step or 0
        if self._due and values.metadata is not None:
            self._timer.update_last_triggered_step(self._count)
            await asyncio.to_thread(self._write, values.metadata.to_proto(), self._count)

    def _write(self, metadata: proto.RunMetadata, step: int) -> None:
        text = Timeline(metadata.step_stats).generate_chrome_trace_format(**self._shows)
        file = Path(self._folder, f"timeline-{step}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        self._writer.add_run_metadata(metadata, f"step_{step}")
