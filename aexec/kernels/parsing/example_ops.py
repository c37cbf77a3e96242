"""Parses Example protos into tensors: whole batches, and single ones.

The extension in C, or protobuf, reads the messages; the checks and the errors' words are those of TensorFlow's fast
parser.  Next to read: `example_records.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Generic, TypeVar

import numpy as np

from aexec import native
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.strings import string_cost, values_of
from aexec.kernels.parsing import example_records as example
from aexec.kernels.parsing.example_records import DenseFeature, Features
from aexec.kernels.parsing.feature_columns import Column, as_ragged, as_sparse, read_columns

__all__ = ["ParsedExamples", "parse_ns"]

_EXAMPLE_NS, _FEATURE_NS, _BYTE_NS = 2_000.0, 900.0, 5.0
# The same for a batch that the extension reads.
_EXAMPLE_NS_IN_C, _FEATURE_NS_IN_C, _BYTE_NS_IN_C = 200.0, 120.0, 0.5
# Least bytes for protobuf to read an example.
_RECORD_BYTES = 1500
# Elements of keys and defaults that are kept from call to call, at most.
_MOST_REMEMBERED = 1000

T = TypeVar("T")


def _cost(features: Callable[..., int]) -> Callable[..., float]:
    """Nanoseconds; `features` computes from the inputs how many features are parsed."""

    return lambda serialized, *rest: parse_ns(serialized, features(*rest))


def parse_ns(serialized: Any, num_features: int) -> float:
    """Estimated nanoseconds to parse serialised examples."""
    if native.records is None or not serialized.ndim:
        return string_cost(_EXAMPLE_NS + _FEATURE_NS * num_features, _BYTE_NS)(serialized)
    return string_cost(_EXAMPLE_NS_IN_C + _FEATURE_NS_IN_C * num_features, _BYTE_NS_IN_C)(serialized)


class ParsedExamples:
    """Serialised examples, parsed, with their names for messages.

    Args:
        serialized, names: vectors of strings; there may be no names.
        features: the key and the type of all features that are asked for.
    """

    def __init__(self, serialized: Any, names: Any, features: Sequence[tuple[str, DType]]) -> None:
        if names.size and names.shape != serialized.shape:
            raise errors.InvalidArgumentError(
                f"Expected names have the same shape as serialized: name.shape={shape_text(names.shape)}, "
                f"serialized.shape={shape_text(serialized.shape)}"
            )
        self._names = values_of(names)
        data = values_of(serialized)
        columns = read_columns(data, features)
        self._columns = None if columns is None else dict(zip(features, columns, strict=True))
        self._examples: list[Features] = []
        if columns is None:
            announce_scratch(_RECORD_BYTES * len(data))
            self._examples = [example.parse_example(one) for one in giving_way(data, _EXAMPLE_NS)]

    def name(self, i: int) -> str:
        return example.printable(self._names[i]) if self._names else "<unknown>"

    def where(self, i: int, key: str) -> str:
        return f"Name: {self.name(i)}, Key: {key}, Index: {i}.  "

    def column(self, key: str, dtype: DType, expected: str = "Expected type: {0}, Actual type: {1}") -> Column:
        """The values of a feature in every example.

        Raises:
            InvalidArgumentError: they have another type; `expected` says so, given both types.
        """
        if self._columns is not None:
            return self._columns[key, dtype]

        def mismatch(i: int, kind: DType) -> str:
            return f"{self.where(i, key)}Data types don't match. {expected.format(dtype, kind)}"

        return Column.of_rows(example.values_in(self._examples, key, dtype, mismatch), dtype)

    def dense(self, feature: DenseFeature, allocate: Any) -> Any:
        """Return [examples, *shape of the feature]."""
        column = self.column(feature.key, feature.dtype, "Data type: {1} but expected type: {0}")
        if feature.is_variable:
            return self._variable(feature, column, allocate)
        lengths = column.lengths
        result = allocate((len(lengths), *feature.shape))
        if (lengths == feature.stride).all():
            result[...] = column.values.reshape(result.shape)
            return result
        present = lengths >= 0
        wrong = (present & (lengths != feature.stride)) if feature.default is not None else lengths != feature.stride
        if wrong.any():
            self._refuse(feature, int(wrong.argmax()), lengths)
        result[present] = column.values.reshape(int(present.sum()), *feature.shape)
        result[~present] = feature.default
        return result

    def _refuse(self, feature: DenseFeature, i: int, lengths: Any) -> None:
        """Raise InvalidArgumentError for example `i`, which has no or too many or too few values."""
        if lengths[i] < 0:
            raise errors.InvalidArgumentError(
                f"Name: {self.name(i)}, Feature: {feature.key} (data type: {feature.dtype}) is required but could not "
                "be found."
            )
        raise errors.InvalidArgumentError(
            f"{self.where(i, feature.key)}Number of {feature.dtype} values != expected.  "
            f"Values size: {lengths[i]} but output shape: {feature.shape_text}"
        )

    def _variable(self, feature: DenseFeature, column: Column, allocate: Any) -> Any:
        stride, sizes = feature.stride, column.sizes
        uneven = sizes % stride != 0 if stride else sizes > 0
        if uneven.any():
            i = int(uneven.argmax())
            raise errors.InvalidArgumentError(
                f"{self.where(i, feature.key)}Number of {feature.dtype} values is not a multiple of stride length. "
                f"Saw {sizes[i]} values but output shape is: {feature.shape_text}"
            )
        longest = int(sizes.max(initial=0)) // stride if stride else 0
        result = allocate((len(sizes), longest, *feature.shape[1:]))
        result[...] = feature.default.reshape(())
        if result.size:
            announce_scratch(result.size)
            taken = np.arange(longest * stride) < sizes[:, None]
            result.reshape(taken.shape)[taken] = column.values
        return result


def _one_dense(features: Features, feature: DenseFeature) -> Any:
    """The values of a dense feature of the single parsed example, in its shape."""

    def mismatch(_: int, kind: DType) -> str:
        return f"Key: {feature.key}.  Data types don't match. Data type: {kind} but expected type: {feature.dtype}"

    (row,) = example.values_in([features], feature.key, feature.dtype, mismatch)
    inner = tuple(size for size in feature.shape if size is not None)
    if row is None:
        if feature.is_variable:
            return np.empty((0, *inner), feature.dtype.np)
        if feature.default is None:
            raise errors.InvalidArgumentError(
                f"Feature: {feature.key} (data type: {feature.dtype}) is required but could not be found."
            )
        return feature.default
    values, stride = example.joined([row], feature.dtype), feature.stride
    if feature.is_variable:
        if values.size % stride if stride else values.size:
            raise errors.InvalidArgumentError(
                f"Error while parsing feature with key {feature.key}: number of elements should be divisible by "
                f"{stride}, found {values.size} instead"
            )
        return values.reshape(values.size // stride if stride else 0, *inner)
    if values.size != stride:
        kind = {"float": "float_list", "int64": "int64_list", "string": "bytes_list"}[str(feature.dtype)]
        problem = f"Some {kind} slice was not parsed." if values.size > stride or values.size else ""
        raise errors.InvalidArgumentError(f"Key: {feature.key}.  Can't parse serialized Example: {problem}".rstrip())
    return values.reshape(inner)


def _one_sparse(features: Features, key: str, dtype: DType) -> Any:
    """The values of a sparse or ragged feature of the single parsed example."""

    def mismatch(_: int, kind: DType) -> str:
        return f"Key: {key}.  Data types don't match. Expected type: {dtype}, Actual type: {kind}"

    return example.joined(example.values_in([features], key, dtype, mismatch), dtype)


def _flat(groups: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(output for group in groups for output in group)


class _Remembered(Generic[T]):
    """What was computed of the arrays of the last call, which are the same constants at each call of most graphs.

    Args:
        compute: called with the arrays.
    """

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        self._last: tuple[tuple[Any, ...], T] | None = None

    def of(self, *arrays: Any) -> T:
        """What `compute` returns for these arrays, which stay referred to, so that nobody changes them."""
        last = self._last
        if last is not None and all(map(is_, last[0], arrays)):
            return last[1]
        found = self._compute(*arrays)
        self._last = (arrays, found) if sum([array.size for array in arrays]) <= _MOST_REMEMBERED else None
        return found


class _Parser:
    """The part that the ops share: outputs of sparse, dense and ragged features."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.sparse_types: list[DType] = c.attr("sparse_types")
        self.dense_types: list[DType] = c.attr("Tdense")
        self.dense_shapes = c.attr("dense_shapes")
        example.check_shapes(self.dense_shapes, self.dense_types)
        self.ragged_types: list[tuple[DType, DType]] = []
        if "ragged_value_types" in c.attrs:
            values, splits = c.attr("ragged_value_types"), c.attr("ragged_split_types")
            if len(values) != len(splits):
                raise errors.InvalidArgumentError("len(ragged_value_types) != len(ragged_split_types)")
            self.ragged_types = list(zip(values, splits, strict=True))
        first = c.output_range("dense_values")[0]
        self._allocate = [allocator(c, first + i) for i in range(len(self.dense_types))]

    def dense_features(self, keys: Sequence[bytes], defaults: Sequence[Any]) -> list[DenseFeature]:
        return example.dense_features(example.key_texts(keys), self.dense_types, self.dense_shapes, defaults)

    def batch(
        self,
        serialized: Any,
        names: Any,
        sparse: Sequence[bytes],
        dense: Sequence[DenseFeature],
        ragged: Sequence[bytes],
    ) -> Any:
        """Outputs for a batch."""
        sparse_features = list(zip(example.key_texts(sparse), self.sparse_types, strict=True))
        ragged_keys = example.key_texts(ragged)
        ragged_features = list(zip(ragged_keys, [values for values, _ in self.ragged_types], strict=True))
        dense_features = [(feature.key, feature.dtype) for feature in dense]
        batch = ParsedExamples(serialized, names, [*dense_features, *sparse_features, *ragged_features])
        dense_values = [batch.dense(f, allocate) for f, allocate in zip(dense, self._allocate, strict=True)]
        sparse_parts = [as_sparse(batch.column(*feature)) for feature in sparse_features]
        ragged_parts = [
            as_ragged(batch.column(*feature), splits)
            for feature, (_, splits) in zip(ragged_features, self.ragged_types, strict=True)
        ]
        return self._outputs(sparse_parts, dense_values, ragged_parts)

    def single(
        self, data: bytes, sparse: Sequence[bytes], dense: Sequence[DenseFeature], ragged: Sequence[bytes] = ()
    ) -> Any:
        """Outputs for one example, without the batch dimension."""
        features = example.parse_example(data)
        dense_values = [_one_dense(features, feature) for feature in dense]
        sparse_values = [
            _one_sparse(features, key, dtype)
            for key, dtype in zip(example.key_texts(sparse), self.sparse_types, strict=True)
        ]
        sparse_parts = [
            (np.arange(len(values)).reshape(-1, 1), values, np.array([len(values)], np.int64))
            for values in sparse_values
        ]
        ragged_parts = [
            (_one_sparse(features, key, values), np.empty(0, splits.np))
            for key, (values, splits) in zip(example.key_texts(ragged), self.ragged_types, strict=True)
        ]
        return self._outputs(sparse_parts, dense_values, ragged_parts)

    def _outputs(self, sparse: Sequence[Any], dense: Sequence[Any], ragged: Sequence[Any]) -> Any:
        return (*_flat(list(zip(*sparse, strict=True))), *dense, *_flat(list(zip(*ragged, strict=True))))


