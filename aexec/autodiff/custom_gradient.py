"""`custom_gradient`: a Python function over tensors that defines its own gradient.

Its results go through one `IdentityN`, whose gradient is the function's own; no gradient flows through the nodes that
the function made.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from aexec.client.building import gradient_override_map, name_scope
from aexec.control_flow.structure import leaves_of, pack
from aexec.framework import dtypes, errors
from aexec.framework.op_contract.gradient_registry import global_registry
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node, require_graph
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["custom_gradient"]

_numbers = itertools.count()


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function define its own gradient.

    ::

        @aexec.custom_gradient
        def log1pexp(x):
            e = aexec.ops.exp(x)

            def grad(upstream):
                return upstream * (1 - 1 / (1 + e))

            return aexec.ops.log(1 + e), grad

    Args:
        function: of tensors, variables and values, by position; returns a structure of tensors, and a function that
            takes a gradient for each of them and returns that of each argument: a tensor, or None.  Variables that it
            uses have to be arguments.

    Returns:
        a function that returns the structure.

    Raises:
        InvalidArgumentError: of the call, if the function does not return these two; when gradients are taken, if the
            number of gradients is not that of the arguments.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with name_scope(getattr(function, "__name__", "custom_gradient").strip("<>_") or "custom_gradient"):
            outside = [_argument(arg) for arg in args]
            made = function(
                *(arg if isinstance(arg, TensorProxy) else t for arg, t in zip(args, outside, strict=True)), **kwargs
            )
            if not isinstance(made, tuple) or len(made) != 2 or not callable(made[1]):
                raise errors.InvalidValueError(
                    f"{getattr(function, '__name__', function)!r} must give its result and its gradient function, "
                    f"got {made!r}"
                )
            result, gradient = made
            tensors = [convert_to_tensor(leaf) for leaf in leaves_of(result)]
            name = f"CustomGradient-{next(_numbers)}"
            own = _registered(gradient, len(tensors), len(outside))
            global_registry.register_weakly(name, own)
            require_graph().outermost.build_state.gradient_functions.append(own)
            with gradient_override_map({"IdentityN": name}):
                node = create_node("IdentityN", {"input": [*tensors, *outside]}, {})
            return pack(result, list(node.outputs[: len(tensors)]))

    return called


def _argument(value: Any) -> Tensor:
    """The tensor that gets the argument's gradient; of a resource variable, its handle."""
    if isinstance(value, TensorProxy) and value.reference.dtype.base is dtypes.resource:
        return value.reference
    return convert_to_tensor(value)


def _registered(gradient: Callable[..., Any], results: int, arguments: int) -> Callable[..., Any]:
    def of_node(op: Any, *grads: Any) -> list[Any]:
        made = gradient(*grads[:results])
        listed = list(made) if isinstance(made, list | tuple) and not hasattr(made, "_fields") else [made]
        if len(listed) != arguments:
            raise errors.InvalidValueError(
                f"the custom gradient of '{op.name}' gives {len(listed)} gradients for {arguments} arguments"
            )
        return [None] * results + listed

    return of_node
