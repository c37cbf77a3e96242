"""Sparse tensors that the session keeps under handles, numbers that go through queues in their place.

Next to read: `serialize_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.shape import shape_text
from aexec.framework.state.resource_manager import ContainerInfo
from aexec.framework.waiting.abandoned_calls import finishing
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import DEFAULT, OBJECT_NS, giving_way, update_in_pieces
from aexec.framework.waiting.postponing_lock import PostponingLock
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.strings import values_of
from aexec.kernels.sparse.serialize_ops import Parts, cut_into_rows, stacked

__all__ = ["SparseTensorsMap"]

_COST = 20.0
# Nanoseconds to keep a tensor, bytes of a kept tensor besides its own, and bytes of a number as a Python object.
_ENTRY_NS, _ENTRY_BYTES, _HANDLE_BYTES = 100.0, 500, 48
_AT_ONCE = DEFAULT.pieces(_ENTRY_NS)


class SparseTensorsMap:
    """Sparse tensors under handles, until they are taken.  Safe to use from several threads.

    On an event loop a call is postponed while another one holds the map; see `PostponingLock`.

    Attributes:
        kept: counts the memory of the tensors; None if it is not counted.
    """

    def __init__(self) -> None:
        self._lock = PostponingLock()
        self.kept: KeptMemory | None = None
        self._tensors: dict[int, Parts] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._tensors)

    def add(self, tensors: Sequence[Parts]) -> range:
        """Add tensors; return their handles.  Raises ResourceExhaustedError at the session's limit of kept memory."""
        with self._lock:
            self._hold(len(tensors))
            numbers = range(self._next, self._next + len(tensors))
            with finishing():
                update_in_pieces(self._tensors, zip(numbers, tensors, strict=True), _AT_ONCE)
                self._next = numbers.stop
            return numbers

    def _hold(self, more: int = 0) -> None:
        if self.kept is not None:
            self.kept.hold(self, (len(self._tensors) + more) * _ENTRY_BYTES)

    def take(self, handles: Sequence[int]) -> list[Parts]:
        """Remove and return tensors.  Raises InvalidArgumentError for an unknown handle."""
        with self._lock:
            try:
                return [self._tensors.pop(handle) for handle in giving_way(handles, OBJECT_NS)]
            except KeyError as missing:
                raise errors.InvalidArgumentError(f"Unable to find SparseTensor: {missing.args[0]} in map.") from None
            finally:
                self._hold()


def _map_of(c: OpKernelConstruction, name: str) -> Callable[[OpKernelContext], SparseTensorsMap]:
    """A function from the step to the map that the node's attrs name; without a name it is `name`'s own."""
    info = ContainerInfo.from_attrs(c.attrs, name, use_node_name=True)
    c.need_context()
    return lambda context: context.resources.lookup_or_create(
        info.container, info.name, SparseTensorsMap, SparseTensorsMap
    )


@kernel("AddSparseToTensorsMap", cost=_COST)
def add_sparse(c: OpKernelConstruction) -> Compute:
    """Keeps a sparse tensor; returns its handle."""
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
    """Keeps each row of a sparse tensor; returns their handles."""
    map_of, allocate = _map_of(c, c.name), allocator(c)
    c.may_be_abandoned = True  # all are kept, or none

    def compute(context: OpKernelContext, indices: Any, values: Any, shape: Any) -> Any:
        present, parts, empty = cut_into_rows(indices, values, shape)
        handles = allocate(int(shape[0]))
        announce_scratch(handles.size * 8 + len(present) * _ENTRY_BYTES)
        check_inline(handles.size * _ENTRY_NS)
        rows = [empty] * handles.size
        for row, part in zip(present.tolist(), parts, strict=True):
            rows[row] = part
        handles[...] = map_of(context).add(rows)
        return handles

    return compute


@kernel("TakeManySparseFromTensorsMap", dtype=dtypes.ALL, cost=_COST)
def take_many_sparse(c: OpKernelConstruction) -> Compute:
    """Removes the tensors of these handles and returns them as one of a rank higher by one."""
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
        announce_scratch(handles.size * _HANDLE_BYTES)
        tensors = map_of(context).take(values_of(handles))
        for i, (_, values, _) in enumerate(giving_way(tensors, OBJECT_NS)):
            if values.dtype != dtype.np:
                raise errors.InvalidArgumentError(
                    f"Requested SparseTensor of type {dtype} but SparseTensor[{i}].values.dtype() == "
                    f"{dtypes.from_numpy(values.dtype)}"
                )
        return stacked(tensors, handles.shape, dtype)

    return compute
