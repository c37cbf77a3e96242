"""Collectives among tasks: each member sends to the others, through the step's rendezvous, the data that they need.

A reduction of large values has two rounds.  Each member gets a piece of every value, reduces it, and sends the result
to all.  The bytes sent are those of a ring, in the time of two messages instead of two per member.  Every element is
reduced in the order of the devices' names, as among the devices of one process.  Small values are sent to all members
at once. The planner of the step names the members by an attr of their nodes.
Next to read: `collective_ops.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.device_contract.rendezvous import create_key
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction, OpKernelContext

__all__ = ["COLLECTIVES", "GROUP_DEVICES", "SENDING_DEVICE", "Exchange"]

COLLECTIVES = frozenset({"CollectiveReduce", "CollectiveGather", "CollectiveBcastSend", "CollectiveBcastRecv"})
# Attr: names of the devices of a group whose members are of several tasks, sorted.
GROUP_DEVICES = "_group_devices"
# Attr of a broadcast: the device among them that sends.
SENDING_DEVICE = "_sending_device"

# Values of up to this many bytes are sent to all members, in one round.
_SMALL = 1 << 12

# Called with the members' values, in their order; returns the result for all.
Combine = Callable[[Sequence[Any]], Awaitable[Any]]


class Exchange:
    """One collective of a step; exactly one of its methods is called, once.

    Args:
        context: of the call.
        c: the member's node.
        keys: the name of group and instance.
    """

    def __init__(self, context: OpKernelContext, c: OpKernelConstruction, keys: str) -> None:
        self._context = context
        self._members = [name.decode() for name in c.attrs[GROUP_DEVICES]]
        self._me, self._keys = c.device, keys
        self._rendezvous = context.rendezvous

    def _key(self, source: str, destination: str, what: str) -> str:
        return create_key(source, 1, destination, f"{self._keys};{what}".replace(";", "_"), self._context.frame_iter)

    def _tell(self, what: str, value: Any, to: Sequence[str] | None = None) -> None:
        for member in self._members if to is None else to:
            if member != self._me:
                self._rendezvous.send(self._key(self._me, member, what), value)

    async def _hear(self, what: str, own: Any) -> list[Any]:
        """Return the values that the members send to this one, in the members' order."""

        async def of(member: str) -> Any:
            if member == self._me:
                return own
            key = self._key(member, self._me, what)
            return (await self._rendezvous.recv(key, self._context.params.cancellation)).value

        return await asyncio.gather(*map(of, self._members))

    async def gather(self, value: Any, combine: Combine) -> Any:
        """Return `combine` of all members' values."""
        self._tell("value", value)
        return await combine(await self._hear("value", value))

    async def broadcast(self, value: Any, sender: str) -> Any:
        """Return the sender's value; the other members pass None."""
        if sender == self._me:
            self._tell("value", value)
            return value
        key = self._key(sender, self._me, "value")
        return (await self._rendezvous.recv(key, self._context.params.cancellation)).value

    async def reduce(self, value: Any, combine: Combine) -> Any:
        """Return `combine` of all members' values, which works element by element.

        Raises:
            InvalidArgumentError: the values have different shapes.
        """
        if value.nbytes <= _SMALL:
            return await self.gather(value, combine)
        pieces = np.array_split(value.reshape(-1), len(self._members))
        for member, piece in zip(self._members, pieces, strict=True):
            self._tell("piece", _with_shape(value.shape, piece), [member])
        mine = pieces[self._members.index(self._me)]
        heard = await self._hear("piece", _with_shape(value.shape, mine))
        shapes, values = zip(*(_apart(packed, value.dtype) for packed in heard), strict=True)
        if len(set(shapes)) > 1:
            raise errors.InvalidArgumentError(
                f"Values of the group of {self._keys} have shapes {', '.join(map(str, shapes))}: expected one shape"
            )
        reduced = await combine(values)
        self._tell("reduced", reduced)
        return np.concatenate(await self._hear("reduced", reduced)).reshape(value.shape)


def _with_shape(shape: tuple[int, ...], piece: Any) -> Any:
    """A piece of a value as bytes, preceded by the value's shape."""
    head = np.array([len(shape), *shape], np.int64).view(np.uint8)
    return np.concatenate([head, np.ascontiguousarray(piece).view(np.uint8)])


def _apart(packed: Any, dtype: Any) -> tuple[tuple[int, ...], Any]:
    """The shape and the piece from a result of `_with_shape`."""
    rank = int(packed[:8].view(np.int64)[0])
    begin = 8 * (rank + 1)
    return tuple(packed[8:begin].view(np.int64).tolist()), packed[begin:].view(dtype)
