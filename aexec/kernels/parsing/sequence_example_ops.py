"""Parses SequenceExample protos into tensors: features of the whole (its context), and lists of features, step by step.

Next to read: `example_records.py`, then `example_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.strings import elements_of, string_cost, values_of
from aexec.kernels.parsing import example_records as example
from aexec.kernels.parsing.feature_columns import Column, as_ragged, as_sparse

__all__: list[str] = []

# Nanoseconds per serialised example, and per byte.
_COST = string_cost(40_000, 20)
# Least bytes and nanoseconds to read a record.
_RECORD_BYTES, _RECORD_NS = 2500, 40_000.0


@dataclass(frozen=True)
class _Keys:
    """The requested features.  A missing list of steps is an empty one if `assumed_empty` says so."""

    context_sparse: Sequence[str] = ()
    context_dense: Sequence[str] = ()
    context_ragged: Sequence[str] = ()
    list_sparse: Sequence[str] = ()
    list_dense: Sequence[str] = ()
    list_ragged: Sequence[str] = ()
    assumed_empty: frozenset[str] = frozenset()


class _Example:
    """A parsed SequenceExample.

    Args:
        name: for messages.
        shows_feature: messages end with the wrong feature.
    """

    def __init__(self, data: bytes, name: str, complaint: str, *, shows_feature: bool) -> None:
        message = example.parse_message(proto.SequenceExample, data, lambda _: complaint)
        self.name, self._shows_feature = name, shows_feature
        self._context = message.context.feature
        self._lists = message.feature_lists.feature_list

    def mismatch(self, what: str, dtype: DType, feature: Any) -> str:
        text = f"Name: {self.name}, {what}.  Data types don't match. Expected type: {dtype}"
        return f"{text}  Feature is: {feature}".rstrip() if self._shows_feature else text

    def context(self, key: str, dtype: DType) -> Any:
        """The values of a context feature, or None if it is missing."""

        def mismatch(_: int, _kind: DType) -> str:
            return self.mismatch(f"Context feature: {key}", dtype, self._context[key])

        return example.values_in([self._context], key, dtype, mismatch)[0]

    def steps(self, key: str, dtype: DType, what: str) -> list[Any] | None:
        """The values of each step, None for one without; None if there is no such list."""
        if key not in self._lists:
            return None
        features = self._lists[key].feature

        def mismatch(i: int, _kind: DType) -> str:
            return self.mismatch(f"{what}: {key}, Index: {i}", dtype, features[i])

        return example.values_of_features(features, dtype, mismatch)

    def missing_list(self, key: str) -> errors.InvalidArgumentError:
        return errors.InvalidArgumentError(
            f"Name: {self.name}, Feature list '{key}' is required but could not be found.  Did you mean to include "
            "it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
        )


def _sparse_steps(rows: Sequence[list[Any] | None], dtype: DType) -> tuple[Any, Any, Any]:
    """A sparse tensor [examples, steps, values]."""
    steps = [list(row or ()) for row in rows]
    indices, values, inner = as_sparse(Column.of_rows([vector for row in steps for vector in row], dtype))
    counts = np.array([len(row) for row in steps], np.int64)
    ends = counts.cumsum()
    # A step's number over all examples gives the example and the step in it.
    which = np.repeat(np.arange(len(steps)), counts)[indices[:, 0]]
    places = np.stack((which, indices[:, 0] - (ends - counts)[which], indices[:, 1]), axis=1)
    shape = np.array([len(steps), counts.max(initial=0), inner[1]], np.int64)
    return places.astype(np.int64, copy=False).reshape(-1, 3), values, shape


def _transposed(groups: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """All first parts, then all second ones, and so on."""
    return tuple(part for column in zip(*groups, strict=True) for part in column)


class _Parser:
    """The part that the three ops share, once the keys are known."""

    def __init__(self, c: OpKernelConstruction, *, is_batch: bool) -> None:
        self._is_batch = is_batch
        self.context_sparse: list[DType] = c.attr("context_sparse_types")
        self.context_dense: list[DType] = c.attr("Tcontext_dense")
        self.list_sparse: list[DType] = c.attr("feature_list_sparse_types")
        self.list_dense: list[DType] = c.attr("feature_list_dense_types")
        ragged = [
            c.attrs.get(f"{part}_ragged_{what}_types", [])
            for part in ("context", "feature_list")
            for what in ("value", "split")
        ]
        self.context_ragged = list(zip(*ragged[:2], strict=True)) if len(ragged[0]) == len(ragged[1]) else None
        self.list_ragged = list(zip(*ragged[2:], strict=True)) if len(ragged[2]) == len(ragged[3]) else None
        if self.context_ragged is None or self.list_ragged is None:
            raise errors.InvalidArgumentError("ragged_value_types and ragged_split_types must be of equal length")
        self._context_shapes = self._known(c, "context_dense_shapes")
        self._list_shapes = self._known(c, "feature_list_dense_shapes")
        if len(self._context_shapes) != len(self.context_dense):
            raise errors.InvalidArgumentError(
                f"Ncontext_dense ({len(self.context_dense)}) must match the size of context_dense_shapes "
                f"({len(self._context_shapes)})"
            )
        count = c.attr("Nfeature_list_dense")
        if not count == len(self.list_dense) == len(self._list_shapes):
            raise errors.InvalidArgumentError(
                f"num_feature_list_dense ({count}) must match the size of feature_list_dense_types "
                f"({len(self.list_dense)}) and feature_list_dense_shapes ({len(self._list_shapes)})"
            )
        starts = [c.output_range(name)[0] for name in ("context_dense_values", "feature_list_dense_values")]
        self._context_rooms = [allocator(c, starts[0] + i) for i in range(len(self.context_dense))]
        self._list_rooms = [allocator(c, starts[1] + i) for i in range(count)]

    @staticmethod
    def _known(c: OpKernelConstruction, name: str) -> list[tuple[int, ...]]:
        for shape in c.attr(name):
            if not shape.is_fully_defined:
                raise errors.InvalidArgumentError(
                    f"Error converting {name} to a TensorShape: Dimension -1 must be >= 0."
                )
        return [shape.as_tuple() for shape in c.attr(name)]

    def check(self, keys: _Keys, defaults: Sequence[Any]) -> None:
        """Raise InvalidArgumentError unless there are as many keys as types, and defaults of the right shapes."""
        for name in ("context_sparse", "context_dense", "context_ragged", "list_sparse", "list_dense", "list_ragged"):
            wanted, got = len(getattr(self, name)), len(getattr(keys, name))
            if wanted != got:
                text = name.replace("list_", "feature_list_")
                raise errors.InvalidArgumentError(f"Expected len({text}_keys) == {wanted}, got {got}")
        for i, (shape, default) in enumerate(zip(self._context_shapes, defaults, strict=True)):
            if default.size and default.shape != shape:
                raise errors.InvalidArgumentError(
                    f"def_value[{i}].shape() == {shape_text(default.shape)} != context_dense_shapes_[{i}] == "
                    f"{shape_text(shape)}"
                )

    def outputs(self, examples: Sequence[_Example], keys: _Keys, defaults: Sequence[Any]) -> tuple[list[Any], ...]:
        """The outputs for each kind of feature: sparse, dense and ragged ones of the context, then of lists."""
        self.check(keys, defaults)
        context_sparse = [
            as_sparse(Column.of_rows([e.context(key, dtype) for e in examples], dtype))
            for key, dtype in zip(keys.context_sparse, self.context_sparse, strict=True)
        ]
        context_dense = [
            self._context_dense(examples, i, key, default)
            for i, (key, default) in enumerate(zip(keys.context_dense, defaults, strict=True))
        ]
        context_ragged = [
            as_ragged(Column.of_rows([e.context(key, values) for e in examples], values), splits)
            for key, (values, splits) in zip(keys.context_ragged, self.context_ragged or (), strict=True)
        ]
        what = "Feature list" if self._is_batch else "Feature List"
        list_sparse = [
            _sparse_steps([e.steps(key, dtype, what) for e in examples], dtype)
            for key, dtype in zip(keys.list_sparse, self.list_sparse, strict=True)
        ]
        list_dense = [self._list_dense(examples, i, key, keys) for i, key in enumerate(keys.list_dense)]
        list_ragged = [
            self._list_ragged(examples, key, values, splits)
            for key, (values, splits) in zip(keys.list_ragged, self.list_ragged or (), strict=True)
        ]
        return context_sparse, context_dense, context_ragged, list_sparse, list_dense, list_ragged

    def _context_dense(self, examples: Sequence[_Example], i: int, key: str, default: Any) -> Any:
        shape, dtype = self._context_shapes[i], self.context_dense[i]
        size = math.prod(shape)
        result = self._context_rooms[i]((len(examples), *shape))
        rows = []
        for e in examples:
            values = e.context(key, dtype)
            if values is None and default.size:
                values = default.reshape(-1).tolist()
            if values is None or len(values) != size:
                raise errors.InvalidArgumentError(self._wrong_context(e, key, dtype, shape, values))
            rows.append(values)
        result[...] = example.joined(rows, dtype).reshape(result.shape)
        return result

    def _wrong_context(self, e: _Example, key: str, dtype: DType, shape: tuple[int, ...], values: Any) -> str:
        found = 0 if values is None else len(values)
        if self._is_batch:
            return (
                f"Inconsistent max number of elements for feature {key}: expected {math.prod(shape)}, but found {found}"
            )
        if values is None:
            return f"Name: {e.name}, Context feature '{key}' is required but could not be found."
        return (
            f"Name: {e.name}, Key: {key}, Index: 0.  Number of {dtype} values != expected.  "
            f"values size: {found} but output shape: {shape_text(shape)}"
        )

    def _list_dense(self, examples: Sequence[_Example], i: int, key: str, keys: _Keys) -> tuple[Any, Any]:
        """Return [examples, steps, *shape], padded with zeros, and the number of steps of each example."""
        shape, dtype = self._list_shapes[i], self.list_dense[i]
        size, rows = math.prod(shape), []
        for e in examples:
            steps = e.steps(key, dtype, "Feature list")
            if steps is None and key not in keys.assumed_empty:
                raise e.missing_list(key)
            for step, values in enumerate(steps or ()):
                found = 0 if values is None else len(values)
                if values is None and not self._is_batch:
                    raise errors.InvalidArgumentError(e.mismatch(f"Feature list: {key}, Index: {step}", dtype, ""))
                if values is None or found != size:
                    kind = "" if self._is_batch else f"{dtype} "
                    raise errors.InvalidArgumentError(
                        f"Name: {e.name}, Key: {key}, Index: {step}.  Number of {kind}values != expected.  "
                        f"values size: {found} but output shape: {shape_text(shape)}"
                    )
            rows.append(steps or [])
        lengths = np.array([len(row) for row in rows], np.int64)
        result = self._list_rooms[i]((len(rows), int(lengths.max(initial=0)), *shape), np.zeros)
        if result.dtype == object:
            result[...] = b""
        for row, steps in enumerate(rows):
            if steps:
                result[row, : len(steps)] = example.joined(steps, dtype).reshape(len(steps), *shape)
        return result, lengths

    def _list_ragged(self, examples: Sequence[_Example], key: str, values: DType, splits: DType) -> tuple[Any, ...]:
        """Return values, row splits of the examples over the steps, and of the steps over the values."""
        rows = [e.steps(key, values, "Feature list") or [] for e in examples]
        flat, inner = as_ragged(Column.of_rows([vector for row in rows for vector in row], values), splits)
        outer = np.zeros(len(rows) + 1, splits.np)
        np.cumsum([len(row) for row in rows], out=outer[1:])
        return flat, outer, inner


def _of_one(outputs: tuple[list[Any], ...]) -> tuple[list[Any], ...]:
    """The outputs of a batch of one without the batch dimension; row splits over it become a scalar."""
    context_sparse, context_dense, context_ragged, list_sparse, list_dense, list_ragged = outputs
    return (
        [(indices[:, 1:], values, shape[1:]) for indices, values, shape in context_sparse],
        [values[0, ...] for values in context_dense],
        [(values, splits[0, ...]) for values, splits in context_ragged],
        [(indices[:, 1:], values, shape[1:]) for indices, values, shape in list_sparse],
        [(values[0, ...], lengths[0, ...]) for values, lengths in list_dense],
        [(values, outer[0, ...], inner) for values, outer, inner in list_ragged],
    )


def _flattened(outputs: tuple[list[Any], ...], *, with_lengths: bool = True) -> tuple[Any, ...]:
    """The outputs in the order of the ops' definitions."""
    context_sparse, context_dense, context_ragged, list_sparse, list_dense, list_ragged = outputs
    dense = _transposed(list_dense) if with_lengths else tuple(values for values, _ in list_dense)
    return (
        *_transposed(context_sparse),
        *context_dense,
        *_transposed(context_ragged),
        *_transposed(list_sparse),
        *dense,
        *_transposed(list_ragged),
    )


