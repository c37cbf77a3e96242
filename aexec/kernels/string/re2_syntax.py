r"""RE2's pattern syntax (https://github.com/google/re2/wiki/Syntax) rewritten for Python's `re`.

What differs and is rewritten: `$` and `\z`, classes of ASCII only (`\d`, `\w`, `\s`, `\b`),
`[[:alpha:]]`, `\pN`, `\Q...\E`, `\x{10FFFF}`, flags in the middle of a pattern, `(?U)`.
What Python knows and RE2 does not is refused: look-around, back-references, possessive repeats.
Lone surrogates in the text stand for bytes that are not UTF-8: nothing matches them.
"""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import replace
from functools import cache

from aexec.framework.late_dataclass import dataclass

__all__ = ["PatternError", "to_python"]

Ranges = tuple[tuple[int, int], ...]

_MAX_REPEAT = 1000
_DIGIT: Ranges = ((0x30, 0x39),)
_UPPER: Ranges = ((0x41, 0x5A),)
_LOWER: Ranges = ((0x61, 0x7A),)
_SPACE: Ranges = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
_WORD: Ranges = (*_DIGIT, *_UPPER, (0x5F, 0x5F), *_LOWER)
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, Ranges] = {
    "alnum": (*_DIGIT, *_UPPER, *_LOWER),
    "alpha": (*_UPPER, *_LOWER),
    "ascii": ((0, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": _LOWER,
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": (*_DIGIT, (0x41, 0x46), (0x61, 0x66)),
}
_CONTROL = {"a": 0x07, "f": 0x0C, "t": 0x09, "n": 0x0A, "r": 0x0D, "v": 0x0B}
_SURROGATES: Ranges = ((0xD800, 0xDFFF),)


class PatternError(ValueError):
    """The pattern is not RE2's."""


def _char(code: int) -> str:
    return f"\\U{code:08x}"


def _ranges_text(ranges: Ranges) -> str:
    return "".join(_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in ranges)


def _complement(ranges: Ranges) -> Ranges:
    """Everything else but surrogates."""
    out = []
    at = 0
    for a, b in sorted((*ranges, *_SURROGATES)):
        if a > at:
            out.append((at, a - 1))
        at = max(at, b + 1)
    if at <= sys.maxunicode:
        out.append((at, sys.maxunicode))
    return tuple(out)


@cache
def _category(name: str) -> Ranges:
    """The characters of a Unicode general category (`L`, `Nd`) or `Any`."""
    if name == "Any":
        return _complement(())
    if name not in _category_names() or (name.startswith("C") and name != "Cc"):
        raise PatternError(f"invalid character class range: {name}")
    codes = [i for i in range(sys.maxunicode + 1) if unicodedata.category(chr(i)).startswith(name)]
    out: list[list[int]] = []
    for code in codes:
        if out and out[-1][1] == code - 1:
            out[-1][1] = code
        else:
            out.append([code, code])
    return tuple((a, b) for a, b in out)


@cache
def _category_names() -> frozenset[str]:
    full = {unicodedata.category(chr(i)) for i in range(0x3000)}
    return frozenset(full | {n[0] for n in full})


@dataclass(frozen=True, slots=True)
class _Flags:
    """What `(?imsU)` has set."""

    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


class _Parser:
    """One pass over the pattern, writing Python's as it goes.

    A flag that begins inside a group holds until the group ends.  Of the flags only `i` is handed
    to Python, as a scoped group around what follows; an alternation closes and reopens that group.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        self.flags = _Flags()
        # For each open group: the flags to go back to, and how many scoped groups to close.
        self.open: list[tuple[_Flags, int]] = []
        self.scopes = 0
        # Is there something that a repetition may follow?
        self.repeatable = False
        self.names: set[str] = set()

    def run(self) -> str:
        while self.at < len(self.pattern):
            self._step()
        if self.open:
            raise PatternError(f"missing ): {self.pattern}")
        self.out.append(")" * self.scopes)
        return "".join(self.out)

    def _emit(self, text: str, *, repeatable: bool = True) -> None:
        self.out.append(text)
        self.repeatable = repeatable

    def _step(self) -> None:
        char = self.pattern[self.at]
        self.at += 1
        if char == "\\":
            self._escape()
        elif char == "(":
            self._group()
        elif char == ")":
            self._close()
        elif char == "|":
            scope = "(?i:" if self.flags.i else "(?-i:"
            self._emit(")" * self.scopes + "|" + scope * min(1, self.scopes), repeatable=False)
            self.scopes = min(1, self.scopes)
        elif char == "[":
            self._class()
        elif char == ".":
            excluded = _SURROGATES if self.flags.s else (*_SURROGATES, (0x0A, 0x0A))
            self._emit(f"[^{_ranges_text(excluded)}]")
        elif char == "^":
            self._emit("(?m:^)" if self.flags.m else r"(?:\A)")
        elif char == "$":
            self._emit("(?m:$)" if self.flags.m else r"(?:\Z)")
        elif char in "*+?":
            self._repeat(char)
        elif char == "{":
            self._counted_repeat()
        else:
            self._emit(_char(ord(char)))

    # ------------------------------------------------------------ repetition

    def _repeat(self, operator: str) -> None:
        if not self.repeatable:
            raise PatternError(f"no argument for repetition operator: {operator}")
        lazy = self.pattern.startswith("?", self.at)
        self.at += lazy
        following = self.pattern[self.at : self.at + 1]
        if following and (following in "*+?" or self._count_at(self.at)):
            raise PatternError(f"bad repetition operator: {operator}{'?' * lazy}{following}")
        self._emit(operator + ("?" if lazy != self.flags.U else ""), repeatable=False)

    def _count_at(self, at: int) -> tuple[str, int] | None:
        """The `{n,m}` at a position and where it ends, or None if a brace is only a brace there."""
        end = self.pattern.find("}", at)
        if not self.pattern.startswith("{", at) or end < 0:
            return None
        low, comma, high = self.pattern[at + 1 : end].partition(",")
        if not low.isdecimal() or not low.isascii() or (high and not (high.isdecimal() and high.isascii())):
            return None
        if int(low) > _MAX_REPEAT or (high and (int(high) > _MAX_REPEAT or int(high) < int(low))):
            raise PatternError(f"invalid repetition size: {self.pattern[at : end + 1]}")
        return f"{{{low}{comma}{high}}}", end + 1

    def _counted_repeat(self) -> None:
        found = self._count_at(self.at - 1)
        if found is None:
            self._emit(_char(ord("{")))
            return
        text, self.at = found
        self._repeat(text)

    # ---------------------------------------------------------------- groups

    def _group(self) -> None:
        self.open.append((self.flags, self.scopes))
        self.scopes = 0
        if not self.pattern.startswith("?", self.at):
            self._emit("(", repeatable=False)
            return
        for opening in ("?P<", "?<"):
            if self.pattern.startswith(opening, self.at):
                self._named(opening)
                return
        self._flag_group()

    def _named(self, opening: str) -> None:
        end = self.pattern.find(">", self.at)
        name = self.pattern[self.at + len(opening) : end] if end >= 0 else ""
        if not name.replace("_", "a").isalnum():
            raise PatternError(f"invalid perl operator: (?{self.pattern[self.at + 1 : self.at + 2]}")
        if name in self.names:
            raise PatternError(f"duplicate capture group name: {name}")
        self.names.add(name)
        self.at = end + 1
        self._emit("(", repeatable=False)

    def _flag_group(self) -> None:
        start = self.at - 1
        flags, sign = self.flags, True
        for i in range(self.at + 1, len(self.pattern)):
            char = self.pattern[i]
            if char in "imsU":
                flags = replace(flags, **{char: sign})
            elif char == "-" and sign:
                sign = False
            elif char in ":)":
                self._set_flags(flags, inner=char == ":")
                self.at = i + 1
                return
            else:
                raise PatternError(f"invalid perl operator: {self.pattern[start : i + 1]}")
        raise PatternError(f"missing ): {self.pattern}")

    def _set_flags(self, flags: _Flags, *, inner: bool) -> None:
        scope = "(?i:" if flags.i else "(?-i:"
        if inner:
            self._emit(scope, repeatable=False)
        else:
            # It holds for the rest of the group that is already open.
            _, self.scopes = self.open.pop()
            if flags.i != self.flags.i:
                self._emit(scope, repeatable=False)
                self.scopes += 1
            self.repeatable = False
        self.flags = flags

    def _close(self) -> None:
        if not self.open:
            raise PatternError(f"unexpected ): {self.pattern}")
        text = ")" * (self.scopes + 1)
        self.flags, self.scopes = self.open.pop()
        self._emit(text)

    # --------------------------------------------------- escapes and classes

    def _escape(self) -> None:
        char = self.pattern[self.at : self.at + 1]
        if char == "Q":
            end = self.pattern.find("\\E", self.at)
            literal = self.pattern[self.at + 1 : end if end >= 0 else len(self.pattern)]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            for c in literal:
                self._emit(_char(ord(c)))
        elif char in ("A", "z"):
            self.at += 1
            self._emit(r"(?:\A)" if char == "A" else r"(?:\Z)")
        elif char in ("b", "B"):
            self.at += 1
            # Python's \\B does not match in an empty text.
            self._emit(r"(?a:\b)" if char == "b" else r"(?a:(?!\b))")
        else:
            ranges = self._class_escape()
            if ranges is not None:
                self._emit(f"[{_ranges_text(ranges)}]")
            else:
                self._emit(_char(self._char_escape()))

    def _class_escape(self) -> Ranges | None:
        r"""The set meant by `\d`, `\pN` and their like, or None if another escape comes."""
        char = self.pattern[self.at : self.at + 1]
        if char and char.lower() in _PERL:
            self.at += 1
            ranges = _PERL[char.lower()]
            return ranges if char.islower() else _complement(ranges)
        if char not in ("p", "P"):
            return None
        negated = char == "P"
        self.at += 1
        if self.pattern.startswith("{", self.at):
            end = self.pattern.find("}", self.at)
            name = self.pattern[self.at + 1 : end]
            self.at = end + 1
            if end < 0:
                raise PatternError(f"invalid character class range: \\{char}")
        else:
            name = self.pattern[self.at : self.at + 1]
            self.at += 1
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        ranges = _category(name)
        return _complement(ranges) if negated else ranges

    def _char_escape(self) -> int:
        if self.at >= len(self.pattern):
            raise PatternError("trailing \\")
        start = self.at - 1
        char = self.pattern[self.at]
        self.at += 1
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self._hexadecimal(start)
        if char in "01234567" and (char == "0" or self.pattern[self.at : self.at + 1] in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self.pattern[self.at : self.at + 1] in tuple("01234567"):
                digits += self.pattern[self.at]
                self.at += 1
            return int(digits, 8)
        if char.isalnum() or ord(char) >= 0x80:
            raise PatternError(f"invalid escape sequence: \\{char}")
        return ord(char)

    def _hexadecimal(self, start: int) -> int:
        if self.pattern.startswith("{", self.at):
            end = self.pattern.find("}", self.at)
            digits = self.pattern[self.at + 1 : end] if end >= 0 else ""
            after = end + 1
        else:
            digits = self.pattern[self.at : self.at + 2]
            after = self.at + 2
            if len(digits) < 2:
                digits = ""
        if not digits or any(d not in "0123456789abcdefABCDEF" for d in digits) or int(digits, 16) > sys.maxunicode:
            raise PatternError(f"invalid escape sequence: {self.pattern[start : self.at + 1]}")
        self.at = after
        return int(digits, 16)

    def _class(self) -> None:
        start = self.at - 1
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise PatternError(f"missing ]: {self.pattern[start:]}")
            ranges += self._class_item()
            first = False
        self.at += 1
        if negated:
            # `n` flag aside, RE2 lets a negated class match a newline.
            self._emit(f"[^{_ranges_text((*ranges, *_SURROGATES))}]")
        else:
            self._emit(f"[{_ranges_text(tuple(ranges))}]")

    def _class_item(self) -> Ranges:
        if self.pattern.startswith("[:", self.at):
            end = self.pattern.find(":]", self.at + 2)
            if end >= 0:
                return self._posix(end)
        low = self._class_char()
        if not isinstance(low, int):
            return low
        following = self.pattern[self.at : self.at + 2]
        if not following.startswith("-") or following in ("-", "-]"):
            return ((low, low),)
        start = self.at
        self.at += 1
        high = self._class_char()
        if not isinstance(high, int) or high < low:
            raise PatternError(f"invalid character class range: {self.pattern[start - 1 : self.at]}")
        return ((low, high),)

    def _class_char(self) -> int | Ranges:
        char = self.pattern[self.at]
        self.at += 1
        if char != "\\":
            return ord(char)
        ranges = self._class_escape()
        return self._char_escape() if ranges is None else ranges

    def _posix(self, end: int) -> Ranges:
        name = self.pattern[self.at + 2 : end]
        negated = name.startswith("^")
        ranges = _POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise PatternError(f"invalid character class range: [:{name}:]")
        self.at = end + 2
        return _complement(ranges) if negated else ranges


def to_python(pattern: str) -> str:
    """The pattern for `re.compile`.

    Raises:
        PatternError: it is not valid in RE2's syntax; the message is the part after TensorFlow's `error: `.
    """
    return _Parser(pattern).run()
