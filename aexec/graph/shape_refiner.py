"""Shape inference over a graph: calls shape functions, and computes the constants that they ask for.

Nodes are visited producers first; the value of a back edge is unknown.  A table of rules handles most nodes by their
input shapes alone; the others get an `InferenceContext`.  Errors, and which values count as constant, follow
core/common_runtime/shape_refiner.cc.
Next to read: `constant_evaluation.py`, then `aexec/framework/shape_functions/shape_inference.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from aexec import proto
from aexec.framework import errors
from aexec.framework.op_contract import op_registry
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.shape_functions.common_shape_fns import SHAPE_RULES
from aexec.framework.shape_functions.shape_inference import HandleData, InferenceContext, Shape, ShapeFn, ShapeManager
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire import attr_value, node_def
from aexec.graph.calls import called_function
from aexec.graph.constant_evaluation import Allowance, ConstantEvaluator
from aexec.graph.function_body import instantiate
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.traversal import producers_first

__all__ = ["infer_shapes", "set_shape"]

_log = logging.getLogger(__name__)

# Limits for inference in functions' bodies; the outputs of calls beyond them have unknown shapes.
_MAX_BODY_NODES = 200_000
_MAX_CALL_DEPTH = 50
_MAX_INSTANCES = 1000
# Most warnings that one import logs.
_MAX_WARNINGS = 10


def infer_shapes(
    order: Iterable[Node], node_of: Callable[[int], Node], library: FunctionLibrary, producer: int
) -> None:
    """Set `shapes`, and `handle_data` where it is known, of new nodes.

    Args:
        order: the new nodes, producers first, ignoring back edges to Merge.
        node_of: returns a node by id; nodes that are not new have their shapes already.
        library: functions that nodes may call.
        producer: producer version of the GraphDef.

    Raises:
        InvalidArgumentError: an op cannot take its input shapes, or `_output_shapes` contradict the inferred shapes.
    """
    refiner = ShapeRefiner(node_of, library, producer)
    try:
        refiner.add(order)
    finally:
        refiner.calls.shape_fns.clear()  # each one refers back to it


def set_shape(node: Node, index: int, shape: PartialTensorShape) -> None:
    """Merge a known shape into that of an output.  Raises InvalidArgumentError if they contradict each other."""
    known = Shape.of(node.shapes[index] if node.shapes is not None else UNKNOWN_RANK)
    context = InferenceContext(node.op_def, node.attrs, (), num_outputs=0)
    merged = context.merge(known, Shape.of(shape))
    shapes = list(node.shapes or (UNKNOWN_RANK,) * node.num_outputs)
    shapes[index] = merged
    node.shapes = tuple(shapes)


class ShapeRefiner:
    """Infers shapes in one graph, or in the body of one call; then `outer` is the context of the call."""

    def __init__(
        self,
        node_of: Callable[[int], Node],
        library: FunctionLibrary,
        producer: int,
        outer: InferenceContext | None = None,
        calls: _Calls | None = None,
    ) -> None:
        self.node_of = node_of
        self.library = library
        self.producer = producer
        self.outer = outer
        self.calls = calls or _Calls()
        self.manager = ShapeManager() if outer is None else outer.manager
        self.constants = ConstantEvaluator(node_of, self.manager, outer, self.calls.allowance)
        self._shape_fns: dict[str, ShapeFn | None] = {}

    def add(self, order: Iterable[Node]) -> None:
        """Infer the shapes of new nodes.  Raises what `infer_shapes` raises."""
        node_of = self.node_of
        for node in steadily(order):
            op = node.op_def.name
            try:
                shape_fn = self._shape_fns[op]
            except KeyError:
                shape_fn = self._shape_fns[op] = self._shape_fn(op)
            inputs = []
            has_handles = False
            for source_id, slot in node.in_edges:
                source = node_of(source_id)
                shapes = source.shapes
                shape = Shape(None) if shapes is None else shapes[slot]
                inputs.append(shape if type(shape) is Shape else Shape.of(shape))
                has_handles = has_handles or source.handle_data is not None
            rule = None if has_handles else SHAPE_RULES.get(shape_fn)
            outputs = None if rule is None else rule(node.attrs, inputs, self.manager)
            node.shapes = self._infer(node, shape_fn, inputs) if outputs is None else outputs
            if "_output_shapes" in node.attrs:
                self._merge_output_shapes(node)

    def _shape_fn(self, op: str) -> ShapeFn | None:
        data = op_registry.global_registry.find(op)
        return None if data is None else data.shape_fn

    def _infer(self, node: Node, shape_fn: ShapeFn | None, inputs: list[Shape]) -> tuple[Shape, ...]:
        """Infer through a context, for nodes that the table of rules does not handle."""
        handle_data = self._handle_data(node)
        shape_fn = self._call_shape_fn(node) or shape_fn
        if shape_fn is None:
            return tuple([Shape(None) for _ in node.output_types])
        try:
            context = InferenceContext(
                node.op_def,
                node.attrs,
                inputs,
                input_handle_data=handle_data,
                num_outputs=len(node.output_types),
                graph_version=self.producer,
                manager=self.manager,
                evaluate=lambda index: self.constants.value(*node.in_edges[index]),
                evaluate_shape=lambda index: self.constants.partial_shape(*node.in_edges[index]),
            )
            shape_fn(context)
        except errors.OpError as error:
            explained = (
                None if isinstance(shape_fn, _CallShapeFn) else self._explain(node, shape_fn, inputs, handle_data)
            )
            (explained or error).attach_node(node.name, node.op)
            raise (explained or error) from None
        except Exception:
            # A fault of a shape function must not keep the node from running.
            if self.calls.may_warn():
                _log.warning("Shape inference of node '%s' (%s) failed", node.name, node.op, exc_info=True)
            return tuple([Shape(None) for _ in node.output_types])
        if context.output_handle_data:
            node.handle_data = tuple(map(context.output_handle_shapes_and_types, range(len(node.output_types))))
        return context.outputs

    def _handle_data(self, node: Node) -> tuple[HandleData | None, ...]:
        found: list[HandleData | None] = []
        for source_id, slot in node.in_edges:
            data = self.node_of(source_id).handle_data
            found.append(None if data is None else data[slot])
        return tuple(found) if any(found) else ()

    def _explain(
        self, node: Node, shape_fn: ShapeFn, inputs: list[Shape], handle_data: tuple[HandleData | None, ...]
    ) -> errors.OpError | None:
        """Repeat a failed inference with values passed in rounds, as TensorFlow does, and return its error.

        TensorFlow's error messages show only the values that were asked for in an earlier round.
        """
        context = InferenceContext(
            node.op_def,
            node.attrs,
            inputs,
            input_handle_data=handle_data,
            num_outputs=len(node.output_types),
            graph_version=self.producer,
            node_text=lambda: node_def.node_text(node.name, node.op, node.attrs, self._input_names(node), node.device),
            manager=self.manager,
        )
        try:
            self._run_in_rounds(context, shape_fn, node)
        except errors.OpError as error:
            return error
        return None

    def _run_in_rounds(self, context: InferenceContext, shape_fn: ShapeFn, node: Node) -> None:
        given: set[tuple[str, int]] = set()
        progress = True
        while progress:
            context.run(shape_fn)
            progress = False
            for index, endpoint in enumerate(node.in_edges):
                if context.requested_input_tensor(index) and ("value", index) not in given:
                    given.add(("value", index))
                    value = self.constants.value(*endpoint)
                    context.set_input_tensor(index, value)
                    progress |= value is not None
                if context.requested_input_tensor_as_partial_shape(index) and ("shape", index) not in given:
                    given.add(("shape", index))
                    context.set_input_tensor_as_shape(index, self.constants.partial_shape(*endpoint))
                    progress = True

    def _input_names(self, node: Node) -> list[str]:
        data = [(self.node_of(i).name, k) for i, k in node.in_edges]
        names = [name if k == 0 else f"{name}:{k}" for name, k in data]
        return names + [f"^{self.node_of(i).name}" for i in node.control_edges]

    def _merge_output_shapes(self, node: Node) -> None:
        """Merge in the shapes that the GraphDef states."""
        claimed = node.attrs["_output_shapes"]
        if not isinstance(claimed, list) or not all(isinstance(shape, PartialTensorShape) for shape in claimed):
            return
        count = len(node.output_types)
        if len(claimed) < count:
            raise errors.InvalidArgumentError(
                f"Node '{node.name}' has {count} outputs but the _output_shapes attribute "
                f"specifies shapes for {len(claimed)} outputs",
                node=node.name,
                op=node.op,
            )
        if len(claimed) > count and self.calls.may_warn():
            _log.warning("Node '%s' has %d outputs but _output_shapes for %d", node.name, count, len(claimed))
        for index, shape in enumerate(claimed[:count]):
            try:
                set_shape(node, index, shape)
            except errors.InvalidArgumentError as error:
                raise errors.InvalidArgumentError(
                    f"Node '{node.name}' has an _output_shapes attribute inconsistent with the GraphDef "
                    f"for output #{index}: {error.message}",
                    node=node.name,
                    op=node.op,
                ) from None

    def _call_shape_fn(self, node: Node) -> _CallShapeFn | None:
        """Return the shape function of a call; None if its function's body may not be inferred."""
        if not len(self.library) or node.attrs.get("_disable_call_shape_inference") is True:
            return None
        function = called_function(node, self.library)
        if function is None or function.name not in self.library:
            return None
        name, attrs = function.name, dict(function.attrs)
        key = (name, frozenset((attr, attr_value.hashable(value)) for attr, value in attrs.items()))
        calls = self.calls
        call = calls.shape_fns.get(key)
        if calls.depth == _MAX_CALL_DEPTH or calls.nodes_left < len(self.library.get(name).node_def):
            return None
        if call is None:
            if len(calls.shape_fns) >= max(_MAX_INSTANCES, 2 * len(self.library)):
                return None
            call = calls.shape_fns[key] = _CallShapeFn(self, name, attrs)
        return None if call.active else call


