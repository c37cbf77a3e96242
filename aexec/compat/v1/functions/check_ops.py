"""The less common assertions of TensorFlow: made while the graph is built if the values are known, else in each run.

Next to read: `control_flow_ops.py`, which has the most used ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies, group, name_scope
from aexec.compat.v1.functions.control_flow_ops import (
    Assert,
    assert_less,
    assert_less_equal,
    comparison_assertion,
    sign_assertion,
    told,
)
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "add_check_numerics_ops",
    "assert_integer",
    "assert_near",
    "assert_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_proper_iterable",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_same_float_dtype",
    "assert_scalar",
    "assert_type",
    "is_non_decreasing",
    "is_numeric_tensor",
    "is_strictly_increasing",
]


def _every(holds: Tensor) -> Tensor:
    return ops.all(holds, ops.range(0, ops.rank(holds), 1))


def _asserted(holds: Tensor, message: str | None, said: list[Any], data: Any, summarize: int | None) -> Node:
    return Assert(_every(holds), told(message, data, said), summarize)


def add_check_numerics_ops() -> Node:
    """`tf.add_check_numerics_ops`: an operation that checks all floating tensors of the graph, in order of creation.

    Raises:
        ValueError: a floating tensor is in a branch or a loop.
    """
    graph = get_default_graph()
    checks: list[Tensor] = []
    for node in list(graph.nodes):
        for output in node.outputs:
            if output.dtype not in (dtypes.float16, dtypes.float32, dtypes.float64):
                continue
            if node.id in graph.build_state.contexts:
                raise errors.InvalidValueError(
                    "`tf.add_check_numerics_ops() is not compatible with TensorFlow control flow operations such as "
                    f"`tf.cond()` or `tf.while_loop()`: node '{node.name}' is in one."
                )
            with control_dependencies(checks[-1:]):
                checks.append(ops.check_numerics(output, f"{node.name}:{output.index}"))
    return group(*checks[-1:])


assert_negative = sign_assertion("assert_negative", assert_less)
assert_non_positive = sign_assertion("assert_non_positive", assert_less_equal)
assert_none_equal = comparison_assertion("assert_none_equal", ops.not_equal)


def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """`tf.assert_near`: |x - y| < atol + rtol × |y|; the default tolerances are ten times the dtype's epsilon."""
    with name_scope(name or "assert_near"):
        left = convert_to_tensor(x)
        dtype = left.dtype.base
        right = convert_to_tensor(y, dtype)
        epsilon = _epsilon(dtype)
        relative = ops.cast(epsilon if rtol is None else rtol, DstT=dtype)
        absolute = ops.cast(epsilon if atol is None else atol, DstT=dtype)
        bound = absolute + relative * ops.abs(right)
        said = ["assert_near does not hold: x, y", left, right]
        return _asserted(ops.less(ops.abs(left - right), bound), message, said, data, summarize)


def _epsilon(dtype: Any) -> float:
    import ml_dtypes

    return 10 * float(ml_dtypes.finfo(dtype.as_numpy_dtype).eps)


def _rank_holds(x: Any, ranks: Sequence[int], what: str, message: str | None, name: str) -> Node | None:
    """Whether the static rank satisfies a condition; None if the rank is unknown."""
    value = convert_to_tensor(x)
    rank = value.static_shape.rank
    if rank is None:
        return None
    if rank not in ranks:
        raise errors.InvalidValueError(f"{message or ''} Tensor {value.name} must have {what}, got rank {rank}")
    return ops.no_op(name=name)


