"""`Reasons`: why names of TensorFlow's are not here, by patterns, for the tests that list what is missing."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

__all__ = ["Reasons"]


class Reasons:
    """Reasons → patterns of names between spaces.  The first pattern that a name matches says why it is missing."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self._patterns = {why: patterns.split() for why, patterns in reasons.items()}

    def of(self, name: str) -> str | None:
        """The reason for a name, or None."""
        for why, patterns in self._patterns.items():
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                return why
        return None

    def unexplained(self, missing: Iterable[str]) -> list[str]:
        """The names that have no reason."""
        return [name for name in missing if self.of(name) is None]

    def unused(self, missing: Iterable[str]) -> list[str]:
        """The patterns that match none of the names."""
        names = list(missing)
        patterns = [pattern for patterns in self._patterns.values() for pattern in patterns]
        return [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]

    def show(self, missing: Iterable[str]) -> None:
        """Print the names by their reasons."""
        by_reason = defaultdict(list)
        for name in missing:
            by_reason[self.of(name) or "?"].append(name)
        for why, names in by_reason.items():
            print(f"{why} ({len(names)})")
            print(textwrap.indent(textwrap.fill(" ".join(names), 112), "    "))
