"""Files whose names match shell patterns, by TensorFlow's rules (those of fnmatch(3)).

`*` and `?` match any characters but `/`, a leading dot included; `[abc]`, `[a-z]`, `[!abc]`
and `[^abc]` match one character; a backslash takes the next character literally.
"""

from __future__ import annotations

import os
import re

__all__ = ["matching_files"]

_SPECIAL = re.compile(r"[*?\[\\]")
_TOKEN = re.compile(r"\\(.)|\[([!^]?)(\]?[^\]]*)\]|(\*+)|(\?)|(.)", re.DOTALL)
_RANGE = re.compile(r"\\?(.)(?:-\\?(.))?", re.DOTALL)


def matching_files(pattern: str) -> list[str]:
    """The paths of the files and directories that match, sorted; without special characters, the path if it exists.

    Raises:
        OSError: a directory cannot be listed.
    """
    if not pattern:
        return []
    if not _SPECIAL.search(pattern):
        return [pattern] if os.path.lexists(pattern) else []
    root, parts = ("/", pattern[1:]) if pattern.startswith("/") else ("./", pattern)
    found = [root]
    for part in parts.split("/"):
        found = [path for base in found for path in _matching_in(base, part)]
    return sorted(found)


def _matching_in(base: str, part: str) -> list[str]:
    """The paths in a directory that match one component of a pattern."""
    base = base if base.endswith("/") else base + "/"
    if not _SPECIAL.search(part):
        return [base + part] if os.path.lexists(base + part) else []
    expression = _expression(part)
    try:
        names = os.listdir(base)
    except (NotADirectoryError, FileNotFoundError):
        return []
    return [base + name for name in names if expression.fullmatch(name)]


def _expression(part: str) -> re.Pattern[str]:
    """Translate a component of a pattern to a regular expression.

    The text between two stars is an atomic group that matches at its first position, so matching takes linear time."""
    pieces = [""]
    for token in _TOKEN.finditer(part):
        if token[4]:
            pieces.append("")
        else:
            pieces[-1] += _translate(token)
    first, *between = pieces
    if not between:
        return re.compile(first, re.DOTALL)
    last = between.pop()
    return re.compile(first + "".join(f"(?>.*?{piece})" for piece in between) + f".*{last}", re.DOTALL)


def _translate(token: re.Match[str]) -> str:
    escaped, negated, members, _, question, literal = token.groups()
    if question:
        return "."
    if members is not None:
        ranges = [m.groups() for m in _RANGE.finditer(members)]
        inside = "".join(f"{re.escape(a)}-{re.escape(b or a)}" for a, b in ranges if not b or a <= b)
        if not inside:
            return "." if negated else "(?!)"
        return f"[{'^' if negated else ''}{inside}]"
    return re.escape(escaped or literal)
