"""`tensorflow.python.framework.smart_cond`: conditions that are decided now, if their value is known.

Next to read: `layer_utils.py`, which has the same for layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec.compat.v1.functions import control_flow_ops
from aexec.compat.v1.values.framework_ops import name_scope
from aexec.compat.v1.values.static_values import get_static_value
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["smart_case", "smart_cond", "smart_constant_value"]


def smart_cond(
    pred: Any, true_fn: Callable[[], Any] | None = None, false_fn: Callable[[], Any] | None = None, name: Any = None
) -> Any:
    """The result of one of two functions; if the condition's value is known, the other is not called.

    Raises:
        TypeError: a function cannot be called, or the condition is neither a tensor nor a bool, 0 or 1.
    """
    for argument, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if not callable(function):
            raise errors.InvalidTypeError(f"Argument `{argument}` must be callable. Received {function}")
    assert true_fn is not None and false_fn is not None
    known = smart_constant_value(pred)
    if known is None:
        return control_flow_ops.cond(pred, true_fn=true_fn, false_fn=false_fn, name=name)
    return true_fn() if known else false_fn()


def smart_constant_value(pred: Any) -> bool | None:
    """The value of a condition; None if it depends on the run.  Raises TypeError as `smart_cond`."""
    if isinstance(pred, TensorProxy):
        return None
    if isinstance(pred, Tensor):
        value = get_static_value(pred)
        return None if value is None else bool(value)
    if isinstance(pred, bool | int) and pred in (0, 1):
        return bool(pred)
    raise errors.InvalidTypeError(
        f"Argument `pred` must be a Tensor, or a Python bool, or 1 or 0. Received: pred={pred} of type "
        f"{type(pred).__name__}"
    )


def smart_case(
    pred_fn_pairs: Sequence[tuple[Any, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    name: str = "smart_case",
) -> Any:
    """As `tf.case`, without the pairs whose condition is known to be false; the first known to be true is the last."""
    left = [(pred, function) for pred, function in pred_fn_pairs if smart_constant_value(pred) is not False]
    for index, (pred, function) in enumerate(left):
        if smart_constant_value(pred) and not exclusive:
            left, default = left[:index], function
            break
    if not left:
        # As TensorFlow, which calls the last function if it knows of all conditions that they are false.
        return (pred_fn_pairs[-1][1] if default is None else default)()
    with name_scope(name):
        return control_flow_ops.case(left, default=default, exclusive=exclusive)
