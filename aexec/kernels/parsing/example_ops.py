"""Parses Example protos into tensors: whole batches, and single ones.

protobuf reads the messages; the checks and the errors' words are those of TensorFlow's fast parser.
Next to read: `example_records.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Generic, TypeVar

import numpy as np

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

__all__ = ["ParsedExamples", "parse_ns"]

_EXAMPLE_NS, _FEATURE_NS, _BYTE_NS = 2_000.0, 900.0, 5.0
# Least bytes to read an example; nanoseconds for its values of one feature.
_RECORD_BYTES, _ROW_NS = 1500, 500.0
# Elements of keys and defaults that are kept from call to call, at most.
_MOST_REMEMBERED = 1000

T = TypeVar("T")


def _cost(features: Callable[..., int]) -> Callable[..., float]:
    """Nanoseconds; `features` computes from the inputs how many features are parsed."""

    return lambda serialized, *rest: parse_ns(serialized, features(*rest))


def parse_ns(serialized: Any, num_features: int) -> float:
    """Estimated nanoseconds to parse serialised examples."""
    return string_cost(_EXAMPLE_NS + _FEATURE_NS * num_features, _BYTE_NS)(serialized)


class ParsedExamples:
    """Serialised examples, parsed, with their names for messages."""

    def __init__(self, serialized: Any, names: Any) -> None:
        if names.size and names.shape != serialized.shape:
            raise errors.InvalidArgumentError(
                f"Expected names have the same shape as serialized: name.shape={shape_text(names.shape)}, "
                f"serialized.shape={shape_text(serialized.shape)}"
            )
        self._names = values_of(names)
        announce_scratch(_RECORD_BYTES * serialized.size)
        self.examples = [example.parse_example(data) for data in giving_way(values_of(serialized), _EXAMPLE_NS)]

    def name(self, i: int) -> str:
        return example.printable(self._names[i]) if self._names else "<unknown>"

    def where(self, i: int, key: str) -> str:
        return f"Name: {self.name(i)}, Key: {key}, Index: {i}.  "

    def rows(self, key: str, dtype: DType) -> list[Any]:
        """The values of a sparse or ragged feature in every example."""

        def mismatch(i: int, kind: DType) -> str:
            return f"{self.where(i, key)}Data types don't match. Expected type: {dtype}, Actual type: {kind}"

        return example.values_in(self.examples, key, dtype, mismatch)

    def dense(self, feature: DenseFeature, allocate: Any) -> Any:
        """Return [examples, *shape of the feature]."""
        key, dtype, stride = feature.key, feature.dtype, feature.stride

        def mismatch(i: int, kind: DType) -> str:
            return f"{self.where(i, key)}Data types don't match. Data type: {kind} but expected type: {dtype}"

        rows = example.values_in(self.examples, key, dtype, mismatch)
        if feature.is_variable:
            return self._variable(feature, rows, allocate)
        result = allocate((len(rows), *feature.shape))
        sizes = example.lengths_of(rows)
        if None not in rows and sizes.count(stride) == len(rows):
            result[...] = example.joined(rows, dtype).reshape(result.shape)
            return result
        present = []
        for i, (row, size) in enumerate(giving_way(zip(rows, sizes, strict=True), _ROW_NS)):
            if row is not None:
                if size != stride:
                    raise errors.InvalidArgumentError(
                        f"{self.where(i, key)}Number of {dtype} values != expected.  "
                        f"Values size: {size} but output shape: {feature.shape_text}"
                    )
                present.append(i)
            elif feature.default is None:
                raise errors.InvalidArgumentError(
                    f"Name: {self.name(i)}, Feature: {key} (data type: {dtype}) is required but could not be found."
                )
            else:
                result[i, ...] = feature.default  # an element of an object array would become a 0-d array
        values = example.joined(rows, dtype).reshape(len(present), *feature.shape)
        result[... if len(present) == len(rows) else present] = values
        return result

    def _variable(self, feature: DenseFeature, rows: Sequence[Any], allocate: Any) -> Any:
        stride = feature.stride
        sizes = example.lengths_of(rows)
        for i, size in enumerate(giving_way(sizes, _ROW_NS)):
            if size % stride if stride else size:
                raise errors.InvalidArgumentError(
                    f"{self.where(i, feature.key)}Number of {feature.dtype} values is not a multiple of stride length. "
                    f"Saw {size} values but output shape is: {feature.shape_text}"
                )
        longest = max(sizes, default=0) // stride if stride else 0
        result = allocate((len(rows), longest, *feature.shape[1:]))
        result[...] = feature.default.reshape(())
        flat = result.reshape(len(rows), -1) if result.size else result
        for i, row in enumerate(giving_way(rows, _ROW_NS)):
            if sizes[i]:
                flat[i, : sizes[i]] = example.joined([row], feature.dtype)
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
        self, batch: ParsedExamples, sparse: Sequence[bytes], dense: Sequence[DenseFeature], ragged: Sequence[bytes]
    ) -> Any:
        """Outputs for a batch."""
        dense_values = [batch.dense(f, allocate) for f, allocate in zip(dense, self._allocate, strict=True)]
        sparse_parts = [
            example.as_sparse(batch.rows(key, dtype), dtype)
            for key, dtype in zip(example.key_texts(sparse), self.sparse_types, strict=True)
        ]
        ragged_parts = [
            example.as_ragged(batch.rows(key, values), values, splits)
            for key, (values, splits) in zip(example.key_texts(ragged), self.ragged_types, strict=True)
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
        return parser.batch(ParsedExamples(serialized, names), [key.item() for key in sparse], features, ())

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
            return parser.batch(ParsedExamples(serialized, names), sparse, dense, ragged)
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
