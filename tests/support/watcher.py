"""Watches a server from a process of its own: `python watcher.py PORT PID`, which the test's own work cannot hold up.

A line on standard input begins a window, and another ends it: what was seen in it is written as one line of JSON.
Meanwhile it asks `/livez` every few milliseconds over one connection, and adds up the resident memory of the process
and of those that it started; between windows it does nothing.

A busy machine makes answers late too, and `held_seconds` says how long the server's own work held one.  The kernel
knows when an answer arrived, however late this process reads it; and it counts how long the server could have run and
had no processor, which is taken off.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import time

__all__ = [
    "arrival",
    "ask_for_arrival",
    "held_seconds",
    "open_files",
    "parent_of",
    "process_tree",
    "resident_bytes",
    "seconds_waited",
    "seconds_waited_by_all",
    "seconds_waited_in_threads",
]

_EVERY = 0.004
_MEMORY_EVERY = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
_ASK = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def parent_of(pid: int) -> int:
    """Of a process that may have ended meanwhile: 0."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
    return 0


def open_files(pid: int) -> list[str]:
    """What a process has open, as `/proc` names it; nothing if it has ended, or ends meanwhile."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [os.readlink(f"{folder}/{number}") for number in os.listdir(folder)]
    return []


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


def seconds_waited_in_threads(process: int) -> float:
    """The same of all threads of a process together, of those that have not ended."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[1])
    return total * 1e-9


def seconds_waited_by_all(pid: int) -> float:
    """The same of the whole tree."""
    return sum(map(seconds_waited_in_threads, process_tree(pid)))


def held_seconds(asked: float, arrived: float, waited: float) -> float:
    """For how long a server's own work held an answer.

    Args:
        asked: when the question was sent.
        arrived: when the answer was there to be read, by the same clock.
        waited: seconds that the server waited for a processor between the question and the reading of the answer.
            What it waited after the answer is among them: the result is too small by how late that was read at most.
    """
    return max(0.0, arrived - asked - waited)


def ask_for_arrival(connection: socket.socket) -> None:
    """Let `recvmsg` say when what it gives arrived, if the kernel can."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def arrival(ancillary: list[tuple[int, int, bytes]], now: float, wall: float) -> float:
    """When something arrived, by the clock of `now`; `now` where the kernel does not say.

    Args:
        ancillary: what `recvmsg` gave with it.
        now: when it was read.
        wall: when that was by `time.time`, of which the kernel speaks.
    """
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(data) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(data)
            return now - max(0.0, wall - (seconds + nanoseconds * 1e-9))
    return now


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

    def ask(self) -> None:
        try:
            if self.connection is None:
                self.connection = socket.create_connection(("127.0.0.1", self.port))
                ask_for_arrival(self.connection)
            waited = seconds_waited(self.pid)
            self.connection.sendall(_ASK)
            self.asked = time.monotonic(), waited  # afterwards: this process may wait for a processor, too
        except OSError as error:
            self.fail(str(error))

    def answer(self) -> None:
        assert self.connection is not None
        try:
            data, ancillary, _, _ = self.connection.recvmsg(65536, 1024)
        except OSError as error:
            return self.fail(str(error))
        if not data.startswith(b"HTTP/1.1 200"):
            return self.fail(data[:100].decode("latin-1") or "connection closed")
        self.answers += 1
        now = time.monotonic()
        self.note(now, arrival(ancillary, now, time.time()))
        self.asked = None

    def fail(self, why: str) -> None:
        """The next question has a connection of its own."""
        self.failures.append(why)
        if self.connection is not None:
            self.connection.close()
        self.connection = self.asked = None

    def note(self, now: float, arrived: float) -> None:
        if self.asked is not None:
            asked, waited = self.asked
            self.worst_raw = max(self.worst_raw, now - asked)
            self.worst = max(self.worst, held_seconds(asked, arrived, seconds_waited(self.pid) - waited))

    def measure(self, now: float) -> None:
        if now - self._measured > _MEMORY_EVERY:
            self._measured = now
            self.resident = max(self.resident, resident_bytes(self.pid))

    def report(self) -> str:
        now = time.monotonic()
        self.note(now, now)  # of an answer that has not come
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
