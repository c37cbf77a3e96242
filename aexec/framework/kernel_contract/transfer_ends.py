"""The two ends of a transfer, as compute callables whose parts an executor may also use by themselves.

Called with a context they work as any kernel: a Send hands its value to the rendezvous, a Recv returns the value, or
pending outputs.  An executor that keeps account itself of which node waits for which value needs no future for that: it
uses the parts.  Next to read: `device_contract/rendezvous.py`, where the two meet, and
`kernels/control_flow/sendrecv_ops.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from aexec.framework import errors
from aexec.framework.device_contract.device import Device, copy_between
from aexec.framework.device_contract.rendezvous import Received, Rendezvous
from aexec.framework.waiting.futures import PromptOutputs, complete_from, complete_on_loop

if TYPE_CHECKING:
    from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext, Params

__all__ = ["RecvEnd", "SendEnd"]

Meet = Callable[["Params"], Rendezvous]
# (frame id, iteration) of a call → its key in the rendezvous.
KeyIn = Callable[[tuple[int, int]], str]


class SendEnd:
    """Sends a value, or that it is dead.

    Attributes:
        meet: returns a step's rendezvous.
        key_in: returns the key of a call, by its (frame id, iteration).
        made_on: the device in whose memory the value is; None for the host's.
    """

    __slots__ = ("key_in", "made_on", "meet")

    def __init__(self, meet: Meet, key_in: KeyIn, made_on: Device | None) -> None:
        self.meet, self.key_in, self.made_on = meet, key_in, made_on

    def __call__(self, context: OpKernelContext, value: Any) -> None:
        key = self.key_in(context.frame_iter)
        self.meet(context.params).send(key, value, is_dead=value is None, send_args=self.made_on)


class RecvEnd:
    """Receives a value.

    Attributes:
        meet, key_in: as of the `SendEnd`.
        wanted_on: the device in whose memory the value is wanted; None for the host's.
        node: the node's name, for errors.
    """

    __slots__ = ("key_in", "meet", "node", "wanted_on")

    def __init__(self, meet: Meet, key_in: KeyIn, wanted_on: Device | None, node: str) -> None:
        self.meet, self.key_in, self.wanted_on, self.node = meet, key_in, wanted_on, node

    def __call__(self, context: OpKernelContext) -> Any:
        """The value, None if it is dead; or pending outputs."""
        rendezvous, key = self.meet(context.params), self.key_in(context.frame_iter)
        received = rendezvous.recv_nowait(key)
        if received is None:
            pending = PromptOutputs(loop=context.loop)
            rendezvous.recv_async(key, lambda outcome: self._arrived(pending, outcome))
            return pending
        return self.in_time(self.take(received), context.loop)

    def take(self, received: Received) -> Any:
        """The received value in the memory where it is wanted, None if it is dead; or a future of it if a device must
        copy it.
        """
        value, is_dead, source = received
        if is_dead or source is self.wanted_on:
            return value
        return copy_between(source, value, self.wanted_on, node=self.node)

    @staticmethod
    def in_time(value: Any, loop: asyncio.AbstractEventLoop) -> Any:
        """The result of `take`, with pending outputs in place of a future."""
        if not isinstance(value, Future):
            return value
        pending = PromptOutputs(loop=loop)
        complete_from(value, pending)
        return pending

    def _arrived(self, pending: PromptOutputs, outcome: Received | errors.OpError) -> None:
        """Complete pending outputs with the received value; called in any thread."""
        if isinstance(outcome, errors.OpError):
            complete_on_loop(pending, lambda waiting: waiting.set_exception(outcome))
            return
        try:
            value = self.take(outcome)
        except Exception as error:
            failure = error
            complete_on_loop(pending, lambda waiting: waiting.set_exception(failure))
            return
        if isinstance(value, Future):
            complete_from(value, pending)
        else:
            complete_on_loop(pending, lambda waiting: waiting.set_result(value))
