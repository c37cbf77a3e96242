"""Computes the sizes of a call's outputs with its op's shape function, and costs from these sizes.

A kernel whose outputs may be larger than its inputs declares the cost `PerOutput`.  Elementwise ops whose inputs
broadcast need not: their shape functions are used anyway (`Broadcast`).  Calling a shape function takes some 10 µs.  So
kernels that are called often with small values, and whose output sizes are values of inputs (Fill, random numbers),
have a cost function of their own, and broadcasting is computed only if the product of sizes is large.
Next to read: `op_kernel.py` for costs, `aexec/runtime/interpreter/memory_accountant.py`, which uses sizes, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from aexec.framework.op_contract import op_registry
from aexec.framework.shape import MAX_RANK
from aexec.framework.shape_functions import common_shape_fns
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape

if TYPE_CHECKING:
    from aexec.framework.shape import PartialTensorShape
    from aexec.framework.wire.op_def import OpDef

__all__ = [
    "AtMost",
    "AttrCost",
    "Broadcast",
    "PerOutput",
    "Varying",
    "broadcast_elements",
    "broadcasts",
    "expected_ns",
    "inferred_shapes",
    "is_as_large_as_an_input",
    "outgrow",
    "output_shapes",
    "rows_of",
]

# The time of a kernel for a row without elements: each size of a shape counts as 1 at least.
_HOLLOW_ROW_NS = 500.0
_FEW_HOLLOW_ROWS = 1000
# Number of input shapes for which a node's outputs are remembered.
_MAX_KNOWN = 1 << 8
# A vector that gives a shape or paddings has at most this many numbers.
_MOST_NUMBERS = 2 * MAX_RANK
_Dims = tuple[int | None, ...]


def expected_ns(cost: float | Callable[..., float], inputs: Sequence[Any]) -> float:
    """The time of a call in nanoseconds, by its kernel's cost: per element of the inputs, or a function of them.

    An input without elements may have any number of rows, which kernels' costs do not count: a shape of [1e8, 0] takes
    no memory.  They are added here, except for a kernel whose cost is 0, which looks at none.

    Raises:
        whatever the cost function raises: the inputs have not been checked.
    """
    if not cost:
        return 0.0
    elements = 1
    for value in inputs:
        size = value.size
        elements += size
        if not size and (rows := rows_of(value.shape)) > _FEW_HOLLOW_ROWS:
            return _HOLLOW_ROW_NS * rows
    if callable(cost):
        estimate: float = cost(*inputs)
        return estimate
    return float(elements * cost)


def rows_of(dims: Iterable[int]) -> int:
    """The number of rows or elements that a kernel goes through; an empty dimension counts as 1."""
    return math.prod([size or 1 for size in dims])


class Broadcast:
    """A cost function: nanoseconds per element of the shape that the inputs broadcast to.

    Args:
        element_ns: nanoseconds per element.
        call_ns: nanoseconds of a call without elements.
    """

    __slots__ = ("call_ns", "element_ns")

    def __init__(self, element_ns: float, call_ns: float = 0.0) -> None:
        self.element_ns = element_ns
        self.call_ns = call_ns

    def __call__(self, *inputs: Any) -> float:
        return self.call_ns + self.element_ns * broadcast_elements(inputs)


class Varying(Broadcast):
    """Like `Broadcast`, for a kernel whose time depends on the values: a quick call does not mean that others are.

    The cost is an eighth of that for the slowest values, and is not corrected downwards.
    """

    __slots__ = ()


class AtMost:
    """A cost function whose result is limited by the number of elements, so that it need not be asked for small values.

    Args:
        element_ns: nanoseconds per element of the inputs, at most.
        cost: returns nanoseconds.
    """

    __slots__ = ("cost", "element_ns")

    def __init__(self, element_ns: float, cost: Callable[..., float]) -> None:
        self.element_ns = element_ns
        self.cost = cost

    def __call__(self, *inputs: Any) -> float:
        return self.cost(*inputs)


def broadcast_elements(inputs: Sequence[Any]) -> int:
    """The number of elements that arrays broadcast to; of the largest if they do not broadcast, or to none."""
    first = inputs[0].shape
    if all(value.shape == first for value in inputs):
        return int(inputs[0].size)
    sizes = [max(dims) if min(dims) else 0 for dims in zip_longest(*[x.shape[::-1] for x in inputs], fillvalue=1)]
    # A kernel may convert its inputs before it finds that there is nothing to do.
    return math.prod(sizes) or max(int(value.size) for value in inputs)


def outgrow(first: Any, second: Any, most: int) -> bool:
    """True if two arrays broadcast to more than `most` elements.  Quick if the shape of one is a suffix of the
    other's.
    """
    if first.size * second.size <= most:
        return False
    longer, shorter = first.shape, second.shape
    elements = first.size
    if len(longer) < len(shorter):
        longer, shorter, elements = shorter, longer, second.size
    if longer[len(longer) - len(shorter) :] != shorter:
        elements = broadcast_elements((first, second))
    return bool(elements > most)


class AttrCost:
    """A cost that depends on a node's attrs too.

    Args:
        of_attrs: returns the cost, a number or a function of the inputs, for attr name → value.
    """

    __slots__ = ("_of_attrs",)

    def __init__(self, of_attrs: Callable[[Mapping[str, Any]], float | Callable[..., float]]) -> None:
        self._of_attrs = of_attrs

    def of_node(self, op_def: OpDef, attrs: Mapping[str, Any]) -> float | Callable[..., float]:
        """The cost of a node: nanoseconds per element of its inputs, or a function of the inputs."""
        return self._of_attrs(attrs)


class PerOutput(AttrCost):
    """A cost: nanoseconds per element of the inputs, or of the outputs if these are more.

    Args:
        element_ns: nanoseconds per element.
        elements: returns the number of the outputs' elements from the inputs; None to ask the op's shape function.
    """

    __slots__ = ("_elements", "element_ns")

    def __init__(self, element_ns: float, elements: Callable[..., float] | None = None) -> None:
        self.element_ns = element_ns
        self._elements = elements

    def of_node(self, op_def: OpDef, attrs: Mapping[str, Any]) -> Callable[..., float]:
        """The cost function of a node."""
        elements: Callable[..., float] = self._elements or _told_by_shapes(op_def, attrs)
        element_ns: float = self.element_ns

        def cost(*inputs: Any) -> float:
            given = float(1 + sum(value.size for value in inputs))
            return element_ns * max(given, elements(*inputs))

        return cost


def broadcasts(op: str) -> bool:
    """True if an op's output has the shape that its inputs broadcast to."""
    data = op_registry.global_registry.find(op)
    return data is not None and data.shape_fn is common_shape_fns.broadcast_binary


