"""A profile as text: a tree of nodes, or a table of ops with the shares of each.

Next to read: `trees.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from aexec.compat.v1.running.profiler.options import COLUMNS, Options
from aexec.compat.v1.running.profiler.trees import Entry, preorder
from aexec.framework.shape import PartialTensorShape

__all__ = ["list_text", "tree_text"]

# Column → its heading, and the word after a number in a tree and in a list.
_WORDS = {
    "params": ("# parameters", " params", " params"),
    "float_ops": ("# float_ops", " flops", " float_ops"),
    "bytes": ("requested bytes", "", ""),
    "peak_bytes": ("peak bytes", "", ""),
    "residual_bytes": ("residual bytes", "", ""),
    "output_bytes": ("output bytes", "", ""),
    "micros": ("total execution time", "", ""),
    "accelerator_micros": ("accelerator execution time", "", ""),
    "cpu_micros": ("cpu execution time", "", ""),
    "occurrence": ("op count (run|defined)", "", ""),
    "device": ("assigned devices", "", ""),
    "op_types": ("op types", "", ""),
    "input_shapes": ("input shapes", "", ""),
}
_BEGIN = "==================Model Analysis Report======================"
_END = "======================End of Report=========================="


def tree_text(root: Entry, options: Options) -> str:
    """The report of a tree: a line for each entry, `own/total` in each column, and `--` where it is not counted."""
    lines = []
    for depth, entry in preorder(root):
        cells = ", ".join(_tree_cell(entry, column) for column in options.columns())
        lines.append(f"{'  ' * (depth - 1)}{entry.name} ({cells})")
    return _framed(lines, options)


def list_text(root: Entry, options: Options) -> str:
    """The report of a list: after each number the share of all that it and what follows have, then its own share."""
    rows = []
    for _, entry in list(preorder(root))[1:]:
        rows.append([entry.name, *(_list_cell(entry, root, column) for column in options.columns())])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append(f"{name.ljust(widths[0])}  {', '.join(padded)}".rstrip())
    return _framed(lines, options)


def _framed(lines: list[str], options: Options) -> str:
    heading = " | ".join(["node name", *(_WORDS[column][0] for column in options.columns())])
    return "\n".join(["", _BEGIN, "", heading, *lines, "", _END])


def _tree_cell(entry: Entry, column: str) -> str:
    number = COLUMNS[column]
    if number is None:
        return _words(entry, column)
    if column == "occurrence":
        return "|".join(_pair(entry, each, str) for each in ("run_count", number))
    text = _pair(entry, number, lambda value: _number(column, value)) + _WORDS[column][1]
    if column == "params" and entry.counted and entry.nodes and entry.nodes[0].shape is not None:
        text = f"{_shape(entry.nodes[0].shape)}, {text}"
    return text


def _pair(entry: Entry, number: str, written: Callable[[int], str]) -> str:
    return f"{written(entry.own[number]) if entry.counted else '--'}/{written(entry.total[number])}"


def _list_cell(entry: Entry, root: Entry, column: str) -> str:
    number = COLUMNS[column]
    if number is None:
        return _words(entry, column)
    if column == "occurrence":
        return f"{entry.own['run_count']}|{entry.own[number]}"
    whole = root.total[number] or 1
    shares = f"({entry.total[number] / whole:.2%}, {entry.own[number] / whole:.2%})"
    return f"{_number(column, entry.own[number])}{_WORDS[column][2]} {shares}"


def _words(entry: Entry, column: str) -> str:
    if column == "device":
        return "|".join(dict.fromkeys(device for node in entry.nodes for device in node.devices))
    if column == "op_types":
        return "|".join(entry.types)
    shapes = {
        "|".join(f"{index}:{_shape(shape)}" for index, shape in node.input_shapes.items()) for node in entry.nodes
    }
    return "; ".join(sorted(shapes))


def _shape(shape: PartialTensorShape) -> str:
    """`2x3`, `1` for a single number, and -1 for an unknown size."""
    return "x".join("-1" if size is None else str(size) for size in shape) or "1"


def _number(column: str, value: int) -> str:
    if column.endswith("micros"):
        return _scaled(value, [(10**6, "sec"), (10**3, "ms")], "us")
    if column.endswith("bytes"):
        return _scaled(value, [(10**9, "GB"), (10**6, "MB"), (10**3, "KB")], "B")
    return _scaled(value, [(10**9, "b"), (10**6, "m"), (10**3, "k")], "")


def _scaled(value: int, units: list[tuple[int, str]], smallest: str) -> str:
    for size, unit in units:
        if value >= size:
            return f"{value / size:.2f}{unit}"
    return f"{value}{smallest}"
