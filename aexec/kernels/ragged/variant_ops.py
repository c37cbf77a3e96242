"""Ragged tensors as variants, the form in which they go through loops, maps and batching.

Next to read: `ragged_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import check_max_rank, shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.framework.wire import variant
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.registration import INDEX
from aexec.kernels.common.variants import add_tensors, boxed, zeros_like_tensor
from aexec.kernels.ragged.ragged_ops import VALUE_TYPES

__all__ = ["RaggedTensorVariant"]

_COST = 10.0
# Nanoseconds of looking at a split.
_CHECK_NS = 2.0
# The interpreter's time per row, or variant.
_VARIANT_NS = 2_000.0
# Bytes of a row as a separate tensor, for each level of splits, besides its elements.
_ROW_BYTES = 210


@variant.register_variant
@dataclass(frozen=True)
class RaggedTensorVariant:
    """A ragged tensor: row splits, outermost first, and values.

    `variant.zeros_like` and `variant.add` apply to the values.
    """

    splits: tuple[Any, ...]
    values: Any

    type_name = "RaggedTensorVariant"

    def encode(self) -> variant.VariantTensorData:
        return variant.VariantTensorData(self.type_name, b"", [*self.splits, self.values])

    @property
    def tensors(self) -> tuple[Any, ...]:
        return *self.splits, self.values

    @classmethod
    def decode(cls, data: variant.VariantTensorData) -> RaggedTensorVariant:
        """Raises InvalidArgumentError if there are no values."""
        if not data.tensors:
            raise errors.InvalidArgumentError("a RaggedTensorVariant without values")
        return cls(tuple(data.tensors[:-1]), data.tensors[-1])


def _zeros_like(value: RaggedTensorVariant) -> RaggedTensorVariant:
    return RaggedTensorVariant(value.splits, zeros_like_tensor(value.values))


def _add(first: RaggedTensorVariant, second: RaggedTensorVariant) -> RaggedTensorVariant:
    if first.values.shape != second.values.shape or first.values.dtype != second.values.dtype:
        raise errors.InvalidArgumentError(
            "Can't add RaggedTensorVariants of different shapes or types: "
            f"{shape_text(first.values.shape)} and {shape_text(second.values.shape)}"
        )
    return RaggedTensorVariant(first.splits, add_tensors(first.values, second.values))


variant.register_unary_op("ZEROS_LIKE", "CPU", RaggedTensorVariant, _zeros_like)
variant.register_binary_op("ADD", "CPU", RaggedTensorVariant, _add)


# ---- To a variant


def _check_splits(splits: Sequence[Any], values: Any) -> None:
    """Raise InvalidArgumentError for splits that do not match the values."""
    for vector in splits:
        if vector.ndim != 1:
            raise _invalid_splits(f"ragged splits must be rank 1 but is rank {vector.ndim}")
        if not vector.size:
            raise _invalid_splits("ragged splits must have at least one splits, but is empty")
    sizes = [*(s.size - 1 for s in splits), values.shape[0] if values.ndim else 0]
    for vector, count in zip(splits, sizes[1:], strict=True):
        if vector[0] != 0:
            raise _invalid_splits(f"first element of ragged splits  must be 0 but is {vector[0]}")
        descents = np.flatnonzero(vector[1:] < vector[:-1])
        if descents.size:
            at = int(descents[0])
            raise _invalid_splits(
                f"ragged splits must be monotonically increasing, but ragged_splits[{at + 1}]={vector[at + 1]} "
                f"is smaller than row_splits[{at}]={vector[at]}"
            )
        if vector[-1] != count:
            raise _invalid_splits(
                f"last element of ragged splits must be the number of ragged values({count}) but is {vector[-1]}"
            )


def _invalid_splits(words: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"Invalid ragged splits: {words}")


def _rows(splits: Sequence[Any], values: Any) -> list[RaggedTensorVariant]:
    """The rows of the outermost dimension."""
    if not splits:
        return [RaggedTensorVariant((), values[i, ...]) for i in giving_way(range(len(values)), _VARIANT_NS)]
    starts, stops = splits[0][:-1], splits[0][1:]
    inner = []
    for vector in splits[1:]:
        inner.append([vector[a : b + 1] - vector[a] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)])
        starts, stops = vector[starts], vector[stops]
    pieces = [values[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    rows = giving_way(zip(*inner, pieces, strict=True), _VARIANT_NS)
    return [RaggedTensorVariant(tuple(parts[:-1]), parts[-1]) for parts in rows]


def _rows_cost(attrs: Mapping[str, Any]) -> Callable[..., float]:
    is_batched = attrs["batched_input"]

    def cost(*inputs: Any) -> float:
        checking: float = _COST + _CHECK_NS * sum(splits.size for splits in inputs[:-1])
        return checking + _VARIANT_NS * (inputs[0].shape[0] if is_batched and inputs[0].ndim else 0)

    return cost


@kernel("RaggedTensorToVariant", Tvalues=VALUE_TYPES, Tsplits=INDEX, cost=AttrCost(_rows_cost))
def ragged_to_variant(c: OpKernelConstruction) -> Compute:
    """Return the whole tensor as one variant, or, if batched, a variant for each row."""
    is_batched = c.attr("batched_input")

    def compute(*inputs: Any) -> Any:
        splits, values = inputs[:-1], inputs[-1]
        _check_splits(splits, values)
        if not is_batched:
            return boxed(RaggedTensorVariant(tuple(splits), values))
        if not splits and not values.ndim:
            raise errors.InvalidArgumentError("Can't unbatch rank-0 tensor.")
        announce_scratch(_ROW_BYTES * max(1, len(splits)) * (splits[0].size if splits else len(values)))
        rows = _rows(splits, values)
        out = np.empty(len(rows), object)
        for i, row in enumerate(rows):
            out[i] = row
        return out

    return compute


# ---- From variants


def _components(encoded: Any, rank: int, values_type: DType, splits_type: DType | None) -> list[RaggedTensorVariant]:
    found = []
    for i, value in enumerate(encoded.reshape(-1)):
        ragged = variant.get(value, RaggedTensorVariant)
        if ragged is None:
            raise errors.InvalidArgumentError(
                f"Input Variant element at index {i} doesn't hold a RaggedTensorVariant: {variant.type_name_of(value)}"
            )
        if len(ragged.splits) != rank:
            raise errors.InvalidArgumentError(
                f"Encoded input RaggedTensorVariant has ragged_rank={len(ragged.splits)}.  Expected ragged_rank={rank}."
            )
        for name, arrays, dtype in (
            ("row_splits", ragged.splits, splits_type),
            ("values", (ragged.values,), values_type),
        ):
            for array in arrays:
                if dtype is not None and array.dtype != dtype.np:
                    raise errors.InvalidArgumentError(
                        f"Expected {name} Tensor dtype: {dtype}, found: {dtypes.from_numpy(array.dtype)}"
                    )
        found.append(ragged)
    return found


def _check_same_shape(parts: Sequence[Any], first: int) -> None:
    """Raise InvalidArgumentError unless the shapes agree from dimension `first` on."""
    for i, part in enumerate(parts):
        if part.ndim < first or part.shape[first:] != parts[0].shape[first:]:
            raise errors.InvalidArgumentError(
                f"All flat_values must have compatible shapes.  Shape at index 0: {shape_text(parts[0].shape)}.  "
                f"Shape at index {i}: {shape_text(part.shape)}.  If you are using tf.map_fn, then you may need to "
                "specify an explicit fn_output_signature with appropriate ragged_rank, and/or convert output "
                "tensors to RaggedTensors."
            )


def _stacked(parts: Sequence[RaggedTensorVariant], shape: Sequence[int], rank: int, out_splits: Any) -> list[Any]:
    """Splits and values of one ragged tensor that holds ragged tensors in an array of that shape."""
    splits, rows = [], 1
    for size, width in pairwise(shape):
        rows *= size
        splits.append(np.arange(rows + 1, dtype=out_splits) * width)
    for level in range(rank + 1):
        if level < rank:
            lengths = [p.splits[level].size - 1 for p in parts]
        else:
            _check_same_shape([p.values for p in parts], 1)
            lengths = [p.values.shape[0] for p in parts]
        if level == 0:
            splits.append(np.concatenate(([0], np.cumsum(lengths))).astype(out_splits))
        if level < rank:
            vectors = [p.splits[level] for p in parts]
            offsets = np.cumsum([0, *(v[-1] for v in vectors)])[:-1]
            moved = [v[1:] + offset for v, offset in zip(vectors, offsets, strict=True)]
            splits.append(np.concatenate([np.zeros(1, out_splits), *moved]).astype(out_splits))
    return splits


def _variants_cost(encoded: Any, *_: Any) -> float:
    return float(_VARIANT_NS * encoded.size)


@kernel("RaggedTensorFromVariant", Tvalues=VALUE_TYPES, Tsplits=INDEX, cost=_variants_cost)
def ragged_from_variant(c: OpKernelConstruction) -> Compute:
    """Return the variants of ragged tensors as one ragged tensor, or, if its ragged rank is 0, as a dense one."""
    in_rank, out_rank = c.attr("input_ragged_rank"), c.attr("output_ragged_rank")
    values_type, splits_type = c.attr("Tvalues"), c.attr("Tsplits")

    def rank_of(encoded: Any) -> int:
        if in_rank != -1:
            if out_rank != in_rank + encoded.ndim and (out_rank or in_rank):
                raise errors.InvalidArgumentError(
                    "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.ndims; "
                    f"output_ragged_rank: {out_rank}, input_ragged_rank: {in_rank}, "
                    f"encoded_variant.ndims: {encoded.ndim}."
                )
            return int(in_rank)
        rank = out_rank - encoded.ndim
        if out_rank == 0:
            rank = max(rank, 0)
        if rank < 0:
            raise errors.InvalidArgumentError(
                "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= 0, found "
                f"output_ragged_rank: {out_rank}, encoded_variant.dims(): {encoded.ndim}, "
                f"inferred input_ragged_rank: {rank}"
            )
        return int(rank)

    def compute(encoded: Any) -> Any:
        rank = rank_of(encoded)
        parts = _components(encoded, rank, values_type, splits_type)
        if not encoded.ndim:
            return (*parts[0].splits, parts[0].values)
        values = [part.values for part in parts]
        if out_rank == 0:
            if not parts:
                return (np.empty(encoded.shape, values_type.np),)
            _check_same_shape(values, 0)
            return (np.stack(values).reshape(*encoded.shape, *values[0].shape),)
        if any(not value.ndim for value in values) or any(not s.size for part in parts for s in part.splits):
            raise errors.InvalidArgumentError("Encoded input RaggedTensorVariant is no ragged tensor")
        splits = _stacked(parts, encoded.shape, rank, splits_type.np)
        joined = np.concatenate(values) if values else np.empty(0, values_type.np)
        return (*splits, joined)

    return compute


@kernel("RaggedTensorToVariantGradient", Tvalues=VALUE_TYPES, Tsplits=INDEX, cost=_variants_cost)
def ragged_to_variant_gradient(c: OpKernelConstruction) -> Compute:
    """Return the gradient of the values, from those of the rows, or of the whole tensor."""
    values_type, allocate = c.attr("Tvalues"), allocator(c)

    def compute(encoded: Any, splits: Any, shape: Any) -> Any:
        check_max_rank(shape.size)
        dims = shape.reshape(-1).tolist()
        parts = _components(encoded, 0, values_type, None)
        if not encoded.ndim:
            if parts[0].values.shape != tuple(dims):
                raise errors.InvalidArgumentError(
                    f"Expected dense_values_shape {shape_text(dims)}, got {shape_text(parts[0].values.shape)}"
                )
            return parts[0].values
        result = allocate(dims, np.zeros)
        flat = splits.reshape(-1)
        # Rows of a tensor without splits have one length.
        if not flat.size and dims[:1] != [len(parts)]:
            raise errors.InvalidArgumentError(f"{len(parts)} rows for dense_values_shape {shape_text(dims)}")
        if flat.size not in (0, len(parts) + 1):
            raise errors.InvalidArgumentError(f"{flat.size} row splits for {len(parts)} rows")
        starts = flat.tolist() if flat.size else list(range(len(parts) + 1))
        for part, start, stop in zip(parts, starts, starts[1:], strict=False):
            target = result[start] if not flat.size else result[start:stop]
            if target.shape != part.values.shape:
                raise errors.InvalidArgumentError(
                    f"Expected a row of shape {shape_text(target.shape)}, got {shape_text(part.values.shape)}"
                )
            target[...] = part.values
        return result

    return compute
