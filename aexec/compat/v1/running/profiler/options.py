"""`tf.profiler.ProfileOptionBuilder`: the dictionary of what a profile counts, shows and writes; and its reader.

Next to read: `profiling.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass

__all__ = ["COLUMNS", "TRAINABLE", "Options", "ProfileOptionBuilder", "matches"]

# The word that matches trainable variables among types of nodes.
TRAINABLE = "_trainable_variables"

# What may be selected and ordered by → the number of a node; None for words about it.
COLUMNS = {
    "params": "parameters",
    "float_ops": "float_ops",
    "bytes": "requested_bytes",
    "peak_bytes": "peak_bytes",
    "residual_bytes": "residual_bytes",
    "output_bytes": "output_bytes",
    "micros": "exec_micros",
    "accelerator_micros": "accelerator_exec_micros",
    "cpu_micros": "cpu_exec_micros",
    "occurrence": "definition_count",
    "device": None,
    "op_types": None,
    "input_shapes": None,
}
_MINIMUMS = [name for name, number in COLUMNS.items() if number and name != "occurrence"]


class ProfileOptionBuilder:
    """`tf.profiler.ProfileOptionBuilder`: begins with options, and changes a copy of them."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options: dict[str, Any] = dict(options) if options is not None else _defaults()

    @staticmethod
    def trainable_variables_parameter() -> dict[str, Any]:
        """Options that count the parameters of trainable variables."""
        changed = {"account_type_regexes": [TRAINABLE], "select": ["params"]}
        return _defaults() | {"max_depth": 10000, "account_displayed_op_only": True} | changed

    @staticmethod
    def float_operation() -> dict[str, Any]:
        """Options that count float operations."""
        changed = {"min_float_ops": 1, "order_by": "float_ops", "select": ["float_ops"]}
        return _defaults() | {"max_depth": 10000, "account_displayed_op_only": True} | changed

    @staticmethod
    def time_and_memory(
        min_micros: int = 1,
        min_bytes: int = 1,
        min_accelerator_micros: int = 0,
        min_cpu_micros: int = 0,
        min_peak_bytes: int = 0,
        min_residual_bytes: int = 0,
        min_output_bytes: int = 0,
    ) -> dict[str, Any]:
        """Options that show the times and the memory of nodes that ran, for at least so many microseconds and bytes."""
        builder = ProfileOptionBuilder().with_max_depth(10000).account_displayed_op_only(True).order_by("micros")
        builder.with_min_execution_time(min_micros, min_accelerator_micros, min_cpu_micros)
        builder.with_min_memory(min_bytes, min_peak_bytes, min_residual_bytes, min_output_bytes)
        return builder.select(["micros", "bytes"]).build()

    def build(self) -> dict[str, Any]:
        """A copy of the options."""
        return dict(self._options)

    def with_max_depth(self, max_depth: int) -> ProfileOptionBuilder:
        return self._with(max_depth=max_depth)

    def with_min_memory(
        self, min_bytes: int = 0, min_peak_bytes: int = 0, min_residual_bytes: int = 0, min_output_bytes: int = 0
    ) -> ProfileOptionBuilder:
        return self._with(
            min_bytes=min_bytes,
            min_peak_bytes=min_peak_bytes,
            min_residual_bytes=min_residual_bytes,
            min_output_bytes=min_output_bytes,
        )

    def with_min_execution_time(
        self, min_micros: int = 0, min_accelerator_micros: int = 0, min_cpu_micros: int = 0
    ) -> ProfileOptionBuilder:
        return self._with(
            min_micros=min_micros, min_accelerator_micros=min_accelerator_micros, min_cpu_micros=min_cpu_micros
        )

    def with_min_parameters(self, min_params: int) -> ProfileOptionBuilder:
        return self._with(min_params=min_params)

    def with_min_occurrence(self, min_occurrence: int) -> ProfileOptionBuilder:
        return self._with(min_occurrence=min_occurrence)

    def with_min_float_operations(self, min_float_ops: int) -> ProfileOptionBuilder:
        return self._with(min_float_ops=min_float_ops)

    def with_accounted_types(self, account_type_regexes: Iterable[str]) -> ProfileOptionBuilder:
        """Count only nodes one of whose types matches: the op, the devices where it ran, `_trainable_variables`."""
        return self._with(account_type_regexes=list(account_type_regexes))

    def with_node_names(
        self,
        start_name_regexes: Iterable[str] | None = None,
        show_name_regexes: Iterable[str] | None = None,
        hide_name_regexes: Iterable[str] | None = None,
        trim_name_regexes: Iterable[str] | None = None,
    ) -> ProfileOptionBuilder:
        """Show trees that begin with the first names, of them nodes by their names, and nothing below the last."""
        given = {
            "start_name_regexes": start_name_regexes,
            "show_name_regexes": show_name_regexes,
            "hide_name_regexes": hide_name_regexes,
            "trim_name_regexes": trim_name_regexes,
        }
        return self._with(**{name: list(value) for name, value in given.items() if value is not None})

    def account_displayed_op_only(self, is_true: bool) -> ProfileOptionBuilder:
        return self._with(account_displayed_op_only=is_true)

    def with_empty_output(self) -> ProfileOptionBuilder:
        return self._with(output="none")

    def with_stdout_output(self) -> ProfileOptionBuilder:
        return self._with(output="stdout")

    def with_file_output(self, outfile: str) -> ProfileOptionBuilder:
        return self._with(output=f"file:outfile={outfile}")

    def with_timeline_output(self, timeline_file: str) -> ProfileOptionBuilder:
        """Raises UnsupportedError: timelines are made by `timeline.Timeline` of a RunMetadata."""
        raise errors.UnsupportedError("with_timeline_output: use tensorflow.python.client.timeline.Timeline")

    def with_pprof_output(self, pprof_file: str) -> ProfileOptionBuilder:
        """Raises UnsupportedError: no files for pprof are written."""
        raise errors.UnsupportedError("with_pprof_output: no files for pprof are written")

    def order_by(self, attribute: str) -> ProfileOptionBuilder:
        return self._with(order_by=attribute)

    def select(self, attributes: Iterable[str]) -> ProfileOptionBuilder:
        return self._with(select=list(attributes))

    def with_step(self, step: int) -> ProfileOptionBuilder:
        """Show the runs of a step that was added to a `Profiler`; of the average of all with -1."""
        return self._with(step=step)

    def _with(self, **changed: Any) -> ProfileOptionBuilder:
        self._options |= changed
        return self


