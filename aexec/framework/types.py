"""Small types that many parts share: memory and device types, frame tags, type groups, type identity.

Data types are in `dtypes.py`; device names in `device_contract/device_name.py`.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.late_dataclass import dataclass

__all__ = [
    "DEVICE_CPU",
    "DEVICE_GPU",
    "TYPE_GROUPS",
    "DeviceType",
    "FrameAndIter",
    "MemoryType",
    "TypeIndex",
    "device_types",
    "frame_id_of",
    "is_complex",
    "is_quantized",
    "is_signed",
    "is_simple_type",
    "proxy_dtype",
    "proxy_view",
    "register_device_type",
    "register_types",
]


# Memory and devices


class MemoryType(enum.IntEnum):
    """The memory in which a kernel wants an input, or puts an output."""

    DEVICE_MEMORY = 0
    HOST_MEMORY = 1


class DeviceType(str):
    """A type of device, such as `CPU`.  A string, so that it compares and prints as one.

    Attributes:
        priority: preference in placement among the devices that can run a node, higher first.
    """

    __slots__ = ("priority",)

    priority: int

    def __new__(cls, name: str, priority: int = 0) -> DeviceType:
        self = super().__new__(cls, name)
        self.priority = priority
        return self

    def __repr__(self) -> str:
        return f"DeviceType({str(self)!r}, priority={self.priority})"


_device_types: dict[str, DeviceType] = {}


def register_device_type(name: str, priority: int) -> DeviceType:
    """Register a device type.  Registering it again with the same priority returns the first.

    Raises:
        AlreadyExistsError: it is registered with another priority.
    """
    known = _device_types.setdefault(name, DeviceType(name, priority))
    if known.priority != priority:
        raise errors.AlreadyExistsError(
            f"Device type {name} is registered with priority {known.priority}, cannot change it to {priority}"
        )
    return known


def device_types() -> list[DeviceType]:
    """All registered types, the most preferred first, by name among equals."""
    return sorted(_device_types.values(), key=lambda t: (-t.priority, t))


DEVICE_CPU = register_device_type("CPU", 70)
DEVICE_GPU = register_device_type("GPU", 210)


# Frames

ILLEGAL_FRAME_ID = 2**64 - 1
ILLEGAL_ITER_ID = -1


class FrameAndIter(NamedTuple):
    """The iteration of a loop frame that a tensor or a call belongs to; (0, 0) is outside loops."""

    frame_id: int = ILLEGAL_FRAME_ID
    iter_id: int = ILLEGAL_ITER_ID

    @property
    def is_legal(self) -> bool:
        """False for the default, which means none."""
        return self.frame_id != ILLEGAL_FRAME_ID and self.iter_id != ILLEGAL_ITER_ID

    def __str__(self) -> str:
        return f"{self.frame_id}:{self.iter_id}"


def frame_id_of(parent: str | int, iteration: int, frame_name: str) -> int:
    """The id of the loop frame that is entered as `frame_name` from an iteration of another frame.

    It depends on the arguments only, so executors of different devices and processes agree on it.

    Args:
        parent: name or id of the frame that it is entered from.
        iteration: number of the iteration that it is entered from.
        frame_name: attr `frame_name` of the Enter nodes.
    """
    path = f"{parent};{iteration};{frame_name}"
    digest = hashlib.blake2b(path.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % (ILLEGAL_FRAME_ID - 1) + 1  # neither the root's 0 nor illegal


# Predicates


def is_quantized(dtype: Any) -> bool:
    """True for qint8, quint8, qint16, quint16, qint32.  Takes whatever `as_dtype` takes, as the others here."""
    return as_dtype(dtype).is_quantized


def is_complex(dtype: Any) -> bool:
    """True for complex64 and complex128."""
    return as_dtype(dtype).is_complex


def is_simple_type(dtype: Any) -> bool:
    """True if a buffer may be copied byte by byte: not for string, resource and variant."""
    return as_dtype(dtype).is_simple


def is_signed(dtype: Any) -> bool:
    """True if the type has negative numbers."""
    return as_dtype(dtype).is_signed


# Groups, named as register_types.h names its TF_CALL_<GROUP> macros

_NO_BFLOAT16 = tuple(t for t in dtypes.REAL_NUMBER if t is not dtypes.bfloat16)

TYPE_GROUPS: dict[str, tuple[DType, ...]] = {
    "INTEGRAL_TYPES": dtypes.INTEGRAL,
    "SIGNED_INTEGRAL_TYPES": dtypes.SIGNED_INTEGRAL,
    "UNSIGNED_INTEGRAL_TYPES": dtypes.UNSIGNED_INTEGRAL,
    "FLOAT_TYPES": dtypes.FLOAT,
    "COMPLEX_TYPES": dtypes.COMPLEX,
    "REAL_NUMBER_TYPES": dtypes.REAL_NUMBER,
    "REAL_NUMBER_TYPES_NO_BFLOAT16": _NO_BFLOAT16,
    "REAL_NUMBER_TYPES_NO_INT32": tuple(t for t in dtypes.REAL_NUMBER if t is not dtypes.int32),
    "NUMBER_TYPES": dtypes.NUMBER,
    "NUMBER_TYPES_NO_INT32": tuple(t for t in dtypes.NUMBER if t is not dtypes.int32),
    "POD_TYPES": dtypes.POD,
    "POD_STRING_TYPES": (*dtypes.POD, dtypes.string),
    "ALL_TYPES": dtypes.ALL,
    "GPU_NUMBER_TYPES": dtypes.GPU_NUMBER,
    "GPU_ALL_TYPES": (*dtypes.GPU_NUMBER, dtypes.bool_, dtypes.complex64, dtypes.complex128),
    "QUANTIZED_TYPES": dtypes.QUANTIZED,
    "SAVE_RESTORE_TYPES": (*_NO_BFLOAT16, dtypes.bool_, *dtypes.COMPLEX, dtypes.qint8, dtypes.quint8, dtypes.qint32),
}


def register_types(group: str, register: Callable[[DType], object]) -> None:
    """Call `register` with each type of a group, in order.

    Raises:
        NotFoundError: no group of that name.
    """
    if group not in TYPE_GROUPS:
        raise errors.NotFoundError(f"no type group {group!r}; there are {', '.join(TYPE_GROUPS)}")
    for dtype in TYPE_GROUPS[group]:
        register(dtype)


# Proxies: plain types of the same width are copied alike, so one routine per width is enough.

_PROXIES = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64, 16: dtypes.complex128}


def proxy_dtype(dtype: Any) -> DType:
    """The type that represents all plain types of this width (1, 2, 4, 8 or 16 bytes) in copies.

    Raises:
        InvalidArgumentError: string, resource or variant, which cannot be copied as bytes.
    """
    plain = as_dtype(dtype).base
    if not plain.is_simple:
        raise errors.InvalidArgumentError(f"{plain} has no proxy type: its elements are not plain bytes")
    return _PROXIES[plain.size]


def proxy_view(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a view of the array with the proxy type.  Raises InvalidArgumentError as `proxy_dtype`."""
    return array.view(proxy_dtype(array.dtype).np)


# Type identity

_hash_base = int.from_bytes(os.urandom(8)) >> 1
_numbers = itertools.count(1)
_type_indices: dict[type, TypeIndex] = {}


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """Identity of a class within this process, for handles and variants.

    Attributes:
        hash_code: unique per class; it differs in every process, so it has no meaning elsewhere.
        name: for errors: the class's `type_name` if it has one, else its name.
    """

    hash_code: int
    name: str

    @staticmethod
    def of(cls: type) -> TypeIndex:
        """The identity of a class."""
        known = _type_indices.get(cls)
        if known is None:
            name = getattr(cls, "type_name", cls.__name__)
            index = TypeIndex((_hash_base + next(_numbers)) % 2**63, name if isinstance(name, str) else cls.__name__)
            known = _type_indices.setdefault(cls, index)
        return known
