"""Containers that several sessions of a process share.

A session has a resource manager of its own.  A session whose config names containers to share has a
`SharingResourceManager`, in which those containers belong to the process: there is one of each name, from the first
session that shares it to the last.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, TypeVar

from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.state.resource_manager import (
    ResourceHandle,
    ResourceInfo,
    ResourceManager,
    ResourceManagerStatistics,
    check_container,
)

__all__ = ["SharingResourceManager", "shared_containers"]

R = TypeVar("R")


@dataclass(slots=True)
class _Shared:
    """A manager with one container, and the number of sessions that use it."""

    manager: ResourceManager = field(default_factory=ResourceManager)
    users: int = 0


_lock = threading.Lock()
_shared: dict[str, _Shared] = {}


def shared_containers() -> dict[str, int]:
    """The containers that are shared now → the number of sessions that share each."""
    with _lock:
        return {name: shared.users for name, shared in _shared.items()}


def _join(name: str) -> ResourceManager:
    with _lock:
        shared = _shared.setdefault(name, _Shared())
        shared.users += 1
        return shared.manager


def _leave(names: Iterable[str]) -> None:
    left = []
    with _lock:
        for name in names:
            shared = _shared[name]
            shared.users -= 1
            if not shared.users:
                left.append(_shared.pop(name).manager)
    for manager in left:
        manager.clear()


class SharingResourceManager(ResourceManager):
    """A resource manager some of whose containers belong to the process.

    Args:
        share: their names.
        kept: counts what its own resources keep, or None; shared resources are not counted.
        scope: only managers of the same scope share containers, since a process may run several tasks of a cluster.

    Raises:
        InvalidArgumentError: a name is not valid for a container.
    """

    def __init__(self, share: Iterable[str], device: str = "", kept: KeptMemory | None = None, scope: str = "") -> None:
        super().__init__(device, kept)
        self._own = ResourceManager(device, kept)
        names = sorted(set(share))
        for name in names:
            check_container(name)
        self._shared = {name: _join(scope + name) for name in names}
        # Called by `clear`, or when a session is dropped without being closed.
        self._finalizer = weakref.finalize(self, _leave, [scope + name for name in names])

    def _of(self, container: str) -> ResourceManager:
        return self._shared.get(container, self._own)

    @property
    def containers(self) -> list[str]:
        return sorted(container for manager in self._managers() for container in manager.containers)

    def each_of_type(self, resource_type: type[R]) -> Iterator[tuple[str, str, R]]:
        for manager in self._managers():
            yield from manager.each_of_type(resource_type)

    def _managers(self) -> list[ResourceManager]:
        return [self._own, *self._shared.values()]

    def create(self, container: str, name: str, resource: Any, resource_type: type | None = None) -> None:
        self._of(container).create(container, name, resource, resource_type)

    def find(self, container: str, name: str, resource_type: type[R]) -> R | None:
        return self._of(container).find(container, name, resource_type)

    def lookup(self, container: str, name: str, resource_type: type[R]) -> R:
        return self._of(container).lookup(container, name, resource_type)

    def lookup_or_create(self, container: str, name: str, resource_type: type[R], make: Callable[[], R]) -> R:
        return self._of(container).lookup_or_create(container, name, resource_type, make)

    def delete(self, container: str, name: str, resource_type: type) -> None:
        self._of(container).delete(container, name, resource_type)

    def delete_handle(self, handle: ResourceHandle) -> None:
        self._of(handle.container).delete_handle(handle)

    def tensors_of_step(self, step_id: int) -> Iterator[Any]:
        return self._own.tensors_of_step(step_id)

    def cleanup(self, container: str) -> None:
        self._of(container).cleanup(container)

    def clear(self) -> None:
        """Remove everything of its own, and stop using the shared containers."""
        self._shared = {}
        self._finalizer()
        self._own.clear()

    def resources(self) -> list[ResourceInfo]:
        listing = [info for manager in self._managers() for info in manager.resources()]
        return sorted(listing, key=lambda info: (info.container, info.name, info.type_name))

    def statistics(self) -> ResourceManagerStatistics:
        parts = [manager.statistics() for manager in self._managers()]
        by_type: dict[str, int] = {}
        for part in parts:
            for kind, count in part.by_type.items():
                by_type[kind] = by_type.get(kind, 0) + count
        return ResourceManagerStatistics(
            sum(part.containers for part in parts), sum(part.resources for part in parts), dict(sorted(by_type.items()))
        )
