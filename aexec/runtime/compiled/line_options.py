"""What the text of a compiled plan is written for: the options that its writer is given.

Next to read: `line_writer.py`, which writes the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aexec.framework.late_dataclass import dataclass
from aexec.runtime.plans.plan import PlanNode

__all__ = ["Body", "LineOptions"]


class Body(Protocol):
    """The compiled plan of a function's body, as a line that calls it needs it; see `CompiledPlan`."""

    function: Callable[..., Any]
    is_line: bool
    needs_context: bool
    num_calls: int


@dataclass(frozen=True, slots=True)
class LineOptions:
    """What a line is written for.

    Attributes:
        heavy_ns: returns how long a call is expected to take, in ns, if that would hold up the event loop; else 0.
        chunk: the number of calls between two looks at the clock.
        body_of: returns the compiled plan of a function's body.  Raises NotCompiledError if there is none.
        goes_on: the line yields before a heavy call, so that a thread makes it and the calls after it; otherwise the
            line raises there, and the interpreter takes over.
    """

    heavy_ns: Callable[[PlanNode, Sequence[Any]], float]
    chunk: int
    body_of: Callable[[Any], Body]
    goes_on: bool = False
