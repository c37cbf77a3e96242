"""Sends and receives: the two ends of an edge between devices, which meet in the step's rendezvous.

They run also when they are dead: a Send sends on that its input is dead, a Recv that gets something dead has no
output.  A Recv whose value is there already returns it; otherwise it waits, without a task.
Next to read: `aexec/framework/rendezvous.py`, and `aexec/graph/partition.py`, which puts them into graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aexec.framework import errors
from aexec.framework.futures import PromptOutputs, complete_on_loop
from aexec.framework.kernel_registry import DEFAULT_DEVICE, kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.rendezvous import Received, create_key


@kernel("_Send", "_HostSend", "Send", device=DEFAULT_DEVICE, cost=0)
def send(c: OpKernelConstruction) -> Compute:
    key_in = _keys(c)
    c.need_context()

    def compute(context: OpKernelContext, value: Any) -> None:
        context.rendezvous.send(key_in(context.frame_iter), value, is_dead=value is None)

    return compute


@kernel("_Recv", "_HostRecv", "Recv", device=DEFAULT_DEVICE, cost=0)
def receive(c: OpKernelConstruction) -> Compute:
    key_in = _keys(c)
    c.need_context()

    def compute(context: OpKernelContext) -> Any:
        rendezvous, key = context.rendezvous, key_in(context.frame_iter)
        received = rendezvous.recv_nowait(key)
        if received is not None:
            return None if received.is_dead else received.value
        pending = PromptOutputs(loop=context.loop)
        rendezvous.recv_async(key, partial(_arrived, pending))
        return pending

    return compute


def _arrived(pending: PromptOutputs, outcome: Received | errors.OpError) -> None:
    complete_on_loop(pending, partial(_complete, outcome))


def _complete(outcome: Received | errors.OpError, pending: PromptOutputs) -> None:
    if isinstance(outcome, Received):
        pending.set_result(None if outcome.is_dead else outcome.value)
    else:
        pending.set_exception(outcome)


def _keys(c: OpKernelConstruction) -> Callable[[tuple[int, int]], str]:
    """The key of a call, by its (frame id, iteration)."""
    ends = c.text("send_device"), c.attr("send_device_incarnation"), c.text("recv_device"), c.text("tensor_name")
    outside_loops = (0, 0)
    of_root = create_key(*ends, outside_loops)
    stem = of_root.removesuffix("0:0")
    return lambda frame_iter: of_root if frame_iter == outside_loops else f"{stem}{frame_iter[0]}:{frame_iter[1]}"
