"""`TensorMap`: an immutable map from tensors to tensors, carried in a variant.

As with a `TensorList`, a change makes a new map that shares the tensors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np

from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import DEFAULT, giving_way, let_others_run
from aexec.framework.wire.variant import VariantTensorData, register_variant

__all__ = ["TensorMap"]

# A key with more elements than this is identified by a digest, not by a copy.
_FEW = 1024
# Nanoseconds to add an element to a digest, and a byte of a string.
_DIGEST_NS, _BYTE_NS = 50.0, 1.0
_PIECE = DEFAULT.pieces(_DIGEST_NS)


@register_variant
class TensorMap:
    """Values by keys; keys are equal if type, shape and elements are.

    Attributes:
        items: identity of the key → (key, value), in the order in which they were added.
    """

    __slots__ = ("items",)

    type_name = "tensorflow::TensorMap"

    def __init__(self, items: dict[Hashable, tuple[Any, Any]] | None = None) -> None:
        """`items` are kept, not copied."""
        self.items = items or {}

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, key: Any) -> bool:
        return _identity(key) in self.items

    @property
    def tensors(self) -> Iterator[Any]:
        """Keys and values."""
        return chain.from_iterable(self.items.values())

    @property
    def keys(self) -> list[Any]:
        return [key for key, _ in self.items.values()]

    def get(self, key: Any) -> Any:
        """The value of a key, or None."""
        found = self.items.get(_identity(key))
        return None if found is None else found[1]

    def with_item(self, key: Any, value: Any) -> TensorMap:
        """The map with this value for the key, replacing an earlier one."""
        return TensorMap({**self.items, _identity(key): (key, value)})

    def without(self, key: Any) -> TensorMap:
        """The map without a key that it has."""
        items = dict(self.items)
        del items[_identity(key)]
        return TensorMap(items)

    def __repr__(self) -> str:
        return f"<TensorMap of {len(self)}>"

    # Wire form: keys and values alternate.

    def encode(self) -> VariantTensorData:
        """Encode it as TensorFlow writes maps to checkpoints."""
        return VariantTensorData(self.type_name, tensors=list(self.tensors))

    @classmethod
    def decode(cls, data: VariantTensorData) -> TensorMap:
        """The inverse of `encode`.  Raises ValueError for a key without a value."""
        pairs = zip(data.tensors[::2], data.tensors[1::2], strict=True)
        return cls({_identity(key): (key, value) for key, value in pairs})


def _identity(key: Any) -> Hashable:
    """A value that is equal for equal keys: a copy of the elements; for many elements a digest, which is made in a
    thread.
    """
    array = np.asarray(key)
    if array.size > _FEW and (array.dtype != object or type(array.flat[0]) is bytes):
        check_inline(array.size * _DIGEST_NS)
        if array.dtype == object and array.size <= _PIECE:  # larger arrays were refused above on the event loop
            check_inline(sum(map(len, array.flat)) * _BYTE_NS)
        elements: Hashable = _digest(array)
    else:
        elements = tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
    return array.dtype.str, array.shape, elements


def _digest(array: Any) -> bytes:
    """A digest of numbers or strings, made in pieces: Python's own hash would hold the interpreter's lock for all of
    them.
    """
    digest = blake2b()
    flat = array.ravel() if array.flags.c_contiguous else array.flat
    for start in range(0, array.size, _PIECE):
        some = flat[start : start + _PIECE]
        if array.dtype == object:
            strings = some.tolist()
            lengths = np.fromiter(map(len, strings), np.int64, len(strings))
            digest.update(lengths.tobytes())
            # One by one: joined they could need any amount of memory, since one string may be at all places.
            for string in giving_way(strings, _DIGEST_NS + _BYTE_NS * lengths.mean()):
                digest.update(string)
        else:
            digest.update(some.view(np.uint8))
        let_others_run()
    return digest.digest()
