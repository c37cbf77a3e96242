"""Kinds of settings: which values there are, and how they are written on a command line, in the environment, in a file.

`SettingKind.from_text` makes of a flag's text what a file could have had in its place, `decode` of that the value;
`encode` is its inverse.  Next to read: `settings.py`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from aexec.hosting import parse_duration

__all__ = ["Choice", "Count", "FilePath", "Megabytes", "Names", "Number", "Seconds", "SettingKind", "Switch", "Text"]

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class SettingKind:
    """A kind of setting.

    Attributes:
        what: what is expected, in words: `a whole number of at least 1`.
        metavar: what a flag's help calls a value.
    """

    what = ""
    metavar = ""

    @property
    def in_python(self) -> str:
        """As `what`, of the value that `decode` gives."""
        return self.what

    def from_text(self, text: str) -> object:
        """What a file would have for this text."""
        return text

    def decode(self, value: object, folder: Path) -> Any:
        """The value, of what a file has.

        Args:
            folder: in which relative paths begin.

        Raises:
            ValueError: it is none of this kind; its message, if there is one, says why.
        """
        if not self.check(value):
            raise ValueError
        return value

    def check(self, value: object) -> bool:
        """Is it a value of this kind?"""
        raise NotImplementedError

    def encode(self, value: Any) -> object:
        """What a file would have for this value."""
        return value

    def show(self, value: Any) -> str:
        """The value for people, in a description."""
        return str(value)

    # Most kinds have one flag, with a text.

    def add_flags(self, group: argparse._ArgumentGroup, flag: str, name: str, help: str) -> None:
        """Let a command line have it, as the attribute `name` of what was parsed; None if it was not given."""
        group.add_argument(flag, dest=name, metavar=self.metavar, help=help)

    def from_flags(self, arguments: argparse.Namespace, name: str) -> object | None:
        """What a file would have for what was given on a command line; None if nothing was.  Raises ValueError."""
        text = getattr(arguments, name)
        return None if text is None else self.from_text(text)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and not math.isnan(value)  # type: ignore[arg-type]


class Count(SettingKind):
    """A whole number.

    Args:
        least, most: bounds; `most` may be None for no bound.
        words: what can be written for some numbers.
    """

    metavar = "N"

    def __init__(self, least: int = 1, most: int | None = None, words: Mapping[str, int] | None = None) -> None:
        self._least = least
        self._most = most
        self._words = words or {}

    @property
    def in_python(self) -> str:
        bounds = f"of at least {self._least}" if self._most is None else f"from {self._least} to {self._most}"
        return f"a whole number {bounds}"

    @property
    def what(self) -> str:  # type: ignore[override]
        return ", or ".join([self.in_python, *self._words])

    def from_text(self, text: str) -> object:
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else text

    def decode(self, value: object, folder: Path) -> Any:
        return super().decode(self._words.get(value, value) if isinstance(value, str) else value, folder)

    def check(self, value: object) -> bool:
        return type(value) is int and self._least <= value and (self._most is None or value <= self._most)


class Number(SettingKind):
    """A number above 0.

    Args:
        unit: of what.
    """

    metavar = "N"

    def __init__(self, unit: str) -> None:
        self._unit = unit

    @property
    def what(self) -> str:  # type: ignore[override]
        return f"a number of {self._unit} above 0"

    def from_text(self, text: str) -> object:
        try:
            return float(text)
        except ValueError:
            return text

    def check(self, value: object) -> bool:
        return _is_number(value) and 0 < value < math.inf  # type: ignore[operator]

    def show(self, value: Any) -> str:
        return f"{value:g}"


class Seconds(SettingKind):
    """A time; in a file also a number of seconds.

    Args:
        zero: it may be 0.
    """

    metavar = "TIME"

    def __init__(self, *, zero: bool = False) -> None:
        self._bound = "of at least 0" if zero else "above 0"
        self._zero = zero

    @property
    def what(self) -> str:  # type: ignore[override]
        return f"a time {self._bound}, such as 10s or 500ms"

    @property
    def in_python(self) -> str:
        return f"seconds {self._bound}"

    def decode(self, value: object, folder: Path) -> Any:
        if isinstance(value, str):
            value = parse_duration(value)
        return super().decode(value, folder)

    def check(self, value: object) -> bool:
        return _is_number(value) and (0 < value < math.inf or (self._zero and value == 0))  # type: ignore[operator]

    def show(self, value: Any) -> str:
        return f"{value * 1e3:g} ms" if 0 < value < 1 else f"{value:g} s"


class Megabytes(SettingKind):
    """Bytes, written in megabytes of 2**20.

    Args:
        infinite: `inf` is a value too.
    """

    metavar = "MB"

    def __init__(self, *, infinite: bool = False) -> None:
        self._infinite = infinite

    @property
    def what(self) -> str:  # type: ignore[override]
        return "a number of megabytes above 0" + (", or inf for no limit" if self._infinite else "")

    @property
    def in_python(self) -> str:
        return "bytes above 0"

    def from_text(self, text: str) -> object:
        try:
            return float(text)
        except ValueError:
            return text

    def decode(self, value: object, folder: Path) -> Any:
        if not _is_number(value):
            raise ValueError
        count = value * 2**20  # type: ignore[operator]
        return super().decode(count if count == math.inf else int(count), folder)

    def check(self, value: object) -> bool:
        return _is_number(value) and value > 0 and (self._infinite or value < math.inf)  # type: ignore[operator]

    def encode(self, value: Any) -> object:
        megabytes = value / 2**20
        return int(megabytes) if megabytes < math.inf and megabytes == int(megabytes) else megabytes

    def show(self, value: Any) -> str:
        return f"{self.encode(value):g} MB"


class Switch(SettingKind):
    """On or off."""

    what = "true or false"

    def from_text(self, text: str) -> object:
        word = text.lower()
        return word in _YES if word in _YES | _NO else text

    def check(self, value: object) -> bool:
        return type(value) is bool

    def show(self, value: Any) -> str:
        return "on" if value else "off"

    def add_flags(self, group: argparse._ArgumentGroup, flag: str, name: str, help: str) -> None:
        group.add_argument(flag, dest=name, action=argparse.BooleanOptionalAction, default=None, help=help)

    def from_flags(self, arguments: argparse.Namespace, name: str) -> object | None:
        value: object = getattr(arguments, name)
        return value


class Text(SettingKind):
    """A text that is not empty.

    Args:
        what: the text of what.
    """

    def __init__(self, what: str, metavar: str = "TEXT") -> None:
        self.what = what
        self.metavar = metavar

    def check(self, value: object) -> bool:
        return type(value) is str and bool(value)


class Choice(SettingKind):
    """One of some words."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.metavar = "|".join(words)
        self.what = " or ".join(words)

    def check(self, value: object) -> bool:
        return value in self._words


class FilePath(SettingKind):
    """A path; a relative one begins where the file is that has it, or where the process was started."""

    what = "a path"

    def __init__(self, metavar: str = "FILE") -> None:
        self.metavar = metavar

    def decode(self, value: object, folder: Path) -> Any:
        if type(value) is not str or not value:
            raise ValueError
        return str(folder / value)

    def check(self, value: object) -> bool:
        return isinstance(value, str | Path) and bool(str(value))

    def encode(self, value: Any) -> object:
        return str(value)


class Names(SettingKind):
    """Several names; on a command line with commas between them.

    Args:
        what: names of what.
    """

    def __init__(self, what: str, metavar: str = "NAME,…") -> None:
        self.what = what
        self.metavar = metavar

    def from_text(self, text: str) -> object:
        return [name for name in text.split(",") if name]

    def decode(self, value: object, folder: Path) -> Any:
        return tuple(super().decode(value, folder))

    def check(self, value: object) -> bool:
        return (
            not isinstance(value, str)
            and isinstance(value, Collection)
            and all(isinstance(name, str) and name for name in value)
        )

    def encode(self, value: Any) -> object:
        return list(value)

    def show(self, value: Any) -> str:
        return ", ".join(value) or "none"
