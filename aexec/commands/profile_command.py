"""`aexec profile`: how long the nodes of a graph take."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

import numpy as np

import aexec
from aexec import proto
from aexec.commands.request import LoadedRequest, add_request_arguments, read_request
from aexec.commands.terminal import counted_progress
from aexec.commands.usage import add_command, positive
from aexec.runtime.plans.estimate_report import EstimateReport
from aexec.runtime.profiling.profile import GROUPINGS, ORDERS, profile_steps

__all__ = ["add_profile", "add_table_arguments"]

# Runs before the first measured one: a plan is compiled at its third run.
_WARM_UP = 5


def add_profile(commands: Any) -> None:
    command = add_command(
        commands,
        "profile",
        help="run a graph several times and print where the time goes",
        description="""Run a graph several times, and print for each op, or each node, its cost in one run:
calls, total and self time, share of the self time, memory requested, and whether it ran inline on the event loop,
in a thread, awaited, or in a delegate.""",
        epilog="""total     time from the beginning of a call until its outputs were ready
self      total without the time that the call waited, or spent in bodies of functions that it called
requested memory that the call allocated; outputs that are part of an input, or overwrite one, allocate none
estimate  (by node) whether calls were measured, and the ratio of measured time to the kernel's own estimate;
          calls that are expected to be long are made in a thread

A traced run is interpreted and recorded node by node, so it takes longer than an ordinary run, whose time is in the
first line. Compare shares, not times.

""",
    )
    add_request_arguments(command, timeout="deadline of each run", delegate="none")
    command.add_argument(
        "--runs",
        type=positive,
        default=10,
        metavar="N",
        help="number of ordinary runs, and of traced runs (at least 1; default: %(default)s)",
    )
    add_table_arguments(command, order="self", top=None)
    command.set_defaults(command=_profile)


def add_table_arguments(command: argparse.ArgumentParser, *, order: str | None, top: int | None) -> None:
    command.add_argument(
        "--by",
        choices=GROUPINGS,
        default="op",
        help="print a line for each op, or for each node (default: %(default)s)",
    )
    orders = "%(default)s" if order else "two tables: self and bytes"
    command.add_argument(
        "--sort", choices=tuple(ORDERS), default=order, help=f"column by which lines are sorted (default: {orders})"
    )
    lines = "all" if top is None else "%(default)s"
    command.add_argument(
        "--top",
        type=positive,
        default=top,
        metavar="N",
        help=f"print N lines, and one for the sum of the others (at least 1; default: {lines})",
    )
    command.add_argument("--json", action="store_true", help="print JSON: sums over all runs, times in seconds")


def _profile(arguments: argparse.Namespace) -> int:
    request = read_request(arguments)
    plain, traced, stats, estimates = asyncio.run(_measured(request, arguments.runs, arguments.timeout))
    found = profile_steps(stats, by=arguments.by, order_by=arguments.sort).with_estimates(estimates)
    usual, watched = float(np.median(plain)), float(np.median(traced))
    if arguments.json:
        print(json.dumps({"run_seconds": usual, "traced_run_seconds": watched} | found.to_dict(), indent=2))
        return 0
    kernels = found.self_seconds / found.steps
    print(
        f"{arguments.graph}: {usual * 1e3:.3f} ms a run (median of {arguments.runs}); "
        f"traced {watched * 1e3:.3f} ms, of which kernels {kernels * 1e3:.3f} ms"
    )
    print(found.table(arguments.top))
    return 0


async def _measured(
    request: LoadedRequest, runs: int, timeout: float | None
) -> tuple[list[float], list[float], list[proto.StepStats], list[EstimateReport]]:
    """Seconds of untraced runs and of traced ones, in turn; the statistics of the latter; and the nodes' estimates."""
    plain, traced, stats = [], [], []
    with counted_progress("profiling", runs) as advance:
        async with aexec.Session(request.graph, config=request.config) as session:

            async def seconds(trace: bool, metadata: aexec.RunMetadata | None = None) -> float:
                options = aexec.RunOptions(timeout=timeout, trace=trace)
                began = time.perf_counter()
                await session.run(request.fetches, request.feeds, request.targets, options=options, metadata=metadata)
                return time.perf_counter() - began

            for _ in range(_WARM_UP):
                await seconds(trace=False)
            for _ in range(runs):
                metadata = aexec.RunMetadata()
                plain.append(await seconds(trace=False))
                traced.append(await seconds(trace=True, metadata=metadata))
                assert metadata.step_stats is not None
                stats.append(metadata.step_stats)
                advance()
            call = session.make_callable(request.fetches, [*request.feeds], request.targets)
            return plain, traced, stats, await session.estimates(call)
