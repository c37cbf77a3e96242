"""`ForkedScripts`: runs Python scripts in processes of their own that do not have to import common packages.

Each script is the main program of a process forked from one that has imported `aexec`, no other package of this
project, and the packages of others that most scripts need, with warnings as errors. That saves half a second compared
with a new process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ForkedScripts"]

ROOT = Path(__file__).parent.parent.parent
_TIME_TO_PRINT = 5.0  # seconds

# Reads a line for each script to run, and answers with its exit status.
_PARENT = """
import asyncio, faulthandler, gc, json, os, runpy, signal, sys
import aexec, aiohttp, numpy, scipy.linalg, scipy.special

signal.signal(signal.SIGUSR1, signal.SIG_IGN)
gc.freeze()  # a collection would copy what the processes share
for line in sys.stdin:
    script = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
os.chdir(script["folder"])
os.environ.clear()
os.environ.update(script["env"])
printed, nothing = os.open(script["printed"], os.O_WRONLY), os.open(os.devnull, os.O_RDONLY)
for stream, file in enumerate((nothing, printed, printed)):
    os.dup2(file, stream)
faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that started the tests in the background ignores it
sys.argv[:], sys.path[0] = [script["name"]], script["folder"]
runpy.run_path(script["name"], run_name="__main__")
"""


class ForkedScripts:
    """The process that scripts are forked from; it is started with the first script."""

    def __init__(self) -> None:
        self._parent: subprocess.Popen[str] | None = None

    def run(self, script: Path, env: Mapping[str, str], timeout: float = 300.0) -> tuple[int, str]:
        """Run a script in its folder; return its exit status and its output on both streams.

        Raises:
            TimeoutError: it has not ended after `timeout` seconds; the message says where its threads are.
        """
        if self._parent is None:
            self._parent = self._start()
        parent = self._parent
        assert parent.stdin is not None and parent.stdout is not None
        printed = script.with_suffix(".printed")
        printed.write_text("")
        task = {"name": script.name, "folder": str(script.parent), "env": dict(env), "printed": str(printed)}
        parent.stdin.write(json.dumps(task) + "\n")
        parent.stdin.flush()
        if not select.select([parent.stdout], [], [], timeout)[0]:
            os.killpg(parent.pid, signal.SIGUSR1)  # the script prints the stack of each of its threads
            select.select([parent.stdout], [], [], _TIME_TO_PRINT)
            self.close()
            raise TimeoutError(f"{script} has not ended after {timeout:g} s: {printed.read_text('utf-8')}")
        status = int(parent.stdout.readline())
        text = printed.read_text("utf-8")
        printed.unlink()
        return status, text

    def close(self) -> None:
        """End the process, and a script that is running."""
        if self._parent is not None:
            with self._parent as parent:
                os.killpg(parent.pid, 9)
            self._parent = None

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'server'}"},
            start_new_session=True,
        )
