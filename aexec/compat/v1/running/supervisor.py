"""`tf.train.Supervisor`: prepares a session, and writes checkpoints and summaries while it trains.

It starts no threads: `should_stop()` writes the checkpoint or summary that is due.  Next to read: `loops.py`; then
`monitored_session.py`, its successor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running.coordination import Coordinator, start_queue_runners
from aexec.compat.v1.running.graph_util import write_graph
from aexec.compat.v1.running.loops import LooperThread
from aexec.compat.v1.running.session import Session
from aexec.compat.v1.running.summary import FileWriter
from aexec.compat.v1.running.training import Saver, Scaffold, latest_checkpoint
from aexec.compat.v1.values.framework_ops import get_global_step
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import errors
from aexec.summary import merge_all
from aexec.variables.initialization import global_variables, global_variables_initializer

__all__ = ["Supervisor"]

_DEFAULT = 0  # stands for an operation, a saver or a writer that the supervisor makes


class _Timer:
    """Due at once, then every `seconds` seconds; never if `seconds` is 0 or None."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds or 0.0
        self._next = time.monotonic()

    def is_due(self) -> bool:
        """Whether the time has come; True also restarts the interval."""
        if not self._seconds or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._seconds
        return True


class Supervisor:
    """`tf.train.Supervisor`.

    Args:
        graph: by default the default graph.
        init_op: initialises variables if there is no checkpoint; by default all global ones.  None for no operation.
        init_feed_dict: feeds of `init_op`.
        local_init_op: run in each new session; by default initialises local variables and tables.
        init_fn: called with the session after `init_op`.
        logdir: folder of checkpoints and summaries; None for neither.
        summary_op: by default all summaries, which must not need feeds; None for none.
        saver, summary_writer: by default new ones; None for none.
        global_step: by default that of the graph.
        save_summaries_secs, save_model_secs: seconds between two summaries or checkpoints; 0 for never.
        stop_grace_secs: seconds that `stop` waits for threads.
        checkpoint_basename: name of the checkpoints in the folder.

    Raises:
        UnimplementedError: `is_chief` is False, or a session manager, a ready op or run options are given.
    """

    USE_DEFAULT = _DEFAULT

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = _DEFAULT,
        ready_for_local_init_op: Any = _DEFAULT,
        is_chief: bool = True,
        init_op: Any = _DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = _DEFAULT,
        logdir: str | None = None,
        summary_op: Any = _DEFAULT,
        saver: Any = _DEFAULT,
        global_step: Any = _DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: Any = None,
        summary_writer: Any = _DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        refuse("Supervisor", session_manager=session_manager, is_chief=None if is_chief else "False")
        refuse("Supervisor", ready_op=None if _is_default(ready_op) else ready_op)
        ready_for_local_init_op = None if _is_default(ready_for_local_init_op) else ready_for_local_init_op
        refuse("Supervisor", ready_for_local_init_op=ready_for_local_init_op)
        refuse("Supervisor", local_init_run_options=local_init_run_options)
        self.graph = get_default_graph() if graph is None else graph
        self.coord = Coordinator()
        self.logdir = logdir
        self.save_path = None if logdir is None else os.path.join(logdir, checkpoint_basename)
        self.is_chief = True
        self.save_model_secs, self.save_summaries_secs = save_model_secs, save_summaries_secs
        self.init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        self._grace_secs = stop_grace_secs
        self._session: Any = None
        self._checkpoints = _Timer(save_model_secs)
        self._summaries = _Timer(save_summaries_secs)
        with self.graph:
            self.init_op = global_variables_initializer() if _is_default(init_op) else init_op
            if _is_default(local_init_op):
                local_init_op = Scaffold.default_local_init_op()
            self.local_init_op = local_init_op
            self.global_step = get_global_step() if _is_default(global_step) else global_step
            self.summary_op = merge_all() if _is_default(summary_op) else summary_op
            self.saver = (Saver() if global_variables() else None) if _is_default(saver) else saver
        if _is_default(summary_writer):
            summary_writer = None if logdir is None else FileWriter(logdir)
        self.summary_writer = summary_writer

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Session:
        """Make a session, restore or initialise its variables, and start its queue runners.

        Raises:
            UnimplementedError: `wait_for_checkpoint` is True.
        """
        refuse("prepare_or_wait_for_session", wait_for_checkpoint=wait_for_checkpoint)
        self.coord.clear_stop()
        session = Session(master, graph=self.graph, config=config)
        found = None if self.logdir is None else latest_checkpoint(self.logdir)
        if found is not None and self.saver is not None:
            self.saver.restore(session, found)
        else:
            if self.init_op is not None:
                session.run(self.init_op, feed_dict=self.init_feed_dict)
            if self._init_fn is not None:
                self._init_fn(session)
        if self.local_init_op is not None:
            session.run(self.local_init_op)
        if self.logdir is not None:
            write_graph(self.graph, self.logdir, "graph.pbtxt")
        if self.summary_writer is not None:
            self.summary_writer.add_graph(self.graph)
        self._session = None
        if start_standard_services:
            self.start_standard_services(session)
            self.start_queue_runners(session)
        return session

    def start_standard_services(self, sess: Session) -> list[Any]:
        """Make `should_stop` write checkpoints and summaries of a session.  Returns an empty list of threads."""
        self._session = sess
        return []

    @contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Session]:
        """Context manager: a prepared session.  OutOfRangeError ends the block without an error."""
        session = self.prepare_or_wait_for_session(master, config, start_standard_services=start_standard_services)
        try:
            with session.as_default():
                yield session
        except errors.OutOfRangeError:
            self.coord.request_stop()
        finally:
            self.stop(close_summary_writer=close_summary_writer)
            session.close()

    def start_queue_runners(self, sess: Any, queue_runners: Any = None) -> list[Any]:
        """Start queue runners, by default all of the graph; return their tasks."""
        if queue_runners is None:
            return start_queue_runners(sess, self.coord)
        return self.coord.start(sess, queue_runners)

    def should_stop(self) -> bool:
        """Write the checkpoint and the summary that are due; return whether the stop is requested."""
        if self._session is not None:
            if self.save_path is not None and self.saver is not None and self._checkpoints.is_due():
                os.makedirs(os.path.dirname(self.save_path), exist_ok=True)
                self.saver.save(self._session, self.save_path, global_step=self.global_step)
            if self.summary_writer is not None and self.summary_op is not None and self._summaries.is_due():
                self.summary_computed(self._session, self._session.run(self.summary_op))
        return self.coord.should_stop()

    def summary_computed(self, sess: Any, summary: Any, global_step: int | None = None) -> None:
        """Write a summary; its step is by default the session's global step.

        Raises:
            RuntimeError: there is no writer.
        """
        if self.summary_writer is None:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self.global_step is not None:
            global_step = int(sess.run(self.global_step))
        self.summary_writer.add_summary(summary, global_step)

    def request_stop(self, ex: Any = None) -> None:
        """Request the stop; `ex` is an error that `stop` raises."""
        self.coord.request_stop(ex)

    def stop_on_exception(self) -> Any:
        """Context manager: an error in the block requests the stop and is not raised."""
        return self.coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Block until another thread requests the stop."""
        self.coord.wait_for_stop()

    def stop(self, threads: Any = None, close_summary_writer: bool = True, ignore_live_threads: bool = False) -> None:
        """Stop queue runners, wait for threads, and close the writer.  Raises as `Coordinator.join`."""
        self._session = None
        self.coord.request_stop()
        self.coord.join(threads, self._grace_secs, ignore_live_threads)
        if close_summary_writer and self.summary_writer is not None:
            self.summary_writer.close()

    def loop(
        self, timer_interval_secs: float | None, target: Any, args: Any = None, kwargs: Any = None
    ) -> LooperThread:
        """Start a `LooperThread` that calls a function until the stop; return it."""
        return LooperThread.loop(self.coord, timer_interval_secs, target, args, kwargs)

    # The names of these methods before TensorFlow 1.0.
    PrepareSession = prepare_or_wait_for_session
    StartStandardServices = start_standard_services
    StartQueueRunners = start_queue_runners
    ShouldStop = should_stop
    SummaryComputed = summary_computed
    RequestStop = request_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
    Stop = stop
    Loop = loop


def _is_default(value: Any) -> bool:
    return isinstance(value, int) and value == _DEFAULT
