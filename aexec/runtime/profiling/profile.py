"""Profiles: step statistics added up by op or by node, as in TensorFlow's profiler.

Times are of traced runs, which the interpreter runs node by node.  They do not include the time of the event loop and
the executor between kernels.
Next to read: `step_stats.py` for the statistics, `self_time.py` for self time, and `trace_summary.py`, which adds up a
trace from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any

from aexec import proto
from aexec.framework import errors
from aexec.framework.html_repr import MAX_ROWS
from aexec.framework.late_dataclass import dataclass
from aexec.runtime.plans.estimate_report import EstimateReport
from aexec.runtime.profiling.profile_bars import Bar, bars_table
from aexec.runtime.profiling.step_stats import SOURCE, op_of, self_nanos, total_nanos, where_run

__all__ = ["GROUPINGS", "ORDERS", "NodeRun", "Profile", "ProfileEntry", "profile_runs", "profile_steps"]

GROUPINGS = ("op", "node")


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One run of a node, with times in seconds; for the fields see `ProfileEntry`."""

    name: str
    op: str
    total_seconds: float
    self_seconds: float
    requested_bytes: int
    where: str


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """The sums over all steps for one node, or for all nodes of one op.

    Attributes:
        name: the op, or the node.
        op: the node's op; equal to `name` if entries are ops.
        nodes: the number of different nodes that ran.
        calls: the number of kernel calls; more than nodes in loops, and with several steps.
        total_seconds: the time from the start of each call until its outputs were there, including waits.
        self_seconds: the part of it in which the kernel computed, without waits and without the nodes of called
            functions.
        requested_bytes: the allocated memory; none for outputs that are views of an input or overwrote one.
        where: the number of calls that ran `inline` on the event loop's thread, in a worker `thread`, on a device's
            `stream`, were `awaited`, or went to a `delegate`.
        estimate: the learned cost of a node's calls; None for an op, or if it is unknown or not needed.
    """

    name: str
    op: str
    nodes: int
    calls: int
    total_seconds: float
    self_seconds: float
    requested_bytes: int
    where: Mapping[str, int]
    estimate: EstimateReport | None = None


ORDERS: Mapping[str, Callable[[ProfileEntry], Any]] = {
    "self": lambda entry: -entry.self_seconds,
    "total": lambda entry: -entry.total_seconds,
    "calls": lambda entry: -entry.calls,
    "bytes": lambda entry: -entry.requested_bytes,
    "name": lambda entry: entry.name,
}


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of some steps.

    Attributes:
        by: `op` or `node`, the kind of the entries.
        steps: the number of steps.
        entries: the entries, in the requested order.
    """

    by: str
    steps: int
    entries: tuple[ProfileEntry, ...]

    @property
    def self_seconds(self) -> float:
        """The sum of self time over all entries and steps; a step may take less, because threads run in parallel."""
        return sum(entry.self_seconds for entry in self.entries)

    def with_estimates(self, estimates: Iterable[EstimateReport]) -> Profile:
        """The profile with the estimates of its nodes, if its entries are nodes."""
        if self.by == "op":
            return self
        known = {report.name: report for report in estimates}
        return replace(self, entries=tuple(replace(entry, estimate=known.get(entry.name)) for entry in self.entries))

    def table(self, top: int | None = None) -> str:
        """The profile as a table: calls, times in ms and memory are per step, `share` is that of all self time.

        Args:
            top: the number of entries to print, the others being added up; None for all.
        """
        shown = self.entries if top is None else self.entries[:top]
        rows = [_HEADINGS[self.by], *(self._cells(entry) for entry in shown)]
        rest = self.entries[len(shown) :]
        if rest:
            rows.append(self._cells(_sum(f"{len(rest)} more", rest)))
        rows.append(self._cells(_sum("all", self.entries)))
        if not any(row[-1] for row in rows[1:]):
            rows = [row[:-1] for row in rows]  # without estimates
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join(_line(row, widths, rows[0]) for row in rows)

    def _repr_html_(self) -> str:
        whole = self.self_seconds or 1.0
        shown, rest = self.entries[:MAX_ROWS], self.entries[MAX_ROWS:]
        bars = [Bar(e.name, e.op, e.calls, e.self_seconds, e.self_seconds / whole) for e in shown]
        if rest:
            seconds = sum(entry.self_seconds for entry in rest)
            calls = sum(entry.calls for entry in rest)
            bars.append(Bar(f"{len(rest)} more", "", calls, seconds, seconds / whole))
        return bars_table(self.steps, self.by, bars)

    def _per_step(self, sum_of_steps: float) -> float:
        return sum_of_steps / max(1, self.steps)

    def _cells(self, entry: ProfileEntry) -> tuple[str, ...]:
        share = entry.self_seconds / self.self_seconds if self.self_seconds else 0.0
        figures = (
            str(entry.nodes),
            _number(self._per_step(entry.calls)),
            f"{self._per_step(entry.total_seconds) * 1e3:.3f}",
            f"{self._per_step(entry.self_seconds) * 1e3:.3f}",
            f"{share:.1%}",
            _bytes(self._per_step(entry.requested_bytes)),
            self._places(entry),
            str(entry.estimate or ""),
        )
        return (entry.name, *figures) if self.by == "op" else (entry.name, entry.op, *figures)

    def _places(self, entry: ProfileEntry) -> str:
        if len(entry.where) == 1:
            return next(iter(entry.where))
        return ", ".join(f"{where} {_number(self._per_step(count))}" for where, count in entry.where.items())

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain data for JSON; sums over all steps, times in seconds."""
        entries = [
            {
                "name": entry.name,
                "op": entry.op,
                "nodes": entry.nodes,
                "calls": entry.calls,
                "total_seconds": entry.total_seconds,
                "self_seconds": entry.self_seconds,
                "requested_bytes": entry.requested_bytes,
                "where": dict(entry.where),
                **({} if entry.estimate is None else {"estimate": asdict(entry.estimate)}),
            }
            for entry in self.entries
        ]
        return {"by": self.by, "steps": self.steps, "entries": entries}