class _Calls:
    """The calls found so far in an import, by function and attrs, and the limits for inference in bodies.

    Without limits, functions that each call another one twice would take exponential time, and functions that call
    themselves with ever larger attrs would never end.

    Attributes:
        nodes_left: how many nodes of bodies may still be visited.
        allowance: how much may still be computed for shapes.
        depth: how many calls are around the node that is being visited.
    """

    def __init__(self) -> None:
        self.shape_fns: dict[Any, _CallShapeFn] = {}
        self.nodes_left = _MAX_BODY_NODES
        self.allowance = Allowance()
        self.depth = 0
        self._warnings_left = _MAX_WARNINGS

    def may_warn(self) -> bool:
        """True if another warning may be logged; logs a final one when the limit is reached."""
        self._warnings_left -= 1
        if self._warnings_left == 0:
            _log.warning("There are more nodes with such shapes")
        return self._warnings_left > 0


class _CallShapeFn:
    """The shape function of a call: infers the body with the shapes and values of the arguments.

    `active` is True while the body is visited: a recursive call inside adds nothing new.
    """

    def __init__(self, refiner: ShapeRefiner, name: str, attrs: dict[str, Any]) -> None:
        self.library = refiner.library
        self.producer = refiner.producer
        self.calls = refiner.calls
        self.body = instantiate(self.library, name, attrs, proto.VersionDef(producer=self.producer))
        self.order = producers_first(self.body.graph.nodes, self.body.graph.nodes.__getitem__)
        self.active = False

    def __call__(self, c: InferenceContext) -> None:
        self.active = True
        self.calls.nodes_left -= 1 + len(self.order)
        self.calls.depth += 1
        try:
            self._infer(c)
        finally:
            self.active = False
            self.calls.depth -= 1

    def _infer(self, c: InferenceContext) -> None:
        nodes = self.body.graph.nodes
        for node in nodes:
            node.shapes = node.handle_data = None
        for index, node_id in enumerate(self.body.arguments):
            nodes[node_id].shapes = (c.input(index),)
            data = c.input_handle_shapes_and_types(index)
            nodes[node_id].handle_data = None if data is None else (data,)
        refiner = ShapeRefiner(nodes.__getitem__, self.library, self.producer, c, self.calls)
        refiner.add(node for node in self.order if node.shapes is None)
        for index, (node_id, slot) in enumerate(self.body.results):
            node = nodes[node_id]
            c.set_output(index, node.shapes[slot])
            data = None if node.handle_data is None else node.handle_data[slot]
            if data is not None:
                c.set_output_handle_shapes_and_types(index, data)
