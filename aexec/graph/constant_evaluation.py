"""Values that a graph fixes: constants, shapes that are known, and what kernels make of them.

Shape inference asks for the value of an input (`value`), or for as much as is known of the
shape that a vector says (`partial_shape`).  Which nodes count as fixed, and which are looked
through, is TensorFlow's choice: core/common_runtime/eval_const_tensor.cc, shape_refiner.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import expected_ns, inferred_shapes
from aexec.framework.shape import MAX_RANK
from aexec.framework.shape_functions.shape_inference import Array, InferenceContext, Shape, ShapeManager
from aexec.framework.types import DEVICE_CPU
from aexec.framework.waiting.long_work import taken_from
from aexec.graph.nodes.control_flow import ENTER, EXIT, MERGE
from aexec.graph.nodes.node import Endpoint, Node

__all__ = ["Allowance", "ConstantEvaluator"]

# What merges or is fed is not fixed, nor is what files hold.
_NEVER_FIXED = frozenset({"PlaceholderWithDefault", "ReadFile", "MatchingFiles"} | MERGE)
# Part of a frame can not be run; the value that enters one is still a value.
_NEVER_INSIDE = ENTER | EXIT
_MAX_DEPTH = 64
# Values are worked out to learn about shapes; more elements than this cannot be meant for that.
_MAX_ELEMENTS = 2**16
# For all values of one import together: how many elements there may be, and how long it may take to compute them by
# the kernels' own estimates: what is known of a graph must not depend on the clock.  And what a call takes besides.
_MAX_TOTAL_ELEMENTS = 2**22
_MAX_TOTAL_NS = 500e6
_CALL_NS = 20e3
# For one call of a kernel.
_MAX_CALL_NS = 1e6
# How many elements these give depends on values, but it is never more than they get, times their dimensions.
_NO_MORE_THAN_INPUTS = frozenset(
    "BroadcastGradientArgs DynamicPartition ListDiff Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Where".split()
)


class Allowance:
    """What may be computed for the shapes of one import.

    Attributes:
        elements: how many there may still be.
        nanoseconds: how much time is left.
    """

    def __init__(self) -> None:
        self.elements = _MAX_TOTAL_ELEMENTS
        self.nanoseconds = _MAX_TOTAL_NS

    def takes(self, elements: int) -> bool:
        """Take room for a value, if there is enough for it."""
        if elements > min(_MAX_ELEMENTS, self.elements):
            return False
        self.elements -= elements
        return True

    def allows(self, nanoseconds: float) -> bool:
        """May a call be made that takes so long?  Then it counts."""
        if nanoseconds > min(_MAX_CALL_NS, self.nanoseconds):
            return False
        self.nanoseconds -= nanoseconds + _CALL_NS
        return True


class ConstantEvaluator:
    """Values of one graph, or of one call of a function (then `outer` knows its arguments).

    Every endpoint is evaluated at most once.

    Args:
        allowance: shared by all evaluators of one import.
    """

    def __init__(
        self,
        node_of: Callable[[int], Node],
        manager: ShapeManager,
        outer: InferenceContext | None,
        allowance: Allowance,
    ) -> None:
        self._node_of = node_of
        self._manager = manager
        self._outer = outer
        self._allowance = allowance
        self._values: dict[Endpoint, Array | None] = {}
        # Are endpoints fixed?  Of what enters a frame only as far as it is not asked for itself.
        self._fixed: dict[Endpoint, bool] = {}
        self._shapes: dict[Endpoint, Shape] = {}

    # Values

    def value(self, node_id: int, slot: int) -> Array | None:
        """The value of an output if the graph fixes it, else None."""
        endpoint = (node_id, slot)
        if endpoint not in self._values:
            if self._is_fixed(endpoint):
                self._compute_with_inputs(endpoint)
            else:
                self._values[endpoint] = None
        return self._values[endpoint]

    def _is_fixed(self, target: Endpoint) -> bool:
        """Does nothing that it is computed from depend on a step?"""
        # Each entry is an endpoint with those of its inputs that are still to be looked at.
        stack: list[tuple[Endpoint, list[Endpoint]]] = []
        left = [target]
        for endpoint in taken_from(left):
            fixed = self._fixed.get(endpoint)
            if fixed is None:
                inputs = self._inputs_to_compute(endpoint, is_target=endpoint == target)
                fixed = inputs is not None
                if inputs is None:
                    self._fixed[endpoint] = False
                else:
                    stack.append((endpoint, inputs))
            if not fixed:
                self._fixed.update((waiting, False) for waiting, _ in stack)
                return False
            while stack and not stack[-1][1]:
                self._fixed[stack.pop()[0]] = True
            if stack:
                left.append(stack[-1][1].pop())
        return True

    def _compute_with_inputs(self, target: Endpoint) -> None:
        stack = [target]
        for endpoint in taken_from(stack):
            if endpoint in self._values:
                continue
            inputs = self._inputs_to_compute(endpoint, is_target=endpoint == target) or ()
            missing = [i for i in inputs if i not in self._values]
            if missing:
                stack += [endpoint, *missing]
            else:
                self._values[endpoint] = self._compute(endpoint)

    def _inputs_to_compute(self, endpoint: Endpoint, *, is_target: bool) -> list[Endpoint] | None:
        """Inputs whose values are needed for an endpoint's; None if it is not fixed."""
        node = self._node_of(endpoint[0])
        op = node.op
        if self._is_large(node, endpoint[1]):
            return None
        if op == "Const" or (op == "_Arg" and self._outer is not None):
            return []
        if node.op_def.is_stateful or op in _NEVER_FIXED or (op in _NEVER_INSIDE and not is_target):
            return None
        if op in ENTER:
            return list(node.in_edges)
        if self._from_input_shapes(node, endpoint[1]) is not None:
            return []
        if not node.in_edges or _host_kernel(node) is None:
            return None
        return list(dict.fromkeys(node.in_edges))

    def _is_large(self, node: Node, slot: int) -> bool:
        count = None if node.shapes is None else node.shapes[slot].num_elements
        return count is not None and count > _MAX_ELEMENTS

    def _compute(self, endpoint: Endpoint) -> Array | None:
        node = self._node_of(endpoint[0])
        if node.op == "Const":
            return self._constant(node)
        if node.op == "_Arg" and self._outer is not None:
            return self._outer.input_tensor(node.attrs["index"])
        inputs = [self._values[i] for i in node.in_edges if i in self._values]
        if node.op in ENTER:
            return inputs[0]
        known = self._from_input_shapes(node, endpoint[1])
        if known is not None:
            return known
        if len(inputs) != len(node.in_edges) or any(value is None for value in inputs):
            return None
        return self._run_kernel(node, endpoint[1], inputs)

    def _constant(self, node: Node) -> Array | None:
        value = node.attrs["value"]
        if not self._allowance.takes(value.num_elements):
            return None
        array: Array = value.array
        return array

    def _run_kernel(self, node: Node, slot: int, inputs: list[Any]) -> Array | None:
        """One output of a node run on the host; None if that is too much, its kernel refuses, or needs a step."""
        try:
            count, registered = _elements_made(node, inputs), _host_kernel(node)
            if count is None or registered is None or not self._allowance.takes(count):
                return None
            with np.errstate(all="ignore"):
                kernel = _built(registered, node)
                if kernel.wants_context or kernel.is_async:
                    return None
                if not self._allowance.allows(expected_ns(kernel.cost, inputs)):
                    return None
                result = kernel.compute(list(inputs)) if kernel.takes_list else kernel.compute(*inputs)
        except Exception:
            # Inference does its best: what cannot be computed now fails, if at all, when the graph runs.
            return None
        output = result[slot] if isinstance(result, tuple) else result
        return np.asarray(output)

    def _input_shape(self, node: Node, index: int) -> Shape:
        source, slot = node.in_edges[index]
        shapes = self._node_of(source).shapes
        return Shape(None) if shapes is None else Shape.of(shapes[slot])

    def _from_input_shapes(self, node: Node, slot: int) -> Array | None:
        """The value of a Shape, Rank, Size, or of one element of a Shape, where the shape says it."""
        op = node.op
        if op == "StridedSlice":
            return self._element_of_shape(node, self._sliced_element(node))
        if op == "Unpack":
            return self._element_of_shape(node, slot)
        if op not in ("Shape", "Rank", "Size"):
            return None
        dims = self._input_shape(node, 0).dims
        if dims is None:
            return None
        if op == "Rank":
            return np.asarray(len(dims), np.int32)
        sizes = [d for d in dims if d is not None]
        if len(sizes) != len(dims):
            return None
        return _integers(node, sizes if op == "Shape" else math.prod(sizes))

    def _sliced_element(self, node: Node) -> int | None:
        """The index in `x[index]`, if the node is such a slice."""
        attrs = node.attrs
        if attrs["shrink_axis_mask"] != 1:
            return None
        if attrs["begin_mask"] or attrs["end_mask"] or attrs["ellipsis_mask"] or attrs["new_axis_mask"]:
            return None
        begin = self._node_of(node.in_edges[1][0])
        if begin.op != "Const" or begin.attrs["value"].shape.dims != (1,):
            return None
        return int(begin.attrs["value"].array[0])

    def _element_of_shape(self, node: Node, index: int | None) -> Array | None:
        """`shape(x)[index]`: known even if other dimensions of x are not."""
        source = self._node_of(node.in_edges[0][0])
        if index is None or source.op != "Shape":
            return None
        dims = self._input_shape(source, 0).dims
        if dims is None or not -len(dims) <= index < len(dims) or dims[index] is None:
            return None
        return _integers(node, dims[index])

    # Shapes

    def partial_shape(self, node_id: int, slot: int, depth: int = 0) -> Shape:
        """As much as is known of the shape that a vector of sizes says.

        Raises:
            InvalidArgumentError: it is no vector and not the scalar -1, or holds a size below -1.
        """
        endpoint = (node_id, slot)
        found = self._shapes.get(endpoint)
        if found is None:
            found = self._shapes[endpoint] = self._partial_shape(node_id, slot, depth)
        return found

    def _partial_shape(self, node_id: int, slot: int, depth: int) -> Shape:
        node = self._node_of(node_id)
        shape = Shape(None) if node.shapes is None else Shape.of(node.shapes[slot])
        c = InferenceContext(node.op_def, node.attrs, (), num_outputs=0, manager=self._manager)
        if shape.dims == ():
            return self._shape_of_scalar(node_id, slot)
        shape = c.with_rank(shape, 1)
        if shape.dims == (0,):
            return c.scalar()
        if node.op == "Shape":
            return self._input_shape(node, 0)
        if node.op == "ShapeN":
            return self._input_shape(node, slot)
        if node.op == "VariableShape":
            data = self._node_of(node.in_edges[0][0]).handle_data
            known = None if data is None else data[node.in_edges[0][1]]
            return known[0].shape if known else c.unknown_shape()
        if depth < _MAX_DEPTH:
            if node.op == "Cast":
                return self._shape_before_cast(c, node, depth)
            if node.op == "Pack":
                return c.make_shape([self._size(endpoint) for endpoint in node.in_edges])
            if node.op in ("Concat", "ConcatV2"):
                return self._concatenated(c, node, depth)
            if node.op == "StridedSlice":
                return self._sliced(c, node, shape, depth)
        return c.make_shape_from_tensor(self.value(node_id, slot), shape)

    def _shape_of_scalar(self, node_id: int, slot: int) -> Shape:
        value = self.value(node_id, slot)
        if value is None:
            raise errors.InvalidArgumentError(
                "Received a shape scalar with unknown static value.  "
                "A static value of '-1' is required to represent an unknown shape."
            )
        if value != -1:
            raise errors.InvalidArgumentError(
                f"Received an invalid shape scalar with a static value that is not '-1': "
                f"Tensor<type: {dtypes.from_numpy(value.dtype)} shape: [] values: {value}>"
            )
        return Shape(None)

    def _shape_before_cast(self, c: InferenceContext, node: Node, depth: int) -> Shape:
        value = self.value(node.id, 0)
        if value is not None:
            return c.make_shape_from_tensor(value, Shape.of(node.shapes[0]))
        return self.partial_shape(*node.in_edges[0], depth + 1)

    def _size(self, endpoint: Endpoint) -> int | None:
        """The size in a scalar, None if not known or negative."""
        value = self._scalar(endpoint)
        return None if value is None or value < 0 else value

    def _scalar(self, endpoint: Endpoint) -> int | None:
        value = self.value(*endpoint)
        return int(value.reshape(())) if value is not None and value.size == 1 and value.dtype.kind == "i" else None

    def _concatenated(self, c: InferenceContext, node: Node, depth: int) -> Shape:
        vectors = node.in_edges[1:] if node.op == "Concat" else node.in_edges[:-1]
        result = c.scalar()
        for endpoint in vectors:
            part = self.partial_shape(*endpoint, depth + 1)
            if part.dims is None or len(part.dims) > MAX_RANK:
                return c.unknown_shape()
            result = c.concatenate(result, part)
        return result

    def _sliced(self, c: InferenceContext, node: Node, shape: Shape, depth: int) -> Shape:
        """A slice of a shape, where begin, end and stride are known."""
        attrs = node.attrs
        special = attrs["ellipsis_mask"] or attrs["new_axis_mask"] or attrs["shrink_axis_mask"]
        one_each = all(self._input_shape(node, i).dims == (1,) for i in (1, 2, 3))
        if special or not one_each or attrs["begin_mask"] not in (0, 1) or attrs["end_mask"] not in (0, 1):
            return c.unknown_shape()
        begin = 0 if attrs["begin_mask"] else self._scalar(node.in_edges[1])
        end = 0 if attrs["end_mask"] else self._scalar(node.in_edges[2])
        stride = self._scalar(node.in_edges[3])
        if begin is None or end is None or stride is None:
            return c.unknown_shape()
        source = self.partial_shape(*node.in_edges[0], depth + 1)
        try:
            return c.subshape(source, begin, None if attrs["end_mask"] else end, stride)
        except errors.InvalidArgumentError:
            # An empty or a reversed slice: a fine vector, of which nothing but the length is known.
            return c.make_shape_from_tensor(self.value(node.id, 0), shape)


