"""`Heard`: a listener that notes the work that it hears of."""

from __future__ import annotations

from dataclasses import dataclass, field

from aexec.framework.progress import WorkBar

__all__ = ["Heard"]


@dataclass
class Heard:
    """Notes work; `works` has (what, total, unit, amounts, "closed" or "open") of each."""

    _bars: list[_Bar] = field(default_factory=list)

    def open(self, what: str, total: int, unit: str) -> WorkBar:
        self._bars.append(_Bar(what, total, unit))
        return self._bars[-1]

    @property
    def works(self) -> list[tuple[str, int, str, list[int], str]]:
        return [(b.what, b.total, b.unit, b.amounts, "closed" if b.closed else "open") for b in self._bars]


@dataclass
class _Bar:
    what: str
    total: int
    unit: str
    amounts: list[int] = field(default_factory=list)
    closed: bool = False

    def advance(self, amount: int, /) -> None:
        assert not self.closed
        self.amounts.append(amount)

    def close(self) -> None:
        self.closed = True
