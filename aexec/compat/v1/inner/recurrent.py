"""`tensorflow.python.ops.rnn` and `rnn_cell_impl`: sizes and zeros that cells of programs use.

Next to read: `aexec/compat/v1/networks/rnn_cell.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aexec import ops
from aexec.compat.v1.functions import array_ops
from aexec.compat.v1.functions.variables import get_variable, variable_scope
from aexec.compat.v1.networks.initializers import zeros_initializer
from aexec.compat.v1.networks.rnn_cell import RNNCell
from aexec.compat.v1.platform import nest
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.static_values import get_static_value, shape_of_vector
from aexec.framework.errors import InvalidTypeError, InvalidValueError
from aexec.graph.nodes.node import Tensor
from aexec.variables.variable_scope import get_variable_scope

__all__ = ["LayerRNNCell", "assert_like_rnncell"]

LayerRNNCell = RNNCell
ASSERT_LIKE_RNNCELL_ERROR_REGEXP = "is not an RNNCell"
_WEIGHTS_VARIABLE_NAME = "kernel"
_BIAS_VARIABLE_NAME = "bias"


def assert_like_rnncell(cell_name: str, cell: Any) -> None:
    """Raises TypeError if an object lacks what cells have."""
    lacks = _lacking(cell)
    if lacks or not callable(cell):
        words = ", ".join(f"'{name}' property is missing" for name in lacks) or "is not callable"
        raise InvalidTypeError(f"The argument {cell_name!r} ({cell}) is not an RNNCell: {words}.")


def _like_rnncell(cell: Any) -> bool:
    return callable(cell) and not _lacking(cell)


def _lacking(cell: Any) -> list[str]:
    return [name for name in ("output_size", "state_size", "zero_state") if not hasattr(cell, name)]


def _concat(prefix: Any, suffix: Any, static: bool = False) -> Any:
    """The shape of two parts, each a number, a shape or a vector: a tensor, or with `static` a TensorShape."""
    known = [_static_sizes(part) for part in (prefix, suffix)]
    if static:
        if any(part is None for part in known):
            return TensorShape(None)
        return TensorShape([*known[0], *known[1]])  # type: ignore[misc]
    return array_ops.concat([_vector(part) for part in (prefix, suffix)], 0)


def _static_sizes(part: Any) -> list[int | None] | None:
    if isinstance(part, Tensor):
        if part.static_shape.rank == 0:
            return [get_static_value(part)]
        shape = shape_of_vector(part)
    else:
        shape = TensorShape(part if isinstance(part, TensorShape | list | tuple) else [part])
    return None if shape.ndims is None else shape.as_list()


def _vector(part: Any) -> Any:
    if isinstance(part, Tensor):
        return ops.reshape(part, [-1]) if part.static_shape.rank == 0 else part
    sizes = _static_sizes(part)
    if sizes is None or None in sizes:
        raise InvalidValueError(f"prefix and suffix must be fully defined, got {part}")
    return array_ops.convert_to_tensor(sizes, "int32")


def _zero_state_tensors(state_size: Any, batch_size: Any, dtype: Any) -> Any:
    """Zeros of a structure of sizes, for each element of the batch."""

    def zeros(size: Any, kind: Any) -> Any:
        made: Any = ops.fill(_concat(batch_size, size), ops.cast(0, kind))
        made.set_shape(_concat(batch_size, size, static=True))
        return made

    if nest.is_nested(dtype):
        return nest.map_structure(zeros, state_size, dtype)
    return nest.map_structure(lambda size: zeros(size, dtype), state_size)


def _transpose_batch_time(x: Any) -> Any:
    """A tensor with its first two axes exchanged."""
    tensor = array_ops.convert_to_tensor(x)
    rank = tensor.static_shape.rank
    if rank is not None and rank < 2:
        return tensor
    if rank is not None:
        return array_ops.transpose(tensor, [1, 0, *range(2, rank)])
    rest = ops.range(2, ops.rank(tensor), 1)
    return array_ops.transpose(tensor, array_ops.concat([[1, 0], rest], 0))


def _best_effort_input_batch_size(flat_input: Sequence[Any]) -> Any:
    """The size of the batch of inputs by time: an int if the graph knows it, else a tensor."""
    for tensor in flat_input:
        if tensor.shape.ndims is not None and tensor.shape.ndims >= 2:
            size = tensor.shape.as_list()[1]
            if size is not None:
                return size
    return ops.gather(ops.shape(flat_input[0]), 1)


def _maybe_tensor_shape_from_tensor(shape: Any) -> Any:
    """The known part of a shape that is a tensor."""
    return shape_of_vector(shape) if isinstance(shape, Tensor) else shape


def _infer_state_dtype(explicit_dtype: Any, state: Any) -> Any:
    """The type that is given, or that of a state, whose tensors must have one type."""
    if explicit_dtype is not None:
        return explicit_dtype
    kinds = {tensor.dtype for tensor in nest.flatten(state)}
    if len(kinds) != 1:
        raise InvalidValueError(f"State has tensors of different inferred_dtypes: {sorted(map(str, kinds))}")
    return kinds.pop()


def _linear(
    args: Any, output_size: int, bias: bool, bias_initializer: Any = None, kernel_initializer: Any = None
) -> Any:
    """The product of one or several matrices, side by side, with a variable `kernel`, and `bias` if asked for."""
    inputs = [args] if isinstance(args, Tensor) else list(_checked(args))
    width = sum(_width(each) for each in inputs)
    kind = inputs[0].dtype
    with variable_scope(get_variable_scope()):
        kernel = get_variable(_WEIGHTS_VARIABLE_NAME, [width, output_size], dtype=kind, initializer=kernel_initializer)
        found = ops.mat_mul(inputs[0] if len(inputs) == 1 else array_ops.concat(inputs, 1), kernel)
        if not bias:
            return found
        made = get_variable(
            _BIAS_VARIABLE_NAME, [output_size], dtype=kind, initializer=bias_initializer or zeros_initializer()
        )
    return ops.bias_add(found, made)


def _checked(args: Iterable[Any] | None) -> Iterable[Any]:
    if not args:
        raise InvalidValueError("`args` must be specified")
    return args


def _width(tensor: Any) -> int:
    if tensor.static_shape.rank != 2:
        raise InvalidValueError(f"linear is expecting 2D arguments: {tensor.shape}")
    size = tensor.static_shape[1]
    if size is None:
        raise InvalidValueError(f"linear expects shape[1] to be provided for shape {tensor.shape}")
    return int(size)
