"""Sparse tensors kept in the session under numbers, which travel through queues in their place.

Next to read: `serialize_ops.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.resource_manager import ContainerInfo
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.sparse.serialize_ops import Parts, cut_into_rows, stacked

__all__ = ["SparseTensorsMap"]

_COST = 20.0


class SparseTensorsMap:
    """Sparse tensors under numbers, until they are taken.  May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tensors: dict[int, Parts] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._tensors)

    def add(self, tensors: Iterable[Parts]) -> range:
        """Keep these.  Returns their numbers."""
        with self._lock:
            first = self._next
            for parts in tensors:
                self._tensors[self._next] = parts
                self._next += 1
            return range(first, self._next)

    def take(self, handles: Sequence[int]) -> list[Parts]:
        """Remove and return these.  Raises InvalidArgumentError for one that is not there."""
        with self._lock:
            try:
                return [self._tensors.pop(handle) for handle in handles]
            except KeyError as missing:
                raise errors.InvalidArgumentError(f"Unable to find SparseTensor: {missing.args[0]} in map.") from None


def _map_of(c: OpKernelConstruction, name: str) -> Callable[[OpKernelContext], SparseTensorsMap]:
    """Function from the step to the map that the node's attrs name; without a name it is `name`'s own."""
    info = ContainerInfo.from_attrs(c.attrs, name, use_node_name=True)
    c.need_context()
    return lambda context: context.resources.lookup_or_create(
        info.container, info.name, SparseTensorsMap, SparseTensorsMap
    )


@kernel("AddSparseToTensorsMap", cost=_COST)
def add_sparse(c: OpKernelConstruction) -> Compute:
    """Keep a sparse tensor: its number."""
    map_of = _map_of(c, c.name)

    def compute(context: OpKernelContext, indices: Any, values: Any, shape: Any) -> Any:
        for array, rank, name in (
            (indices, 2, "indices should be a matrix"),
            (values, 1, "values should be a vector"),
            (shape, 1, "shape should be a vector"),
        ):
            if array.ndim != rank:
                raise errors.InvalidArgumentError(f"Input {name} but received shape {shape_text(array.shape)}")
        if len(indices) != values.size:
            raise errors.InvalidArgumentError(
                f"Number of values must match first dimension of indices. Got {values.size} values, "
                f"indices shape: {shape_text(indices.shape)}"
            )
        if shape.size != indices.shape[1]:
            raise errors.InvalidArgumentError(
                f"Number of dimensions must match second dimension of indices. Got {shape.size} dimensions, "
                f"indices shape: {shape_text(indices.shape)}"
            )
        return np.int64(map_of(context).add([(indices, values, shape)])[0])

    return compute


@kernel("AddManySparseToTensorsMap", T=dtypes.ALL, cost=_COST)
def add_many_sparse(c: OpKernelConstruction) -> Compute:
    """Keep each row of a sparse tensor: their numbers."""
    map_of, allocate = _map_of(c, c.name), allocator(c)

    def compute(context: OpKernelContext, indices: Any, values: Any, shape: Any) -> Any:
        present, parts, empty = cut_into_rows(indices, values, shape)
        handles = allocate(int(shape[0]))
        rows = [empty] * handles.size
        for row, part in zip(present.tolist(), parts, strict=True):
            rows[row] = part
        handles[...] = map_of(context).add(rows)
        return handles

    return compute


@kernel("TakeManySparseFromTensorsMap", dtype=dtypes.ALL, cost=_COST)
def take_many_sparse(c: OpKernelConstruction) -> Compute:
    """The tensors of these numbers as one of a rank higher by one.  They are kept no longer."""
    map_of, dtype = _map_of(c, c.name), c.attr("dtype")

    def compute(context: OpKernelContext, handles: Any) -> Any:
        if handles.ndim != 1:
            raise errors.InvalidArgumentError(
                f"sparse_handles should be a vector but received shape {shape_text(handles.shape)}"
            )
        if not handles.size:
            raise errors.InvalidArgumentError(
                "Must have at least 1 serialized SparseTensor, but input matrix has 0 rows"
            )
        tensors = map_of(context).take(handles.tolist())
        for i, (_, values, _) in enumerate(tensors):
            if values.dtype != dtype.np:
                raise errors.InvalidArgumentError(
                    f"Requested SparseTensor of type {dtype} but SparseTensor[{i}].values.dtype() == "
                    f"{dtypes.from_numpy(values.dtype)}"
                )
        return stacked(tensors, handles.shape, dtype)

    return compute
