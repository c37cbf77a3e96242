"""`ServerProcess`: the service as a person starts it, in a process of its own, watched from outside.

server = ServerProcess(folder, drain="2s")          # aexec serve --drain 2s
handle = server.create(graph)
with server.watched() as watch:
    assert server.run(handle, fetches=["y"]).status == 400
assert watch.worst < 0.1                             # seconds in which /livez was not answered
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.support import watcher
from tests.support.programs.graphs import GraphBuilder

__all__ = ["Answer", "ServerProcess", "Watch"]

ROOT = Path(__file__).parents[2]
_MARK = "AEXEC_TEST_SERVER"
# Becomes a command that has the socket with this number as its third file, as sd_listen_fds(3) says.
_PASS_ON = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: status, body (decoded if it is JSON), and seconds until it came."""

    status: int
    body: Any
    seconds: float
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Watch:
    """Observations of the server from outside while a test did its work; complete after the `with`.

    Attributes:
        worst: longest time in seconds that `/livez` took, without the share of other load on the machine.
        worst_raw: the same with that share.
        answers: number of answers.
        failures: other outcomes.
        resident: largest memory of the server's processes together, in bytes.
        grown: increase of that since the beginning.
    """

    worst: float = 0.0
    worst_raw: float = 0.0
    answers: int = 0
    failures: list[str] = field(default_factory=list)
    resident: int = 0
    grown: int = 0


