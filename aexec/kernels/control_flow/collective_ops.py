"""Collectives: reduce, gather and broadcast, among the devices of a process, or of several tasks.

The nodes with the same group and instance keys in a step meet, each from its own device.  In one process the last node
that arrives computes for all of them, in the order of their devices' names, not that of their arrival.
Next to read: `collective_exchange.py`, for collectives among several tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import DEFAULT_DEVICE, kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS
from aexec.kernels.control_flow.collective_exchange import GROUP_DEVICES, SENDING_DEVICE, Exchange

_MERGE = {b"Min": np.minimum, b"Max": np.maximum, b"Mul": np.multiply, b"Add": np.add}
_BROADCASTS = ("CollectiveBcastSend", "CollectiveBcastRecv")


class Meeting:
    """The members of a group exchange their values in it, once."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[OpKernelConstruction, Any]] = {}
        self._outcome: asyncio.Future[Any] | None = None

    async def join(self, context: OpKernelContext, c: OpKernelConstruction, value: Any) -> Any:
        """Pass a value, or None; returns the combined result of all members.

        Raises:
            InvalidArgumentError: the members contradict each other, or two are on one device.
        """
        if self._outcome is None:
            self._outcome = context.loop.create_future()
        for other, _ in self._members.values():
            _check_agree(c, other)
        self._members[c.device] = (c, value)
        if len(self._members) < c.attr("group_size"):
            return await asyncio.shield(self._outcome)
        values = [given for _, (_, given) in sorted(self._members.items()) if given is not None]
        try:
            result = await context.worker_pool.run_here_or_in_thread(_combine, c, values)
        except errors.OpError as error:
            follows = error.fresh()
            follows.derived = True
            self._outcome.set_exception(follows)
            self._outcome.exception()  # marks it as seen, even if nothing waits any more
            raise
        self._outcome.set_result(result)
        return result


def _check_agree(c: OpKernelConstruction, other: OpKernelConstruction) -> None:
    """Raise InvalidArgumentError unless the two nodes can be members of one group."""
    if why := _disagreement(c, other):
        raise errors.InvalidArgumentError(
            f"Nodes {c.name} and {other.name} with group key {c.attr('group_key')} and instance key "
            f"{c.attr('instance_key')} {why}: expected one collective, with a node on each of its devices"
        )


def _disagreement(c: OpKernelConstruction, other: OpKernelConstruction) -> str | None:
    if c.op != other.op and not (c.op in _BROADCASTS and other.op in _BROADCASTS):
        return "differ in op"
    for name in ("T", "group_size", "merge_op", "final_op"):
        if c.attrs.get(name) != other.attrs.get(name):
            return f"differ in {name}"
    if c.op == other.op == "CollectiveBcastSend":
        return "both send"
    return "share a device" if c.device == other.device else None


async def _over_tasks(context: OpKernelContext, c: OpKernelConstruction, keys: str, value: Any) -> Any:
    exchange = Exchange(context, c, keys)

    async def combined(values: Sequence[Any]) -> Any:
        return await context.worker_pool.run_here_or_in_thread(_combine, c, values)

    if c.op == "CollectiveReduce":
        return await exchange.reduce(value, combined)
    if c.op == "CollectiveGather":
        return await exchange.gather(value, combined)
    return await exchange.broadcast(value, c.attrs[SENDING_DEVICE].decode())


def _combine(c: OpKernelConstruction, values: Sequence[Any]) -> Any:
    """The result for the members of a group."""
    check_inline(sum(value.nbytes for value in values) * COPY_NS)
    if c.op in _BROADCASTS:
        if not values:
            raise errors.InvalidArgumentError(f"No node of the group of {c.name} sends: expected one that does")
        return values[0]
    shapes = {value.shape if c.op == "CollectiveReduce" else value.shape[1:] for value in values}
    if len(shapes) > 1:
        raise errors.InvalidArgumentError(
            f"Values of the group of {c.name} have shapes {', '.join(str(value.shape) for value in values)}: "
            "expected one shape"
        )
    if c.op == "CollectiveGather":
        return np.concatenate(values)
    merge = _MERGE[c.attr("merge_op")]
    result = merge(values[0], values[1]) if len(values) > 1 else values[0].copy()
    for value in values[2:]:
        result = merge(result, value)
    if c.attr("final_op") == b"Div":
        result = _divided(result, len(values))
    return result


def _divided(value: Any, by: int) -> Any:
    if value.dtype.kind == "i":  # towards zero, as in C++
        return (np.sign(value) * (np.abs(value) // by)).astype(value.dtype)
    return (value / value.dtype.type(by)).astype(value.dtype)


@kernel("CollectiveReduce", device=DEFAULT_DEVICE, host_memory=("input", "data"), cost=0)
def reduce(c: OpKernelConstruction) -> Compute:
    return _member(c, lambda value: value)


@kernel("CollectiveGather", device=DEFAULT_DEVICE, host_memory=("input", "data"), cost=0)
def gather(c: OpKernelConstruction) -> Compute:
    def rows(value: Any) -> Any:
        if value.ndim == 0:
            raise errors.InvalidArgumentError("input should have rank > 0, got a scalar")
        return value

    return _member(c, rows)


@kernel("CollectiveBcastSend", device=DEFAULT_DEVICE, host_memory=("input", "data"), cost=0)
def broadcast_send(c: OpKernelConstruction) -> Compute:
    shape = c.attr("shape")

    def declared(value: Any) -> Any:
        if not shape.is_compatible_with(value.shape):
            raise errors.InvalidArgumentError(
                f"Declared shape {shape} of op {c.name} does not match shape {value.shape} of input"
            )
        return value

    return _member(c, declared)


@kernel("CollectiveBcastRecv", device=DEFAULT_DEVICE, host_memory=("data",), cost=0)
def broadcast_receive(c: OpKernelConstruction) -> Compute:
    return _member(c, lambda: None)


def _member(c: OpKernelConstruction, checked: Callable[..., Any]) -> Compute:
    """A member of a group, which contributes `checked(*inputs)`."""
    if c.attr("group_size") < 1:
        raise errors.InvalidArgumentError(f"group_size must be positive, got {c.attr('group_size')}")
    c.need_context()
    keys = f"collective {c.attr('group_key')};{c.attr('instance_key')}"
    timeout = c.attr("timeout_seconds") or None

    async def compute(context: OpKernelContext, *inputs: Any) -> Any:
        value = checked(*inputs)
        frame, iteration = context.frame_iter
        name = f"{keys};{frame}:{iteration}"
        try:
            async with asyncio.timeout(timeout):
                if GROUP_DEVICES in c.attrs:
                    return await _over_tasks(context, c, keys, value)
                meeting = context.resources.lookup_or_create(context.step_container, name, Meeting, Meeting)
                return await meeting.join(context, c, value)
        except TimeoutError:
            raise errors.DeadlineExceededError(
                f"Not all of the {c.attr('group_size')} nodes of the collective came within {timeout:g} seconds"
            ) from None

    return compute
