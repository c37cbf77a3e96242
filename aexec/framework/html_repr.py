"""HTML for notebooks: the results of `_repr_html_` methods, escaped and of bounded size.

Names in a graph are untrusted: one can be a megabyte of script.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

__all__ = ["MAX_ROWS", "block", "facts_table", "html_text", "lines_table", "table", "tensor_table"]

MAX_ROWS = 12
MAX_TEXT = 48
# Most characters of a line of text, which has a row for itself.
MAX_LINE = 200
_CELL = "text-align: left; padding: 1px 12px 1px 0; vertical-align: top"


def block(kind: str, facts: str, *tables: str) -> str:
    """A heading in bold, facts, and tables."""
    return f"<div><b>{html_text(kind)}</b> {html_text(facts)}{''.join(tables)}</div>"


def table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """A table with the first rows, and the number of the others; "" if there are no rows.

    Args:
        columns: their headings.
        rows: as many cells each as there are columns.
        count: number of the rows.
    """
    if not count:
        return ""
    shown = "".join(_row("td", row) for row in islice(rows, MAX_ROWS))
    more = f"<tr><td style='{_CELL}'><i>and {count - MAX_ROWS} more</i></td></tr>" if count > MAX_ROWS else ""
    head = _row("th", [f"{heading} ({count})" if count > MAX_ROWS else heading, *columns])
    return f"<table style='margin: 4px 0 0 0'>{head}{shown}{more}</table>"


def tensor_table(heading: str, rows: Collection[tuple[str, str, str, str]]) -> str:
    """A table of tensors: key, name, type, shape."""
    return table(heading, ["tensor", "type", "shape"], rows, len(rows))


def facts_table(facts: Mapping[str, object]) -> str:
    """A table with one fact per row; those that are None or "" are left out."""
    rows = [(name, value) for name, value in facts.items() if value not in (None, "")]
    return f"<table style='margin: 4px 0 0 0'>{''.join(_row('td', row) for row in rows)}</table>"


def lines_table(heading: str, lines: Sequence[str]) -> str:
    """A table of lines of text; "" if there are none."""
    shown = [_row("td", [line], MAX_LINE) for line in lines[:MAX_ROWS]]
    if len(lines) > MAX_ROWS:
        shown.append(_row("td", [f"and {len(lines) - MAX_ROWS} more"]))
    return f"<table style='margin: 4px 0 0 0'>{_row('th', [heading])}{''.join(shown)}</table>" if lines else ""


def html_text(value: object, limit: int = MAX_TEXT) -> str:
    """The value's text, escaped; the middle of a long one is left out, since both ends of a name say most."""
    import html  # imported for notebooks only

    plain = str(value)
    if len(plain) > limit:
        plain = f"{plain[: limit // 2]}…{plain[1 - limit // 2 :]}"
    return html.escape(plain)


def _row(kind: str, cells: Iterable[object], limit: int = MAX_TEXT) -> str:
    return "<tr>" + "".join(f"<{kind} style='{_CELL}'>{html_text(cell, limit)}</{kind}>" for cell in cells) + "</tr>"
