"""`TrainingSession`: a session that initialises or restores itself, feeds queues, calls hooks, and recovers.

::

    async with aexec.training.TrainingSession(graph, checkpoint_dir="run", hooks=[StopAtStepHook(last_step=1000)]) as s:
        while not s.should_stop():
            await s.run(train)

A step that has begun is finished, even if the task that runs it is cancelled, so the variables are always those of
whole steps.  Several tasks may run steps at once.  A checkpoint is read between steps, at one moment, and written while
others run.
Next to read: `session_run_hook.py` and `hooks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from aexec.client.building import group
from aexec.framework import errors
from aexec.framework.waiting.thrown_errors import forget_frames
from aexec.graph.collections import GraphKeys
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import require_graph
from aexec.queues.coordinator import Coordinator
from aexec.queues.queue_runner import start_queue_runners
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.session.session import Session
from aexec.training.checkpoint_state import latest_checkpoint
from aexec.training.hooks import CheckpointSaverHook
from aexec.training.saver import Saver
from aexec.training.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from aexec.training.step_counter import get_global_step, global_step
from aexec.variables.initialization import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)

__all__ = ["TrainingSession"]

logger = logging.getLogger(__name__)

# Errors of a worker or device that went away, which a new session may not have.
_RECOVERABLE = (errors.AbortedError, errors.UnavailableError)
_TRY_AGAIN_SECONDS = 0.2


class TrainingSession:
    """An asynchronous context manager: a session that initialises or restores itself, runs hooks and queue runners, and
    recovers from lost workers.

    Leaving the block stops the queue runners and closes the session.  Running out of input (OutOfRangeError) ends the
    block without an error.  SIGINT and SIGTERM request the stop, so that hooks can write what they have to; a second
    signal cancels the task.

    Args:
        graph: by default the one being built.  Nodes are added to it here.
        checkpoint_dir: restored from, and saved to by a `CheckpointSaverHook`; by default nothing is kept.
        checkpoint_path: a checkpoint that is restored in any case.
        hooks: called around each step, in this order.
        save_checkpoint_steps: how often to save, in steps.
        save_checkpoint_secs: how often to save, in seconds; 600 by default, unless steps are given; with 0, values are
            restored from `checkpoint_dir` and not saved.
        saver: saves and restores; by default all global variables.
        init_op: initialises what no checkpoint has; by default all global variables.
        init_feeds: for `init_op`.
        init_fn: of a session; awaited after `init_op`.
        local_init_op: run in each new session; by default it initialises local variables and tables.
        ready_op: names of what is not initialised yet, a vector of strings; by default of the variables.
        make_session: makes a session of the graph, again after each failure; by default `Session(graph)`.
        recovery_seconds: how long to retry if the session cannot be made or restored, because workers of a cluster are
            still missing.
        handle_signals: handle signals as described; only in the main thread.
        finish_seconds: how long a step of a cancelled task may go on before it is cancelled itself.  A step that waits
            for input has changed nothing yet.

    Raises:
        FailedPreconditionError: no graph is given and none is being built.
    """

    def __init__(
        self,
        graph: Graph | None = None,
        *,
        checkpoint_dir: str | None = None,
        checkpoint_path: str | None = None,
        hooks: Iterable[SessionRunHook] = (),
        save_checkpoint_steps: int | None = None,
        save_checkpoint_secs: float | None = None,
        saver: Saver | None = None,
        init_op: Node | None = None,
        init_feeds: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Session], Awaitable[None]] | None = None,
        local_init_op: Node | None = None,
        ready_op: Tensor | None = None,
        make_session: Callable[[Graph], Any] = Session,
        recovery_seconds: float = 30.0,
        handle_signals: bool = True,
        finish_seconds: float = 30.0,
    ) -> None:
        self.graph = require_graph() if graph is None else graph
        self.hooks = list(hooks)
        self.coordinator = Coordinator()
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_path = checkpoint_path
        self._init_feeds = init_feeds
        self._init_fn = init_fn
        self._make_session = make_session
        self._recovery_seconds = recovery_seconds
        self._handle_signals = handle_signals
        self._finish_seconds = finish_seconds
        self._session: Session | None = None
        self._recovering = asyncio.Lock()
        self._recoverer: asyncio.Task[Any] | None = None
        self._stop = asyncio.Event()
        self._restore_signals: Callable[[], None] = lambda: None
        self._steps = _Turnstile()
        with self.graph:
            self._global_step = get_global_step()
            if saver is None and (checkpoint_dir is not None or checkpoint_path is not None):
                saver = Saver(global_variables())
            self._saver = saver
            if saver is not None and checkpoint_dir is not None and save_checkpoint_secs != 0:
                self.hooks.append(
                    CheckpointSaverHook(
                        checkpoint_dir, save_steps=save_checkpoint_steps, save_secs=save_checkpoint_secs
                    )
                )
            for hook in self.hooks:
                hook.begin()
            self._init_op = init_op or global_variables_initializer()
            self._local_init_op = local_init_op or group(
                local_variables_initializer(), *self.graph.collections.get(GraphKeys.TABLE_INITIALIZERS)
            )
            self._missing = report_uninitialized_variables() if ready_op is None else ready_op

    @property
    def session(self) -> Session:
        """The present session.  Raises FailedPreconditionError outside of the block."""
        if self._session is None:
            raise errors.InvalidStateError("The training session is not open")
        return self._session

    @property
    def saver(self) -> Saver | None:
        """The saver of checkpoints; None if there are none."""
        return self._saver

    # Opening and closing

    async def __aenter__(self) -> TrainingSession:
        if self._handle_signals and threading.current_thread() is threading.main_thread():
            self._restore_signals = _on_signals(self._signalled, asyncio.current_task())
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    async def _open(self) -> None:
        session: Session = self._make_session(self.graph)
        if inspect.isawaitable(session):  # one across machines connects first
            session = await session
        self._session = session
        self.coordinator = Coordinator()
        path = self._checkpoint_path
        if path is None and self._checkpoint_dir is not None:
            path = await latest_checkpoint(self._checkpoint_dir)
        if path is not None and self.saver is not None:
            await self.saver.restore(session, path)
            if self._checkpoint_dir is not None:
                await self.saver.recover(self._checkpoint_dir)
        else:
            await session.run([], self._init_feeds, [self._init_op])
            if self._init_fn is not None:
                await self._init_fn(session)
        await session.run([], targets=[self._local_init_op])
        missing = [name.decode() for name in (await session.run(self._missing)).tolist()]
        if missing:
            raise errors.InvalidStateError(f"Variables not initialized: {', '.join(missing)}")
        start_queue_runners(session, self.coordinator)
        for hook in self.hooks:
            await hook.after_create_session(self, self.coordinator)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        clean = error is None or isinstance(error, errors.OutOfRangeError)
        try:
            if clean:
                for hook in self.hooks:
                    await hook.end(self)
        except BaseException:
            await self._close()
            raise
        await self._close(raising=clean)
        return clean

    async def _close(self, *, raising: bool = False) -> None:
        """Stop all that runs; with `raising` raise its errors."""
        self._restore_signals()
        session, self._session = self._session, None
        self.coordinator.request_stop()
        try:
            await self.coordinator.join()
        except Exception as error:
            if raising:
                raise
            logger.info("%r: while stopping: %s", self, error)
        finally:
            if session is not None:
                await session.close()

    # Stopping

    def should_stop(self) -> bool:
        """True if a hook, a signal, the end of input or a failed queue runner requested the stop."""
        return self._stop.is_set() or self.coordinator.should_stop()

    def request_stop(self) -> None:
        """Request the stop, as hooks do."""
        self._stop.set()

    async def wait_for_stop(self) -> None:
        """Wait until `should_stop` is true."""
        waiting = [asyncio.ensure_future(event) for event in (self._stop.wait(), self.coordinator.wait_for_stop())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()

    def _signalled(self, task: asyncio.Task[Any] | None) -> None:
        if self._stop.is_set() and task is not None:
            task.cancel()
        self._stop.set()

    # Steps

    async def run(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        *,
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Any:
        """Run a step, as `Session.run`, with what hooks add.

        If it fails because a device or worker went away (AbortedError, UnavailableError), a new session is made and
        restored from the latest checkpoint, and the step runs again.  A new session of a cluster has the present
        workers; if they are too few, or are lost again, it is made anew.

        Raises:
            OpError: the step's error.
        """
        while True:
            if self._recovering.locked() and asyncio.current_task() is not self._recoverer:
                async with self._recovering:
                    pass
            session = self.session
            try:
                return await self._step(session, fetches, feeds or {}, options, metadata)
            except _RECOVERABLE as error:
                logger.info("%r: %s; a new session is made", self, error)
                await self._recover(session)
            except errors.CancelledError:
                # Another task makes a new session, for which this step's was closed.
                if self._session is session and not self._recovering.locked():
                    raise

    async def _step(
        self,
        session: Session,
        fetches: Any,
        feeds: Mapping[Any, Any],
        options: RunOptions | None,
        metadata: RunMetadata | None,
    ) -> Any:
        context = SessionRunContext(self, fetches, feeds)
        asked = [await hook.before_run(context) or SessionRunArgs([]) for hook in self.hooks]
        together = dict(feeds)
        for args in asked:
            twice = together.keys() & args.feeds.keys()
            if twice:
                raise errors.InvalidValueError(f"Same tensor is fed by two hooks: {twice.pop()}")
            together.update(args.feeds)
        wanted = [each for each in (options, *(args.options for args in asked)) if each is not None]
        joined = RunOptions.joined(wanted) if wanted else None
        report = RunMetadata() if metadata is None and wanted else metadata
        in_rounds = any(hook.changes_in_rounds for hook in self.hooks)
        async with contextlib.nullcontext() if in_rounds else self._steps.step():
            everything = [fetches, [args.fetches for args in asked]]
            ran = session.run(everything, together, options=joined, metadata=report)
            result, of_hooks = await self._finished(ran)
        count = None if self._global_step is None else await global_step(session, self._global_step)
        for hook, values in zip(self.hooks, of_hooks, strict=True):
            await hook.after_run(context, SessionRunValues(values, count, joined, report))
        return result

    async def _finished(self, ran: Any) -> Any:
        """The result of a step.  If this task is cancelled, the step is finished first."""
        task = asyncio.ensure_future(ran)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                await _wait_uncancelled(task, self._finish_seconds)
            if not task.done():
                task.cancel()
                await _wait_uncancelled(task, None)
            if not task.cancelled():
                task.exception()  # nothing is left to report it to
            raise

    async def _recover(self, failed: Session) -> None:
        async with self._recovering:
            if self._session is not failed:
                return  # another task has done it
            self._recoverer = asyncio.current_task()
            loop = asyncio.get_running_loop()
            until = loop.time() + self._recovery_seconds
            while True:
                self.coordinator.request_stop()
                with contextlib.suppress(Exception):
                    await self.coordinator.join(ignore_live_tasks=True)
                await self.session.close()
                try:
                    return await self._open()
                except _RECOVERABLE as error:
                    if loop.time() >= until:
                        raise
                    logger.info("%r: %s; it is tried again", self, error)
                await asyncio.sleep(_TRY_AGAIN_SECONDS)

    def changing(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Context manager for changing variables other than by a step: it and snapshots exclude each other."""
        return self._steps.step()

    async def snapshot(self, saver: Saver | None = None) -> tuple[dict[Tensor, Any], int | None]:
        """Return what a saver would save, by default the session's, and the global step, while no step runs.

        Raises:
            FailedPreconditionError: there is no saver.
            DeadlineExceededError: steps that had begun did not end in time; they may wait for others, which cannot
                begin meanwhile.
        """
        saver = saver or self.saver
        if saver is None:
            raise errors.InvalidStateError("The training session has no saver")
        async with self._steps.between():
            return await saver.values(self.session), await self.global_step()

    async def global_step(self) -> int | None:
        """The number of steps, or None if the graph has no global step."""
        return None if self._global_step is None else await global_step(self.session, self._global_step)

    def __repr__(self) -> str:
        state = "closed" if self._session is None else "stopping" if self.should_stop() else "running"
        return f"<TrainingSession {state}, {len(self.hooks)} hooks>"


