"""`aexec run`: runs a graph and prints its results."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

import numpy as np

import aexec
from aexec.commands.answer import (
    check_output,
    check_values_file,
    json_values,
    print_json,
    print_values,
    save_values,
    write_file,
)
from aexec.commands.request import LoadedRequest, add_request_arguments, read_request
from aexec.commands.terminal import counted_progress
from aexec.commands.usage import FILE, add_command, positive, wrong

__all__ = ["add_run"]

_STDOUT = "-"
_EXAMPLES = """examples:
  aexec inspect model.pb                                        what there is to feed and fetch
  aexec run model.pb --feed 'x:0=[[1, 2, 3]]' --fetch y:0
  aexec run saved_model --feed x=image.npy --out answer.npz     by the names of its signature
  aexec run model.pb --feed x:0=x.npy --fetch y:0 --repeat 100 --json

"""


def add_run(commands: Any) -> None:
    command = add_command(commands, "run", help="run a graph once and print or save what it computes", epilog=_EXAMPLES)
    add_request_arguments(command, timeout="deadline of each run", delegate="auto")
    out = command.add_argument(
        "--out",
        metavar="FILE",
        help="save the fetched values to FILE: .npy for one value, .npz for any number; - is stdout",
    )
    trace = command.add_argument(
        "--trace", metavar="FILE.json", help="write a Chrome trace of the last run to FILE.json; - is stdout"
    )
    for argument in (out, trace):
        argument.complete = FILE  # type: ignore[attr-defined]
    command.add_argument(
        "--json",
        action="store_true",
        help="print JSON: outputs, dtypes and shapes by name, and the time of each run in seconds",
    )
    command.add_argument(
        "--repeat",
        type=positive,
        default=1,
        metavar="N",
        help="run N times, at least once, and print the median time (default: %(default)s)",
    )
    command.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    check_output("--trace", arguments.trace)
    _check_stdout(arguments)
    request = read_request(arguments)
    check_values_file(arguments.out, len(request.outputs))
    metadata = aexec.RunMetadata()
    options = aexec.RunOptions(timeout=arguments.timeout, trace=arguments.trace is not None)
    fetched, seconds = asyncio.run(_repeated(request, arguments.repeat, options, metadata))
    values = dict(zip(request.outputs, fetched, strict=True))
    if arguments.trace is not None:
        write_file(arguments.trace, json.dumps(metadata.chrome_trace(show_memory=True)).encode())
    if arguments.out is not None:
        save_values(values, arguments.out)
    if arguments.json:
        print_json((json_values(values) if arguments.out is None else {}) | {"seconds": seconds})
    elif arguments.out is None and arguments.trace != _STDOUT:
        print_values(values)
    if arguments.repeat > 1 and not arguments.json:
        print(f"median of {len(seconds)} runs: {float(np.median(seconds)) * 1e3:.3f} ms", file=sys.stderr)
    return 0


def _check_stdout(arguments: argparse.Namespace) -> None:
    """Raise UsageError if several things are to be written to standard output, where they could not be told apart."""
    asked = {
        "--out -": arguments.out == _STDOUT,
        "--trace -": arguments.trace == _STDOUT,
        "--json": arguments.json,
    }
    several = [option for option, there in asked.items() if there]
    if len(several) > 1:
        wrong(f"{' and '.join(several)} write to standard output: name a file for all but one")


async def _repeated(
    request: LoadedRequest, times: int, options: aexec.RunOptions, metadata: aexec.RunMetadata
) -> tuple[list[Any], list[float]]:
    """The results of the last run, and the seconds of each."""
    seconds = []
    with counted_progress("running", times) as advance:
        async with aexec.Session(request.graph, config=request.config) as session:
            for _ in range(times):
                began = time.perf_counter()
                values = await session.run(
                    request.fetches, request.feeds, request.targets, options=options, metadata=metadata
                )
                seconds.append(time.perf_counter() - began)
                advance()
    return values, seconds
