"""Makes extreme calls, one after the other, and says of each what came of it.

A process of its own, with little memory, so that what asks for too much fails here: `python -m
tests.support.extreme_calls_worker` reads lines `kind op seed`, and answers each with a line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
import time
from typing import Any

import numpy as np

import aexec
from aexec.framework import errors
from aexec.runtime.memory_accountant import EXACT_BELOW
from tests.support.extreme_calls import ExtremeCall, enlarged_call, extreme_call, hollow_call
from tests.support.foreign_errors import is_foreign

_ADDRESS_SPACE = 6 << 30
# So little that each call is counted.
_STEP_BYTES = EXACT_BELOW - 1
DEADLINE = 0.3
KINDS = {"extreme": extreme_call, "enlarged": enlarged_call, "hollow": hollow_call}
# More of the processor than a call may take on the loop, milliseconds.
HELD_MS = 20.0


def _peak_kib() -> int:
    """The most memory that was resident since it was reset."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def _reset_peak() -> int:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak_kib()


def _are_strings(value: Any) -> bool:
    """Are all elements strings, if they are objects?  Zeros of NumPy's are numbers."""
    array = np.asarray(value)
    return array.dtype != object or all(type(element) is bytes for element in array.ravel().tolist())


async def run(call: ExtremeCall) -> dict[str, Any]:
    """Run a call by itself.

    Returns:
        `error` and whether it is `foreign`; which outputs of objects are not all strings, `no_strings`; of the loop's
        thread the processor's time, and of the run the time that went by, both in ms; how much more memory there was
        at most, and was counted, in MiB.
    """
    said: dict[str, Any] = {
        "no_strings": [],
        "error": "",
        "foreign": False,
        "held_ms": 0.0,
        "took_ms": 0.0,
        "peak_mib": 0.0,
    }
    config = aexec.SessionConfig(graph_passes=(), delegates=(), step_bytes=_STEP_BYTES)
    metadata, options = aexec.RunMetadata(), aexec.RunOptions(timeout=DEADLINE)
    try:
        graph = aexec.Graph.from_graph_def(call.graph_def)
        async with aexec.Session(graph, config=config) as session:
            before, began, cpu = _reset_peak(), time.perf_counter(), time.thread_time()
            try:
                values = await session.run(call.fetches, call.feeds, targets=["y"], options=options, metadata=metadata)
                said["no_strings"] = [
                    name for name, value in zip(call.fetches, values, strict=True) if not _are_strings(value)
                ]
            finally:
                said["held_ms"] = (time.thread_time() - cpu) * 1e3
                said["took_ms"] = (time.perf_counter() - began) * 1e3
                said["peak_mib"] = (_peak_kib() - before) / 1024
                said["counted_mib"] = (metadata.peak_bytes or 0) / 2**20
    except errors.OpError as error:
        said["error"] = f"{type(error).__name__}: {error.message}"[:300]
        said["foreign"] = is_foreign(error)
    except Exception as error:
        said["error"], said["foreign"] = f"{type(error).__name__}: {error}"[:300], True
    return said


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    # Some print.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.chdir(tempfile.mkdtemp())  # some write files of the names that they are given
    asyncio.run(run(extreme_call("Neg", 0)))  # what a first run imports is not the op's
    gc.freeze()
    for line in sys.stdin:
        kind, op, seed = line.split()
        call = KINDS[kind](op, int(seed))
        said = asyncio.run(run(call))
        for _ in range(4):  # was it the call, or what it imported, or what else the machine does?
            if said["held_ms"] > HELD_MS:
                said["held_ms"] = min(said["held_ms"], asyncio.run(run(call))["held_ms"])
        print(json.dumps({"call": str(call), **said}), file=answers, flush=True)


if __name__ == "__main__":
    main()