class ServerProcess:
    """`aexec serve` on a free port.

    Args:
        folder: for its log.
        watch: True to watch it from another process, which is a client too.
        first: a folder that comes first in Python's module path.
        socket: a listening socket that it gets as a service manager passes it; `port` must then be its port.
        environment: variables besides those of this process.
        options: flags: `drain="2s"` is `--drain 2s`, True is a flag without a value, a list repeats a flag.

    Attributes:
        port, pid: of the server.
        ran: number of requests for runs that were answered without an error.
        running: the servers that were started and not stopped.
        may_log_tracebacks: True if `stop` must not fail on tracebacks in the log.
        expected_status: the exit status that `stop` expects.
    """

    running: ClassVar[set[ServerProcess]] = set()

    def __init__(
        self,
        folder: Path,
        *,
        watch: bool = True,
        first: Path | None = None,
        socket: socket.socket | None = None,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.log_path = folder / "log"
        # Not in `folder`, whose path may be too long for Unix sockets.
        self.temporary = Path(tempfile.mkdtemp(prefix="aexec-test-"))
        self.may_log_tracebacks = False
        self.expected_status = 0
        self.ran = 0
        self._told = False
        self._killed = False
        self._watcher: subprocess.Popen[str] | None = None
        self._token = f"{os.getpid()}-{folder}"
        variables = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, ([first] if first else []) + [ROOT, ROOT / "server"])),
            "TMPDIR": str(self.temporary),
            _MARK: self._token,
            **(environment or {}),
        }
        command = [sys.executable, "-m", "aexec", "serve", "--port", "0", *_flags(options)]
        passed = [] if socket is None else [socket.fileno()]
        if passed:
            command = [sys.executable, "-S", "-c", _PASS_ON, str(passed[0]), *command]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=variables, start_new_session=True, pass_fds=passed
            )
        self.pid = self.process.pid
        self.running.add(self)
        self.port = self._wait_for_port()
        if watch:
            self._watcher = self._start_watcher()

    def _start_watcher(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-S", watcher.__file__, str(self.port), str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _wait_for_port(self) -> int:
        began = time.monotonic()
        while "serves on" not in self.log and self.process.poll() is None and time.monotonic() - began < 100:
            time.sleep(0.01)
        match = re.search(r"serves on http://127\.0\.0\.1:(\d+)", self.log)
        if match is None:
            self.kill()
            raise AssertionError(f"the server did not start:\n{self.log}")
        return int(match[1])

    @property
    def log(self) -> str:
        """Standard output and standard error so far."""
        return self.log_path.read_text(errors="replace")

    @staticmethod
    def until(condition: Callable[[], object], seconds: float = 60.0) -> float:
        """Wait until a condition outside this process holds; return the seconds waited.  Raises AssertionError on
        timeout.
        """
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < seconds, f"not within {seconds} s"
            time.sleep(0.002)
        return time.monotonic() - began

    # Requests

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        timeout: float = 100,
        address: str = "127.0.0.1",
    ) -> Answer:
        """Send one request over a connection of its own.

        Args:
            body: bytes are sent as they are, anything else as JSON.
            timeout: seconds of silence after which TimeoutError is raised.
            address: of the client; all addresses that begin with 127 are this machine's.
        """
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout, source_address=(address, 0))
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            data: Any = response.read()
        seconds = time.monotonic() - began
        if "json" in response.headers.get("Content-Type", ""):
            data = json.loads(data)
        self.ran += path.endswith(":run") and response.status in (200, 202)
        return Answer(response.status, data, seconds, dict(response.headers))

    def create(self, graph: GraphBuilder | bytes, *, address: str = "127.0.0.1", **fields: Any) -> str:
        """Make a session of this graph (or of the bytes of a GraphDef); return its handle."""
        data = graph if isinstance(graph, bytes) else graph.graph_def.SerializeToString()
        body = {"graph_def": base64.b64encode(data).decode(), **fields}
        answer = self.call("POST", "/v1/sessions", body, address=address)
        assert answer.status == 201, answer
        return str(answer.body["session_handle"])

    def run(self, handle: str, *, timeout: float = 100, **fields: Any) -> Answer:
        return self.call("POST", f"/v1/sessions/{handle}:run", fields, timeout=timeout)

    def runs(self, handle: str) -> list[dict[str, Any]]:
        """Return the runs in flight."""
        answer = self.call("GET", f"/v1/sessions/{handle}/runs")
        assert answer.status == 200, answer
        return list(answer.body["runs"])

    def delete(self, handle: str) -> None:
        assert self.call("DELETE", f"/v1/sessions/{handle}").status == 204

    @contextlib.contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """Context manager: a connection for raw bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=100) as connection:
            yield connection

    def send_run(self, connection: socket.socket, handle: str, **fields: Any) -> None:
        """Send a request for a run without waiting for the answer."""
        body = json.dumps(fields).encode()
        head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    # Watching

    @property
    def resident(self) -> int:
        """Memory of all its processes together now, in bytes."""
        return watcher.resident_bytes(self.pid)

    @property
    def hosts(self) -> list[int]:
        """Ids of its session hosts, oldest first: the processes that its fork server started."""
        tree = watcher.process_tree(self.pid)
        return sorted(pid for pid in tree[1:] if watcher.parent_of(pid) in tree[1:])

    def host_of(self, handle: str) -> int:
        """Return the process with the socket of a session's host; hosts need not have started in the order of their
        names.
        """
        name = handle.partition("-")[0]
        with open("/proc/net/unix") as file:
            sockets = [line.split() for line in file]
        own = [s for s in sockets if s[-1].startswith(f"{self.temporary}/") and s[-1].endswith(f"/{name}")]
        inodes = {f"socket:[{s[6]}]" for s in own}
        (found,) = [pid for pid in self.hosts if inodes & set(watcher.open_files(pid))]
        return found

    @property
    def waited(self) -> float:
        """Seconds so far for which its main thread, or this process's, was runnable and had no processor."""
        return watcher.seconds_waited(self.pid) + watcher.seconds_waited(os.getpid())

    @property
    def waited_in_threads(self) -> float:
        """Like `waited`, for all its threads and processes together and this process's main thread."""
        return watcher.seconds_waited_by_all(self.pid) + watcher.seconds_waited(os.getpid())

    def _tell_watcher(self) -> str:
        assert self._watcher and self._watcher.stdin is not None and self._watcher.stdout is not None
        self._watcher.stdin.write("\n")
        self._watcher.stdin.flush()
        return self._watcher.stdout.readline()

    @contextlib.contextmanager
    def watched(self) -> Iterator[Watch]:
        """Context manager: watch the server during the block."""
        self._tell_watcher()
        before = self.resident
        watch = Watch()
        try:
            yield watch
        finally:
            seen = self._tell_watcher()
        for name, value in json.loads(seen).items():
            setattr(watch, name, value)
        watch.grown = watch.resident - before

    # Ending

    def kill(self, patience: float = 0.0) -> list[int]:
        """Kill it, and its other processes, if they do not end by themselves within `patience` seconds; return those
        that did not.
        """
        self.running.discard(self)
        self._stop_watcher()
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(AssertionError):
            self.until(lambda: not self._left(), patience)
        left = self._left()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._files_left = [str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*")]
        shutil.rmtree(self.temporary, ignore_errors=True)
        return left

    def expect_killed(self) -> None:
        """Note that the server was killed: `stop` checks only its processes, not what else it leaves."""
        self._killed = True

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._told = True
        self.process.send_signal(number)

    def wait(self, seconds: float) -> int:
        """Return the exit status; raise AssertionError if it has not ended in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server still runs after {seconds} s:\n{self.log[-3000:]}") from None

    def stop(self) -> None:
        """Tell it to stop, if that was not done yet, and check that nothing is left: no process, no file, no
        traceback.
        """
        self._stop_watcher()
        try:
            if not self._told and self.process.poll() is None:
                self.signal()
            status = self.wait(60)
        finally:
            left = self.kill(20)
        assert not left, f"processes left running: {left}"
        if self._killed:
            return
        assert status == self.expected_status, f"exit status {status}:\n{self.log[-3000:]}"
        assert not self._files_left, f"files left: {self._files_left}"
        if not self.may_log_tracebacks:
            assert "Traceback" not in self.log, self.log[-5000:]

    def _stop_watcher(self) -> None:
        if self._watcher is None:
            return
        assert self._watcher.stdin is not None and self._watcher.stdout is not None
        self._watcher.stdin.close()
        self._watcher.wait()
        self._watcher.stdout.close()

    def _left(self) -> list[int]:
        """Return the processes that it started and that still run, even if they have detached themselves."""
        mark = f"{_MARK}={self._token}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                        found.append(int(entry))
        return found


def _flags(options: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, list) else [value]:
            flags += [flag] if one is True else [flag, str(one)]
    return flags
