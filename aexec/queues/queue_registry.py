"""The kinds of queues: which class makes the queue that a node of an op asks for.

A kind is plugged in by `register_queue_kind`; the built-in ones are in `aexec/queues/kinds`, and importing that
registers them.  Code that does something for each kind, such as registering its kernels, calls `follow_queue_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aexec.framework import errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.queues.queue_base import QueueBase

__all__ = ["follow_queue_kinds", "queue_class", "queue_kinds", "register_queue_kind", "unregister_queue_kind"]

AnyQueue = TypeVar("AnyQueue", bound=type[QueueBase])

# The family of the kernels that follow the kinds.
_KERNELS = "aexec.kernels.data_flow"

_classes: dict[str, type[QueueBase]] = {}
_followers: list[Callable[[type[QueueBase]], object]] = []


def register_queue_kind(queue: AnyQueue) -> AnyQueue:
    """Have nodes of the ops `kind` and `kindV2` make queues of a class; returns the class, as a decorator does.

    The ops have to be defined, with the attrs of `FIFOQueue` and those in `queue.settings`.

    Raises:
        AlreadyExistsError: there is a class of that kind.
    """
    if queue.kind in _classes:
        raise errors.AlreadyExistsError(f"A kind of queue '{queue.kind}' is registered already")
    _classes[queue.kind] = queue
    if not _followers:  # the kernels are still to be imported
        kernel_registry.global_registry.load_on_first_use(_KERNELS, (queue.kind, f"{queue.kind}V2"))
    for follow in _followers:
        follow(queue)
    return queue


def unregister_queue_kind(kind: str) -> None:
    """Take a kind away from nodes whose kernels are made from now on.  Unknown ones are ignored."""
    _classes.pop(kind, None)


def follow_queue_kinds(follow: Callable[[type[QueueBase]], object]) -> None:
    """Call with each class that there is, and with each that is registered later."""
    _followers.append(follow)
    for queue in tuple(_classes.values()):
        follow(queue)


def queue_kinds() -> tuple[str, ...]:
    """Names of all kinds, in order of registration."""
    return tuple(_classes)


def queue_class(op: str) -> type[QueueBase] | None:
    """The class of the queues that nodes of an op make; None if they make no queue."""
    return _classes.get(op.removesuffix("V2"))
