"""`CheckpointSaverListener`: told of each checkpoint that a `CheckpointSaverHook` writes.

Next to read: `hooks.py`, which calls it.
"""

from __future__ import annotations

from aexec.training.session_run_hook import Training

__all__ = ["CheckpointSaverListener"]


class CheckpointSaverListener:
    """The base of listeners, which does nothing.  An error of a method ends the training."""

    def begin(self) -> None:
        """Called once, while nodes may still be added to the graph, which is the one being built."""

    async def before_save(self, session: Training, global_step: int | None) -> None:
        """Called before the values of a checkpoint are read."""

    async def after_save(self, session: Training, global_step: int | None) -> bool | None:
        """Called when a checkpoint is written.  Returns True to stop, except after the first and the last one."""
        return None

    async def end(self, session: Training, global_step: int | None) -> None:
        """Called when the training has ended without an error, after the last checkpoint."""
