"""Optimisers' updates: Apply<name>, SparseApply<name>, and the same for resource variables.

One builder serves all of them: the op's definition tells variables, gradient, indices and scalars apart.  A sparse
update changes the rows that the indices name; a row that is named several times is changed as often, in order.
Next to read: `optimizers.py`, the formulas.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import handle_from_tensor
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.framework.state.tensor_cell import TensorCell, Writing
from aexec.framework.waiting.abandoned_calls import finishing
from aexec.framework.waiting.intra_op import in_pieces
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.array_module import accumulator
from aexec.kernels.common.distinct import begins_run
from aexec.kernels.common.registration import INDEX
from aexec.kernels.training.optimizers import OPTIMISERS, Formula, Limits, Optimiser

__all__ = ["UpdateArguments", "apply_in_parts", "find_variable"]

# Nanoseconds per element of the gradient, a few passes over memory for each.
_DENSE_COST = 8.0
_SPARSE_COST = 20.0
# Bytes per index to find repeated ones; nanoseconds of a formula for few rows.
_PLACE_BYTES = 100
_ROWS_NS = 20_000.0

# A formula passes over the arrays several times; parts of this many elements stay in the cache meanwhile.
_PART = 1 << 15
# The least parts that threads share: fewer are finished before another thread has started.
_SHARED_PARTS = 4

_GRADIENTS = ("grad", "delta")
_OPTIONS = ("use_nesterov", "update_slots", "multiply_linear_by_lr")

# Scalars' names in messages, if they differ.
_CALLED = {
    "l1": "l1 regularization strength",
    "l2": "l2 regularization strength",
    "l2_shrinkage": "l2 shrinkage regularization strength",
    "global_step": "global step",
}


class UpdateArguments:
    """The meaning of the inputs and attrs of an update.

    Attributes:
        holders: names of the inputs that refer to variables, which come first.
    """

    def __init__(self, c: OpKernelConstruction, optimiser: Optimiser, *, sparse: bool) -> None:
        self.limits = optimiser.sparse_limits if sparse else optimiser.limits
        self.names = [arg.name for arg in c.op_def.inputs]
        self.holders = [arg.name for arg in c.op_def.inputs if arg.is_ref or arg.type is dtypes.resource]
        self.gradient = next(name for name in _GRADIENTS if name in self.names)
        self.options = {name: c.attr(name) for name in _OPTIONS if name in c.attrs}
        self._optimiser, self._xp, self._op = optimiser, c.xp, c.op
        self._dtype, self._sparse = c.attr("T"), sparse

    def known(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Scalars and options by name.  Raises InvalidArgumentError for a scalar that violates its condition."""
        of_elements = (*self.holders, self.gradient, "indices")
        known = {name: value for name, value in given.items() if name not in of_elements}
        for name, value in known.items():
            _check_scalar(name, value, self.limits, self.options)
        return known | self.options

    def apply(self, arrays: Sequence[Any], given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """Change the variables' arrays.  Raises InvalidArgumentError for inputs that do not match."""
        grad, formula = self.checked(arrays, given), self._optimiser.formula
        if len({id(array) for array in arrays}) == len(arrays):
            formula = self._optimiser.update
        if self._sparse:
            _apply_rows(self._xp, formula, arrays, given["indices"], grad, known)
        else:
            apply_in_parts(self._xp, formula, arrays, grad, known)

    def checked(self, arrays: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """Return the gradient.  Raises InvalidArgumentError for inputs that do not match."""
        grad, var = self._xp.asarray(given[self.gradient]), arrays[0]
        for name, array in zip(self.holders, arrays, strict=True):
            _check_type(array, self._dtype)
            _check_same_shape(name, array, var)
        if self._sparse:
            _check_rows(self._xp, var.shape, grad, given["indices"], self._op)
        else:
            _check_same_shape(self.gradient, grad, var)
        return grad


def _builder(optimiser: Optimiser, *, sparse: bool) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        update = UpdateArguments(c, optimiser, sparse=sparse)
        names, holders, gives_ref = update.names, update.holders, bool(c.output_types)
        c.need_context()
        c.in_any_thread = True
        c.may_be_abandoned = sparse  # repeated rows are written at the end, all or none

        def compute(context: OpKernelContext, *inputs: Any) -> Any:
            given = dict(zip(names, inputs, strict=True))
            known = update.known(given)
            with Writing(*(find_variable(context, given[name]) for name in holders)) as arrays:
                update.apply(arrays, given, known)
            return given["var"] if gives_ref else None

        return compute

    return build


def find_variable(context: OpKernelContext, reference: Any) -> TensorCell:
    """The initialised variable of a ref input or a handle."""
    if isinstance(reference, RefCell):
        return reference
    handle = handle_from_tensor(reference)
    found = context.resources.find(handle.container, handle.name, ResourceVariable)
    if found is None:
        raise errors.FailedPreconditionError(f"Invalid variable reference. There is no variable {handle.name}")
    if found.value is None:
        raise errors.FailedPreconditionError(f"Attempting to use uninitialized variables: {handle.name}")
    return found


# Checks


def _check_type(value: Any, dtype: dtypes.DType) -> None:
    if value.dtype != dtype.np:
        raise errors.InvalidArgumentError(
            f"Trying to update variable with wrong dtype. Expected {dtypes.from_numpy(value.dtype)} got {dtype}"
        )


def _check_same_shape(name: str, value: Any, var: Any) -> None:
    if value.shape != var.shape:
        raise errors.InvalidArgumentError(
            f"var and {name} do not have the same shape{shape_text(var.shape)} {shape_text(value.shape)}"
        )


def _check_scalar(name: str, value: Any, limits: Limits, options: Mapping[str, Any]) -> None:
    words, holds = limits.get(name, ("not a scalar", None))
    if value.ndim or (holds is not None and not holds(value, options)):
        raise errors.InvalidArgumentError(f"{_CALLED.get(name, name)} is {words}: {shape_text(value.shape)}")


def _check_rows(xp: Any, shape: Sequence[int], grad: Any, indices: Any, op: str) -> None:
    if not shape:
        raise errors.InvalidArgumentError("var must be at least 1 dimensional")
    if indices.ndim != 1:
        raise errors.InvalidArgumentError("indices must be one-dimensional")
    if grad.ndim != len(shape):
        raise errors.InvalidArgumentError("grad must have the same number of dimensions as var")
    for axis in range(1, len(shape)):
        if grad.shape[axis] != shape[axis]:
            raise errors.InvalidArgumentError(f"var and grad must match in dimension {axis}")
    if grad.shape[0] != indices.shape[0]:
        raise errors.InvalidArgumentError("grad must be the same size as indices in the first dimension.")
    announce_scratch(3 * indices.size)
    bad = (indices < 0) | (indices >= shape[0])
    if bad.any():
        where = int(bad.argmax())
        if op.endswith("KerasMomentum"):
            raise errors.InvalidArgumentError(f"indices[{where}] = {int(indices[where])} is not in [0, {shape[0]})")
        raise errors.InvalidArgumentError(f"Index {int(indices[where])} at offset {where} in indices is out of range")


# Application


def apply_in_parts(xp: Any, formula: Formula, arrays: Sequence[Any], grad: Any, known: Mapping[str, Any]) -> None:
    """Apply a formula to whole variables, part by part if that keeps them in the processor's cache."""
    if grad.size <= _PART or xp is not np:
        formula(xp, *arrays, grad=grad, **known)
        return
    flat, flat_grad = [array.reshape(-1) for array in arrays], grad.reshape(-1)
    parts = -(-grad.size // _PART)

    def piece(i: int) -> None:
        part = slice(i * _PART, (i + 1) * _PART)
        formula(xp, *(array[part] for array in flat), grad=flat_grad[part], **known)

    if parts < _SHARED_PARTS:
        for i in range(parts):
            piece(i)
    else:
        in_pieces(parts, piece)


def _apply_rows(
    xp: Any, formula: Formula, arrays: Sequence[Any], indices: Any, grad: Any, known: Mapping[str, Any]
) -> None:
    """Apply a formula to the rows that `indices` name, part by part, as to whole variables.

    Repeated rows may take any time: the formula changes copies of them, which are written at the end.
    """
    if not indices.size:
        return
    most = max(1, _PART * len(indices) // max(1, grad.size)) if xp is np else len(indices)
    announce_scratch(_PLACE_BYTES * len(indices))
    order = xp.argsort(indices, kind="stable")
    starts = begins_run(indices[order], xp)
    if starts.all():
        with finishing():
            for start in range(0, len(indices), most):
                part = slice(start, start + most)
                _apply_distinct(xp, formula, arrays, indices[part], grad[part], known)
        return
    rows, places = indices[order][starts], xp.empty(len(indices), np.intp)
    places[order] = xp.cumsum(starts) - 1
    of_each = {id(array): array for array in arrays}
    announce_scratch(sum(len(rows) * array[:1].nbytes for array in of_each.values()))
    copies = {key: array[rows] for key, array in of_each.items()}
    whole = [copies[id(array)] for array in arrays]
    for chosen in giving_way(_in_parts(_occurrences(xp, order, starts), most), _ROWS_NS):
        _apply_distinct(xp, formula, whole, places[chosen], grad[chosen], known)
    with finishing():
        for key, array in of_each.items():
            array[rows] = copies[key]


def _apply_distinct(
    xp: Any, formula: Formula, arrays: Sequence[Any], rows: Any, grad: Any, known: Mapping[str, Any]
) -> None:
    """Apply a formula to distinct rows."""
    distinct = {id(array): array[rows] for array in arrays}
    formula(xp, *(distinct[id(array)] for array in arrays), grad=grad, **known)
    for array in arrays:
        array[rows] = distinct[id(array)]


def _in_parts(selections: Iterable[Any], most: int) -> Iterator[Any]:
    """Yield the same selections, at most `most` rows at a time."""
    for chosen in selections:
        for start in range(0, len(chosen), most):
            yield chosen[start : start + most]


def _occurrences(xp: Any, order: Any, starts: Any) -> Iterator[Any]:
    """Yield selections without repeated rows: all first occurrences, all second ones, and so on.

    Args:
        order: positions in ascending order of the rows that they name.
        starts: True where the row differs from the one before in that order.
    """
    positions = xp.arange(len(order))
    occurrence = positions - accumulator(xp, "maximum")(xp.where(starts, positions, 0), 0)
    ordered = order[xp.argsort(occurrence, kind="stable")]
    ends = xp.cumsum(xp.bincount(occurrence)).tolist()
    for start, end in itertools.pairwise((0, *ends)):
        yield ordered[start:end]


def _register() -> None:
    for name, optimiser in OPTIMISERS.items():
        handles = ("var", *optimiser.slots)
        dense = _builder(optimiser, sparse=False)
        kernel(f"ResourceApply{name}", cost=_DENSE_COST, host_memory=handles, T=optimiser.types)(dense)
        if optimiser.has_ref_ops:
            kernel(f"Apply{name}", cost=_DENSE_COST, T=optimiser.types)(dense)
        if not optimiser.sparse_types:
            continue
        sparse = _builder(optimiser, sparse=True)
        types: Any = {"T": optimiser.sparse_types, "Tindices": INDEX}
        # TensorFlow registers the handles of this optimiser alone as host memory.
        host = handles if name == "AdagradDA" else ()
        kernel(f"ResourceSparseApply{name}", cost=_SPARSE_COST, host_memory=host, **types)(sparse)
        if optimiser.has_ref_ops:
            kernel(f"SparseApply{name}", cost=_SPARSE_COST, **types)(sparse)


_register()
