"""`tf.train.SessionManager`: makes sessions that are restored from a checkpoint or initialised.

Next to read: `supervisor.py` and `monitored_session.py`, which do more for a program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running.session import Session, waited
from aexec.compat.v1.running.training import get_checkpoint_state
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import errors

__all__ = ["SessionManager"]


class SessionManager:
    """`tf.train.SessionManager`.

    Args:
        local_init_op: run in each new session after it is restored or initialised.
        ready_op: a tensor with the names of uninitialised variables, a string vector; empty if the model is ready.
        ready_for_local_init_op: likewise; must be empty before `local_init_op` is run.
        graph: by default the default graph.
        recovery_wait_secs: seconds between two attempts to find a checkpoint or a ready model.
        local_init_feed_dict: feeds of `local_init_op`.

    Raises:
        ValueError: there is a `ready_for_local_init_op` and no `local_init_op`.
        UnimplementedError: `local_init_run_options` is given.
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Any = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        refuse("SessionManager", local_init_run_options=local_init_run_options)
        if ready_for_local_init_op is not None and local_init_op is None:
            raise errors.InvalidValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op, "
                f"ready_for_local_init_op [{ready_for_local_init_op}]"
            )
        self._graph = get_default_graph() if graph is None else graph
        self._local = local_init_op, ready_for_local_init_op, local_init_feed_dict
        self._ready_op = ready_op
        self._wait_secs = recovery_wait_secs

    def _restored(
        self, session: Session, saver: Any, folder: str | None, path: str | None, wait: bool, most_secs: float
    ) -> bool:
        """Restore a checkpoint of a folder or path; return whether there was one.

        Args:
            wait: wait up to `most_secs` seconds for a checkpoint in the folder.

        Raises:
            ValueError: both a folder and a path are given.
        """
        if folder and path:
            raise errors.InvalidValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        if saver is None or not (folder or path):
            return False
        if path:
            saver.restore(session, path)
            return True
        assert folder is not None
        waited_secs = 0.0
        while (state := get_checkpoint_state(folder)) is None or not state.model_checkpoint_path:
            if not wait or waited_secs >= most_secs:
                return False
            time.sleep(self._wait_secs)
            waited_secs += self._wait_secs
        saver.restore(session, state.model_checkpoint_path)
        waited(saver.ours.recover(folder))
        return True

    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Session], Any] | None = None,
    ) -> Session:
        """Make a session; restore it from a checkpoint, or run `init_op` and `init_fn` if there is none.

        Args:
            checkpoint_dir, checkpoint_filename_with_path: a folder, or a checkpoint's prefix; at most one.
            wait_for_checkpoint: wait up to `max_wait_secs` seconds for a checkpoint in the folder.

        Raises:
            RuntimeError: there is no checkpoint and no initialiser, or the model is not ready afterwards.
            ValueError: both a folder and a prefix are given.
        """
        session = Session(master, graph=self._graph, config=config)
        try:
            found = checkpoint_dir, checkpoint_filename_with_path
            if not self._restored(session, saver, *found, wait_for_checkpoint, max_wait_secs):
                if init_op is None and init_fn is None and self._local[0] is None:
                    raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
                if init_op is not None:
                    session.run(init_op, feed_dict=init_feed_dict)
                if init_fn is not None:
                    init_fn(session)
            given = f"Init op: {getattr(init_op, 'name', init_op)}, init fn: {init_fn}"
            if (lacking := self._run_local_init(session)) is not None:
                raise RuntimeError(
                    f"Init operations did not make model ready for local_init.  {given}, error: {lacking}"
                )
            if (lacking := self._lacking(session, self._ready_op)) is not None:
                raise RuntimeError(
                    f"Init operations did not make model ready.  {given}, local_init_op: {self._local[0]}, "
                    f"error: {lacking}"
                )
        except BaseException:
            session.close()
            raise
        return session

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Session, bool]:
        """Make a session and restore it; return it, and whether there was a checkpoint and the model is ready.

        Arguments, and the ValueError, are those of `prepare_session`.
        """
        session = Session(master, graph=self._graph, config=config)
        try:
            found = checkpoint_dir, checkpoint_filename_with_path
            is_restored = self._restored(session, saver, *found, wait_for_checkpoint, max_wait_secs)
            is_local_ready = self._run_local_init(session) is None
            is_ready = is_restored and is_local_ready and self._lacking(session, self._ready_op) is None
        except BaseException:
            session.close()
            raise
        return session, is_ready

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float | None = math.inf) -> Session:
        """Wait until another process of the cluster has initialised the model; return a session.

        Raises:
            DeadlineExceededError: the model was not ready after `max_wait_secs` seconds.
        """
        end = time.monotonic() + (math.inf if max_wait_secs is None else max_wait_secs)
        while True:
            session = Session(master, graph=self._graph, config=config)
            try:
                if self._run_local_init(session) is None and self._lacking(session, self._ready_op) is None:
                    return session
            except BaseException:
                session.close()
                raise
            session.close()
            if time.monotonic() + self._wait_secs > end:
                raise errors.DeadlineExceededError(f"Session was not ready after waiting {max_wait_secs} secs.")
            time.sleep(self._wait_secs)

    def _run_local_init(self, session: Session) -> str | None:
        """Run `local_init_op` if the model is ready for it; else return the reason why it is not."""
        op, ready, feeds = self._local
        if op is None:
            return None
        lacking = self._lacking(session, ready)
        if lacking is None:
            session.run(op, feed_dict=feeds)
        return lacking

    @staticmethod
    def _lacking(session: Session, op: Any) -> str | None:
        """Run a ready op; return which variables are uninitialised, or None if there are none or `op` is None."""
        if op is None:
            return None
        try:
            found = session.run(op)
        except errors.FailedPreconditionError as error:
            if "uninitialized" not in str(error):
                raise
            return str(error)
        if found is None or found.dtype == np.int32 or not found.size:
            return None
        return f"Variables not initialized: {', '.join(name.decode() for name in found.tolist())}"
