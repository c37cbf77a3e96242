"""Makes extreme calls, one after another, and reports the outcome of each.

It runs in a process of its own with little memory, so that excessive allocations fail here: `python -m
tests.support.programs.extreme_calls_worker` reads lines `kind op seed accounting`, and answers each with a line of
JSON.  `exact` accounting counts the memory of each call of a kernel, `rough` only memory that is kept and calls in
threads, as under large limits.

All calls are made on one event loop, beside an open session that keeps the worker threads, so that a call costs little
more than its graph does; its memory and the time for which it holds the loop are measured by themselves.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
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
from tests.support.programs.graphs import GraphBuilder
from tests.support.programs.own_readings import OwnReadings
from tests.support.watcher import seconds_waited_in_threads

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
# Characters that tell errors apart.
_KIND = 20
_BEAT = 0.004
_TRIES = 4


@dataclass
class Said:
    """The outcome of a call.

    Attributes:
        error: class and message of its error; `foreign` if it is not an error of aexec.
        reached, ended: how often kernels of the op were called, and ended other than by a refusal.
        no_strings: object outputs that are not all strings.
        held_ms: longest processor time that the loop's thread took without interruption.
        late_ms: largest lateness of the loop while other threads of the process worked, and all had processors.
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

    def is_wrong(self) -> bool:
        """True if a limit is exceeded, or the outcome is none that a call may have."""
        return self.is_over() or self.foreign or bool(self.no_strings)

    def was_too_slow_to_tell(self) -> bool:
        """True if the deadline passed before the op was called: on a busy machine that tells nothing of the op."""
        return not self.reached and self.error.startswith("DeadlineExceededError")


_MEASURED = ("held_ms", "late_ms", "uncounted_mib", "took_ms", "went_on_ms")


def _waited() -> float:
    return seconds_waited_in_threads(os.getpid())


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


def _are_strings(value: Any) -> bool:
    """True if object elements are all strings; zeros that NumPy makes are numbers."""
    array = np.asarray(value)
    return array.dtype != object or all(type(element) is bytes for element in array.ravel().tolist())


_cpu = time.process_time


class Caller:
    """Makes calls on a loop of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._readings = OwnReadings()
        # While a session is open, the worker threads live on.
        self._keeper = aexec.Session(GraphBuilder().graph())
        self._runner.run(self._open())

    async def _open(self) -> None:
        await self._keeper.__aenter__()

    def close(self) -> None:
        self._runner.run(self._keeper.close())
        self._runner.close()
        self._readings.close()

    def call(self, call: ExtremeCall, *, exact: bool = True) -> Said:
        """Make one call.

        Args:
            exact: True to account for each call of a kernel, not only for memory that is kept and calls in threads.
        """
        return self._runner.run(self._call(call, exact))

    def call_again(self, call: ExtremeCall, *, exact: bool) -> Said:
        """Make a call, and again if it held the loop or took memory, to tell the call from imports and from other load
        on the machine.
        """
        said = self.call(call, exact=exact)
        for _ in range(_TRIES):
            if said.was_too_slow_to_tell():
                said = self.call(call, exact=exact)
                continue
            if not said.is_over():
                break
            again = self.call(call, exact=exact)
            if again.error[:_KIND] != said.error[:_KIND]:  # that which its deadline ended did less
                said = again if said.error.startswith("DeadlineExceededError") else said
                continue
            for name in _MEASURED:
                setattr(said, name, min(getattr(said, name), getattr(again, name)))
        return said

    async def _beat(self, said: Said) -> None:
        """Watch the loop until cancelled, and note the last stretch too: a call may end before a timer is looked at."""
        while True:
            # A thread that has the interpreter's lock and no processor makes the loop wait, as one that works does.
            began, waited, cpu, busy = time.perf_counter(), _waited(), time.thread_time(), _cpu()
            try:
                await asyncio.sleep(_BEAT)
            finally:
                late = time.perf_counter() - began - _BEAT - max(0.0, _waited() - waited)
                held = time.thread_time() - cpu
                said.held_ms = max(said.held_ms, 1e3 * held)
                said.late_ms = max(said.late_ms, 1e3 * min(late, _cpu() - busy))

    async def _call(self, call: ExtremeCall, exact: bool) -> Said:
        said, account = Said(), MemoryAccount("server")
        passes = () if call.as_it_is else _ALL_PASSES
        step_bytes = _STEP_BYTES if exact else EXACT_BELOW
        config = aexec.SessionConfig(graph_passes=passes, delegates=(), step_bytes=step_bytes, memory_account=account)
        feeds = {name: np.array(value) for name, value in call.feeds.items()}  # fed arrays belong to the caller
        before = self._readings.reset_peak_kib()
        beat: asyncio.Task[None] | None = None
        answered: list[float] = []
        with Reach(call.op) as reach:
            try:
                graph = aexec.Graph.from_graph_def(call.graph_def)
                beat = asyncio.create_task(self._beat(said))
                await asyncio.sleep(0)
                async with aexec.Session(graph, config=config) as session:
                    try:
                        values = await self._run(session, call, feeds, said)
                    finally:
                        answered.append(_cpu())
                        said.peak_mib = (self._readings.peak_kib() - before) / 1024
                        said.counted_mib = account.peak / 2**20
                        beat.cancel()
                        await asyncio.sleep(0)
                    said.no_strings = [
                        name for name, value in zip(call.fetches, values, strict=True) if not _are_strings(value)
                    ]
                    del values
            except errors.OpError as error:
                said.error, said.foreign = f"{type(error).__name__}: {error.message}"[:300], is_foreign(error)
            except Exception as error:
                said.error, said.foreign = f"{type(error).__name__}: {error}"[:300], True
        if beat is not None:
            beat.cancel()
        if answered:
            said.went_on_ms = 1e3 * (_cpu() - answered[0])
        said.reached, said.ended = reach.reached, reach.ended
        said.uncounted_mib = said.peak_mib - _ROUNDING * said.counted_mib - (0.0 if exact else _INLINE_MIB)
        return said

    async def _run(self, session: aexec.Session, call: ExtremeCall, feeds: dict[str, Any], said: Said) -> list[Any]:
        began, waited = time.perf_counter(), self._readings.seconds_waited()
        try:
            return await session.run(call.fetches, feeds, targets=call.targets, options=_OPTIONS)
        finally:
            waited = self._readings.seconds_waited() - waited
            said.took_ms = (time.perf_counter() - began - waited) * 1e3


_ALL_PASSES = tuple(PASSES)
_OPTIONS = aexec.RunOptions(timeout=DEADLINE)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    # Some ops print.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.chdir(tempfile.mkdtemp())  # some ops write files named by their inputs
    caller = Caller()
    caller.call(extreme_call("Neg", 0))  # the imports of a first run are not the op's
    gc.freeze()
    for line in sys.stdin:
        kind, op, seed, accounting = line.split()
        call = KINDS[kind](op, int(seed))
        said = caller.call_again(call, exact=ACCOUNTINGS[accounting])
        # The text of a call may be long.
        text = {"call": str(call)} if said.is_wrong() else {}
        print(json.dumps(text | vars(said)), file=answers, flush=True)
    caller.close()


if __name__ == "__main__":
    main()
