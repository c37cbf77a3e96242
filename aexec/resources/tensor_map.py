"""`TensorMap`: an immutable map from tensors to tensors, carried in a variant.

As a `TensorList`, a change makes a new map that shares the tensors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from aexec.framework.allocator import announce_scratch
from aexec.framework.inline_call import check_inline
from aexec.framework.loop_budget import COPY_NS
from aexec.framework.variant import VariantTensorData, register_variant

__all__ = ["TensorMap"]


@register_variant
class TensorMap:
    """Values by keys; keys are the same if type, shape and elements are.

    Attributes:
        items: in the order in which they came, by what tells their keys apart: key and value.
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
        """The value of a key, None without one."""
        found = self.items.get(_identity(key))
        return None if found is None else found[1]

    def with_item(self, key: Any, value: Any) -> TensorMap:
        """The map with this value for the key, whatever it had."""
        return TensorMap({**self.items, _identity(key): (key, value)})

    def without(self, key: Any) -> TensorMap:
        """The map without a key that it has."""
        items = dict(self.items)
        del items[_identity(key)]
        return TensorMap(items)

    def __repr__(self) -> str:
        return f"<TensorMap of {len(self)}>"

    # Wire form: keys and values by turns.

    def encode(self) -> VariantTensorData:
        """As TensorFlow writes maps to checkpoints."""
        return VariantTensorData(self.type_name, tensors=list(self.tensors))

    @classmethod
    def decode(cls, data: VariantTensorData) -> TensorMap:
        """Undo `encode`.  Raises ValueError for a key without a value."""
        pairs = zip(data.tensors[::2], data.tensors[1::2], strict=True)
        return cls({_identity(key): (key, value) for key, value in pairs})


def _identity(key: Any) -> Hashable:
    """What is equal for equal keys: a copy of its elements, to be made in a thread if they are many."""
    array = np.asarray(key)
    check_inline(array.nbytes * COPY_NS)
    announce_scratch(array.nbytes)
    elements = tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
    return array.dtype.str, array.shape, elements
