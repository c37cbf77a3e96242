"""`ResourceRecord`: a resource as plain tensors with a description; `record_of` makes one, `adopt_record` the resource.

There are records of variables, lookup tables and queues.  The arrays in a record never change: those of variables and
queues are the resource's own, which it replaces rather than writes to while the record holds them
(`framework/state/tensor_cell.py`); those of tables are copies.  Next to read: `session_recorder.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.framework.state.tensor_cell import TensorCell
from aexec.queues.batching import Element
from aexec.queues.kinds import queue_class
from aexec.queues.queue_base import QueueBase, QueueSpec
from aexec.resources.lookup_table import DenseHashTable, HashTable, LookupTable, MutableHashTable

__all__ = ["ResourceRecord", "adopt_record", "record_of", "version_of"]

_TABLES = {kind.__name__: kind for kind in (HashTable, MutableHashTable, DenseHashTable)}
# Elements of arrays of these types are Python objects of this process.
_OF_THIS_PROCESS = (dtypes.resource, dtypes.variant)


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """A resource at one moment.

    Attributes:
        kind: `variable`, `reference variable`, `table` or `queue`.
        container, name: its place in the resource manager.
        facts: what its tensors do not say, as values that JSON has.
        tensors: its values by name.
        elements: the elements of a queue; None for other kinds.
        version: compares equal to `version_of` the resource as long as it has not changed; of this process only.
    """

    kind: str
    container: str
    name: str
    facts: Mapping[str, Any]
    tensors: Mapping[str, Any]
    elements: Sequence[Element] | None = None
    version: Any = None


class _Kind(ABC):
    """How resources of one class are recorded."""

    name: str
    resource_type: type

    @abstractmethod
    def version(self, resource: Any) -> Any: ...

    @abstractmethod
    def record(self, container: str, name: str, resource: Any) -> ResourceRecord: ...

    @abstractmethod
    def make(self, record: ResourceRecord) -> Any: ...


class _Variables(_Kind):
    """Variables that are reached by handles.  The version is the value itself, which the record keeps unchanged."""

    name = "variable"
    resource_type: type = ResourceVariable

    def version(self, resource: TensorCell) -> Any:
        return _Identity(resource.value)

    def record(self, container: str, name: str, resource: TensorCell) -> ResourceRecord:
        value = resource.value
        _check_recordable(self.name, name, resource.dtype)
        if value is not None and type(value) is not np.ndarray:
            raise errors.UnimplementedError(
                f"The {self.name} '{name}' has its value in the memory of a device, and only values in the memory of "
                "the host can be recorded"
            )
        tensors = {} if value is None else {"value": value}
        return ResourceRecord(self.name, container, name, self._facts(resource), tensors, version=_Identity(value))

    def _facts(self, resource: Any) -> dict[str, Any]:
        return {"dtype": resource.dtype.name}

    def make(self, record: ResourceRecord) -> Any:
        return ResourceVariable(as_dtype(record.facts["dtype"]), record.tensors.get("value"))


class _ReferenceVariables(_Variables):
    """Variables of ref edges."""

    name = "reference variable"
    resource_type = RefCell

    def _facts(self, resource: RefCell) -> dict[str, Any]:
        return {"dtype": resource.dtype.name, "shape": _dims(resource.shape)}

    def make(self, record: ResourceRecord) -> Any:
        facts = record.facts
        return RefCell(as_dtype(facts["dtype"]), PartialTensorShape(facts["shape"]), record.tensors.get("value"))


class _Tables(_Kind):
    name = "table"
    resource_type = LookupTable

    def version(self, resource: LookupTable) -> Any:
        return resource.changes

    def record(self, container: str, name: str, resource: LookupTable) -> ResourceRecord:
        kind = type(resource).__name__
        _check_recordable(f"{kind}", name, resource.key_dtype, resource.value_dtype)
        if kind not in _TABLES:
            raise errors.UnimplementedError(f"The table '{name}' is a {kind}, which cannot be recorded")
        version, keys, values = resource.contents()
        filled = not isinstance(resource, HashTable) or resource.is_initialized
        facts = {
            "class": kind,
            "key_dtype": resource.key_dtype.name,
            "value_dtype": resource.value_dtype.name,
            "key_shape": list(resource.key_shape),
            "value_shape": list(resource.value_shape),
        }
        tensors = {"keys": keys, "values": values} if filled else {}
        if isinstance(resource, DenseHashTable):
            tensors |= {f"reserved key {i}": key for i, key in enumerate(resource.reserved_keys)}
        return ResourceRecord(self.name, container, name, facts, tensors, version=version)

    def make(self, record: ResourceRecord) -> LookupTable:
        facts, tensors = record.facts, record.tensors
        kind = _TABLES[facts["class"]]
        key, value = as_dtype(facts["key_dtype"]), as_dtype(facts["value_dtype"])
        table: LookupTable
        if kind is DenseHashTable:
            reserved = [tensors[f"reserved key {i}"] for i in range(2) if f"reserved key {i}" in tensors]
            table = DenseHashTable(key, value, tuple(facts["value_shape"]), *reserved)
        elif kind is HashTable:
            table = HashTable(key, value)
        else:
            table = MutableHashTable(key, value, tuple(facts["key_shape"]), tuple(facts["value_shape"]))
        if "keys" in tensors:
            table.fill(tensors["keys"], tensors["values"])
        return table


class _Queues(_Kind):
    name = "queue"
    resource_type = QueueBase

    def version(self, resource: QueueBase) -> Any:
        return resource.version

    def record(self, container: str, name: str, resource: QueueBase) -> ResourceRecord:
        spec = resource.spec
        _check_recordable(resource.kind, name, *spec.types)
        contents = resource.contents()
        facts = {
            "class": resource.kind,
            "types": [dtype.name for dtype in spec.types],
            "shapes": [_dims(shape) for shape in spec.shapes],
            "capacity": spec.capacity,
            "min_after_dequeue": spec.min_after_dequeue,
            "seed": spec.seed,
            "seed2": spec.seed2,
            "closed": contents.closed,
            "order": contents.order,
        }
        return ResourceRecord(self.name, container, name, facts, {}, contents.elements, contents.version)

    def make(self, record: ResourceRecord) -> QueueBase:
        facts = record.facts
        kind = queue_class(facts["class"])
        if kind is None:
            raise errors.NotFoundError(f"The queue '{record.name}' is a {facts['class']}, which is not registered here")
        spec = QueueSpec(
            tuple(map(as_dtype, facts["types"])),
            tuple(map(PartialTensorShape, facts["shapes"])),
            facts["capacity"],
            facts["min_after_dequeue"],
            facts["seed"],
            facts["seed2"],
        )
        queue = kind(record.name, spec)
        queue.fill(record.elements or (), facts["order"], closed=facts["closed"])
        return queue


class _Identity:
    """Equal to another one of the same object; keeps the object, so that no other can take its place."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is _Identity and other._value is self._value

    __hash__ = None  # type: ignore[assignment]  # values are compared, never looked up


