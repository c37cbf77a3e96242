"""Servers of gRPC in processes of their own, for the scripts that run unmodified clients against them."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["running_server"]

_START_SECONDS = 120.0
_END_SECONDS = 30.0


@contextlib.contextmanager
def running_server(command: list[str], pattern: str) -> Iterator[str]:
    """Context manager: a process that serves, by the target that its output names.

    Args:
        pattern: regular expression of that output; its first group is the target.
    """
    # A file, because a server whose output nobody reads from a pipe stops when that is full.
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield _target(process, output, pattern)
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _target(process: subprocess.Popen[bytes], output: Any, pattern: str) -> str:
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < _START_SECONDS:
        output.seek(0)
        match = re.search(pattern, output.read())
        if match is not None:
            return match[1].replace("127.0.0.1", "localhost")
        time.sleep(0.05)
    output.seek(0)
    raise SystemExit(f"the server did not start:\n{output.read()}")
