"""Resources: state that outlives a kernel call, such as variables, queues and tensor arrays.

A `ResourceManager` keeps them under (container, type, name).  A `ResourceHandle`, which flows through a graph, names a
resource.  It is resolved at each use, so it may name one that does not exist yet, or no longer.  `ContainerInfo` has
the rules by which a node names its resource.

Resources are used in the thread of the event loop; worker threads look them up, too.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.shape import PartialTensorShape
from aexec.framework.types import TypeIndex

__all__ = [
    "ANONYMOUS_NAME",
    "DEFAULT_CONTAINER",
    "ContainerInfo",
    "ResourceHandle",
    "ResourceInfo",
    "ResourceManager",
    "ResourceManagerStatistics",
    "check_container",
    "handle_from_tensor",
    "is_fixed_handle",
    "make_handle_tensor",
    "node_of_private",
    "step_container",
]

logger = logging.getLogger(__name__)

R = TypeVar("R")
Array = np.ndarray[Any, Any]

DEFAULT_CONTAINER = "localhost"
# A shared_name of this value asks for a resource that no other node can name.
ANONYMOUS_NAME = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
_STEP_CONTAINER = "__per_step_"
# Names of resources that are gone with their last handle begin so.
_ANONYMOUS = "_Anonymous"
_CONTAINER_SYNTAX = re.compile(r"[A-Za-z0-9.][A-Za-z0-9./-]*", re.ASCII)
_PRIVATE = re.compile(r"_[0-9]+_(.+)", re.ASCII | re.DOTALL)
_private_numbers = itertools.count()
_anonymous_numbers = itertools.count()


def step_container(step_id: int) -> str:
    """The name of the container that lives as long as a step."""
    return f"{_STEP_CONTAINER}{step_id}"


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """The name of a node's resource.

    Attributes:
        container: first part of the name.
        name: second part.
        is_private: True if no other node uses the resource; it is deleted with the node's kernel.
    """

    container: str
    name: str
    is_private: bool = False

    @classmethod
    def from_attrs(
        cls,
        attrs: Mapping[str, Any],
        node_name: str,
        *,
        use_node_name: bool = False,
        default_container: str = DEFAULT_CONTAINER,
    ) -> ContainerInfo:
        """Apply the rules to a node's attrs `container` and `shared_name` (bytes; absent means empty).

        Args:
            attrs: the node's attrs.
            node_name: the node's name.
            use_node_name: without a shared_name, take the node's name, as for variables; otherwise the name is
                `_<number>_<node>`, and private.
            default_container: used if the attr is empty.

        Raises:
            InvalidArgumentError: a container with invalid characters, or a shared_name that begins with `_`.
        """
        container = _text(attrs.get("container", b"")) or default_container
        check_container(container)
        shared_name = _text(attrs.get("shared_name", b""))
        if shared_name == ANONYMOUS_NAME:
            return cls(container, f"_AnonymousVar{next(_anonymous_numbers)}", is_private=True)
        if shared_name.startswith("_"):
            raise errors.InvalidArgumentError(f"shared_name cannot start with '_':{shared_name}")
        if shared_name:
            return cls(container, shared_name)
        if use_node_name:
            return cls(container, node_name)
        return cls(container, f"_{next(_private_numbers)}_{node_name}", is_private=True)


def node_of_private(name: str) -> str | None:
    """The node whose private resource has this name; None for a name that nodes can share."""
    match = _PRIVATE.fullmatch(name)
    return None if match is None else match[1]


def check_container(name: str) -> None:
    """Raise InvalidArgumentError unless this is a valid container name."""
    if not _CONTAINER_SYNTAX.fullmatch(name):
        raise errors.InvalidArgumentError(f"container contains invalid characters: {name}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value, "utf-8", "replace")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ResourceHandle:
    """Names a resource; flows through graphs as the element of a 0-d object array.

    Attributes:
        device: full name of the device whose manager has it.
        container, name: its place in that manager.
        type_name: its type, for errors.
        dtypes_and_shapes: (dtype, shape) of the values that it holds, for shape inference.
        hash_code: `TypeIndex` of its type; 0 if unknown.  Meaningless in other processes.
    """

    device: str = ""
    container: str = ""
    name: str = ""
    type_name: str = ""
    dtypes_and_shapes: tuple[tuple[DType, PartialTensorShape], ...] = ()
    hash_code: int = 0

    @classmethod
    def of_type(
        cls,
        resource_type: type,
        info: ContainerInfo,
        device: str,
        dtypes_and_shapes: Iterable[tuple[DType, PartialTensorShape]] = (),
    ) -> ResourceHandle:
        """A handle to a resource of a given class."""
        index = TypeIndex.of(resource_type)
        return cls(device, info.container, info.name, index.name, tuple(dtypes_and_shapes), index.hash_code)

    @classmethod
    def from_proto(cls, message: proto.ResourceHandleProto) -> ResourceHandle:
        """Decode a message.  Raises InvalidArgumentError for an unknown dtype or an impossible shape."""
        return cls(
            message.device,
            message.container,
            message.name,
            message.maybe_type_name,
            tuple((as_dtype(d.dtype), PartialTensorShape.from_proto(d.shape)) for d in message.dtypes_and_shapes),
            message.hash_code,
        )

    def to_proto(self) -> proto.ResourceHandleProto:
        message = proto.ResourceHandleProto(
            device=self.device,
            container=self.container,
            name=self.name,
            hash_code=self.hash_code,
            maybe_type_name=self.type_name,
        )
        for dtype, shape in self.dtypes_and_shapes:
            message.dtypes_and_shapes.add(dtype=dtype.enum, shape=shape.to_proto())
        return message

    def check_type(self, expected: type) -> None:
        """Raise InvalidArgumentError if its type is known and differs from `expected`."""
        index = TypeIndex.of(expected)
        if self.hash_code not in (0, index.hash_code):
            raise errors.InvalidArgumentError(
                "Trying to access a handle's resource using the wrong type. The handle points to a resource "
                f"(name '{self.name}') of type '{self.type_name}' (hash code {self.hash_code}) but you are trying to "
                f"access the resource as type '{index.name}' (hash code {index.hash_code})"
            )

    def check_device(self, device: str) -> None:
        """Raise InvalidArgumentError if it is on another device; a handle without a device is on any."""
        if self.device and self.device != device:
            raise errors.InvalidArgumentError(
                f"Trying to access resource {self.name} located in device {self.device} from device {device}"
            )


def make_handle_tensor(handle: ResourceHandle) -> Array:
    """The handle as a tensor: a read-only 0-d object array."""
    tensor = np.empty((), object)
    tensor[()] = handle
    tensor.flags.writeable = False
    return tensor


def is_fixed_handle(tensor: Any) -> bool:
    """True for a tensor as `make_handle_tensor` makes it: it names the same resource whenever it is used."""
    return type(tensor) is np.ndarray and not tensor.ndim and tensor.base is None and not tensor.flags.writeable


def handle_from_tensor(tensor: Any, expected_type: type | None = None) -> ResourceHandle:
    """The handle in a tensor of one element.

    Raises:
        InvalidArgumentError: the tensor has another number of elements, its element is not a handle, or the handle
            names a resource of another type than `expected_type`.
    """
    if tensor.size != 1:
        raise errors.InvalidArgumentError(f"resource handle must have 1 element, not {tensor.size}")
    handle = tensor.item()
    if type(handle) is not ResourceHandle:
        raise errors.InvalidArgumentError(f"expected a resource handle, got {type(handle).__name__}")
    if expected_type is not None:
        handle.check_type(expected_type)
    return handle


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """One entry of a manager's listing; `debug` is the resource's repr."""

    container: str
    name: str
    type_name: str
    debug: str


@dataclass(frozen=True, slots=True)
class ResourceManagerStatistics:
    """The number of containers, of resources, and of resources per type name."""

    containers: int
    resources: int
    by_type: Mapping[str, int]


Key = tuple[type, str]


class ResourceManager:
    """Resources by container, type and name.  All methods may be called from any thread.

    A resource may define `close()`: it is called once, without a lock held, when the resource leaves the manager.  A
    resource with an attribute `kept` gets the manager's, through which it counts the tensors that it keeps.

    Args:
        device: full name of the device that the manager belongs to; "" accepts handles of any device.
        kept: counts the bytes that resources keep, or None.

    Attributes:
        kept: as given.
    """

    def __init__(self, device: str = "", kept: KeptMemory | None = None) -> None:
        self.device = device
        self.kept = kept
        # Lookups read without the lock, since single dict operations are atomic.  A container in the table is never
        # empty, and is changed only with the lock held.
        self._lock = threading.RLock()
        self._containers: dict[str, dict[Key, Any]] = {}
        # The names of private resources from records, by (container, class, node), until the node asks for its own.
        self._adopted: dict[tuple[str, type, str], str] = {}

    @property
    def containers(self) -> list[str]:
        """The names of the containers, sorted."""
        return sorted(self._containers)

    def create(self, container: str, name: str, resource: Any, resource_type: type | None = None) -> None:
        """Add a resource.

        Args:
            container, name: its place; the container is made if necessary.
            resource: the resource.
            resource_type: the class it is looked up by, if that is a base class of its own.

        Raises:
            AlreadyExistsError: there is a resource of this name and type.
        """
        kind = resource_type or type(resource)
        with self._lock:
            table = self._containers.get(container, {})
            if (kind, name) in table:
                raise errors.AlreadyExistsError(f"Resource {_path(container, name, kind)}")
            if self.kept is not None and hasattr(resource, "kept"):
                resource.kept = self.kept
            table[kind, name] = resource
            self._containers[container] = table

    def find(self, container: str, name: str, resource_type: type[R]) -> R | None:
        """A resource, or None if there is none of this name and type."""
        table = self._containers.get(container)
        found: R | None = None if table is None else table.get((resource_type, name))
        return found

    def of_type(self, resource_type: type[R]) -> list[tuple[str, str, R]]:
        """All resources of a type: (container, name, resource), sorted by container and name."""
        return sorted(self.each_of_type(resource_type), key=lambda entry: entry[:2])

    def each_of_type(self, resource_type: type[R]) -> Iterator[tuple[str, str, R]]:
        """As `of_type`, but one at a time, for very many: by container, in the order in which they were made."""
        for container, table in list(self._containers.items()):
            for key in list(table):
                if key[0] is resource_type and (resource := table.get(key)) is not None:
                    yield container, key[1], resource

    def lasting(self) -> Iterator[tuple[str, type, str, Any]]:
        """(container, class, name, resource) of all resources that outlive a step, those without a name left out."""
        for container, table in list(self._containers.items()):
            if not container.startswith(_STEP_CONTAINER):
                for (resource_type, name), resource in list(table.items()):
                    if not name.startswith(_ANONYMOUS):
                        yield container, resource_type, name, resource

    def lookup(self, container: str, name: str, resource_type: type[R]) -> R:
        """A resource.

        Raises:
            NotFoundError: there is none of this name and type.
        """
        table = self._containers.get(container)
        if table is None:
            raise errors.NotFoundError(
                f"Container {container} does not exist. (Could not find resource: {container}/{name})"
            )
        found: R | None = table.get((resource_type, name))
        if found is None:
            raise errors.NotFoundError(f"Resource {_path(container, name, resource_type)} does not exist.")
        return found

    def lookup_handle(self, handle: ResourceHandle, resource_type: type[R]) -> R:
        """The resource that a handle names.

        Raises:
            InvalidArgumentError: the handle belongs to another device, or to a resource of another type.
            NotFoundError: there is no such resource.
        """
        if self.device:
            handle.check_device(self.device)
        handle.check_type(resource_type)
        return self.lookup(handle.container, handle.name, resource_type)

    def lookup_or_create(self, container: str, name: str, resource_type: type[R], make: Callable[[], R]) -> R:
        """A resource, made by `make()` if there is none.  Of concurrent callers one makes it, and the others wait.

        Raises:
            BaseException: whatever `make` raises; nothing is added then.
        """
        found = self.find(container, name, resource_type)
        if found is None:
            with self._lock:
                found = self.find(container, name, resource_type)
                if found is None and self._adopted:
                    found = self._take_over(container, name, resource_type)
                if found is None:
                    found = make()
                    self.create(container, name, found, resource_type)
        return found

    def adopt(self, container: str, name: str, resource: Any, resource_type: type) -> None:
        """Add a resource that was made from a record of another process's.

        The private resource of a node gets a new name, and belongs to the node of its name here.

        Raises:
            AlreadyExistsError: there is a resource of this name and type.
        """
        node = node_of_private(name)
        if node is not None:
            name = f"_{next(_private_numbers)}_{node}"
            self._adopted[container, resource_type, node] = name
        self.create(container, name, resource, resource_type)

    def _take_over(self, container: str, name: str, resource_type: type[R]) -> R | None:
        """The adopted resource of the node whose private name this is, from now on under this name; or None."""
        node = node_of_private(name)
        known = None if node is None else self._adopted.pop((container, resource_type, node), None)
        table = self._containers.get(container, {})
        found: R | None = None if known is None else table.pop((resource_type, known), None)
        if found is not None:
            table[resource_type, name] = found
        return found

    def delete(self, container: str, name: str, resource_type: type) -> None:
        """Remove a resource.

        Raises:
            NotFoundError: there is none of this name and type.
        """
        with self._lock:
            table = self._containers.get(container)
            if table is None:
                raise errors.NotFoundError(f"Container {container} does not exist.")
            if (resource_type, name) not in table:
                raise errors.NotFoundError(f"Resource {_path(container, name, resource_type)} does not exist.")
            resource = table.pop((resource_type, name))
            if not table:
                del self._containers[container]
        _close_all([resource])

    def delete_handle(self, handle: ResourceHandle) -> None:
        """Remove the resource that a handle names, of any type.

        Raises:
            NotFoundError: there is none.
        """
        kinds = [kind for kind, name in list(self._containers.get(handle.container, ())) if name == handle.name]
        if handle.hash_code:
            kinds = [kind for kind in kinds if TypeIndex.of(kind).hash_code == handle.hash_code]
        if not kinds and handle.container in self._containers:
            path = f"{handle.container}/{handle.name}/{handle.type_name or '<unknown>'}"
            raise errors.NotFoundError(f"Resource {path} does not exist.")
        self.delete(handle.container, handle.name, kinds[0] if kinds else object)

    def cleanup(self, container: str) -> None:
        """Remove a container with its resources.  Unknown containers are ignored."""
        if container in self._containers:
            with self._lock:
                removed = self._containers.pop(container, {})
            _close_all(removed.values())

    def tensors_of_step(self, step_id: int) -> Iterator[Any]:
        """The tensors in the resources of a step's container, of those that have a property `tensors`; a resource's
        list as a whole, with what it has in place of absent tensors.
        """
        for resource in list(self._containers.get(step_container(step_id), {}).values()):
            tensors = getattr(resource, "tensors", ())
            if isinstance(tensors, list):
                yield tensors
            else:
                yield from tensors

    def cleanup_step(self, step_id: int) -> None:
        """Remove the container of a step, if the step made one."""
        self.cleanup(step_container(step_id))

    def clear(self) -> None:
        """Remove everything.  Whatever waits on a resource must have been cancelled before."""
        with self._lock:
            removed, self._containers = self._containers, {}
        _close_all([resource for table in removed.values() for resource in table.values()])

    def resources(self) -> list[ResourceInfo]:
        """All resources, sorted by container and name."""
        with self._lock:
            entries = [(c, key, resource) for c, table in self._containers.items() for key, resource in table.items()]
        listing = [ResourceInfo(c, name, TypeIndex.of(kind).name, repr(r)) for c, (kind, name), r in entries]
        return sorted(listing, key=lambda info: (info.container, info.name, info.type_name))

    def statistics(self) -> ResourceManagerStatistics:
        with self._lock:
            kinds = [TypeIndex.of(kind).name for table in self._containers.values() for kind, _ in table]
            return ResourceManagerStatistics(
                len(self._containers), len(kinds), {kind: kinds.count(kind) for kind in sorted(set(kinds))}
            )

    def __repr__(self) -> str:
        statistics = self.statistics()
        return f"<ResourceManager {statistics.containers} containers, {statistics.resources} resources>"


def _path(container: str, name: str, kind: type) -> str:
    return f"{container}/{name}/{TypeIndex.of(kind).name}"


def _close_all(resources: Iterable[Any]) -> None:
    """Close all resources that have `close`, even if some raise; then raise the first error."""
    failed: BaseException | None = None
    for resource in resources:
        close = getattr(resource, "close", None)
        if close is None:
            continue
        try:
            close()
        except Exception as error:
            logger.exception("closing %r failed", resource)
            failed = failed or error
    if failed is not None:
        raise failed
