"""Collectives among tasks: each member sends to the others, through the step's rendezvous, what they need of it.

A reduction of large values is two rounds.  Each member gets a piece of every value, reduces it, and gives it to all:
as many bytes as around a ring, in two messages' time instead of two for each member, and every element is reduced in
the order of the devices' names, as among the devices of one process.  Small values go to everybody at once.
Who the members are, whoever plans the step says by an attr of their nodes.
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
# Attr: of a broadcast, that of them which sends.
SENDING_DEVICE = "_sending_device"

# Bytes that are sent to everybody at once, so that one round does.
_SMALL = 1 << 12

# Given the values of the members, in their order: gives what all get.
Combine = Callable[[Sequence[Any]], Awaitable[Any]]


class Exchange:
    """One collective of a step; one of the methods is called, once.

    Args:
        context: of the call.
        c: the member's node.
        keys: what group and instance are called.
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
        """Of each member what it tells this one, in their order."""

        async def of(member: str) -> Any:
            if member == self._me:
                return own
            key = self._key(member, self._me, what)
            return (await self._rendezvous.recv(key, self._context.params.cancellation)).value

        return await asyncio.gather(*map(of, self._members))

    async def gather(self, value: Any, combine: Combine) -> Any:
        """What is made of the values of all."""
        self._tell("value", value)
        return await combine(await self._hear("value", value))

    async def broadcast(self, value: Any, sender: str) -> Any:
        """The value of the sender; of others None is given."""
        if sender == self._me:
            self._tell("value", value)
            return value
        key = self._key(sender, self._me, "value")
        return (await self._rendezvous.recv(key, self._context.params.cancellation)).value

    async def reduce(self, value: Any, combine: Combine) -> Any:
        """What is made of the values of all, element by element.

        Raises:
            InvalidArgumentError: they have different shapes.
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
    """A piece of a value, as bytes, after the value's shape."""
    head = np.array([len(shape), *shape], np.int64).view(np.uint8)
    return np.concatenate([head, np.ascontiguousarray(piece).view(np.uint8)])


def _apart(packed: Any, dtype: Any) -> tuple[tuple[int, ...], Any]:
    """The shape and the piece, of what `_with_shape` made."""
    rank = int(packed[:8].view(np.int64)[0])
    begin = 8 * (rank + 1)
    return tuple(packed[8:begin].view(np.int64).tolist()), packed[begin:].view(dtype)
