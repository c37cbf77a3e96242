"""`FakeHosts`: stands for the context of `multiprocessing` from which session hosts start; its processes are none.

A test says when a process starts and when it ends, and has the other end of its channel.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any

__all__ = ["FakeHosts", "FakeProcess"]


class FakeProcess:
    """One that has started or will.

    Attributes:
        may_start: set by the test; `start` waits for that.
        fails: with what starting it ends; None if it starts.
        channel: of the process, once it has started; the test closes it.
        exitcode: None while it runs.
        pid_was_read: whoever started it knows that it has started.
    """

    def __init__(self, args: tuple[Any, ...], fails: OSError | None) -> None:
        self.may_start = threading.Event()
        self.fails = fails
        self.channel: socket.socket | None = None
        self.exitcode: int | None = None
        self.pid_was_read = False
        self._theirs: socket.socket = args[2]
        self.sentinel, self._running = os.pipe()

    def start(self) -> None:
        self.may_start.wait()
        if self.fails is not None:
            raise self.fails
        self.channel = self._theirs.dup()

    @property
    def pid(self) -> int:
        """No process has this number."""
        self.pid_was_read = True
        return 2**30

    def kill(self) -> None:
        if self.exitcode is None:
            self.exitcode = -signal.SIGKILL
            os.close(self._running)

    def join(self) -> None:
        assert self.exitcode is not None

    def close(self) -> None:
        os.close(self.sentinel)


class FakeHosts:
    """A stand-in for the `multiprocessing` context of session hosts, whose processes a test starts and ends.

    Args:
        fails: with what starting each process ends.

    Attributes:
        processes: of all hosts, oldest first.
    """

    def __init__(self, fails: OSError | None = None) -> None:
        self.processes: list[FakeProcess] = []
        self._fails = fails

    def set_forkserver_preload(self, modules: list[str]) -> None:
        pass

    def Process(self, *, args: tuple[Any, ...], **options: Any) -> FakeProcess:  # noqa: N802  as multiprocessing has it
        self.processes.append(FakeProcess(args, self._fails))
        return self.processes[-1]
