"""Shape functions of the definitions beside it: elementwise, products, reductions, ranges."""

from __future__ import annotations

import math
from collections.abc import Callable

from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.shape_functions.common_shape_fns import broadcast_shape
from aexec.framework.shape_functions.shape_inference import (
    Dimension,
    HandleData,
    InferenceContext,
    Shape,
    ShapeAndType,
    dtype_text,
)


def add_n(c: InferenceContext) -> None:
    """The shape that all inputs have; for variants, also those of their values."""
    last = c.num_inputs - 1
    shape = c.input(last)
    for index in range(last - 1, -1, -1):
        try:
            shape = c.merge(c.input(index), shape)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(
                f"{error.message}\n\tFrom merging shape {index} with other shapes."
            ) from None
    c.set_output(0, shape)
    known = [d for d in map(c.input_handle_shapes_and_types, range(c.num_inputs)) if d]
    if known and len(known) == c.num_inputs:
        total = known[-1]
        for index in range(last - 1, -1, -1):
            total = _merged_data(c, index, known[index], total)
        c.set_output_handle_shapes_and_types(0, total)


def _merged_data(c: InferenceContext, index: int, one: HandleData, other: HandleData) -> HandleData:
    """The known values of a variant from two inputs that are added; the messages are TensorFlow's."""
    if len(one) != len(other):
        raise errors.InvalidArgumentError(
            f"shapes_and_types[{index}].size() == {len(one)} != shapes_and_types[0].size() == {len(other)}"
        )
    for part, (a, b) in enumerate(zip(one, other, strict=True)):
        if a.dtype is not b.dtype:
            raise errors.InvalidArgumentError(
                f"shapes_and_types[{index}][{part}].dtype() == {dtype_text(a.dtype)} != "
                f"shapes_and_types[0][{part}].dtype == {dtype_text(b.dtype)}"
            )
    return tuple(ShapeAndType(c.merge(a.shape, b.shape), a.dtype) for a, b in zip(one, other, strict=True))


def approximate_equal(c: InferenceContext) -> None:
    """Input 0; input 1 must have the same shape."""
    c.merge(c.input(0), c.input(1))
    c.set_output(0, c.input(0))


def select(c: InferenceContext) -> None:
    """Then and else have one shape; the condition has it too, or is a scalar or a vector of their rows."""
    condition, then, otherwise = c.input(0), c.input(1), c.input(2)
    data = [c.input_handle_shapes_and_types(i) for i in (1, 2)]
    if data[0] is not None and data[1] is not None and len(data[0]) == len(data[1]):
        merged = [ShapeAndType(c.merge(a.shape, b.shape), a.dtype) for a, b in zip(*data, strict=True) if a and b]
        c.set_output_handle_shapes_and_types(0, merged)
    value = c.merge(then, otherwise)
    if condition.dims is None or value.dims is None or not condition.dims:
        c.set_output(0, value)
        return
    if len(condition.dims) == 1 and value.dims:
        c.merge(condition, c.vector(c.dim(value, 0)))
        c.set_output(0, value)
        return
    c.set_output(0, c.merge(value, condition))


def select_v2(c: InferenceContext) -> None:
    """Condition, then and else broadcast."""
    both = broadcast_shape(c, c.input(1), c.input(2))
    c.set_output(0, broadcast_shape(c, c.input(0), both))


