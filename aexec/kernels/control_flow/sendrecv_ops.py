"""Sends and receives: the two ends of an edge between devices, which meet in the step's rendezvous.

They run also when they are dead: a Send sends on that its input is dead, a Recv that gets something dead has no
output.  A Recv whose value is there already returns it; otherwise it waits, without a task.  It is the Recv that
copies, from where the Send says that the value is to where it is wanted; between the host's devices nothing is copied.
Next to read: `aexec/framework/rendezvous.py`, and `aexec/graph/partition.py`, which puts them into graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from operator import attrgetter
from typing import Any

from aexec.framework import errors
from aexec.framework.device import Device, copy_between
from aexec.framework.futures import PromptOutputs, complete_from, complete_on_loop
from aexec.framework.kernel_registry import DEFAULT_DEVICE, kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.op_kernel_context import Params
from aexec.framework.rendezvous import Received, Rendezvous, create_key


@kernel("_Send", "Send", device=DEFAULT_DEVICE, cost=0)
@kernel("_HostSend", device=DEFAULT_DEVICE, host_memory=("tensor",), cost=0)
def send(c: OpKernelConstruction) -> Compute:
    key_in, meet = _keys(c), _meeting_place(c)
    made_on = _device_of_memory(c)
    c.need_context()

    def compute(context: OpKernelContext, value: Any) -> None:
        meet(context.params).send(key_in(context.frame_iter), value, is_dead=value is None, send_args=made_on)

    return compute


@kernel("_Recv", "Recv", device=DEFAULT_DEVICE, cost=0)
@kernel("_HostRecv", device=DEFAULT_DEVICE, host_memory=("tensor",), cost=0)
def receive(c: OpKernelConstruction) -> Compute:
    key_in, meet = _keys(c), _meeting_place(c)
    take = partial(_taken, c.name, _device_of_memory(c))
    c.need_context()

    def compute(context: OpKernelContext) -> Any:
        rendezvous, key = meet(context.params), key_in(context.frame_iter)
        received = rendezvous.recv_nowait(key)
        if received is None:
            pending = PromptOutputs(loop=context.loop)
            rendezvous.recv_async(key, partial(_arrived, pending, take))
            return pending
        value = take(received)
        if not isinstance(value, Future):
            return value
        pending = PromptOutputs(loop=context.loop)
        complete_from(value, pending)
        return pending

    return compute


def _meeting_place(c: OpKernelConstruction) -> Callable[[Params], Rendezvous]:
    """What the partitions of a function exchange is theirs; whoever sends by name meets others of the step."""
    return attrgetter("transfers" if c.op.startswith("_") else "rendezvous")


def _device_of_memory(c: OpKernelConstruction) -> Device | None:
    """The device in whose memory the value is at this end; None for the host's."""
    if c.placed_on is None or c.placed_on.is_host or c.op.startswith("_Host"):
        return None
    return c.placed_on


def _taken(node: str, wanted_on: Device | None, received: Received) -> Any:
    """What a Recv gives: the value where it is wanted, or a future if the host has to wait for it; None if dead."""
    if received.is_dead:
        return received.value
    return copy_between(received.send_args, received.value, wanted_on, node=node)


def _arrived(pending: PromptOutputs, take: Callable[[Received], Any], outcome: Received | errors.OpError) -> None:
    """A Recv that has waited gets something, on whichever thread."""
    if isinstance(outcome, errors.OpError):
        complete_on_loop(pending, lambda waiting: waiting.set_exception(outcome))
        return
    try:
        value = take(outcome)
    except Exception as error:
        failure = error
        complete_on_loop(pending, lambda waiting: waiting.set_exception(failure))
        return
    if isinstance(value, Future):
        complete_from(value, pending)
    else:
        complete_on_loop(pending, lambda waiting: waiting.set_result(value))


def _keys(c: OpKernelConstruction) -> Callable[[tuple[int, int]], str]:
    """The key of a call, by its (frame id, iteration)."""
    ends = c.text("send_device"), c.attr("send_device_incarnation"), c.text("recv_device"), c.text("tensor_name")
    outside_loops = (0, 0)
    of_root = create_key(*ends, outside_loops)
    stem = of_root.removesuffix("0:0")
    return lambda frame_iter: of_root if frame_iter == outside_loops else f"{stem}{frame_iter[0]}:{frame_iter[1]}"
