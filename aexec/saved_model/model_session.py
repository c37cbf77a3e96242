"""`ModelSession`: a session of a SavedModel, which has its variables before anything else runs.

Entering `async with aexec.Session(model)` restores the variables and runs the model's init op, and raises their errors.
A session that is used without entering it does so before its first run, and every run that is started meanwhile waits
for it.  It happens once; if it fails, the runs that waited fail with its error, and the next one tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from aexec.graph.graph import Graph
from aexec.runtime.config import SessionConfig
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.session.session import Session
from aexec.runtime.session.step import Prepared
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread
from aexec.saved_model.complete_model import RestoredModel, has_values_to_restore

__all__ = ["ModelSession", "initialize_model"]

# The session that this task initialises: its own runs do not wait for that.
_initializing: ContextVar[ModelSession | None] = ContextVar("aexec_initializing_session", default=None)


async def initialize_model(session: Session, model: RestoredModel) -> None:
    """Restore the variables of a session of a model's graph, and run the model's init op.

    Raises:
        NotFoundError: the checkpoint lacks a variable, or a file is missing.
        DataLossError: the checkpoint is truncated or corrupt.
        OpError: another error of restoring or of the init op.
    """
    saver, assets = model.meta_graph.saver_def, model.asset_feeds()
    if await run_in_thread(has_values_to_restore, model, on_cancel=OnCancel.ABANDON):
        assert saver is not None
        feeds = {saver.filename_tensor_name: model.variables_prefix.encode(errors="surrogateescape")}
        await session.run([], {**feeds, **assets}, [saver.restore_op_name])
    if model.init_op is not None:
        await session.run([], assets, [model.init_op])


class ModelSession(Session):
    """A session of a SavedModel.  `aexec.Session(model)` makes one.

    Args:
        model: the model to run.
        target: "" for a session in this process.
        config: settings.  By default only what a run needs has to be runnable, since models contain nodes for training
            and saving.
    """

    def __init__(self, model: RestoredModel, target: str = "", config: SessionConfig | Message | None = None) -> None:
        super().__init__(model.meta_graph, target, config or SessionConfig(place_pruned_graph=True))
        self.model = model
        self._ready = False
        self._steps.hold_back = self._when_ready
        self._initialization: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ModelSession:
        await super().__aenter__()
        try:
            await self.initialize()
        except BaseException:
            await self.close()
            raise
        return self

    async def initialize(self) -> None:
        """Restore and initialise the model, unless that was done.  Raises as `initialize_model`."""
        if self._ready:
            return
        if self._initialization is None:
            self._initialization = asyncio.create_task(self._initialize(), name=f"initialize session {self.id}")
        # In a task of its own, for which others may wait too: cancelling one of them must not end it.
        await asyncio.shield(self._initialization)

    async def _initialize(self) -> None:
        _initializing.set(self)
        try:
            await initialize_model(self, self.model)
            self._ready = True
        finally:
            self._initialization = None

    def _when_ready(self, prepared: Prepared) -> Prepared:
        """Return a plan, or a future of one that first waits for the model, unless this step initialises it."""
        if self._ready or _initializing.get() is self:
            return prepared
        return asyncio.ensure_future(self._prepared_when_ready(prepared))

    async def _prepared_when_ready(self, prepared: Prepared) -> CachedPlan:
        await self.initialize()
        return prepared if isinstance(prepared, CachedPlan) else await prepared

    def _release_graph(self) -> None:
        if self._graph.is_own:
            model: Any = self.model
            self.model = replace(model, meta_graph=replace(model.meta_graph, graph=Graph(), message=None))
        super()._release_graph()

    async def close(self, containers: Iterable[str] = ()) -> None:
        """Like any session's `close`; stops initialising."""
        task = self._initialization
        await super().close(containers)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # marks it as seen: those who waited have got it