def assert_rank_at_least(
    x: Any,
    rank: int,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """`tf.assert_rank_at_least`: checks now if the rank is known, else in each run."""
    known = _rank_holds(x, range(rank, 255), f"rank at least {rank}", message, name or "assert_rank_at_least")
    if known is not None:
        return known
    with name_scope(name or "assert_rank_at_least"):
        said = ["the rank is too small: x", convert_to_tensor(x)]
        return _asserted(ops.greater_equal(ops.rank(x), rank), message, said, data, summarize)


def assert_rank_in(
    x: Any,
    ranks: Sequence[int],
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """`tf.assert_rank_in`: checks now if the rank is known, else in each run."""
    known = _rank_holds(x, ranks, f"a rank of {list(ranks)}", message, name or "assert_rank_in")
    if known is not None:
        return known
    with name_scope(name or "assert_rank_in"):
        among = ops.any(ops.equal(ops.rank(x), list(ranks)), [0])
        return _asserted(among, message, ["the rank is another one: x", convert_to_tensor(x)], data, summarize)


def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """`tf.assert_scalar`: the tensor.  Raises ValueError unless it is known to be a scalar."""
    value = convert_to_tensor(tensor)
    if value.static_shape.rank != 0:
        raise errors.InvalidValueError(
            f"{message or ''}Expected scalar shape for {value.name}, saw shape: {value.static_shape}."
        )
    return value


def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Node:
    """`tf.assert_integer`.  Raises TypeError if it has another type."""
    value = convert_to_tensor(x)
    if not value.dtype.base.is_integer:
        raise errors.InvalidTypeError(
            f'{message or ""} Expected "x" to be integer type. Found: {value.dtype} for tensor {value.name}'
        )
    return ops.no_op(name=name or "statically_determined_was_integer")


def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> Node:
    """`tf.assert_type`.  Raises TypeError if it has another type."""
    value, wanted = convert_to_tensor(tensor), dtypes.as_dtype(tf_type)
    if value.dtype.base is not wanted:
        raise errors.InvalidTypeError(
            f"{message or ''} tensor {value.name} must be of type {wanted}; got {value.dtype}"
        )
    return ops.no_op(name=name or "statically_determined_correct_type")


def assert_same_float_dtype(tensors: Iterable[Any] | None = None, dtype: Any = None) -> Any:
    """`tf.assert_same_float_dtype`: return the tensors' dtype; `dtype`, or else float32, if there are none.

    Raises:
        ValueError: the dtypes differ, or are not floating.
    """
    found = None if dtype is None else dtypes.as_dtype(dtype)
    for tensor in tensors or ():
        found = found or tensor.dtype.base
        if tensor.dtype.base is not found:
            raise errors.InvalidValueError(f"Tensor {tensor.name} must be of type {found}, got {tensor.dtype}")
    found = found or dtypes.float32
    if not found.is_floating:
        raise errors.InvalidValueError(f"Expected floating point type, got {found}.")
    return found


def assert_proper_iterable(values: Any) -> None:
    """`tf.assert_proper_iterable`.  Raises TypeError for a tensor, a string, or an object that is not iterable."""
    if isinstance(values, Tensor | str | bytes) or not isinstance(values, Iterable) or hasattr(values, "dtype"):
        raise errors.InvalidTypeError(f"Expected argument 'values' to be a 'proper' iterable. Found: {type(values)}")


def is_numeric_tensor(tensor: Any) -> bool:
    """`tf.is_numeric_tensor`."""
    return isinstance(tensor, Tensor) and (
        tensor.dtype.base.is_floating or tensor.dtype.base.is_integer or tensor.dtype.base.is_complex
    )


def _steps(x: Any) -> Tensor:
    flat = ops.reshape(convert_to_tensor(x), [-1])
    return flat[1:] - flat[:-1]


def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """`tf.is_non_decreasing`: no element is less than the one before it."""
    with name_scope(name or "is_non_decreasing"):
        steps = _steps(x)
        return _every(ops.greater_equal(steps, ops.zeros_like(steps)))


def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """`tf.is_strictly_increasing`: every element is larger than the one before it."""
    with name_scope(name or "is_strictly_increasing"):
        steps = _steps(x)
        return _every(ops.greater(steps, ops.zeros_like(steps)))