def profile_steps(steps: Iterable[proto.StepStats], *, by: str = "op", order_by: str = "self") -> Profile:
    """Add up the statistics of one step, or of several runs of the same request.

    Args:
        by: `op` for an entry per op, `node` for one per node.
        order_by: of `ORDERS`: self, total, calls and bytes put the largest first, name the first by name.

    Raises:
        InvalidArgumentError: there is no such grouping or order.
    """
    runs: list[NodeRun] = []
    count = 0
    for step in steps:
        count += 1
        for device in step.dev_stats:
            runs.extend(_run(stats, device) for stats in device.node_stats if stats.node_name != SOURCE)
    return profile_runs(runs, count, by=by, order_by=order_by)


def _run(stats: proto.NodeExecStats, device: proto.DeviceStepStats) -> NodeRun:
    return NodeRun(
        stats.node_name,
        op_of(stats),
        total_nanos(stats) * 1e-9,
        self_nanos(stats) * 1e-9,
        sum(used.total_bytes for used in stats.memory),
        where_run(stats, device),
    )


def profile_runs(runs: Iterable[NodeRun], steps: int, *, by: str = "op", order_by: str = "self") -> Profile:
    """Add up runs of nodes from `steps` steps.  Other arguments and errors as for `profile_steps`."""
    if by not in GROUPINGS:
        raise errors.InvalidArgumentError(f"by must be one of {', '.join(GROUPINGS)}, got {by!r}")
    if order_by not in ORDERS:
        raise errors.InvalidArgumentError(f"order_by must be one of {', '.join(ORDERS)}, got {order_by!r}")
    sums: dict[str, _Sum] = {}
    for run in runs:
        sums.setdefault(run.op if by == "op" else run.name, _Sum(run.op)).add(run)
    entries = sorted((entry.result(name) for name, entry in sums.items()), key=lambda entry: entry.name)
    return Profile(by, steps, tuple(sorted(entries, key=ORDERS[order_by])))


@dataclass(slots=True)
class _Sum:
    """The running sums of a `ProfileEntry`."""

    op: str
    nodes: set[str] = field(default_factory=set)
    calls: int = 0
    total: float = 0.0
    own: float = 0.0
    requested_bytes: int = 0
    where: dict[str, int] = field(default_factory=dict)

    def add(self, run: NodeRun) -> None:
        self.nodes.add(run.name)
        self.calls += 1
        self.total += run.total_seconds
        self.own += run.self_seconds
        self.requested_bytes += run.requested_bytes
        self.where[run.where] = self.where.get(run.where, 0) + 1

    def result(self, name: str) -> ProfileEntry:
        return ProfileEntry(
            name,
            self.op,
            len(self.nodes),
            self.calls,
            self.total,
            self.own,
            self.requested_bytes,
            dict(sorted(self.where.items())),
        )


def _sum(name: str, entries: Sequence[ProfileEntry]) -> ProfileEntry:
    where: dict[str, int] = {}
    for entry in entries:
        for place, count in entry.where.items():
            where[place] = where.get(place, 0) + count
    return ProfileEntry(
        name,
        "",
        sum(entry.nodes for entry in entries),
        sum(entry.calls for entry in entries),
        sum(entry.total_seconds for entry in entries),
        sum(entry.self_seconds for entry in entries),
        sum(entry.requested_bytes for entry in entries),
        dict(sorted(where.items())),
    )


# Text

_FIGURES = ("nodes", "calls", "total ms", "self ms", "share", "requested", "where", "estimate")
# Columns of text, which are aligned to the left.
_TEXTS = {"op", "node", "where", "estimate"}
_HEADINGS: Mapping[str, tuple[str, ...]] = {"op": ("op", *_FIGURES), "node": ("node", "op", *_FIGURES)}


def _line(cells: Sequence[str], widths: Sequence[int], headings: Sequence[str]) -> str:
    """A line of the table: text to the left, numbers to the right."""
    padded = [
        cell.ljust(width) if heading in _TEXTS else cell.rjust(width)
        for cell, width, heading in zip(cells, widths, headings, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _bytes(count: float) -> str:
    """Bytes as TensorFlow's profiler prints them: `4B`, `1.50KB`, `2.30MB`."""
    if count < 1e3:
        return f"{count:.0f}B"
    for unit in ("KB", "MB"):
        count /= 1e3
        if count < 1e3:
            return f"{count:.2f}{unit}"
    return f"{count / 1e3:.2f}GB"
