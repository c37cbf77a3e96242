"""Sends and receives: the two ends of an edge between devices, which meet in the step's rendezvous.

They also run when dead: a Send passes on that its input is dead, and the Recv that receives this has no output.  A Recv
whose value has arrived returns it; otherwise it waits, without a task.  The Recv copies the value from the place that
the Send names to its own; between the host's devices nothing is copied.
Next to read: `aexec/framework/kernel_contract/transfer_ends.py`, for the values that they exchange, and
`aexec/graph/partitioning/transfers.py`, which inserts them into graphs.

`_Arg` and `_Retval` are the arguments and results of a function.  The runtime feeds and fetches them and calls no
kernel; a step gets to these kernels only if a client's own graph has such nodes outside of functions.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.rendezvous import Rendezvous, create_key
from aexec.framework.kernel_contract.kernel_registry import DEFAULT_DEVICE, kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.op_kernel_context import Params
from aexec.framework.kernel_contract.transfer_ends import RecvEnd, SendEnd


@kernel("_Send", "Send", device=DEFAULT_DEVICE, cost=0)
@kernel("_HostSend", device=DEFAULT_DEVICE, host_memory=("tensor",), cost=0)
def send(c: OpKernelConstruction) -> Compute:
    c.need_context()
    return SendEnd(_meeting_place(c), _keys(c), _device_of_memory(c))


@kernel("_Recv", "Recv", device=DEFAULT_DEVICE, cost=0)
@kernel("_HostRecv", device=DEFAULT_DEVICE, host_memory=("tensor",), cost=0)
def receive(c: OpKernelConstruction) -> Compute:
    c.need_context()
    return RecvEnd(_meeting_place(c), _keys(c), _device_of_memory(c), c.name)


@kernel("_Arg", device=DEFAULT_DEVICE, cost=0)
def argument(c: OpKernelConstruction) -> Compute:
    return _outside_function(c, "GetArg")


@kernel("_Retval", device=DEFAULT_DEVICE, cost=0)
def result(c: OpKernelConstruction) -> Compute:
    return _outside_function(c, "SetRetval")


def _outside_function(c: OpKernelConstruction, access: str) -> Compute:
    message = f"{access} {c.attr('index')} is not within [0, 0)"

    def compute(*_: Any) -> NoReturn:
        raise errors.InvalidArgumentError(message)

    return compute


_of_partitions: Callable[[Params], Rendezvous] = attrgetter("transfers")
_of_step: Callable[[Params], Rendezvous] = attrgetter("rendezvous")


def _meeting_place(c: OpKernelConstruction) -> Callable[[Params], Rendezvous]:
    """Partitions of a function exchange values in a rendezvous of their own; Sends by name use the step's."""
    return _of_partitions if c.op.startswith("_") else _of_step


def _device_of_memory(c: OpKernelConstruction) -> Device | None:
    """The device whose memory holds the value at this end; None for the host's."""
    if c.placed_on is None or c.placed_on.is_host or c.op.startswith("_Host"):
        return None
    return c.placed_on


def _keys(c: OpKernelConstruction) -> Callable[[tuple[int, int]], str]:
    """A function from a call's (frame id, iteration) to its key."""
    ends = c.text("send_device"), c.attr("send_device_incarnation"), c.text("recv_device"), c.text("tensor_name")
    outside_loops = (0, 0)
    of_root = create_key(*ends, outside_loops)
    stem = of_root.removesuffix("0:0")
    return lambda frame_iter: of_root if frame_iter == outside_loops else f"{stem}{frame_iter[0]}:{frame_iter[1]}"