def inferred_shapes(
    op_def: OpDef, attrs: Mapping[str, Any], inputs: Sequence[Any], evaluate: Callable[[int], Any]
) -> Sequence[PartialTensorShape] | None:
    """The output shapes by an op's shape function; None if it has none.

    Args:
        evaluate: returns the value of an input, by its position; None if it must not be used.

    Raises:
        whatever the shape function raises for wrong inputs.
    """
    data = op_registry.global_registry.find(op_def.name)
    if data is None or data.shape_fn is None:
        return None
    shapes = [Shape(value.shape if isinstance(value, np.ndarray | np.generic) else None) for value in inputs]
    context = InferenceContext(op_def, attrs, shapes, evaluate=evaluate)
    data.shape_fn(context)
    return context.outputs


def output_shapes(
    op_def: OpDef,
    attrs: Mapping[str, Any],
    inputs: Sequence[Any],
    looked_at: list[int],
    inferred: Sequence[PartialTensorShape] = (),
) -> Sequence[PartialTensorShape]:
    """The output shapes, by the op's shape function, of a call that has not been made.

    Args:
        looked_at: the positions of the inputs whose values were used are added to it.
        inferred: returned if the op has no shape function, or it fails.
    """

    def value(index: int) -> Any:
        looked_at.append(index)
        given = inputs[index]
        return given if isinstance(given, np.ndarray) and given.size <= _MOST_NUMBERS else None

    try:
        shapes = inferred_shapes(op_def, attrs, inputs, value)
    except Exception:
        return inferred  # the kernel reports what is wrong with its inputs
    return inferred if shapes is None else shapes


def _told_by_shapes(op_def: OpDef, attrs: Mapping[str, Any]) -> Callable[..., float]:
    known: dict[Any, float] = {}

    def elements(*inputs: Any) -> float:
        key = tuple([getattr(value, "shape", None) for value in inputs])
        found = known.get(key)
        if found is not None:
            return found
        looked_at: list[int] = []
        shapes = output_shapes(op_def, attrs, inputs, looked_at)
        count = float(sum(math.prod(dims) for shape in shapes if (dims := _fully_known(shape)) is not None))
        if not looked_at:
            if len(known) >= _MAX_KNOWN:
                known.clear()
            known[key] = count
        return count

    return elements


def _fully_known(shape: PartialTensorShape) -> list[int] | None:
    known = [size for size in shape.dims or () if size is not None]
    return None if shape.dims is None or len(known) < len(shape.dims) else known


def is_as_large_as_an_input(shapes: Sequence[_Dims | None]) -> bool:
    """True if inputs of these shapes, whose sizes may be unknown, never broadcast to more than the largest of them has.

    That is so if one input is known to be as long as the output on every axis; on one axis the longest may be unknown.
    """
    if any(dims is None for dims in shapes):
        return False
    aligned = [dims[::-1] for dims in shapes if dims is not None]
    as_long = set(range(len(aligned)))
    open_axes: list[set[int]] = []
    for axis in zip_longest(*aligned, fillvalue=1):
        longer = {i for i, size in enumerate(axis) if size is not None and size != 1}
        unknown = {i for i, size in enumerate(axis) if size is None}
        if longer:
            as_long &= longer
        elif len(unknown) == 1:
            as_long &= unknown
        elif unknown:
            open_axes.append(unknown)
    return bool(as_long) and (not open_axes or (len(open_axes) == 1 and open_axes[0] <= as_long))