def _cost_with_names(serialized: Any, assumed_empty: Any, *inputs: Any) -> float:
    return _COST(serialized) + example.KEY_NS * float(assumed_empty.size)


@kernel("ParseSingleSequenceExample", cost=_cost_with_names)
def parse_single_sequence_example(c: OpKernelConstruction) -> Compute:
    """Parses one SequenceExample; the keys are inputs."""
    parser = _Parser(c, is_batch=False)
    names = (
        "context_sparse_keys",
        "context_dense_keys",
        "feature_list_sparse_keys",
        "feature_list_dense_keys",
        "context_dense_defaults",
    )
    ranges = [c.input_range(name) for name in names]

    def compute(serialized: Any, assumed_empty: Any, *inputs: Any) -> Any:
        *keys, defaults = [inputs[start - 2 : stop - 2] for start, stop in ranges]
        for name, group in zip(names, keys, strict=False):
            for i, key in enumerate(group):
                if key.ndim:
                    raise errors.InvalidArgumentError(
                        f"Expected {name}[{i}] to be a scalar, got shape: {shape_text(key.shape)}"
                    )
        if serialized.ndim:
            raise errors.InvalidArgumentError(
                f"Expected serialized to be a scalar, got shape: {shape_text(serialized.shape)}"
            )
        texts = [example.key_texts(key.item() for key in group) for group in keys]
        wanted = _Keys(
            context_sparse=texts[0],
            context_dense=texts[1],
            list_sparse=texts[2],
            list_dense=texts[3],
            assumed_empty=frozenset(example.key_texts(values_of(assumed_empty))),
        )
        data = serialized.item()
        # The first of a vector of names is used.
        name = example.printable(next(iter(elements_of(inputs[-1])), b""))
        complaint = f"Could not parse example input, value: '{example.printable(data)}'"
        one = _Example(data, name, complaint, shows_feature=True)
        return _flattened(_of_one(parser.outputs([one], wanted, defaults)), with_lengths=False)

    return compute


