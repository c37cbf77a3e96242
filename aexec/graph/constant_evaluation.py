"""Constant evaluation for shape inference: values that do not depend on a step.

Shape inference asks for the value of an input (`value`), or for the part of a shape that is known from a vector of
sizes (`partial_shape`).  Which nodes are constant, and which ones evaluation looks through, follows TensorFlow:
core/common_runtime/eval_const_tensor.cc, shape_refiner.cc.
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

# Never constant: a merge or a feed decides the value in each step, and files may change.
_NEVER_FIXED = frozenset({"PlaceholderWithDefault", "ReadFile", "MatchingFiles"} | MERGE)
# One frame cannot be evaluated apart from the others; but the value that enters a frame can be asked for.
_NEVER_INSIDE = ENTER | EXIT
_MAX_DEPTH = 64
# Largest number of elements of one value: larger tensors do not hold shapes.
_MAX_ELEMENTS = 2**16
# Limits for all values of one import together: elements, and nanoseconds by the kernels' own estimates, so that the
# shapes that are found do not depend on the clock.  `_CALL_NS` is added for the overhead of each call.
_MAX_TOTAL_ELEMENTS = 2**22
_MAX_TOTAL_NS = 500e6
_CALL_NS = 20e3
# Limit for one kernel call, by its estimate.
_MAX_CALL_NS = 1e6
# The number of output elements depends on values here, but is at most the number of input elements times their rank.
_NO_MORE_THAN_INPUTS = frozenset(
    "BroadcastGradientArgs DynamicPartition ListDiff Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Where".split()
)


class Allowance:
    """What constant evaluation may still use during one import.

    Attributes:
        elements: how many elements its values may still have.
        nanoseconds: how much estimated time its kernel calls may still take.
    """

    def __init__(self) -> None:
        self.elements = _MAX_TOTAL_ELEMENTS
        self.nanoseconds = _MAX_TOTAL_NS

    def takes(self, elements: int) -> bool:
        """Count the elements of a value, or return False if they are more than allowed."""
        if elements > min(_MAX_ELEMENTS, self.elements):
            return False
        self.elements -= elements
        return True

    def allows(self, nanoseconds: float) -> bool:
        """Count a kernel call of this estimated time, or return False if it is more than allowed."""
        if nanoseconds > min(_MAX_CALL_NS, self.nanoseconds):
            return False
        self.nanoseconds -= nanoseconds + _CALL_NS
        return True


class ConstantEvaluator:
    """Evaluates constant endpoints of one graph, each at most once.

    Args:
        outer: for the body of a function: the call, which knows the values of the arguments.
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
        # Whether an endpoint is constant.  The output of an Enter counts as constant only if asked for itself.
        self._fixed: dict[Endpoint, bool] = {}
        self._shapes: dict[Endpoint, Shape] = {}

    # Values

    def value(self, node_id: int, slot: int) -> Array | None:
        """Return the value of an output, or None if it is not constant."""
        endpoint = (node_id, slot)
        if endpoint not in self._values:
            if self._is_fixed(endpoint):
                self._compute_with_inputs(endpoint)
            else:
                self._values[endpoint] = None
        return self._values[endpoint]

    def _is_fixed(self, target: Endpoint) -> bool:
        """True if the endpoint depends on constants only."""
        # Each entry is an endpoint and those of its inputs that are still to be checked.
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
        """Return the inputs that the value of an endpoint is computed from, or None if it is not constant."""
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
        """Return one output of a node, computed on the host.

        Returns None if the call is over the allowance, needs a step, or fails.
        """
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
            # A failure is no error yet: the same call fails again when the graph is run, if it is run at all.
            return None
        output = result[slot] if isinstance(result, tuple) else result
        return np.asarray(output)

    def _input_shape(self, node: Node, index: int) -> Shape:
        source, slot = node.in_edges[index]
        shapes = self._node_of(source).shapes
        return Shape(None) if shapes is None else Shape.of(shapes[slot])

    def _from_input_shapes(self, node: Node, slot: int) -> Array | None:
        """Return the value of a Shape, Rank, Size, or one element of a Shape, if the input's shape determines it."""
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
        """Return `index` if the node is a slice `x[index]`, else None."""
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
        """Return `shape(x)[index]`, which may be known even if other dimensions of x are not."""
        source = self._node_of(node.in_edges[0][0])
        if index is None or source.op != "Shape":
            return None
        dims = self._input_shape(source, 0).dims
        if dims is None or not -len(dims) <= index < len(dims) or dims[index] is None:
            return None
        return _integers(node, dims[index])

    # Shapes

    def partial_shape(self, node_id: int, slot: int, depth: int = 0) -> Shape:
        """Return the shape that a vector of sizes stands for, as far as it is known.

        Raises:
            InvalidArgumentError: the value is neither a vector nor the scalar -1, or holds a size below -1.
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
        """Return the size that a scalar holds; None if it is unknown or negative."""
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
        """Return a slice of a shape whose begin, end and stride are known."""
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
            # The slice is empty or reversed: only its length is known.
            return c.make_shape_from_tensor(self.value(node.id, 0), shape)


def _integers(node: Node, values: Any) -> Array | None:
    """Convert to the node's output type; None if a value does not fit."""
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
    """Return the number of elements of all outputs, by the op's shape function; None if it is unknown."""
    if node.op in _NO_MORE_THAN_INPUTS:
        elements: list[int] = [value.size * max(1, value.ndim) for value in inputs]
        return sum(elements)
    shapes = inferred_shapes(node.op_def, node.attrs, inputs, inputs.__getitem__)
    if shapes is None:
        return None
    known = [count for shape in shapes if (count := shape.num_elements) is not None]
    return sum(known) if len(known) == len(shapes) else None
