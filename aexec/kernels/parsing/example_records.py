"""Features of Example protos as arrays: checks of the configuration, and values gathered over a batch.

A feature is dense (every example has the same number of values, in a given shape), dense of variable length (its first
dimension is unknown; short ones are padded), sparse, or ragged.
Next to read: `feature_columns.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import Growth
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.strings import array_of

__all__ = [
    "KEY_NS",
    "DenseFeature",
    "Features",
    "Values",
    "check_shapes",
    "dense_features",
    "joined",
    "key_texts",
    "lengths_of",
    "parse_example",
    "parse_message",
    "printable",
    "values_in",
    "values_of_features",
]

# Nanoseconds for a key.
KEY_NS = 1000.0
# Nanoseconds for a list of values.
_ROW_NS = 100.0

Features = Mapping[str, Any]
Values = list[Any]

_KINDS: dict[str, DType] = {"bytes_list": dtypes.string, "float_list": dtypes.float32, "int64_list": dtypes.int64}
_FIELDS = {dtype: field for field, dtype in _KINDS.items()}
_LISTS = {field: attrgetter(f"{field}.value") for field in _KINDS}


def key_texts(keys: Iterable[bytes]) -> list[str]:
    """Keys as protobuf has them; a key that is not UTF-8 is in no message, and so is replaced.

    Raises ResourceExhaustedError if there is no memory for them: one string may have become a million keys.
    """
    growth, texts = Growth(), []
    for key in giving_way(keys, KEY_NS):
        growth.add(len(key) + STRING_BYTES)
        texts.append(key.decode("utf-8", "replace"))
    return texts


def parse_message(kind: Any, data: bytes, complaint: Callable[[bytes], str]) -> Any:
    """A message of that class.  Raises InvalidArgumentError with `complaint(data)` if the data are malformed."""
    try:
        return kind.FromString(data)
    except Exception as e:  # protobuf's DecodeError differs between its implementations
        raise errors.InvalidArgumentError(complaint(data)) from e


def parse_example(data: bytes) -> Features:
    """The features of a serialised Example, by key."""
    message = parse_message(proto.Example, data, lambda d: f"Could not parse example input, value: '{printable(d)}'")
    features: Features = message.features.feature
    return features


def printable(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def values_in(
    examples: Iterable[Features], key: str, dtype: DType, mismatch: Callable[[int, DType], str]
) -> list[Values | None]:
    """Return the values of one feature in each example, None if it is missing.

    They stay Python objects, so that those of all examples become one array at once: see `joined`.

    Raises:
        InvalidArgumentError: a value has another type; the text is `mismatch(number of the example, type)`.
    """
    found = [features.get(key) for features in giving_way(examples, KEY_NS)]
    return values_of_features(found, dtype, mismatch)


def values_of_features(
    features: Iterable[Any], dtype: DType, mismatch: Callable[[int, DType], str]
) -> list[Values | None]:
    """Return the values of features, with None for missing ones; see `values_in`."""
    found = list(features)
    wanted = _FIELDS[dtype]
    values = _LISTS[wanted]
    # A slice, since iterating takes three times as long.
    rows: list[Values | None] = [
        None if feature is None else values(feature)[:] for feature in giving_way(found, KEY_NS)
    ]
    if all(rows):
        return rows
    for i, (feature, row) in enumerate(giving_way(zip(found, rows, strict=True), KEY_NS)):
        if row == []:  # it has no values, or values of another type, or no type
            kind = feature.WhichOneof("kind")
            if kind is None:
                rows[i] = None
            elif kind != wanted:
                raise errors.InvalidArgumentError(mismatch(i, _KINDS[kind]))
    return rows


def joined(rows: Iterable[Values | None], dtype: DType) -> Any:
    """All values in one vector."""
    return array_of(list(chain.from_iterable(filter(None, rows))), dtype.np)


def lengths_of(rows: Sequence[Values | None]) -> list[int]:
    """The number of values of each, 0 for None."""
    return [len(row) if row else 0 for row in giving_way(rows, _ROW_NS)]


# ---- Dense features


@dataclass(frozen=True)
class DenseFeature:
    """The properties of a dense feature that are known before examples are read.

    Attributes:
        key: its name.
        dtype: of its values.
        shape: of one example's; the first dimension may be None.
        default: for examples without it; a scalar filler if the length is variable; None if it is required.
        is_variable: the first dimension is None.
        stride: values per element of the first dimension, or of the whole if its length is fixed.
    """

    key: str
    dtype: DType
    shape: tuple[int | None, ...]
    default: Any

    is_variable: bool = field(init=False)
    stride: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_variable", bool(self.shape) and self.shape[0] is None)
        object.__setattr__(self, "stride", math.prod(size for size in self.shape if size is not None))

    @property
    def shape_text(self) -> str:
        return shape_text("?" if size is None else size for size in self.shape)


def check_shapes(shapes: Sequence[PartialTensorShape], types: Sequence[DType]) -> None:
    """Raise InvalidArgumentError for a shape of which more than the first dimension is unknown."""
    if len(shapes) != len(types):
        raise errors.InvalidArgumentError("len(dense_keys) != len(dense_shapes)")
    for i, shape in enumerate(shapes):
        if shape.dims is None or any(size is None for size in shape.dims[1:]):
            raise errors.InvalidArgumentError(
                f"dense_shapes[{i}] has unknown rank or unknown inner dimensions: {shape}"
            )


def dense_features(
    keys: Sequence[str], types: Sequence[DType], shapes: Sequence[PartialTensorShape], defaults: Sequence[Any]
) -> list[DenseFeature]:
    """Dense features with their defaults.  Raises InvalidArgumentError for a default that does not match."""
    if len(keys) != len(types) or len(defaults) != len(types):
        raise errors.InvalidArgumentError(f"Expected len(dense_keys) == {len(types)}, got {len(keys)}")
    found = []
    for i, (key, dtype, shape, default) in enumerate(zip(keys, types, shapes, defaults, strict=True)):
        feature = DenseFeature(key, dtype, shape.dims or (), default if default.size else None)
        if feature.is_variable:
            if default.size != 1:
                raise errors.InvalidArgumentError(
                    f"dense_shape[{i}] is a variable length shape: {feature.shape_text}, therefore def_value[{i}] "
                    f"must contain a single element (the padding element).  But its shape is: "
                    f"{shape_text(default.shape)}"
                )
        elif default.size and default.shape != feature.shape:
            raise errors.InvalidArgumentError(
                f"def_value[{i}].shape() == {shape_text(default.shape)} is not compatible with "
                f"dense_shapes_[{i}] == {feature.shape_text}"
            )
        found.append(feature)
    return found
