"""`FakeHosts`: a stand-in for the `multiprocessing` context of session hosts, which starts no real processes.

A test decides when a process starts and ends, and has the other end of its channel.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any

__all__ = ["FakeHosts", "FakeProcess"]


class FakeProcess:
    """A process that has started or will start.

    Attributes:
        may_start: set by the test; `start` waits for it.
        fails: the error of `start`; None if it succeeds.
        channel: the process's end, once it has started; the test closes it.
        exitcode: None while it runs.
        pid_was_read: True once the starter has read the pid, and so knows that it has started.
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
        """A number that no process has."""
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
        fails: the error with which each process fails to start.

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
