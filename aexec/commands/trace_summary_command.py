"""`aexec trace-summary`: which ops and nodes took most of the time in a trace."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from aexec import errors
from aexec.commands.profile_command import add_table_arguments
from aexec.commands.usage import FILE, add_command

__all__ = ["add_trace_summary"]


def add_trace_summary(commands: Any) -> None:
    command = add_command(
        commands,
        "trace-summary",
        help="print which ops took most time and memory in a trace written by `aexec run --trace`",
        description="Add up the node runs of a Chrome trace that `aexec run --trace` or TensorFlow's timeline wrote.",
    )
    trace = command.add_argument("trace", metavar="FILE.json", help="file of the trace")
    trace.complete = FILE  # type: ignore[attr-defined]
    add_table_arguments(command, order=None, top=10)
    command.set_defaults(command=_trace_summary)


def _trace_summary(arguments: argparse.Namespace) -> int:
    from aexec.runtime.profiling.trace_summary import profile_trace, trace_facts

    trace = _read_json(arguments.trace)
    orders = [arguments.sort] if arguments.sort else ["self", "bytes"]
    if arguments.json:
        print(json.dumps(profile_trace(trace, by=arguments.by, order_by=orders[0]).to_dict(), indent=2))
        return 0
    print(f"{arguments.trace}: {trace_facts(trace)}")
    for order in orders:
        if len(orders) > 1:
            print(f"\nby {order}:")
        print(profile_trace(trace, by=arguments.by, order_by=order).table(arguments.top))
    return 0


def _read_json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise errors.NotFoundError(f"{path}; No such file or directory") from None
    except (OSError, ValueError) as error:
        raise errors.InvalidArgumentError(f"cannot read {path} as JSON: {error}") from None