@kernel("ParseExample", cost=_cost(lambda _names, *keys_and_defaults: len(keys_and_defaults)))
def parse_example(c: OpKernelConstruction) -> Compute:
    """Parses a batch of examples: sparse features to sparse matrices, dense ones to a row for each example."""
    parser = _Parser(c)
    ranges = [c.input_range(name) for name in ("sparse_keys", "dense_keys", "dense_defaults")]

    def compute(*inputs: Any) -> Any:
        serialized, names = inputs[:2]
        sparse, dense, defaults = (inputs[start:stop] for start, stop in ranges)
        for name, keys in (("sparse_keys", sparse), ("dense_keys", dense)):
            for i, key in enumerate(keys):
                if key.ndim:
                    raise errors.InvalidArgumentError(
                        f"Expected {name}[{i}] to be a scalar, got shape: {shape_text(key.shape)}"
                    )
        if serialized.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Expected serialized to be a vector, got shape: {shape_text(serialized.shape)}"
            )
        features = parser.dense_features([key.item() for key in dense], defaults)
        return parser.batch(serialized, names, [key.item() for key in sparse], features, ())

    return compute


@kernel("ParseExampleV2", cost=_cost(lambda _names, *keys: sum(k.size for k in keys[:3])))
def parse_example_v2(c: OpKernelConstruction) -> Compute:
    """Like `parse_example`, with ragged features, too; a scalar is one example."""
    parser = _Parser(c)
    if c.attr("num_sparse") != len(parser.sparse_types):
        raise errors.InvalidArgumentError("len(sparse_keys) != len(sparse_types)")

    def checked(
        sparse: Any, dense: Any, ragged: Any, *defaults: Any
    ) -> tuple[list[bytes], list[DenseFeature], list[bytes]]:
        counts = (len(parser.sparse_types), len(parser.dense_types), len(parser.ragged_types))
        for name, keys, count in zip(("sparse", "dense", "ragged"), (sparse, dense, ragged), counts, strict=True):
            if keys.ndim != 1 or keys.size != count:
                raise errors.InvalidArgumentError(
                    f"Expected len({name}_keys) == {count}, got shape {shape_text(keys.shape)}"
                )
        return values_of(sparse), parser.dense_features(values_of(dense), defaults), values_of(ragged)

    features = _Remembered(checked)

    def compute(serialized: Any, names: Any, *keys_and_defaults: Any) -> Any:
        if serialized.ndim > 1:
            raise errors.InvalidArgumentError(
                f"Expected serialized to be a scalar or vector, got shape: {shape_text(serialized.shape)}"
            )
        sparse, dense, ragged = features.of(*keys_and_defaults)
        if serialized.ndim:
            return parser.batch(serialized, names, sparse, dense, ragged)
        return parser.single(serialized.item(), sparse, dense, ragged)

    return compute


@kernel("ParseSingleExample", cost=_cost(lambda *defaults: 10 + len(defaults)))
def parse_single_example(c: OpKernelConstruction) -> Compute:
    """Parses one example; the keys are attrs."""
    parser = _Parser(c)
    sparse, dense = c.attr("sparse_keys"), c.attr("dense_keys")
    if not c.attr("num_sparse") == len(sparse) == len(parser.sparse_types):
        raise errors.InvalidArgumentError(
            f"num_sparse ({c.attr('num_sparse')}) must match the size of sparse_keys ({len(sparse)}) and "
            f"sparse_types ({len(parser.sparse_types)})"
        )
    if len(dense) != len(parser.dense_types):
        raise errors.InvalidArgumentError("len(dense_keys) != len(dense_types)")

    def compute(serialized: Any, *defaults: Any) -> Any:
        if serialized.ndim:
            raise errors.InvalidArgumentError(
                f"Expected serialized to be a scalar, got shape: {shape_text(serialized.shape)}"
            )
        return parser.single(serialized.item(), sparse, parser.dense_features(dense, defaults))

    return compute
