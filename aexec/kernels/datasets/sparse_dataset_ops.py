"""Datasets of sparse tensors: the slices of one, and batches that are sparse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import Made
from aexec.kernels.datasets.batch_dataset_ops import Batched, batch_size_of, num_batches
from aexec.kernels.datasets.batch_joins import CalledJoin
from aexec.kernels.datasets.source_dataset_ops import Listed
from aexec.resources.datasets.dataset import DatasetIterator, Element, Elements, Pass, dataset_of


@kernel("SparseTensorSliceDataset", cost=1.0, scratch=1)
def sparse_tensor_slice_dataset(c: OpKernelConstruction) -> Compute:
    """Elements of indices, values and shape: the rows of a sparse tensor, in order of its first dimension."""
    dtype: DType = c.attr("Tvalues")

    def compute(indices: Any, values: Any, shape: Any) -> Any:
        _check_parts(indices, values, shape)
        rows, rank = indices[:, 0], len(shape) - 1
        if (rows[1:] < rows[:-1]).any():
            raise errors.UnimplementedError(
                "The SparseTensor must be ordered in the batch dimension; handling arbitrarily ordered input is not "
                "currently supported."
            )
        count = max(0, int(shape[0]))
        return boxed(
            Elements(
                c.name,
                (dtypes.int64, dtype, dtypes.int64),
                (PartialTensorShape([None, rank]), PartialTensorShape([None]), PartialTensorShape([rank])),
                lambda _: Listed(_slices(indices, values, shape, count)),
                count,
            )
        )

    return compute


def _slices(indices: Any, values: Any, shape: Any, count: int) -> Iterator[Element]:
    rows = indices[:, 0]
    for row in range(count):
        start, stop = np.searchsorted(rows, (row, row + 1))
        yield indices[start:stop, 1:], values[start:stop], shape[1:]


def _check_parts(indices: Any, values: Any, shape: Any) -> None:
    """Raise InvalidArgumentError unless they are the parts of one sparse tensor."""
    for name, part, rank in (("indices", indices, 2), ("values", values, 1), ("shape", shape, 1)):
        if part.ndim != rank:
            kind = "matrix" if rank == 2 else "vector"
            raise errors.InvalidArgumentError(f"Input {name} must be a {kind}. Got: {shape_text(part.shape)}")
    if len(values) != len(indices):
        raise errors.InvalidArgumentError(
            f"Number of values must match first dimension of indices. Got {len(values)} values, indices shape: "
            f"{shape_text(indices.shape)}"
        )
    if len(shape) != indices.shape[1]:
        raise errors.InvalidArgumentError(
            f"Number of dimensions must match second dimension of indices. Got {len(shape)} dimensions, indices "
            f"shape: {shape_text(indices.shape)}"
        )
    if not len(shape):
        raise errors.InvalidArgumentError("The input tensor must have at least one dimension")


@kernel("DenseToSparseBatchDataset", "ExperimentalDenseToSparseBatchDataset", cost=0)
def dense_to_sparse_batch_dataset(c: OpKernelConstruction) -> Compute:
    """Elements of one component each: a vector of three variants, the parts of the sparse tensor."""
    made = Made(c)

    def compute(tensor: Any, batch_size: Any, row_shape: Any) -> Any:
        source, size = dataset_of(tensor), batch_size_of(batch_size)
        if len(source.types) != 1:
            raise errors.InvalidArgumentError(
                "DenseToSparseBatchDataset only supports datasets with a single component."
            )
        if row_shape.ndim != 1:
            raise errors.InvalidArgumentError("row_shape must be a vector")
        sizes = [int(length) for length in row_shape]
        for length in sizes:
            if length < -1:
                raise errors.InvalidArgumentError(f"Dimension {length} must be >= -1")
        (dtype,) = source.types

        def joined(rows: list[Element]) -> Element:
            return (_as_sparse([row for (row,) in rows], sizes, dtype),)

        def make(one: Pass) -> DatasetIterator:
            return Batched(one, one.begin(source), size, CalledJoin(joined, _sparse_bytes), drops_rest=False)

        return made.of(make, num_batches(source.cardinality(), size, drops_rest=False))

    return compute


def _sparse_bytes(rows: list[Element]) -> int:
    return sum([row.nbytes + 8 * (1 + row.ndim) * row.size for (row,) in rows])


def _as_sparse(rows: Sequence[Any], wanted: Sequence[int], dtype: DType) -> Any:
    """The batch of dense rows as the three parts of a sparse tensor; a size of -1 is the largest row's."""
    for row in rows:
        if row.ndim != len(wanted):
            raise errors.InvalidArgumentError(
                f"Input element had shape ({shape_text(row.shape)}) that is incompatible with the row shape "
                f"({shape_text(wanted)})."
            )
        for size, most in zip(row.shape, wanted, strict=True):
            if 0 <= most < size:
                raise errors.DataLossError(
                    "Input element had shape that exceeds the row shape: "
                    f"{shape_text(row.shape)} and {shape_text(wanted)}"
                )
    largest = [max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True)]
    shape = [size if size >= 0 else most for size, most in zip(wanted, largest, strict=True)]
    indices = np.empty((sum(row.size for row in rows), 1 + len(wanted)), np.int64)
    at = 0
    for number, row in enumerate(rows):
        part = indices[at : at + row.size]
        part[:, 0] = number
        part[:, 1:] = np.indices(row.shape).reshape(row.ndim, row.size).T
        at += row.size
    out = np.empty(3, object)
    values = np.concatenate([row.ravel() for row in rows]) if rows else np.empty(0, dtype.np)
    for position, part in enumerate((indices, values, np.array([len(rows), *shape], np.int64))):
        out[position] = part
    return out