def _batch(parser: _Parser, serialized: Any, names: Any, keys: _Keys, defaults: Sequence[Any]) -> Any:
    if serialized.ndim > 1:
        raise errors.InvalidArgumentError(
            f"Expected serialized to be a scalar or vector, got shape: {shape_text(serialized.shape)}"
        )
    if names.size and names.size != serialized.size:
        raise errors.InvalidArgumentError("example_names must be empty or have the correct number of elements")
    announce_scratch(_RECORD_BYTES * (serialized.size + names.size))
    labels = [example.printable(name) for name in values_of(names)] or ["<unknown>"] * serialized.size
    examples = [
        _Example(data, label, f"Invalid protocol message input, example id: {label}", shows_feature=False)
        for data, label in giving_way(zip(values_of(serialized), labels, strict=True), _RECORD_NS)
    ]
    outputs = parser.outputs(examples, keys, defaults)
    return _flattened(outputs if serialized.ndim else _of_one(outputs))


@kernel("ParseSequenceExample", cost=_COST)
def parse_sequence_example(c: OpKernelConstruction) -> Compute:
    """Parses a batch of SequenceExamples; the keys are attrs."""
    parser = _Parser(c, is_batch=True)
    keys = _Keys(
        context_sparse=example.key_texts(c.attr("context_sparse_keys")),
        context_dense=example.key_texts(c.attr("context_dense_keys")),
        list_sparse=example.key_texts(c.attr("feature_list_sparse_keys")),
        list_dense=example.key_texts(c.attr("feature_list_dense_keys")),
        assumed_empty=frozenset(example.key_texts(c.attr("feature_list_dense_missing_assumed_empty"))),
    )
    return lambda serialized, names, *defaults: _batch(parser, serialized, names, keys, defaults)


