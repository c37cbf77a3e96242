"""The options of a compiled plan's writer.

Next to read: `line_writer.py`, which writes the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aexec.framework.late_dataclass import dataclass
from aexec.runtime.plans.plan import PlanNode

__all__ = ["Body", "LineOptions"]


class Body(Protocol):
    """What a line needs of the compiled plan of a function that it calls; see `CompiledPlan`."""

    function: Callable[..., Any]
    is_line: bool
    needs_context: bool
    num_calls: int


@dataclass(frozen=True, slots=True)
class LineOptions:
    """The options for writing a line.

    Attributes:
        heavy_ns: returns the expected ns of a call if it would hold up the event loop, else 0.
        chunk: the number of calls between two looks at the clock.
        body_of: returns the compiled plan of a function's body.  Raises NotCompiledError if there is none.
        goes_on: True if the line yields before a heavy call, so that a thread makes it and the calls after it;
            otherwise the line raises there, and the interpreter takes over.
    """

    heavy_ns: Callable[[PlanNode, Sequence[Any]], float]
    chunk: int
    body_of: Callable[[Any], Body]
    goes_on: bool = False
