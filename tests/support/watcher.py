"""Watches a server from a process of its own: `python watcher.py PORT PID`, which the test's own work cannot hold up.

A line on standard input begins a window, and another ends it: what was seen in it is written as one line of JSON.
Meanwhile it asks `/livez` every few milliseconds over one connection, and adds up the resident memory of the process
and of those that it started; between windows it does nothing.

A busy machine makes answers late too.  So what the asked process and this one waited for a processor (the kernel
counts it) is taken off each answer's time; what is left is how long the server's own work held it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time

__all__ = ["open_files", "parent_of", "process_tree", "resident_bytes", "seconds_waited", "seconds_waited_by_all"]

_EVERY = 0.004
_MEMORY_EVERY = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ASK = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def parent_of(pid: int) -> int:
    """Of a process that may have ended meanwhile: 0."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
    return 0


def open_files(pid: int) -> list[str]:
    """What a process has open, as `/proc` names it."""
    folder = f"/proc/{pid}/fd"
    return [os.readlink(f"{folder}/{number}") for number in os.listdir(folder)]


def process_tree(pid: int) -> list[int]:
    """The process and those that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            children.setdefault(parent_of(int(entry)), []).append(int(entry))
    tree = [pid]
    for parent in tree:
        tree += children.get(parent, [])
    return tree


def resident_bytes(pid: int) -> int:
    """Of the whole tree.  Pages that its processes share are counted for each."""
    total = 0
    for process in process_tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{process}/statm") as file:
            total += int(file.read().split()[1]) * _PAGE
    return total


def seconds_waited(process: int) -> float:
    """Seconds that a process's main thread could have run and had no processor."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/task/{process}/schedstat") as file:
        return int(file.read().split()[1]) * 1e-9
    return 0.0


def seconds_waited_by_all(pid: int) -> float:
    """The same of all threads of the whole tree together, of those that have not ended."""
    total = 0
    for process in process_tree(pid):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/schedstat") as file:
                    total += int(file.read().split()[1])
    return total * 1e-9


class _Window:
    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port
        self.connection: socket.socket | None = None
        self.asked: tuple[float, float] | None = None
        self.worst = self.worst_raw = 0.0
        self.answers = 0
        self.failures: list[str] = []
        self.resident = 0
        self._measured = 0.0

    def waited(self) -> float:
        return seconds_waited(self.pid) + seconds_waited(os.getpid())

    def ask(self) -> None:
        self.asked = time.monotonic(), self.waited()
        try:
            if self.connection is None:
                self.connection = socket.create_connection(("127.0.0.1", self.port))
            self.connection.sendall(_ASK)
        except OSError as error:
            self.fail(str(error))

    def answer(self) -> None:
        assert self.connection is not None
        try:
            data = self.connection.recv(65536)
        except OSError as error:
            return self.fail(str(error))
        if not data.startswith(b"HTTP/1.1 200"):
            return self.fail(data[:100].decode("latin-1") or "connection closed")
        self.answers += 1
        self.note(time.monotonic())
        self.asked = None

    def fail(self, why: str) -> None:
        """The next question has a connection of its own."""
        self.failures.append(why)
        if self.connection is not None:
            self.connection.close()
        self.connection = self.asked = None

    def note(self, now: float) -> None:
        if self.asked is not None:
            took = now - self.asked[0]
            self.worst_raw = max(self.worst_raw, took)
            self.worst = max(self.worst, took - (self.waited() - self.asked[1]))

    def measure(self, now: float) -> None:
        if now - self._measured > _MEMORY_EVERY:
            self._measured = now
            self.resident = max(self.resident, resident_bytes(self.pid))

    def report(self) -> str:
        now = time.monotonic()
        self.note(now)  # of an answer that has not come
        if self.connection is not None:
            self.connection.close()
        self._measured = 0.0
        self.measure(now)
        return json.dumps(
            {
                "worst": self.worst,
                "worst_raw": self.worst_raw,
                "answers": self.answers,
                "failures": self.failures[:5],
                "resident": self.resident,
            }
        )


def _watch(port: int, pid: int) -> str:
    """What is seen until the next line."""
    window = _Window(pid, port)
    while True:
        if window.asked is None:
            window.ask()
        sources = [sys.stdin, window.connection] if window.asked and window.connection else [sys.stdin]
        ready = select.select(sources, [], [], _EVERY)[0]
        if sys.stdin in ready:
            sys.stdin.readline()
            return window.report()
        if ready:
            window.answer()
            time.sleep(_EVERY)
        window.measure(time.monotonic())


def _main(port: int, pid: int) -> None:
    while sys.stdin.readline():
        print("begun", flush=True)
        print(_watch(port, pid), flush=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