def _cost_with_keys(serialized: Any, names: Any, *inputs: Any) -> float:
    return _COST(serialized) + example.KEY_NS * float(sum(keys.size for keys in inputs[:6]))


@kernel("ParseSequenceExampleV2", cost=_cost_with_keys)
def parse_sequence_example_v2(c: OpKernelConstruction) -> Compute:
    """Parses a batch of SequenceExamples, with ragged features; the keys are inputs, a vector for each kind."""
    parser = _Parser(c, is_batch=True)

    def compute(serialized: Any, names: Any, *inputs: Any) -> Any:
        vectors, assumed, defaults = inputs[:6], inputs[6], inputs[7:]
        context_sparse, context_dense, context_ragged, list_sparse, list_dense, list_ragged = (
            example.key_texts(values_of(vector)) for vector in vectors
        )
        if assumed.size != len(list_dense):
            raise errors.InvalidArgumentError(
                "Expected len(feature_list_dense_missing_assumed_empty to match Nfeature_list_dense"
            )
        empty = frozenset(key for key, flag in zip(list_dense, assumed.reshape(-1).tolist(), strict=True) if flag)
        keys = _Keys(context_sparse, context_dense, context_ragged, list_sparse, list_dense, list_ragged, empty)
        return _batch(parser, serialized, names, keys, defaults)

    return compute
