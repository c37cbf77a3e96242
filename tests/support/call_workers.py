"""Processes that make extreme calls: see `tests/support/programs/extreme_calls_worker.py`.

`CallWorkers` makes many calls, several processes at a time, each of which is told of some calls ahead. `CallWorker`
makes one call at a time, in a process that has made no other since it was closed, if that is wanted.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Answered", "CallWorker", "CallWorkers"]

# The module that the processes run, and its arguments.
WORKER = ("tests.support.programs.extreme_calls_worker",)
# How long a call may take, its session's end included, before it is taken for one that never ends.
PATIENCE = 30.0
_AHEAD = 16
# What is freed is given back to the system at once: memory that a call takes is seen, whatever calls before it freed.
_MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
_CHUNK = 1 << 16


class Answered(NamedTuple):
    """A call, `kind op seed accounting`, and the outcome; None if the process died, or the call did not end."""

    call: str
    said: dict[str, Any] | None


class _Process:
    """A process that makes calls, in the order in which it was told of them."""

    def __init__(self, module: Sequence[str]) -> None:
        command, pipe = [sys.executable, "-W", "ignore", "-m", *module], subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=os.environ | _MALLOC
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._calls, self.answers = self._process.stdin, self._process.stdout
        self.told: deque[str] = deque()
        self.moved = time.monotonic()
        self._text = b""

    def tell(self, call: str) -> None:
        if not self.told:
            self.moved = time.monotonic()
        self.told.append(call)
        with contextlib.suppress(BrokenPipeError):  # it has died, which the end of its answers says
            self._calls.write(f"{call}\n".encode())
            self._calls.flush()

    def read(self) -> list[Answered] | None:
        """Return the answers that are there, at least one line or a part of it; None if there will be no more."""
        text = os.read(self.answers.fileno(), _CHUNK)
        *lines, self._text = (self._text + text).split(b"\n")
        if lines:
            self.moved = time.monotonic()
        answered = [Answered(self.told.popleft(), json.loads(line)) for line in lines]
        return answered if text else None

    def is_stuck(self) -> bool:
        return bool(self.told) and time.monotonic() - self.moved > PATIENCE

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.answers.close()
        with contextlib.suppress(BrokenPipeError):
            self._calls.close()


class CallWorkers:
    """Makes calls in as many processes as there are cores.

    Args:
        processes: how many; 0 for one for each core.
        module: what they run, and its arguments.
    """

    def __init__(self, processes: int = 0, module: Sequence[str] = WORKER) -> None:
        self._count = processes or len(os.sched_getaffinity(0))
        self._module = module
        self._selector = selectors.DefaultSelector()
        self._processes: set[_Process] = set()

    def close(self) -> None:
        for process in list(self._processes):
            self._end(process)
        self._selector.close()

    def _start(self) -> _Process:
        process = _Process(self._module)
        self._processes.add(process)
        self._selector.register(process.answers, selectors.EVENT_READ, process)
        return process

    def _end(self, process: _Process) -> None:
        self._selector.unregister(process.answers)
        self._processes.remove(process)
        process.end()

    def answers(self, calls: Iterator[str]) -> Iterator[Answered]:
        """Make all calls, and yield each with its outcome, in the order in which they end."""
        again: deque[str] = deque()
        while True:
            while len(self._processes) < self._count:
                self._start()
            for process in self._processes:
                while len(process.told) < _AHEAD:
                    call = again.popleft() if again else next(calls, None)
                    if call is None:
                        break
                    process.tell(call)
            if not any(process.told for process in self._processes):
                return
            for key, _ in self._selector.select(1.0):
                answered = key.data.read()
                if answered is None:
                    yield self._give_up(key.data, again)
                else:
                    yield from answered
            for process in [p for p in self._processes if p.is_stuck()]:
                yield self._give_up(process, again)

    def _give_up(self, process: _Process, again: deque[str]) -> Answered:
        """End a process with its first call; others make the rest."""
        self._end(process)
        assert process.told, "the process ended although it had made all calls"
        first, *rest = process.told
        again.extend(rest)
        return Answered(first, None)


class CallWorker:
    """Makes one call at a time."""

    def __init__(self, module: Sequence[str] = WORKER) -> None:
        self._module = module
        self._workers: CallWorkers | None = None

    def call(self, call: str) -> dict[str, Any] | None:
        """Return the outcome of a call; None if there was none."""
        if self._workers is None:
            self._workers = CallWorkers(1, self._module)
        (answered,) = self._workers.answers(iter([call]))
        return answered.said

    def close(self) -> None:
        """End the process; the next call is the first of another one."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None
