"""`traced`: converts the Python function of a transformation to a function in the graph's library.

Tracing calls the function once, with the parts of an element as tensors.  The function may capture tensors and
variables from outside.
Next to read: `dataset_base.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aexec.control_flow.function_call import built, finished
from aexec.data.element_spec import Dialect, flat_shapes, flat_types, spec_and_tensors, value_of
from aexec.data.element_structure import flattened
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_def import free_name
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph

__all__ = ["Traced", "single", "traced"]


class Traced(NamedTuple):
    """A function in the graph's library.

    Attributes:
        reference: the reference that nodes hold.
        graph: the body.
        spec: the spec of the result.
        captured: the tensors from outside, which are passed as additional arguments.
    """

    reference: NameAttrList
    graph: FuncGraph
    spec: Any
    captured: list[Tensor]


def _called_with(function: Callable[..., Any], element: Any) -> Any:
    """Call a function with an element; the parts of a tuple are separate arguments."""
    return function(*element) if type(element) is tuple else function(element)


def traced(
    function: Callable[..., Any],
    spec: Any,
    where: str,
    dialect: Dialect,
    tensors_of_result: Callable[[Any], tuple[Any, list[Tensor]]] = spec_and_tensors,
) -> Traced:
    """Trace a Python function, and add it to the current graph's library.

    Args:
        spec: the spec of the elements that are its arguments.
        where: the method of `Dataset` that takes the function, for names and messages.
        tensors_of_result: converts the function's result to its spec and its tensors.

    Raises:
        InvalidArgumentError: the result cannot be an element.
    """
    if not callable(function):
        raise errors.InvalidTypeError(f"Dataset.{where}: expected a function, got {function!r:.100}")
    outer = require_graph()
    called = getattr(function, "__name__", "function").strip("<>")
    graph = FuncGraph(free_name(outer.library, f"Dataset_{where}_{called}"), outer)
    arguments = [
        graph.new_argument(dtype, f"args_{index}", shape)
        for index, (dtype, shape) in enumerate(zip(flat_types(spec), flat_shapes(spec), strict=True))
    ]
    found: list[Any] = []

    def build() -> list[Tensor]:
        result = _called_with(function, value_of(spec, arguments, dialect))
        if isinstance(result, list):  # several results of one op, rather than rows to be stacked
            result = tuple(result)
        if any(leaf is None for leaf in flattened(result)):
            raise errors.InvalidTypeError(f"Dataset.{where}: the function must give tensors, got {result!r:.200}")
        result_spec, tensors = tensors_of_result(result)
        found.append(result_spec)
        return tensors

    built(graph, build)
    return Traced(finished(graph, graph.name), graph, found[0], list(graph.captures))


def single(dtype: dtypes.DType, where: str) -> Callable[[Any], tuple[Any, list[Tensor]]]:
    """A value for `tensors_of_result`: the result must be a scalar of this dtype."""

    def tensors(result: Any) -> tuple[Any, list[Tensor]]:
        tensor = convert_to_tensor(result, dtype, "result")
        if not tensor.static_shape.is_compatible_with(PartialTensorShape([])):
            raise errors.InvalidValueError(f"{where} must return a scalar {dtype}, got shape {tensor.static_shape}")
        return spec_and_tensors(tensor)

    return tensors
