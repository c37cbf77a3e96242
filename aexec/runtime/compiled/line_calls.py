"""What the text of a compiled plan calls besides kernels: where it cannot go on, and what it looks at.

A line leaves itself by an exception, `TakeOverError` or one that is more exact; the traceback says where it was.
Next to read: `line_writer.py`, which writes the text.
"""

from __future__ import annotations

from typing import Any

from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.types import frame_id_of
from aexec.framework.waiting.inline_call import InlineCallError
from aexec.runtime.plans.kernel_outputs import check_outputs
from aexec.runtime.plans.plan import PlanNode

__all__ = ["CHANGES", "ON_LOOP", "HeavyError", "TakeOverError", "WaitsError", "first", "inner", "leave", "waits"]

# What a line yields before a call that must be made on the event loop's thread, if it may be in another.
ON_LOOP = object()
# What it yields there before a call that changes state, in whatever thread.
CHANGES = object()


class TakeOverError(InlineCallError):
    """The line cannot go on: the interpreter does."""


class HeavyError(TakeOverError):
    """A call would hold up the loop."""

    def __init__(self) -> None:
        super().__init__("a call is heavy")


class WaitsError(TakeOverError):
    """A kernel gave an awaitable in place of its outputs.

    Args:
        out: what it gave.
    """

    def __init__(self, out: Any) -> None:
        super().__init__("a kernel waits")
        self.out = out


def leave() -> None:
    """A value is not what it should be: the interpreter says so."""
    raise TakeOverError("the interpreter knows what is wrong")


def waits(out: Any) -> None:
    """A kernel waits."""
    raise WaitsError(out)


def inner(context: OpKernelContext, name: str, number: int) -> OpKernelContext:
    """The context of an iteration of a loop that `context` is around."""
    frame, iteration = context.frame_iter
    return OpKernelContext(context.params, context.cancellation, (frame_id_of(frame, iteration, name), number))


def first(node: PlanNode, out: Any) -> Any:
    """The outputs of a node whose kernel has not shown yet that it gives what its op declares.

    Raises:
        InternalError: it does not.
    """
    check_outputs(node, out)
    node.trust()
    if node.num_outputs == 1 and type(out) is tuple:
        node.gives_tuple = True
        return out[0]
    return out
