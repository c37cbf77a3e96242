"""What many calls of ops took, by family of ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from aexec.ops.families import FAMILIES

__all__ = ["FamilyFigures"]


@cache
def _families() -> dict[str, str]:
    return {op: family for family, names in FAMILIES.items() for op in names.split()}


@dataclass
class _Family:
    held_ms: list[float] = field(default_factory=list)
    reached: int = 0
    late_ms: float = 0.0
    uncounted_mib: float = 0.0
    took_ms: float = 0.0

    def note(self, said: Mapping[str, Any]) -> None:
        self.held_ms.append(said["held_ms"])
        self.reached += bool(said["reached"])
        self.late_ms = max(self.late_ms, said["late_ms"])
        self.uncounted_mib = max(self.uncounted_mib, said["uncounted_mib"])
        self.took_ms = max(self.took_ms, said["took_ms"])


class FamilyFigures:
    """Collects the outcomes of calls; its text is a table with a line for each family, and one for all."""

    def __init__(self) -> None:
        self._by_family: dict[str, _Family] = {}

    def note(self, op: str, said: Mapping[str, Any]) -> None:
        """Note the outcome of a call, as the worker says it."""
        for name in (_families()[op], "all"):
            self._by_family.setdefault(name, _Family()).note(said)

    def __str__(self) -> str:
        lines = ["family            calls  reached  held p99 / max ms  late max ms  uncounted max MiB  answered max ms"]
        for name in sorted(self._by_family, key=lambda name: (name == "all", name)):
            family = self._by_family[name]
            held = sorted(family.held_ms)
            p99 = held[min(len(held) - 1, len(held) * 99 // 100)]
            lines.append(
                f"{name:16} {len(held):6} {family.reached:8} {p99:9.1f} / {held[-1]:6.1f} {family.late_ms:12.1f}"
                f" {family.uncounted_mib:18.1f} {family.took_ms:16.0f}"
            )
        return "\n".join(lines)
