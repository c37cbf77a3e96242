"""Regular expressions by RE2 itself, on bytes that are mostly UTF-8: time is linear in the text, for every pattern.

RE2 compiles a pattern under the interpreter's lock, so patterns are bounded before and during compilation; matching
releases the lock.  To report groups RE2 needs memory for each of them in each instruction of the compiled pattern. So
groups are removed if they are not needed, and bounded otherwise.  Compiled patterns are kept only in one cache of
bounded size, so their memory need not be counted.  RE2 is imported when the first pattern is compiled.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.waiting import loop_budget
from aexec.framework.waiting.inline_call import check_inline

__all__ = ["Pattern", "compile_ns", "compile_pattern", "groups_ns", "uses_groups"]

# The memory of a compiled pattern, an eighth of RE2's default: a larger one takes over 20 ms to compile.
_MAX_MEMORY = 1 << 20
# RE2 expands some costly parts before it counts them: a Unicode class (`\pL`) has hundreds of ranges, 0.2 ms each.
_MAX_BYTES = 1 << 16
_MAX_UNICODE_CLASSES = 64
# The memory in which RE2 keeps the positions of a match's groups, and its most bytes for each group in each
# instruction. RE2 does not count it.
_MAX_GROUP_MEMORY = 1 << 23
_GROUP_BYTES = 16
# Nanoseconds of compiling: at least; per byte of a pattern, times its repetitions; and at most.  A Unicode class counts
# as this many bytes.
_COMPILE_NS, _BYTE_NS, _MOST_COMPILE_NS = 50_000.0, 300.0, 25e6
_CLASS_BYTES = 4000
_REPETITION = re.compile(rb"\{(\d{1,4})(?:,(\d{0,4}))?\}")
_MOST_REPETITIONS = 1000  # RE2's own limit
# Compiled patterns in the cache; each takes at most `_MAX_MEMORY`, with RE2's caches for the texts it has seen.
_KEPT = 128
_MATCHES = loop_budget.DEFAULT.pieces(5_000.0)


# The compiled patterns of this process, the least recently used first.
_kept: OrderedDict[tuple[bytes, bool], Pattern] = OrderedDict()
_lock = threading.Lock()


def compile_pattern(pattern: bytes, groups: bool = False) -> Pattern:
    """Compile a pattern, or return it from the cache.  Do not keep the result beyond a call.

    Args:
        groups: a match must report its groups.

    Raises:
        InvalidArgumentError: the pattern is not valid in RE2's syntax, or too large.
        NeedsThreadError: on the event loop, which compiling would hold up.
    """
    key = (pattern, groups)
    with _lock:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
            return found
    check_inline(compile_ns(pattern, groups))
    made = _compiled(pattern, groups)
    with _lock:
        _kept[key] = made
        if len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return made


def compile_ns(pattern: bytes, groups: bool) -> float:
    """The most nanoseconds that compiling a pattern takes; 0 if it is in the cache."""
    if (pattern, groups) in _kept:
        return 0.0
    if len(pattern) > _MAX_BYTES:
        return _COMPILE_NS
    times = 1
    for counts in _REPETITION.findall(pattern):
        times = min(_MOST_REPETITIONS, times * max(1, *map(int, filter(None, counts))))
    size = (len(pattern) + _CLASS_BYTES * _unicode_classes(pattern)) * times
    return min(_COMPILE_NS + _BYTE_NS * size, _MOST_COMPILE_NS)


def _unicode_classes(pattern: bytes) -> int:
    return pattern.count(rb"\p") + pattern.count(rb"\P")


def _compiled(pattern: bytes, groups: bool) -> Pattern:
    import re2

    classes = _unicode_classes(pattern)
    if len(pattern) > _MAX_BYTES or classes > _MAX_UNICODE_CLASSES:
        raise _refused(
            pattern,
            f"pattern too large - {len(pattern)} bytes and {classes} Unicode classes, "
            f"of at most {_MAX_BYTES} and {_MAX_UNICODE_CLASSES}",
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    options.never_capture = not groups
    try:
        # By its class: `re2.compile` keeps every pattern that it makes, however large.
        compiled = type(re2.compile(b""))(pattern, options)
    except re2.error as e:
        raise _refused(pattern, e.args[0].decode("utf-8", "replace")) from None
    # RE2 counts a group with a name even if it is not used.
    memory = compiled.groups * compiled.programsize * _GROUP_BYTES
    if memory > _MAX_GROUP_MEMORY:
        raise _refused(
            pattern,
            f"pattern too large - {compiled.groups} groups in a program of {compiled.programsize} instructions "
            f"take {memory} bytes, of at most {_MAX_GROUP_MEMORY}",
        )
    return Pattern(compiled)


def groups_ns(pattern: bytes, groups: bool) -> float:
    """Nanoseconds to report the groups of a pattern in one string."""
    number = pattern.count(b"(" if groups else b"(?")
    return min(_MAX_GROUP_MEMORY, _GROUP_BYTES * number * len(pattern)) * loop_budget.COPY_NS


def uses_groups(rewrite: bytes) -> bool:
    """True if a rewrite refers to a group other than the whole match."""
    return any(isinstance(part, int) and part > 0 for part in _parse_rewrite(rewrite))


def _refused(pattern: bytes, why: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"Invalid pattern: {abridged(pattern)}, error: {why}")


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_full", "_groups", "_search")

    def __init__(self, compiled: Any) -> None:
        self._groups = compiled.groups
        self._search = compiled.search
        self._full = compiled.fullmatch

    def full_match(self, text: bytes) -> bool:
        """True if the whole text matches."""
        return self._full(text) is not None

    def replace(self, text: bytes, rewrite: bytes, *, every: bool, more: Callable[[int], None]) -> bytes:
        r"""Return the text with the first or every match replaced; `\0` to `\9` in `rewrite` stand for groups.

        Args:
            more: called with the number of bytes before they are made; may raise.
        """
        parts = _parse_rewrite(rewrite)
        if max((p for p in parts if isinstance(p, int)), default=0) > self._groups:
            return text
        out: list[bytes] = []
        at, last_end, matches = 0, -1, 0
        while at <= len(text):
            match = self._search(text, at)
            if match is None:
                break
            matches += 1
            if matches % _MATCHES == 0:
                loop_budget.let_others_run()
            start, end = match.span()
            out.append(text[at:start])
            if start == end == last_end:
                # An empty match right after a match does not count: advance by one character.
                width = _character_width(text, start) if start < len(text) else 1
                out.append(text[start : start + width])
                at = start + width
                continue
            new = [match.group(p) or b"" if isinstance(p, int) else p for p in parts]
            more(start - at + sum(map(len, new)))
            out += new
            at = last_end = end
            if not every:
                break
        out.append(text[at:])
        return b"".join(out)


def _character_width(text: bytes, at: int) -> int:
    """Bytes of the character at a position; 1 if the text is not UTF-8 there."""
    for width in (1, 2, 3, 4):
        try:
            text[at : at + width].decode()
        except UnicodeDecodeError:
            continue
        return width
    return 1


def _parse_rewrite(rewrite: bytes) -> list[bytes | int]:
    """Literal bytes and group numbers.  Text after an invalid escape is dropped, as in RE2."""
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
