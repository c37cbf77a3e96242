"""Makes extreme calls, one after another, and reports the outcome of each.

It runs in a process of its own with little memory, so that excessive allocations fail here: `python -m
tests.support.programs.extreme_calls_worker` reads lines `kind op seed accounting`, and answers each with a line of
JSON.  `exact` accounting counts the memory of each call of a kernel, `rough` only memory that is kept and calls in
threads, as under large limits.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import inspect
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import aexec
from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.graph.passes import PASSES
from aexec.runtime.interpreter.memory_accountant import EXACT_BELOW
from tests.support.foreign_errors import is_foreign
from tests.support.programs.attacks import attack, chained_attack
from tests.support.programs.extreme_calls import ExtremeCall, enlarged_call, extreme_call
from tests.support.watcher import seconds_waited

_ADDRESS_SPACE = 6 << 30
# Small enough that every call is counted.
_STEP_BYTES = EXACT_BELOW - 1
DEADLINE = 0.2
KINDS = {
    "extreme": extreme_call,
    "enlarged": enlarged_call,
    "attack": attack,
    "chain": chained_attack,
}
ACCOUNTINGS = {"exact": True, "rough": False}
# Limits in milliseconds: processor time of a call on the loop without interruption, and time for which the loop may
# wait for the interpreter's lock.
HELD_MS, LATE_MS = 25.0, 60.0
# MiB that calls on the loop, which rough accounting leaves out, may make in the time that they may take there.
_INLINE_MIB = 4.0
# MiB that a call may take without counting them, and factor by which the allocator may keep more than is counted.
UNCOUNTED_MIB, _ROUNDING = 4.0, 1.25
# Milliseconds after which a run that its deadline ends must have been answered.
ANSWERED_MS = 1e3 * DEADLINE + 100
# Milliseconds of processor time for which a call may go on after its answer: a call of a library ends by itself.
WENT_ON_MS = 2000.0
_BEAT = 0.004
_TRIES = 4
_libc = ctypes.CDLL(None)


@dataclass
class Said:
    """The outcome of a call.

    Attributes:
        error: class and message of its error; `foreign` if it is not an error of aexec.
        reached, ended: how often kernels of the op were called, and ended other than by a refusal.
        no_strings: object outputs that are not all strings.
        held_ms: longest processor time that the loop's thread took without interruption.
        late_ms: largest lateness of the loop while other threads of the process worked.
        took_ms: time until the answer.
        went_on_ms: processor time from then until all its work had ended.
        peak_mib, counted_mib: increase of the peak memory, and of the counted memory.
        uncounted_mib: memory that should have been counted and was not.
    """

    error: str = ""
    foreign: bool = False
    reached: int = 0
    ended: int = 0
    no_strings: list[str] = field(default_factory=list)
    held_ms: float = 0.0
    late_ms: float = 0.0
    took_ms: float = 0.0
    went_on_ms: float = 0.0
    peak_mib: float = 0.0
    counted_mib: float = 0.0
    uncounted_mib: float = 0.0

    def is_over(self) -> bool:
        """True if a limit is exceeded."""
        return (
            self.held_ms > HELD_MS
            or self.late_ms > LATE_MS
            or self.uncounted_mib > UNCOUNTED_MIB
            or self.took_ms > ANSWERED_MS
            or self.went_on_ms > WENT_ON_MS
        )


_MEASURED = ("held_ms", "late_ms", "uncounted_mib", "took_ms", "went_on_ms")


class Reach:
    """Counts the calls of an op's kernels."""

    def __init__(self, op: str) -> None:
        self.reached = self.ended = 0
        self._op = op
        self._build = KernelRegistration.build

    def __enter__(self) -> Reach:
        build = self._build

        def watched(registration: KernelRegistration, c: OpKernelConstruction) -> BuiltKernel:
            built = build(registration, c)
            if c.op == self._op:
                built.compute = self._counted(built.compute)
            return built

        KernelRegistration.build = watched  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        KernelRegistration.build = self._build  # type: ignore[method-assign]

    def _counted(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(compute):

            async def counted_await(*inputs: Any, **out: Any) -> Any:
                return await self._awaited(compute(*inputs, **out))

            return counted_await

        def counted(*inputs: Any, **out: Any) -> Any:
            self.reached += 1
            try:
                result = compute(*inputs, **out)
            except errors.ResourceExhaustedError:
                self.ended += 1
                raise
            except errors.OpError:
                raise
            except BaseException:  # the call is abandoned, or has to be made in a thread
                self.ended += 1
                raise
            self.ended += 1
            return result

        return counted

    async def _awaited(self, outputs: Awaitable[Any]) -> Any:
        self.reached += 1
        result = await outputs
        self.ended += 1
        return result


def _peak_kib() -> int:
    """Return the peak of the resident memory since it was reset."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def _reset_peak() -> int:
    _libc.malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak_kib()


def _are_strings(value: Any) -> bool:
    """True if object elements are all strings; zeros that NumPy makes are numbers."""
    array = np.asarray(value)
    return array.dtype != object or all(type(element) is bytes for element in array.ravel().tolist())


async def _beat(said: Said) -> None:
    """Watch the loop until cancelled, and note the last stretch too: a call may end before a timer is looked at."""
    while True:
        began, waited, cpu, busy = time.perf_counter(), seconds_waited(os.getpid()), time.thread_time(), _cpu()
        try:
            await asyncio.sleep(_BEAT)
        finally:
            late = time.perf_counter() - began - _BEAT - (seconds_waited(os.getpid()) - waited)
            held = time.thread_time() - cpu
            said.held_ms = max(said.held_ms, 1e3 * held)
            said.late_ms = max(said.late_ms, 1e3 * min(late, _cpu() - busy))


_cpu = time.process_time


async def run(call: ExtremeCall, *, exact: bool = True) -> Said:
    """Run one call.

    Args:
        exact: True to account for each call of a kernel, not only for memory that is kept and calls in threads.
    """
    said, account = Said(), MemoryAccount("server")
    passes = () if call.as_it_is else tuple(PASSES)
    step_bytes = _STEP_BYTES if exact else EXACT_BELOW
    config = aexec.SessionConfig(graph_passes=passes, delegates=(), step_bytes=step_bytes, memory_account=account)
    options = aexec.RunOptions(timeout=DEADLINE)
    feeds = {name: np.array(value) for name, value in call.feeds.items()}  # fed arrays belong to the caller
    before = _reset_peak()
    beat: asyncio.Task[None] | None = None
    answered: float | None = None
    with Reach(call.op) as reach:
        try:
            graph = aexec.Graph.from_graph_def(call.graph_def)
            beat = asyncio.create_task(_beat(said))
            await asyncio.sleep(0)
            async with aexec.Session(graph, config=config) as session:
                began, waited = time.perf_counter(), seconds_waited(os.getpid())
                try:
                    values = await session.run(call.fetches, feeds, targets=call.targets, options=options)
                finally:
                    waited = seconds_waited(os.getpid()) - waited
                    said.took_ms = (time.perf_counter() - began - waited) * 1e3
                    answered = _cpu()
                    said.peak_mib = (_peak_kib() - before) / 1024
                    said.counted_mib = account.peak / 2**20
                    beat.cancel()
                    await asyncio.sleep(0)
                said.no_strings = [n for n, value in zip(call.fetches, values, strict=True) if not _are_strings(value)]
                del values
        except errors.OpError as error:
            said.error, said.foreign = f"{type(error).__name__}: {error.message}"[:300], is_foreign(error)
        except Exception as error:
            said.error, said.foreign = f"{type(error).__name__}: {error}"[:300], True
    if beat is not None:
        beat.cancel()
    if answered is not None:
        said.went_on_ms = 1e3 * (_cpu() - answered)
    said.reached, said.ended = reach.reached, reach.ended
    said.uncounted_mib = said.peak_mib - _ROUNDING * said.counted_mib - (0.0 if exact else _INLINE_MIB)
    return said


def run_again(call: ExtremeCall, *, exact: bool) -> Said:
    """Run a call, and again if it held the loop or took memory, to tell the call from imports."""
    said = asyncio.run(run(call, exact=exact))
    for _ in range(_TRIES):
        if not said.is_over():
            break
        again = asyncio.run(run(call, exact=exact))
        for name in _MEASURED:
            setattr(said, name, min(getattr(said, name), getattr(again, name)))
    return said


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    # Some ops print.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.chdir(tempfile.mkdtemp())  # some ops write files named by their inputs
    asyncio.run(run(extreme_call("Neg", 0)))  # the imports of a first run are not the op's
    gc.freeze()
    for line in sys.stdin:
        kind, op, seed, accounting = line.split()
        call = KINDS[kind](op, int(seed))
        said = run_again(call, exact=ACCOUNTINGS[accounting])
        print(json.dumps({"call": str(call), **asdict(said)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