_KINDS: tuple[_Kind, ...] = (_Variables(), _ReferenceVariables(), _Tables(), _Queues())
_BY_TYPE = {kind.resource_type: kind for kind in _KINDS}
_BY_NAME = {kind.name: kind for kind in _KINDS}


def version_of(resource_type: type, resource: Any) -> Any:
    """Compares equal to an earlier version only if the resource has not changed since.

    Args:
        resource_type: the class by which the resource manager finds it.

    Raises:
        UnimplementedError: there are no records of this class.
        PostponedError: on an event loop, while an update is under way.
    """
    return _kind_of(resource_type).version(resource)


def record_of(resource_type: type, container: str, name: str, resource: Any) -> ResourceRecord:
    """The record of a resource.

    Raises:
        UnimplementedError: there are no records of this class, or of its values.
        PostponedError, NeedsThreadError: on an event loop, while an update is under way, and for a large table.
    """
    return _kind_of(resource_type).record(container, name, resource)


def adopt_record(resources: ResourceManager, record: ResourceRecord) -> Any:
    """Make the resource of a record and add it; return it.

    Raises:
        NotFoundError: there are no such resources here.
        KeyError, InvalidArgumentError: a fact or a tensor is missing or does not fit.
        AlreadyExistsError: there is a resource of this name and class.
        ResourceExhaustedError: the session's limit does not allow it.
    """
    kind = _BY_NAME.get(record.kind)
    if kind is None:
        raise errors.NotFoundError(f"There are no records of kind {record.kind!r}")
    resource = kind.make(record)
    resources.adopt(record.container, record.name, resource, kind.resource_type)
    return resource


def _kind_of(resource_type: type) -> _Kind:
    kind = _BY_TYPE.get(resource_type)
    if kind is None:
        raise errors.UnimplementedError(f"A {resource_type.__name__} cannot be recorded")
    return kind


def _check_recordable(kind: str, name: str, *types: DType) -> None:
    for dtype in types:
        if dtype.base in _OF_THIS_PROCESS:
            raise errors.UnimplementedError(f"The {kind} '{name}' holds {dtype.base} values, which cannot be recorded")


def _dims(shape: PartialTensorShape) -> list[int | None] | None:
    return None if shape.dims is None else list(shape.dims)
