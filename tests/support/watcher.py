"""Watches a server from a process of its own: `python watcher.py PORT PID`, which the test's own work cannot delay.

A line on standard input begins a window, and another ends it; the observations of the window are written as one line of
JSON. During a window it requests `/livez` every few milliseconds over one connection, and sums up the resident memory
of the process tree; between windows it does nothing.

Other load on the machine makes answers late too; `held_seconds` computes for how long the server's own work delayed
one. The kernel knows when an answer arrived, however late this process reads it, and for how long the server was
runnable without a processor, which is subtracted.
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
    """Return the parent of a process; 0 if the process has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
    return 0


def open_files(pid: int) -> list[str]:
    """Return the open files of a process, as `/proc` names them; nothing if it has ended."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [os.readlink(f"{folder}/{number}") for number in os.listdir(folder)]
    return []


def process_tree(pid: int) -> list[int]:
    """Return the process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            children.setdefault(parent_of(int(entry)), []).append(int(entry))
    tree = [pid]
    for parent in tree:
        tree += children.get(parent, [])
    return tree


def resident_bytes(pid: int) -> int:
    """Return the resident memory of the whole tree; shared pages count for each process."""
    total = 0
    for process in process_tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{process}/statm") as file:
            total += int(file.read().split()[1]) * _PAGE
    return total


def seconds_waited(process: int) -> float:
    """Return the seconds for which a process's main thread was runnable without a processor."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/task/{process}/schedstat") as file:
        return int(file.read().split()[1]) * 1e-9
    return 0.0


def seconds_waited_in_threads(process: int) -> float:
    """Like `seconds_waited`, for all threads of a process that have not ended."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[1])
    return total * 1e-9


def seconds_waited_by_all(pid: int) -> float:
    """Like `seconds_waited_in_threads`, for the whole tree."""
    return sum(map(seconds_waited_in_threads, process_tree(pid)))


def held_seconds(asked: float, arrived: float, waited: float) -> float:
    """Return for how long the server's own work delayed an answer.

    Args:
        asked: when the request was sent.
        arrived: when the answer could be read, by the same clock.
        waited: seconds that the server waited for a processor between the request and the reading of the answer. They
            include waits after the answer, so the result may be too small by the delay of the reading.
    """
    return max(0.0, arrived - asked - waited)


def ask_for_arrival(connection: socket.socket) -> None:
    """Make `recvmsg` report the arrival time of data, if the kernel can."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def arrival(ancillary: list[tuple[int, int, bytes]], now: float, wall: float) -> float:
    """Return the arrival time of data by the clock of `now`; `now` if the kernel does not report it.

    Args:
        ancillary: the ancillary data of `recvmsg`.
        now: when the data was read.
        wall: the same moment by `time.time`, which the kernel's times refer to.
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
