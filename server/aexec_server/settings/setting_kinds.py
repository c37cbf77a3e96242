"""Kinds of settings: which values there are, and how they are written on a command line, in the environment, in a file.

`SettingKind.from_text` turns the text of a flag into the value that a TOML file would hold, `decode` turns that into
the setting's value, and `encode` is the inverse of `decode`.  Next to read: `settings.py`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from aexec.hosting import parse_duration

__all__ = [
    "Choice",
    "Count",
    "FileOrUrl",
    "FilePath",
    "Megabytes",
    "Names",
    "Number",
    "Seconds",
    "SettingKind",
    "Switch",
    "Text",
]

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class SettingKind:
    """A kind of setting.

    Attributes:
        what: description of the values, such as `a whole number of at least 1`.
        metavar: word for the value in a flag's help.
        has_bounds: show `what` in a flag's help, because it gives a unit or bounds.
    """

    what = ""
    metavar = ""
    has_bounds = False

    @property
    def in_python(self) -> str:
        """Description of the values that `decode` returns, as `what` describes those in a file."""
        return self.what

    def from_text(self, text: str) -> object:
        """Return the TOML value for a text.  Raises ValueError."""
        return text

    def decode(self, value: object, folder: Path) -> Any:
        """Return the setting's value for a TOML value.

        Args:
            value: as a TOML file holds it.
            folder: which relative paths are relative to.

        Raises:
            ValueError: the value is not of this kind; the message, if any, says why.
        """
        if not self.check(value):
            raise ValueError
        return value

    def check(self, value: object) -> bool:
        """True for a value of this kind."""
        raise NotImplementedError

    def encode(self, value: Any) -> object:
        """Return the TOML value for a setting's value."""
        return value

    def show(self, value: Any) -> str:
        """Return the value as descriptions for people show it."""
        return str(value)

    # By default a setting has one flag, which takes a text.

    def add_flags(self, group: argparse._ArgumentGroup, flag: str, name: str, help: str) -> None:
        """Add the setting's flags; the parsed value becomes attribute `name`, None if the flag is not given."""
        group.add_argument(flag, dest=name, metavar=self.metavar, help=help)

    def from_flags(self, arguments: argparse.Namespace, name: str) -> object | None:
        """Return the TOML value of what a command line gave, None if it gave nothing.  Raises ValueError."""
        text = getattr(arguments, name)
        return None if text is None else self.from_text(text)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and not math.isnan(value)  # type: ignore[arg-type]


class Count(SettingKind):
    """A whole number.

    Args:
        least, most: bounds; `most` may be None for no bound.
        words: words that may be written instead of certain numbers.
    """

    metavar = "N"
    has_bounds = True

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
        unit: what is counted, for descriptions.
    """

    metavar = "N"
    has_bounds = True

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
    """A duration in seconds, written as text (`10s`, `500ms`); in a file also as a number of seconds.

    Args:
        zero: allow 0.
    """

    metavar = "TIME"
    has_bounds = True

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
        infinite: allow `inf`.
    """

    metavar = "MB"
    has_bounds = True

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
        what: description of the text.
    """

    def __init__(self, what: str, metavar: str = "TEXT") -> None:
        self.what = what
        self.metavar = metavar

    def check(self, value: object) -> bool:
        return type(value) is str and bool(value)


class Choice(SettingKind):
    """One of several words."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.metavar = "|".join(words)
        self.what = " or ".join(words)

    def check(self, value: object) -> bool:
        return value in self._words


class FilePath(SettingKind):
    """A path.  A relative one in a file is relative to the file's folder, elsewhere to the working directory."""

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


class FileOrUrl(FilePath):
    """A path, as `FilePath`, or a URL."""

    what = "a path, or a URL"

    def decode(self, value: object, folder: Path) -> Any:
        if isinstance(value, str) and "://" in value:
            return value
        return super().decode(value, folder)


class Names(SettingKind):
    """Several names; separated by commas on a command line.

    Args:
        what: description of the names.
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