class _Turnstile:
    """Admits many steps at once, or one caller that needs no step to run."""

    def __init__(self, timeout: float = 5.0) -> None:
        self._timeout = timeout
        self._running = 0
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._one = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        while not self._open.is_set():
            await self._open.wait()
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    @contextlib.asynccontextmanager
    async def between(self) -> AsyncIterator[None]:
        async with self._one:
            self._open.clear()
            try:
                await asyncio.wait_for(self._idle.wait(), self._timeout)
                yield
            except TimeoutError as error:
                forget_frames(error)
                raise errors.DeadlineExceededError(f"{self._running} steps still run after {self._timeout} s") from None
            finally:
                self._open.set()


async def _wait_uncancelled(task: asyncio.Future[Any], timeout: float | None) -> None:
    """Wait for a task, however often the waiter is cancelled."""
    loop = asyncio.get_running_loop()
    until = None if timeout is None else loop.time() + timeout
    while not task.done():
        left = None if until is None else until - loop.time()
        if left is not None and left <= 0:
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=left)


def _on_signals(call: Callable[[asyncio.Task[Any] | None], None], task: asyncio.Task[Any] | None) -> Callable[[], None]:
    """Let SIGINT and SIGTERM call a function; return a function that restores them."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            loop.add_signal_handler(number, call, task)
    except NotImplementedError:  # on Windows
        return lambda: None

    def restore() -> None:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    return restore