def _integers(node: Node, values: Any) -> Array | None:
    """The value in the node's output type, or None if it does not fit."""
    dtype = node.output_types[0].np
    if dtype == np.int32 and np.max(values, initial=0) > np.iinfo(np.int32).max:
        return None
    return np.asarray(values, dtype)


def _host_kernel(node: Node) -> KernelRegistration | None:
    try:
        return kernel_registry.global_registry.lookup(node.op, DEVICE_CPU, node.attrs, node=node.name)
    except errors.OpError:
        return None


def _built(kernel: KernelRegistration, node: Node) -> BuiltKernel:
    return kernel.build(
        OpKernelConstruction(
            name=node.name,
            op_def=node.op_def,
            attrs=node.attrs,
            input_types=node.input_types,
            output_types=node.output_types,
        )
    )


def _elements_made(node: Node, inputs: list[Any]) -> int | None:
    """How many elements the outputs will have, by the op's shape function; None if it cannot say."""
    if node.op in _NO_MORE_THAN_INPUTS:
        elements: list[int] = [value.size * max(1, value.ndim) for value in inputs]
        return sum(elements)
    shapes = inferred_shapes(node.op_def, node.attrs, inputs, inputs.__getitem__)
    if shapes is None:
        return None
    known = [count for shape in shapes if (count := shape.num_elements) is not None]
    return sum(known) if len(known) == len(shapes) else None
