"""Regular expressions with RE2's syntax and meaning, on bytes that are mostly UTF-8.

Where the package `google-re2` is installed its engine is used: it is RE2 itself, and its
time is linear in the text.  Otherwise the pattern is rewritten for Python's `re`
(`re2_syntax.py`), which gives the same matches but may backtrack for long on hostile
patterns.  Neither is imported before the first pattern is compiled.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any, Protocol

from aexec.framework import errors

__all__ = ["Pattern", "compile_pattern"]


class Pattern(Protocol):
    """A compiled pattern."""

    def full_match(self, text: bytes) -> bool:
        """Does the whole text match?"""

    def replace(self, text: bytes, rewrite: bytes, *, every: bool) -> bytes:
        r"""The text with the first or every match replaced; `\0` to `\9` in `rewrite` stand for groups."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: bytes, engine: str = "") -> Pattern:
    """Compile a pattern; `engine` "re2" or "python" fixes which engine, for tests.

    Raises:
        InvalidArgumentError: the pattern is not valid in RE2's syntax.
    """
    re2 = _google_re2() if engine != "python" else None
    if re2 is not None:
        return _Re2Pattern(re2, pattern)
    if engine == "re2":
        raise errors.UnavailableError("the package google-re2 is not installed")
    return _PythonPattern(pattern)


def _google_re2() -> Any:
    """The module, or None: other packages of the same name have another interface."""
    try:
        re2 = importlib.import_module("re2")
    except ImportError:
        return None
    return re2 if hasattr(re2, "Options") else None


def _refused(pattern: bytes, why: Any) -> errors.InvalidArgumentError:
    text = pattern.decode("utf-8", "replace")
    if isinstance(why, bytes):
        why = why.decode("utf-8", "replace")
    return errors.InvalidArgumentError(f"Invalid pattern: {text}, error: {why}")


# Whether a pattern works on bytes or on text, and how the two are turned into each other, is the
# subclass's business; matching and rewriting are the same.
Text = Any


class _Engine:
    """Matching and replacing on top of a compiled `search(text, pos)` that gives match objects like `re`'s."""

    groups: int
    search: Any

    def full_match(self, text: bytes) -> bool:
        raise errors.InternalError("an engine defines full_match")

    def decode(self, text: bytes) -> Text:
        return text

    def encode(self, text: Text) -> bytes:
        encoded: bytes = text
        return encoded

    def step(self, text: Text, at: int) -> int:
        """Length of the character at a position."""
        return 1

    def replace(self, text: bytes, rewrite: bytes, *, every: bool) -> bytes:
        template = _parse_rewrite(rewrite)
        if max((p for p in template if isinstance(p, int)), default=0) > self.groups:
            return text
        parts = [self.decode(p) if isinstance(p, bytes) else p for p in template]
        subject = self.decode(text)
        out: list[Text] = []
        at, last_end = 0, -1
        while at <= len(subject):
            match = self.search(subject, at)
            if match is None:
                break
            start, end = match.span()
            out.append(subject[at:start])
            if start == end == last_end:
                # An empty match right after a match does not count: go on by one character.
                width = self.step(subject, start) if start < len(subject) else 1
                out.append(subject[start : start + width])
                at = start + width
                continue
            out += [match.group(p) or subject[:0] if isinstance(p, int) else p for p in parts]
            at = last_end = end
            if not every:
                break
        out.append(subject[at:])
        return self.encode(subject[:0].join(out))


def _parse_rewrite(rewrite: bytes) -> list[bytes | int]:
    """Literal bytes and group numbers.  What follows an invalid escape is dropped, as RE2 does."""
    parts: list[bytes | int] = []
    at = 0
    for match in re.finditer(rb"\\(.?)", rewrite, re.DOTALL):
        parts.append(rewrite[at : match.start()])
        escaped = match[1]
        if escaped.isdigit():
            parts.append(int(escaped))
        elif escaped == b"\\":
            parts.append(b"\\")
        else:
            return parts
        at = match.end()
    parts.append(rewrite[at:])
    return parts


class _Re2Pattern(_Engine):
    """RE2 itself, on bytes."""

    def __init__(self, re2: Any, pattern: bytes) -> None:
        options = re2.Options()
        options.log_errors = False
        try:
            compiled = re2.compile(pattern, options)
        except re2.error as e:
            raise _refused(pattern, e.args[0] if e.args else e) from None
        self.groups = compiled.groups
        self.search = compiled.search
        self._full = compiled.fullmatch

    def full_match(self, text: bytes) -> bool:
        return self._full(text) is not None

    def step(self, text: bytes, at: int) -> int:
        for width in (1, 2, 3, 4):
            try:
                text[at : at + width].decode()
            except UnicodeDecodeError:
                continue
            return width
        return 1


class _PythonPattern(_Engine):
    """Python's `re` on text; bytes that are not UTF-8 become lone surrogates, which no pattern matches."""

    def __init__(self, pattern: bytes) -> None:
        from aexec.kernels.string import re2_syntax

        try:
            compiled = re.compile(re2_syntax.to_python(pattern.decode("utf-8")))
        except UnicodeDecodeError:
            raise _refused(pattern, "invalid UTF-8") from None
        except (re2_syntax.PatternError, re.error, OverflowError, RecursionError) as e:
            raise _refused(pattern, e) from None
        self.groups = compiled.groups
        self.search = compiled.search
        self._full = compiled.fullmatch

    def full_match(self, text: bytes) -> bool:
        return self._full(self.decode(text)) is not None

    def decode(self, text: bytes) -> str:
        return text.decode("utf-8", "surrogateescape")

    def encode(self, text: str) -> bytes:
        return text.encode("utf-8", "surrogateescape")
