"""What is tried of ops with state, in a session: a graph, and what is run one after another.

A step is a string of names: those with a colon are fetched, the others run as targets.  `("names", feeds)` feeds
placeholders.  A step that begins with `&` and a label waits in the background, and `> label` is what it came to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from aexec.framework.shape import PartialTensorShape
from tests.support.programs.graphs import GraphBuilder

__all__ = ["SCALAR", "Scenario", "Step", "count", "scenario", "shape", "text"]

Step = str | tuple[str, dict[str, Any]]
Build = Callable[[GraphBuilder], None]
SCALAR = PartialTensorShape([])


class Scenario(NamedTuple):
    build: Build
    steps: tuple[Step, ...]


def scenario(table: dict[str, Scenario]) -> Callable[..., None]:
    """What adds scenarios to a table, each under a name of its own."""

    def add(name: str, build: Build, *steps: Step) -> None:
        assert name not in table
        table[name] = Scenario(build, steps)

    return add


def count(number: Any) -> dict[str, Any]:
    """Feeds how many are to be taken."""
    return {"n": np.int32(number)}


def text(*values: bytes) -> Any:
    return np.array(values, object)


def shape(*dims: int | None) -> PartialTensorShape:
    return PartialTensorShape(dims)
