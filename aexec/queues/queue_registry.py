"""The kinds of queues: op → class of the queues that its nodes make.

A kind is added by `register_queue_kind`; importing `aexec/queues/kinds` registers the built-in ones.  Code that does
something for each kind, such as registering its kernels, calls `follow_queue_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aexec.framework import errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.queues.queue_base import QueueBase

__all__ = ["follow_queue_kinds", "queue_class", "queue_kinds", "register_queue_kind", "unregister_queue_kind"]

AnyQueue = TypeVar("AnyQueue", bound=type[QueueBase])

# The package of the kernels that are registered for each kind.
_KERNELS = "aexec.kernels.data_flow"

_classes: dict[str, type[QueueBase]] = {}
_followers: list[Callable[[type[QueueBase]], object]] = []


def register_queue_kind(queue: AnyQueue) -> AnyQueue:
    """Class decorator: nodes of the ops `kind` and `kindV2` make queues of this class.

    The ops have to be defined, with the attrs of `FIFOQueue` and those in `queue.settings`.

    Raises:
        AlreadyExistsError: there is a class of that kind.
    """
    if queue.kind in _classes:
        raise errors.AlreadyExistsError(f"A kind of queue '{queue.kind}' is registered already")
    _classes[queue.kind] = queue
    if not _followers:  # the kernels are not imported yet
        kernel_registry.global_registry.load_on_first_use(_KERNELS, (queue.kind, f"{queue.kind}V2"))
    for follow in _followers:
        follow(queue)
    return queue


def unregister_queue_kind(kind: str) -> None:
    """Remove a kind: kernels that are made from now on do not use it.  Unknown kinds are ignored."""
    _classes.pop(kind, None)


def follow_queue_kinds(follow: Callable[[type[QueueBase]], object]) -> None:
    """Call `follow` with each registered class, and with each that is registered later."""
    _followers.append(follow)
    for queue in tuple(_classes.values()):
        follow(queue)


def queue_kinds() -> tuple[str, ...]:
    """Names of all kinds, in order of registration."""
    return tuple(_classes)


def queue_class(op: str) -> type[QueueBase] | None:
    """The class of the queues that nodes of an op make; None if they make no queue."""
    return _classes.get(op.removesuffix("V2"))
