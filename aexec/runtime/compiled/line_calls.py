"""The functions that the text of a compiled plan calls besides kernels: to stop, and to check values.

A line that cannot go on raises `TakeOverError` or a subclass; the traceback says where it was.
Next to read: `line_writer.py`, which writes the text.
"""

from __future__ import annotations

from typing import Any

from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.types import frame_id_of
from aexec.framework.waiting.inline_call import InlineCallError
from aexec.runtime.plans.kernel_outputs import check_outputs
from aexec.runtime.plans.plan import PlanNode

__all__ = [
    "CHANGES",
    "ON_LOOP",
    "HeavyError",
    "TakeOverError",
    "WaitsError",
    "first",
    "frame_in",
    "inner",
    "leave",
    "waits",
]

# A line that may be in another thread yields this before a call that must be made on the event loop's thread.
ON_LOOP = object()
# And this before a call that changes state, in any thread.
CHANGES = object()


class TakeOverError(InlineCallError):
    """The line cannot go on: the interpreter has to take over."""


class HeavyError(TakeOverError):
    """A call would hold up the loop."""

    def __init__(self) -> None:
        super().__init__("a call is heavy")


class WaitsError(TakeOverError):
    """A kernel returned an awaitable in place of its outputs.

    Args:
        out: the awaitable.
    """

    def __init__(self, out: Any) -> None:
        super().__init__("a kernel waits")
        self.out = out


def leave() -> None:
    """Leave the line because a value is wrong: the interpreter raises the right error."""
    raise TakeOverError("the interpreter knows what is wrong")


def waits(out: Any) -> None:
    """Leave the line because a kernel waits."""
    raise WaitsError(out)


def frame_in(context: OpKernelContext, name: str) -> int:
    """The id of the frame of the loop `name`, inside `context`."""
    return frame_id_of(*context.frame_iter, name)


def inner(context: OpKernelContext, frame: int, number: int) -> OpKernelContext:
    """The context of iteration `number` of the loop whose frame has this id, inside `context`."""
    return OpKernelContext(context.params, context.cancellation, (frame, number))


def first(node: PlanNode, out: Any) -> Any:
    """Check the outputs of a node's first call against its op, and return them.

    Raises:
        InternalError: they are not what the op declares.
    """
    check_outputs(node, out)
    node.trust()
    if node.num_outputs == 1 and type(out) is tuple:
        node.gives_tuple = True
        return out[0]
    return out