def _defaults() -> dict[str, Any]:
    numbers = "min_bytes min_micros min_params min_float_ops min_occurrence"
    return {
        "max_depth": 100,
        **dict.fromkeys(numbers.split(), 0),
        "order_by": "name",
        "account_type_regexes": [".*"],
        "start_name_regexes": [".*"],
        "trim_name_regexes": [],
        "show_name_regexes": [".*"],
        "hide_name_regexes": [],
        "account_displayed_op_only": False,
        "select": ["micros"],
        "step": -1,
        "output": "stdout",
    }


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a profile, as TensorFlow reads the dictionary.

    Attributes:
        minimums: name of a column → the least number that is shown.
        account, start, trim, show, hide: patterns; see `ProfileOptionBuilder`.
        outfile: the file for the report; "" for none, "-" for the output of the program.
    """

    max_depth: int
    minimums: Mapping[str, int]
    order_by: str
    account: Sequence[str]
    start: Sequence[str]
    trim: Sequence[str]
    show: Sequence[str]
    hide: Sequence[str]
    displayed_only: bool
    select: Sequence[str]
    step: int
    outfile: str

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """Read a dictionary; None for the defaults.

        Raises:
            InvalidArgumentError: it selects or orders by a word that is none, or its output is none.
        """
        chosen = _defaults() if given is None else given
        selected = tuple(chosen.get("select", ()))
        for word in (*selected, chosen.get("order_by", "name")):
            if word != "name" and word not in COLUMNS:
                raise errors.InvalidValueError(f"tf.profiler: no column {word!r}; there are {' '.join(COLUMNS)}")
        return cls(
            max_depth=chosen.get("max_depth", 10),
            minimums={name: least for name in (*_MINIMUMS, "occurrence") if (least := chosen.get(f"min_{name}", 0))},
            order_by=chosen.get("order_by", "name"),
            account=chosen.get("account_type_regexes", ()),
            start=chosen.get("start_name_regexes", ()),
            trim=chosen.get("trim_name_regexes", ()),
            show=chosen.get("show_name_regexes", ()),
            hide=chosen.get("hide_name_regexes", ()),
            displayed_only=chosen.get("account_displayed_op_only", False),
            select=selected,
            step=chosen.get("step", -1),
            outfile=_outfile(chosen.get("output", "stdout")),
        )

    def columns(self) -> list[str]:
        """The selected columns, in the order of a report; times bring those of both kinds of device."""
        chosen = set(self.select)
        if "micros" in chosen:
            chosen |= {"accelerator_micros", "cpu_micros"}
        return [name for name in COLUMNS if name in chosen]


def matches(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of some patterns matches one of some names as a whole."""
    known = list(names)
    return any(pattern == ".*" or any(re.fullmatch(pattern, name) for name in known) for pattern in patterns)


def _outfile(output: str) -> str:
    if output in ("none", "stdout"):
        return "" if output == "none" else "-"
    kind, _, file = output.partition(":outfile=")
    if kind != "file" or not file:
        raise errors.InvalidValueError(f"tf.profiler: output {output!r}, expected none, stdout or file:outfile=PATH")
    return file
