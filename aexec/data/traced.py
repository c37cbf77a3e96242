"""`traced`: the Python function of a transformation, as a function of the graph's library.

The function is called once, with the parts of an element as tensors, and may use tensors and variables from outside.
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
    """A function of the library.

    Attributes:
        reference: by which nodes name it.
        graph: its body.
        spec: that of its result.
        captured: the tensors from outside that each call passes to it.
    """

    reference: NameAttrList
    graph: FuncGraph
    spec: Any
    captured: list[Tensor]


def _called_with(function: Callable[..., Any], element: Any) -> Any:
    """The result of a function for an element: the parts of a tuple are its arguments."""
    return function(*element) if type(element) is tuple else function(element)


def traced(
    function: Callable[..., Any],
    spec: Any,
    where: str,
    dialect: Dialect,
    tensors_of_result: Callable[[Any], tuple[Any, list[Tensor]]] = spec_and_tensors,
) -> Traced:
    """A Python function as a function of the current graph's library.

    Args:
        spec: that of the elements it is called with.
        where: the method that takes the function, for names and messages.
        tensors_of_result: the spec and the tensors of what the function gives.

    Raises:
        InvalidArgumentError: it gives something that cannot be an element.
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
    """For `tensors_of_result`: the result must be a scalar of this type."""

    def tensors(result: Any) -> tuple[Any, list[Tensor]]:
        tensor = convert_to_tensor(result, dtype, "result")
        if not tensor.static_shape.is_compatible_with(PartialTensorShape([])):
            raise errors.InvalidValueError(f"{where} must return a scalar {dtype}, got shape {tensor.static_shape}")
        return spec_and_tensors(tensor)

    return tensors