def bitcast(c: InferenceContext) -> None:
    """Input 0 with a last dimension added or removed, if the types differ in size."""
    shape = c.input(0)
    given, wanted = c.attr("T"), c.attr("type")
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    if not given.size or not wanted.size:
        raise errors.InvalidArgumentError(
            f"Cannot bitcast types {given} to {wanted} because one of the type sizes is zero."
        )
    if given.size >= wanted.size:
        more = (given.size // wanted.size,) if given.size > wanted.size else ()
        c.set_output(0, c.make_shape([*shape.handles, *more]))
        return
    divisor = wanted.size // given.size
    c.with_rank_at_least(shape, 1)
    last = shape.dims[-1]
    if last is not None and last != divisor:
        raise errors.InvalidArgumentError(
            f"Cannot bitcast from {given.enum} to {wanted.enum} due to shape. {last} does not match {divisor}"
        )
    c.set_output(0, c.subshape(shape, 0, -1))


def betainc(c: InferenceContext) -> None:
    """Three inputs of one shape; scalars among them are broadcast."""
    shapes = [c.input(i) for i in range(3)]
    arrays = [s for s in shapes if s.dims is None or s.dims]
    out = c.unknown_shape()
    for shape in arrays:
        if shape.dims is not None:
            out = c.merge(out, shape)
    if not arrays:
        out = shapes[0]
    elif len(arrays) == 1:
        out = arrays[0]
    c.set_output(0, out)


def _scalar_named(c: InferenceContext, *names: str) -> None:
    for index, name in enumerate(names):
        try:
            c.with_rank(c.input(index), 0)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(f"{error.message}\n\t for '{name}'") from None


def range_shape(c: InferenceContext) -> None:
    """A vector; its length follows from start, limit and delta, inputs 0 to 2."""
    _scalar_named(c, "start", "limit", "delta")
    values = [c.input_tensor(i) for i in range(3)]
    if any(value is None for value in values):
        c.set_output(0, c.vector(None))
        return
    start, limit, delta = (value.item() if value is not None else 0 for value in values)
    if start > limit and delta > 0:
        raise errors.InvalidArgumentError(f"Requires start <= limit when delta > 0: {start:g}/{limit:g}")
    if start < limit and delta < 0:
        raise errors.InvalidArgumentError(f"Requires start >= limit when delta < 0: {start:g}/{limit:g}")
    if delta == 0:
        raise errors.InvalidArgumentError("Requires delta != 0")
    if isinstance(start, int):
        size = -((limit - start) // -delta)
    else:
        size = math.ceil(abs((limit - start) / delta))
    c.set_output(0, c.vector(size))


def lin_space(c: InferenceContext) -> None:
    """A vector as long as the value of input 2."""
    _scalar_named(c, "start", "stop", "num")
    value = c.input_tensor(2)
    if value is not None and value <= 0:
        raise errors.InvalidArgumentError(f"Requires num > 0: {value}")
    c.set_output(0, c.vector(None if value is None else int(value)))


def cross(c: InferenceContext) -> None:
    """Two arrays of one shape whose last dimension is 3."""
    a = c.with_rank_at_least(c.input(0), 1)
    b = c.with_rank_at_least(c.input(1), 1)
    shape = c.merge(a, b)
    if shape.dims is not None:
        c.with_value(c.dim(shape, -1), 3)
    c.set_output(0, shape)


def histogram_fixed_width(c: InferenceContext) -> None:
    """A vector as long as the value of input 2."""
    c.with_value(c.dim(c.with_rank(c.input(1), 1), 0), 2)
    c.with_rank(c.input(2), 0)
    value = c.input_tensor(2)
    if value is not None and value <= 0:
        raise errors.InvalidArgumentError(f"Requires nbins > 0: {value}")
    c.set_output(0, c.vector(None if value is None else int(value)))


def bin_count(c: InferenceContext, index: int) -> int | None:
    """The number of bins in a scalar input.  Raises InvalidArgumentError if it is negative."""
    value = c.input_tensor(index)
    if value is None:
        return None
    if value.ndim != 0:
        raise errors.InvalidArgumentError(f"Shape must be rank 0 but is rank {value.ndim}")
    if value < 0:
        raise errors.InvalidArgumentError(f"size ({value}) must be non-negative")
    return int(value)


def bincount(c: InferenceContext) -> None:
    """A vector as long as the value of input 1."""
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.vector(bin_count(c, 1)))


def dense_bincount(c: InferenceContext) -> None:
    """For each row of a matrix the number of bins that input 1 gives."""
    shape = c.with_rank_at_most(c.input(0), 2)
    c.with_rank(c.input(1), 0)
    size = bin_count(c, 1)
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
    elif size is None:
        c.set_output(0, c.unknown_shape_of_rank(len(shape.dims)))
    elif len(shape.dims) < 2:
        c.set_output(0, c.vector(size))
    else:
        c.set_output(0, c.matrix(c.dim(shape, 0), size))


def sorted_bound(c: InferenceContext) -> None:
    """Two matrices; the result has the shape of the second."""
    c.with_rank(c.input(0), 2)
    c.with_rank(c.input(1), 2)
    c.set_output(0, c.input(1))


def sobol_sample(c: InferenceContext) -> None:
    """[num_results, dim]; inputs dim, num_results, skip."""
    for index in range(3):
        c.with_rank(c.input(index), 0)
    c.set_output(0, c.matrix(c.make_dim_for_scalar_input(1), c.make_dim_for_scalar_input(0)))


def arg_reduction(c: InferenceContext) -> None:
    """Input 0 without the dimension given by input 1."""
    shape = c.input(0)
    c.with_rank(c.input(1), 0)
    if shape.dims is None:
        c.set_output(0, c.unknown_shape())
        return
    rank = len(shape.dims)
    if rank <= 1:
        c.set_output(0, c.scalar())
        return
    value = c.input_tensor(1)
    if value is None:
        c.set_output(0, c.unknown_shape_of_rank(rank - 1))
        return
    given = int(value)
    if not -rank <= given < rank:
        raise errors.InvalidArgumentError(
            f"Dimension ({given}) must be in the range [{-rank}, {rank}), "
            f"where {rank} is the number of dimensions in the input."
        )
    c.set_output(0, c.make_shape([d for i, d in enumerate(shape.handles) if i != given % rank]))


def mat_mul(c: InferenceContext) -> None:
    """[rows of a, columns of b]."""
    a, b = c.with_rank(c.input(0), 2), c.with_rank(c.input(1), 2)
    rows, inner_a = a.handles if not c.attr("transpose_a") else a.handles[::-1]
    inner_b, columns = b.handles if not c.attr("transpose_b") else b.handles[::-1]
    if inner_a.value != inner_b.value or inner_a.value is None:
        c.merge_dims(inner_a, inner_b)
    c.set_output(0, c.manager.make_shape((rows, columns)))


def _product_of_matrices(c: InferenceContext) -> tuple[Shape, Shape, Dimension, Dimension, Callable[[], None]]:
    """Both arrays, and rows and columns of the product; checks the inner dimension."""
    a = c.with_rank_at_least(c.input(0), 2)
    b = c.with_rank_at_least(c.input(1), 2)
    adj_x, adj_y = c.attr("adj_x"), c.attr("adj_y")
    rows, columns = c.dim(a, -1 if adj_x else -2), c.dim(b, -2 if adj_y else -1)
    inner = (c.dim(a, -2 if adj_x else -1), c.dim(b, -1 if adj_y else -2))
    return a, b, rows, columns, lambda: (c.merge_dims(*inner), None)[1]


def batch_mat_mul(c: InferenceContext) -> None:
    """Matrices multiplied pair by pair; batch dimensions are equal."""
    a, b, rows, columns, check_inner = _product_of_matrices(c)
    batch = c.merge(c.subshape(a, 0, -2), c.subshape(b, 0, -2))
    check_inner()
    c.set_output(0, c.concatenate(batch, c.matrix(rows, columns)))


def batch_mat_mul_v2(c: InferenceContext) -> None:
    """Matrices multiplied pair by pair; batch dimensions are broadcast."""
    a, b, rows, columns, check_inner = _product_of_matrices(c)
    check_inner()
    batch = broadcast_shape(c, c.subshape(a, 0, -2), c.subshape(b, 0, -2))
    c.set_output(0, c.concatenate(batch, c.matrix(rows, columns)))


def einsum(c: InferenceContext) -> None:
    """One or two arrays whose dimensions attr `equation` names."""
    equation = c.text("equation").replace(" ", "")
    inputs_text, arrow, output = equation.partition("->")
    terms = inputs_text.split(",")
    if not arrow or "->" in output or len(terms) > 2:
        raise errors.InvalidArgumentError(
            f"Expecting exactly one or two input subscripts and one output in equation: {abridged(c.text('equation'))}"
        )
    if len(terms) != c.num_inputs:
        raise errors.InvalidArgumentError(
            f"Expected {len(terms)} inputs for equation {abridged(c.text('equation'))} but got: {c.num_inputs}"
        )
    dims: dict[str, Dimension] = {}
    batches = [_named_dims(c, index, term, dims) for index, term in enumerate(terms)]
    batch = batches[0] if len(batches) == 1 else broadcast_shape(c, *batches)
    if _has_ellipsis(output):
        if batch.dims is None:
            c.set_output(0, c.unknown_shape())
            return
    else:
        try:
            c.with_rank_at_most(batch, 0)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(
                f"{error.message}\n\t for einsum equation '{abridged(c.text('equation'))}' without ellipsis (...) "
                "in the output subscripts where input(s) have non-empty broadcasting shape"
            ) from None
        batch = c.scalar()
    found: list[Dimension] = []
    for label in output.replace("...", "."):
        if label == ".":
            found += batch.handles
        elif label in dims:
            found.append(dims[label])
        else:
            raise errors.InvalidArgumentError(
                f"Einsum output subscripts for equation '{abridged(c.text('equation'))}' has label '{label}' "
                "which is not present in the input subscripts"
            )
    c.set_output(0, c.make_shape(found))


def _has_ellipsis(term: str) -> bool:
    periods = term.count(".")
    if periods not in (0, 3):
        raise errors.InvalidArgumentError(
            f"Expected at most one ellipsis (...), but found {periods} periods (.) in the input subscript: {term}"
        )
    if periods and "..." not in term:
        raise errors.InvalidArgumentError(f"Periods found outside of ellipsis in subscript: {term}")
    return periods > 0


def _named_dims(c: InferenceContext, index: int, term: str, dims: dict[str, Dimension]) -> Shape:
    """Record an input's dimensions by label; return those under its ellipsis."""
    shape = c.input(index)
    ellipsis = _has_ellipsis(term)
    before, _, after = term.partition("...")
    labels = len(before) + len(after)
    if shape.dims is None:
        for label in before + after:
            dims.setdefault(label, c.unknown_dim())
        return c.unknown_shape() if ellipsis else c.scalar()
    try:
        (c.with_rank_at_least if ellipsis else c.with_rank)(shape, labels)
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(
            f"{error.message}\n\t for {index}th input and equation: {abridged(c.text('equation'))}"
        ) from None
    stop = len(shape.dims) - len(after)
    named = shape.handles[: len(before)] + shape.handles[stop:]
    for label, dim in zip(before + after, named, strict=True):
        dims[label] = c.merge_dims(dims[label], dim) if label in dims else dim
    return c.make_shape(shape.handles[len(before) : stop])


def sum_to_shape(c: InferenceContext) -> None:
    """The shape given by input 1."""
    c.with_rank(c.input(2), 1)
    c.set_output(0, c.make_shape_from_shape_tensor(1))
