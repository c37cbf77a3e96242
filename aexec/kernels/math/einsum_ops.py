"""Einsum: sums of products named by labels, over one or two inputs.

TensorFlow's equations are more general than NumPy's: any character is a label, a label may occur twice in the output (a
diagonal is filled), the axes under an ellipsis broadcast. So an equation is compiled here into steps: each input is
brought to the axes (batch..., free, contracted), multiplied as matrices, and brought to the output's axes.  The steps
depend only on the ranks of the inputs, and are kept for the next call.
Next to read: `matmul_ops.py`, whose products are used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.shape import shape_text
from aexec.kernels.math import matmul_ops

__all__: list[str] = []

ELLIPSIS = "..."
# A label: a character, or (for an axis under an ellipsis) its distance from the ellipsis' end.
Label = Hashable
Labels = tuple[Label, ...]
Step = Callable[[Any], Any]

# Nanoseconds per element of the result: putting its axes into order, and rounding it to a small type.
_MADE_NS = 3.0


def _einsum_cost(attrs: Mapping[str, Any]) -> Callable[..., float]:
    """Multiplications, and elements of the result, by the sizes of the labels; an estimate if axes are under an
    ellipsis.
    """
    try:
        equation = Equation(attrs["equation"].decode(), attrs["N"])
    except (errors.InvalidArgumentError, UnicodeDecodeError):
        return _einsum_ns  # the kernel refuses it
    if any(ELLIPSIS in labels for labels in (*equation.inputs, equation.output)):
        return _einsum_ns

    def cost(*inputs: Any) -> float:
        sizes: dict[Label, int] = {}
        for labels, x in zip(equation.inputs, inputs, strict=True):
            sizes.update(zip(labels, x.shape, strict=False))
        made = math.prod([sizes.get(label, 0) for label in equation.output])  # the kernel refuses wrong inputs
        steps = math.prod(sizes.values()) if len(inputs) > 1 else 0
        return 3000.0 + float(sum([x.size for x in inputs])) + 0.1 * steps + _MADE_NS * made

    return cost


def _einsum_ns(*inputs: Any) -> float:
    if len(inputs) == 1:
        return 1000.0 + float(inputs[0].size)
    # A contraction over one shared axis: sqrt(|a| * |b| * |result|) multiplications, with a result about as big as an
    # input.
    a, b = inputs
    return 3000.0 + 0.1 * float(np.sqrt(float(a.size) * b.size * max(a.size, b.size)))


class Equation:
    """A parsed equation such as `...ij,...jk->...ik`.

    Attributes:
        inputs: the labels of each input; an ellipsis is the one label "...".
        output: labels of the result.

    Raises:
        InvalidArgumentError: the equation is malformed, or is not for this number of inputs.
    """

    def __init__(self, text: str, num_inputs: int) -> None:
        self.text = text
        sides = text.split("->")
        if len(sides) != 2:
            raise errors.InvalidArgumentError(f"Expecting exactly one '->' in einsum equation: {text}")
        terms = sides[0].split(",")
        if len(terms) not in (1, 2):
            raise errors.InvalidArgumentError(
                f"Expecting 1 or 2 input subscripts in equation '{text}' but got: {len(terms)}"
            )
        if len(terms) != num_inputs:
            raise errors.InvalidArgumentError(f"Expected {len(terms)} inputs for equation {text} but got: {num_inputs}")
        self.inputs = tuple(_labels(term, "input") for term in terms)
        self.output = _labels(sides[1], "output")
        known = {ELLIPSIS, *(label for labels in self.inputs for label in labels)}
        for label in self.output:
            if label not in known:
                raise errors.InvalidArgumentError(
                    f"Einsum output subscripts for equation '{text}' has label '{label}' "
                    "which is not present in the input subscripts"
                )

    def with_axes(self, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Labels], Labels]:
        """Labels of inputs and output, one per axis, for inputs of these shapes (of which only ranks matter).

        Raises:
            InvalidArgumentError: a rank that the equation does not allow.
        """
        inputs: list[Labels] = []
        widest = 0
        for i, (labels, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            named = len(labels) - (ELLIPSIS in labels)
            if ELLIPSIS not in labels and len(shape) != named:
                raise errors.InvalidArgumentError(f"Expected input {i} to have rank {named} but got: {len(shape)}")
            if len(shape) < named:
                raise errors.InvalidArgumentError(
                    f"Expected input {i} to have rank at least {named} but got: {len(shape)}"
                )
            widest = max(widest, len(shape) - named)
            inputs.append(_expand(labels, len(shape) - named))
        if widest and ELLIPSIS not in self.output:
            raise errors.InvalidArgumentError(
                f"Output contains {widest} broadcasting dimension(s) but no ellipsis (...) was found in the "
                "output subscripts."
            )
        return inputs, _expand(self.output, widest)


def _labels(term: str, kind: str) -> Labels:
    """`a...b` → ("a", "...", "b").  Raises InvalidArgumentError for stray periods."""
    before, ellipsis, after = term.partition(ELLIPSIS)
    if "." in before or "." in after:
        raise errors.InvalidArgumentError(
            f"Expected at most one ellipsis (...), but found {term.count('.')} periods (.) in the {kind} "
            f"subscript: {term}"
        )
    return (*before, *([ELLIPSIS] if ellipsis else []), *after)


def _expand(labels: Labels, width: int) -> Labels:
    """The labels with an ellipsis replaced by `width` labels, counted from its right end."""
    axes: list[Label] = []
    for label in labels:
        axes.extend(range(width - 1, -1, -1) if label == ELLIPSIS else (label,))
    return tuple(axes)


def _broadcasts(label: Label) -> bool:
    return isinstance(label, int)


class _Plan:
    """A plan to evaluate an equation for inputs of certain ranks.

    Attributes:
        equal_axes: pairs of ((input, axis), (input, axis)) that must have one size.
        prepare: per input, the step that takes diagonals, sums and transposes.
        combine: turns the prepared inputs into the result without repeated labels.
        finish: fills diagonals for labels that occur twice in the output; None if none does.
    """

    __slots__ = ("combine", "equal_axes", "finish", "prepare")

    def __init__(self, inputs: Sequence[Labels], output: Labels, xp: Any, dtype: DType) -> None:
        self.equal_axes = _axes_of_one_size(inputs)
        wanted = tuple(dict.fromkeys(output))
        self.finish = _inflate(wanted, output, xp) if len(wanted) != len(output) else None
        if len(inputs) == 1:
            self.prepare: list[Step] = [_reduce(inputs[0], wanted, dtype)]
            self.combine: Callable[..., Any] = lambda x: x
            return
        left, right = (tuple(dict.fromkeys(labels)) for labels in inputs)
        axes = [label for label in wanted if _broadcasts(label)]
        batch = [label for label in wanted if label in left and label in right and not _broadcasts(label)]
        rows = [label for label in wanted if label in left and label not in right and not _broadcasts(label)]
        columns = [label for label in wanted if label in right and label not in left and not _broadcasts(label)]
        inner = [label for label in left if label in right and label not in wanted]
        self.prepare = [
            _reduce(inputs[0], (*axes, *batch, *rows, *inner), dtype),
            _reduce(inputs[1], (*axes, *batch, *inner, *columns), dtype),
        ]
        product = _Product(len(axes) + len(batch), len(rows), len(columns), len(inner), xp, dtype)
        order = _order((*axes, *batch, *rows, *columns), wanted)
        self.combine = product if order is None else (lambda a, b: product(a, b).transpose(order))

    def __call__(self, *inputs: Any) -> Any:
        result = self.combine(*(step(x) for step, x in zip(self.prepare, inputs, strict=True)))
        return result if self.finish is None else self.finish(result)


def _axes_of_one_size(inputs: Sequence[Labels]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    first: dict[Label, tuple[int, int]] = {}
    pairs = []
    for i, labels in enumerate(inputs):
        for axis, label in enumerate(labels):
            if not _broadcasts(label) and first.setdefault(label, (i, axis)) != (i, axis):
                pairs.append((first[label], (i, axis)))
    return pairs


def _order(have: Labels, wanted: Labels) -> tuple[int, ...] | None:
    """Axes for a transpose from labels `have` to `wanted`; None if they are equal."""
    order = tuple(have.index(label) for label in wanted)
    return None if order == tuple(range(len(have))) else order


def _reduce(labels: Labels, wanted: Labels, dtype: DType) -> Step:
    """A step from axes `labels` to axes `wanted`: diagonals, sums over unwanted axes, transpose.

    Wanted labels of an ellipsis that the input lacks become axes of size 1.
    """
    steps: list[Step] = []
    axes = list(labels)
    for label in [label for label, count in Counter(labels).items() if count > 1]:
        while axes.count(label) > 1:
            i = axes.index(label)
            j = axes.index(label, i + 1)
            steps.append(_diagonal(i, j))
            axes = [*axes[:i], *axes[i + 1 : j], *axes[j + 1 :], label]
    gone = tuple(i for i, label in enumerate(axes) if label not in wanted)
    if gone:
        steps.append(_sum(gone, dtype))
        axes = [label for label in axes if label in wanted]
    order = _order(tuple(axes), tuple(label for label in wanted if label in axes))
    if order is not None:
        steps.append(lambda x: x.transpose(order))
    if any(label not in axes for label in wanted):
        index = tuple(slice(None) if label in axes else None for label in wanted)
        steps.append(lambda x: x[index])
    return _chain(steps)


def _diagonal(i: int, j: int) -> Step:
    return lambda x: x.diagonal(axis1=i, axis2=j)


def _sum(axes: tuple[int, ...], dtype: DType) -> Step:
    if dtype in matmul_ops.LOW_PRECISION_TYPES:
        # One rounding at the end, not one for each term.
        return lambda x: x.sum(axes, dtype=np.float32).astype(dtype.np)
    return lambda x: x.sum(axes, dtype=dtype.np)


def _chain(steps: list[Step]) -> Step:
    if not steps:
        return lambda x: x
    if len(steps) == 1:
        return steps[0]

    def run(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return run


class _Product:
    """(batch..., rows..., inner...) times (batch..., inner..., columns...) → (batch..., rows..., columns...).

    Batch axes broadcast.  Without inner axes it is an outer product.
    """

    __slots__ = ("batch", "columns", "inner", "multiply", "product", "rows")

    def __init__(self, batch: int, rows: int, columns: int, inner: int, xp: Any, dtype: DType) -> None:
        self.batch, self.rows, self.columns, self.inner = batch, rows, columns, inner
        self.product = matmul_ops.batch_product(xp, dtype)
        self.multiply = xp.multiply

    def __call__(self, a: Any, b: Any) -> Any:
        batch = self.batch
        if not self.inner:
            a = a[(..., *[None] * self.columns)]
            b = b[(*[slice(None)] * batch, *[None] * self.rows, ...)]
            return self.multiply(a, b)
        if self.rows == self.columns == self.inner == 1:
            return self.product(a, b)
        split = batch + self.rows
        rows, columns = a.shape[batch:split], b.shape[batch + self.inner :]
        length = math.prod(a.shape[split:])
        result = self.product(
            a.reshape((*a.shape[:batch], math.prod(rows), length)),
            b.reshape((*b.shape[:batch], length, math.prod(columns))),
        )
        return result.reshape((*result.shape[:batch], *rows, *columns))


def _inflate(labels: Labels, output: Labels, xp: Any) -> Step:
    """A step from axes `labels` to axes `output` in which a label repeats: zeros beside the diagonal."""

    def fill(x: Any) -> Any:
        x = xp.asarray(x)
        sizes = dict(zip(labels, x.shape, strict=True))
        filled = xp.zeros([sizes[label] for label in output], x.dtype)
        grid = dict(zip(labels, xp.ix_(*map(xp.arange, x.shape)), strict=True))
        filled[tuple(grid[label] for label in output)] = x
        return filled

    return fill


EINSUM_TYPES = (
    *matmul_ops.BLAS_TYPES,
    *matmul_ops.LOW_PRECISION_TYPES,
    dtypes.int32,
    dtypes.int64,
)


@kernel("Einsum", T=EINSUM_TYPES, cost=AttrCost(_einsum_cost))
def einsum(c: OpKernelConstruction) -> Compute:
    """Tensor contraction by an equation."""
    xp, dtype = c.xp, c.attr("T").base
    equation = Equation(c.text("equation"), c.attr("N"))
    plans: dict[tuple[int, ...], _Plan] = {}

    def plan_for(inputs: tuple[Any, ...]) -> _Plan:
        return _Plan(*equation.with_axes([x.shape for x in inputs]), xp, dtype)

    def compute(*inputs: Any) -> Any:
        ranks = tuple([x.ndim for x in inputs])
        plan = plans.get(ranks)
        if plan is None:
            plan = plans[ranks] = plan_for(inputs)
        for (i, axis), (j, other) in plan.equal_axes:
            if inputs[i].shape[axis] != inputs[j].shape[other]:
                raise _size_error(inputs[i].shape[axis], inputs[j].shape, other)
        return plan(*inputs)

    def broadcasting_error(*inputs: Any) -> errors.OpError:
        # All other sizes were compared: only axes under an ellipsis can fail to broadcast.
        plan = plan_for(inputs)
        a, b = (step(x) for step, x in zip(plan.prepare, inputs, strict=True))
        return errors.InvalidArgumentError(
            f"Invalid broadcasting dimensions: {shape_text(a.shape)} vs. {shape_text(b.shape)}"
        )

    c.explain = matmul_ops.explained_by(broadcasting_error)
    return compute


def _size_error(expected: int, shape: tuple[int, ...], axis: int) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"Expected dimension {expected} at axis {axis} of the input shaped {shape_text(shape)} "
        f"but got dimension {shape[axis]}"
    )
