"""Trace summaries: reads a Chrome trace back, and adds it up by op or by node to a profile.

Traces of `chrome_trace.py` have everything that a profile has.  Other traces of this form, such as those of
TensorFlow's timeline module, have only times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aexec.framework import errors
from aexec.runtime.profiling.profile import NodeRun, Profile, profile_runs
from aexec.runtime.profiling.step_stats import SOURCE

__all__ = ["node_runs_of", "profile_trace", "trace_facts"]

_COPY = "Copy"


def profile_trace(trace: Any, *, by: str = "op", order_by: str = "self") -> Profile:
    """Add up the node runs of a Chrome trace.

    Args:
        trace: the result of `json.load`: an object with `traceEvents`, or a list of events.
        by, order_by: as for `profile_steps`.

    Raises:
        InvalidArgumentError: no such trace, grouping or order.
    """
    return profile_runs(map(_run, node_runs_of(trace)), 1, by=by, order_by=order_by)


def trace_facts(trace: Any) -> str:
    """A line with the numbers of node runs, devices and copies between memories, and the time from first to last.

    Raises:
        InvalidArgumentError: no such trace.
    """
    runs = node_runs_of(trace)
    copies = sum(event["cat"] == _COPY for event in runs)
    count = f"{len(runs) - copies} node runs{f' and {copies} copies' if copies else ''} on "
    count += _count({event.get("pid") for event in runs}, "device")
    if not runs:
        return count
    ends = max(event["ts"] + event["dur"] for event in runs)
    return f"{count}, {(ends - min(event['ts'] for event in runs)) / 1e3:.3f} ms"


def _count(things: Iterable[Any], word: str) -> str:
    number = len(set(things))
    return f"{number} {word}{'' if number == 1 else 's'}"


def node_runs_of(trace: Any) -> list[Mapping[str, Any]]:
    """The events of a Chrome trace that are runs of nodes or copies.  Raises InvalidArgumentError for what is none."""
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise errors.InvalidArgumentError("expected a Chrome trace: an object with a list of traceEvents")
    runs = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("Op", _COPY) and _name(e) != SOURCE]
    for event in runs:
        for key in ("ts", "dur"):
            if not isinstance(event.get(key), int | float):
                raise errors.InvalidArgumentError(f"event {event.get('name')!r} of the trace has no number {key!r}")
    return runs


def _name(event: Mapping[str, Any]) -> str:
    return str(_args(event).get("name", event.get("name")))


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _run(event: Mapping[str, Any]) -> NodeRun:
    args = _args(event)
    return NodeRun(
        _name(event),
        str(args.get("op", event.get("name"))),
        event["dur"] * 1e-6,
        args.get("self_us", event["dur"]) * 1e-6,
        args.get("bytes", 0),
        args.get("where", "unknown"),
    )
