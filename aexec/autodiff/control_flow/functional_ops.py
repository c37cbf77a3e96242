"""Gradients of calls, of If and Case, and of While: nodes of the same kind that call backward functions.

The forward node is changed in place: it then calls functions that also return the values that the backward ones need.
Its outputs keep their positions.
Next to read: `aexec/autodiff/parted_body.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.missing_gradients import gradient_dtype, zeros_for
from aexec.autodiff.parted_body import PartedBody, differentiable_positions, has_frames
from aexec.client.building import constant, control_dependencies
from aexec.framework import dtypes, errors
from aexec.framework.op_contract import op_registry
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.calls import called_function
from aexec.graph.func_graph import FuncGraph, body_of
from aexec.graph.function_def import add_function, free_name, is_stateful
from aexec.graph.gradient_maker import gradient_function
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Endpoint, Node, Tensor
from aexec.graph.op_functions import create_node

no_gradient("FakeParam", "DeviceIndex", "ToBool")

_LOWER = {"_lower_using_switch_merge": True}
Grads = Sequence[Tensor | None]


def _graph_of(op: ForwardOp) -> Graph:
    graph = op.node.graph
    assert isinstance(graph, Graph)
    return graph


def _base(name: str) -> str:
    """The name of a function without the prefixes of derived functions."""
    return name.removeprefix("__forward_").removeprefix("__backward_").removeprefix("__inference_")


class _Stacked:
    """The backward functions of a node that calls one of several functions, once.

    Args:
        functions: the functions, of which the node calls one.
        offset: argument `i` is input `i + offset` of the node.
    """

    def __init__(self, op: ForwardOp, functions: Sequence[NameAttrList], offset: int, grads: Grads) -> None:
        self.op, self.graph, self.offset = op, _graph_of(op), offset
        self.given = _inputs(op.node)[offset:]
        self.ys = [i for i, grad in enumerate(grads) if grad is not None]
        self.xs = differentiable_positions(self.given)
        self.parts = [PartedBody(self.graph, function, self.given, self.ys, self.xs, op.call) for function in functions]
        self.captured = list(dict.fromkeys(tensor for part in self.parts for tensor in part.captured))
        self.names = [_base(function.name) for function in functions]
        self.arriving = [grads[y] for y in self.ys]
        self.wanted = [i for i in range(len(self.xs)) if any(part.results[i] is not None for part in self.parts)]

    def change_forward(self) -> list[NameAttrList]:
        """Build the forward functions, and give the node their outputs; return the functions that it must call."""
        outputs = len(self.parts[0].outputs)
        forwards, places = zip(
            *(p.forward(f"__forward_{n}", self.captured) for p, n in zip(self.parts, self.names, strict=True)),
            strict=True,
        )
        # For each part: endpoint that the gradient needs → the output of the node that has it.
        self.from_output: list[dict[Endpoint, int]] = []
        added: list[tuple[int, Tensor]] = []
        for number, (part, found) in enumerate(zip(self.parts, places, strict=True)):
            mine: dict[Endpoint, int] = {}
            arguments = {tensor.endpoint for tensor in (*part.arguments, *part.captured.values())}
            results = {tensor.endpoint: i for i, tensor in reversed(list(enumerate(part.outputs)))}
            for endpoint in part.taken:
                if endpoint in arguments:
                    continue
                if endpoint in results:
                    mine[endpoint] = results[endpoint]
                    continue
                mine[endpoint] = outputs + len(added)
                added.append((number, found[endpoint]))
            self.from_output.append(mine)
        self.added = [tensor for _, tensor in added]
        for number, graph in enumerate(forwards):
            with graph:
                graph.outputs = graph.outputs + [tensor if of == number else _stand_in(tensor) for of, tensor in added]
        if not added and not self.captured:
            self.stateful = False
            return []
        self.stateful = any(is_stateful(graph) for graph in forwards)
        return [add_function(graph, free_name(graph.library, graph.name)) for graph in forwards]

    def backward(self) -> tuple[list[FuncGraph], list[Tensor]]:
        """The bodies of the backward functions, and their inputs."""
        bodies = []
        for part, name, outputs in zip(self.parts, self.names, self.from_output, strict=True):
            body = FuncGraph(f"__backward_{name}", self.graph)
            body.original = part.body.original
            known: dict[Endpoint, Tensor] = {}
            for tensor in part.arrive:
                known[tensor.endpoint] = body.argument(tensor, tensor.node.name)
            inside = [body.argument(tensor, tensor.node.name) for tensor in part.arguments]
            known.update((t.endpoint, i) for t, i in zip(part.arguments, inside, strict=True))
            for tensor in self.captured:
                argument = body.argument(tensor, tensor.node.name.rpartition("/")[2])
                if tensor in part.captured:
                    known[part.captured[tensor].endpoint] = argument
            likes = {i: part.tensor(endpoint) for endpoint, i in outputs.items()}
            count = len(part.outputs)
            for i in range(count + len(self.added)):
                like = part.outputs[i] if i < count else likes.get(i, self.added[i - count])
                likes[i] = body.argument(like, like.node.name.rpartition("/")[2])
            known.update((endpoint, likes[i]) for endpoint, i in outputs.items())
            made = part.put_backward(body, known)
            with body:
                body.outputs = [
                    zeros_for(inside[self.xs[i]]) if (grad := made[i]) is None else grad for i in self.wanted
                ]
            bodies.append(body)
        node = self.op.node
        taken = [self.op.seen(node.output(i)) for i in range(len(self.parts[0].outputs) + len(self.added))]
        captured = [self.op.seen(tensor) for tensor in self.captured]
        given = [*self.op.inputs[self.offset : self.offset + len(self.given)], *captured, *taken]
        return bodies, [tensor for tensor in self.arriving if tensor is not None] + given

    def results(self, outputs: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the node's inputs."""
        found: list[Tensor | None] = [None] * (self.offset + len(self.given) + len(self.captured))
        for i, tensor in zip(self.wanted, outputs, strict=True):
            found[self.offset + self.xs[i]] = tensor
        return found


def _inputs(node: Node) -> list[Tensor]:
    return [Tensor(node.graph.nodes[source], slot) for source, slot in node.in_edges]


def _stand_in(tensor: Tensor) -> Tensor:
    """A tensor in place of one that another branch would have made; its value is never used."""
    if tensor.dtype.base is dtypes.variant:
        return ops.empty_tensor_list(constant(-1), -1, element_dtype=dtypes.float32)
    shape = tensor.static_shape if tensor.static_shape.rank is not None else PartialTensorShape([0])
    return create_node("FakeParam", {}, {"dtype": tensor.dtype.base, "shape": shape}).output(0)


def _drop_unused(bodies: Sequence[FuncGraph], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Remove the arguments that no body uses."""
    used: set[int] = set()
    for body in bodies:
        positions = {tensor.node.id: i for i, tensor in enumerate(body.inputs)}
        sources = {source for node in body.nodes for source, _ in node.in_edges}
        sources |= {tensor.node.id for tensor in body.outputs}
        used |= {positions[source] for source in sources if source in positions}
    kept = sorted(used)
    for body in bodies:
        body.inputs = [body.inputs[i] for i in kept]
    return [inputs[i] for i in kept]


def _change(
    node: Node, op: str, extra_inputs: Sequence[Tensor], likes: Sequence[Tensor], attrs: Mapping[str, Any]
) -> None:
    """Let a node call other functions, with more inputs and outputs than those that it called."""
    node.op_def = op_registry.global_registry.lookup(op).op_def
    node.attrs = {**node.attrs, **attrs}
    node.wire = None
    node.in_edges = (*node.in_edges, *(tensor.endpoint for tensor in extra_inputs))
    before = node.shapes or (UNKNOWN_RANK,) * node.num_outputs
    count = node.num_outputs
    node.input_types, node.output_types = node.op_def.input_types(node.attrs), node.op_def.output_types(node.attrs)
    node.shapes = (*before, *(like.static_shape for like in likes))
    data = [None if like.node.handle_data is None else like.node.handle_data[like.index] for like in likes]
    if node.handle_data is not None or any(data):
        node.handle_data = (*(node.handle_data or (None,) * count), *data)


def _extended(node: Node, attr: str, tensors: Sequence[Tensor]) -> list[Any]:
    return [*node.attrs[attr], *(tensor.dtype.base for tensor in tensors)]


def _shapes_of(node: Node, likes: Sequence[Tensor]) -> dict[str, Any]:
    """The attr with the shapes of the outputs, if the node has it."""
    known = node.attrs.get("output_shapes") or ()
    if not known and "output_shapes" not in node.attrs:
        return {}
    shapes = list(known) or list(node.shapes or [UNKNOWN_RANK] * node.num_outputs)
    return {"output_shapes": [*shapes, *(like.static_shape for like in likes)]}


@gradient("PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient", zeros=False)
def _call_gradient(op: ForwardOp, *grads: Tensor | None) -> Any:
    """The gradient of a call, also of one whose op is the function's name."""
    node, graph = op.node, _graph_of(op)
    function = called_function(node, graph.library)
    if function is None:
        function = gradient_function(graph.library, graph.versions, node.attrs["f"])
    given = graph.library.gradient(function.name)
    if given is not None:
        return _given_gradient(op, given, grads)
    stacked = _Stacked(op, [function], 0, grads)
    forward = stacked.change_forward()
    if forward:
        stateful = stacked.stateful or node.op_def.is_stateful
        attrs = {
            "f": forward[0],
            "Tin": [tensor.dtype.base for tensor in (*_inputs(node), *stacked.captured)],
            "Tout": [*node.output_types, *(tensor.dtype.base for tensor in stacked.added)],
        }
        called = {name: value for name, value in node.attrs.items() if name.startswith("_")}
        defaults = {"config": b"", "config_proto": b"", "executor_type": b""}
        if "executor_type" not in node.attrs:
            node.attrs = {**called, **defaults}
        _change(node, _call_op(stateful=stateful), stacked.captured, stacked.added, attrs)
    bodies, inputs = stacked.backward()
    if not stacked.wanted:
        return stacked.results([])
    inputs = _drop_unused(bodies, inputs)
    reference = add_function(bodies[0], free_name(graph.library, bodies[0].name))
    attrs = {"f": reference, "Tout": [tensor.dtype.base for tensor in bodies[0].outputs]}
    made = create_node(_call_op(stateful=is_stateful(bodies[0])), {"args": inputs}, attrs)
    return stacked.results(made.outputs)


def _call_op(*, stateful: bool) -> str:
    return "StatefulPartitionedCall" if stateful else "PartitionedCall"


def _given_gradient(op: ForwardOp, name: str, grads: Grads) -> list[Tensor | None]:
    """The gradients by the function that the library names, from the inputs and a gradient of each output."""
    arriving = [zeros_for(op.seen(op.node.output(i))) if grad is None else grad for i, grad in enumerate(grads)]
    types = [
        gradient_dtype(tensor) if i in differentiable_positions(op.inputs) else tensor.dtype.base
        for i, tensor in enumerate(op.inputs)
    ]
    attrs = {"f": NameAttrList(name, {}), "Tout": types}
    node = create_node("StatefulPartitionedCall", {"args": [*op.inputs, *arriving]}, attrs)
    return list(node.outputs)


@gradient("If", "StatelessIf", "_If", "Case", "StatelessCase", zeros=False)
def _branches_gradient(op: ForwardOp, *grads: Tensor | None) -> Any:
    node, graph = op.node, _graph_of(op)
    is_case = "branches" in node.attrs
    functions = node.attrs["branches"] if is_case else [node.attrs["else_branch"], node.attrs["then_branch"]]
    stacked = _Stacked(op, functions, 1, grads)
    forward = stacked.change_forward()
    if forward:
        attrs = {
            **_branch_attrs(forward, is_case=is_case),
            **_shapes_of(node, stacked.added),
            "Tin": _extended(node, "Tin", stacked.captured),
            "Tout": _extended(node, "Tout", stacked.added),
        }
        name = node.op.removeprefix("Stateless") if stacked.stateful else node.op
        _change(node, name, stacked.captured, stacked.added, attrs)
    bodies, inputs = stacked.backward()
    if not stacked.wanted:
        return stacked.results([])
    inputs = _drop_unused(bodies, inputs)
    references = [add_function(body, free_name(graph.library, body.name)) for body in bodies]
    stateless = "" if any(map(is_stateful, bodies)) else "Stateless"
    attrs = {
        **_branch_attrs(references, is_case=is_case),
        "Tout": [tensor.dtype.base for tensor in bodies[0].outputs],
        **_LOWER,
    }
    kind, choice = ("Case", "branch_index") if is_case else ("If", "cond")
    made = create_node(f"{stateless}{kind}", {choice: op.inputs[0], "input": inputs}, attrs)
    return stacked.results(made.outputs)


def _branch_attrs(references: Sequence[NameAttrList], *, is_case: bool) -> dict[str, Any]:
    if is_case:
        return {"branches": list(references)}
    return {"else_branch": references[0], "then_branch": references[1]}


@gradient("While", "StatelessWhile", "_While", zeros=False)
def _while_gradient(op: ForwardOp, *grads: Tensor | None) -> Any:
    given = [i for i, grad in enumerate(grads) if grad is not None]
    loop = _BackwardWhile(op, given)
    return loop.build(grads)


class _BackwardWhile:
    """A loop back over the iterations of a While.

    The forward body counts iterations and pushes the values that are needed of each onto lists; the backward body pops
    them.

    Args:
        given: the loop variables for which a gradient arrives.

    Attributes:
        carried: the loop variables whose gradients are carried back: the given ones, and those that they depend on.
    """

    def __init__(self, op: ForwardOp, given: Sequence[int]) -> None:
        self.op, self.node, self.graph = op, op.node, _graph_of(op)
        self.inputs = _inputs(op.node)
        # With the shapes of every iteration: those of the inputs are only the first one's.
        self.values = [
            tensor if tensor.dtype.base in (dtypes.resource, dtypes.variant) else op.node.output(i)
            for i, tensor in enumerate(self.inputs)
        ]
        carried = list(given)
        possible = differentiable_positions(self.inputs)
        body = op.node.attrs["body"]
        while True:
            self.part = PartedBody(self.graph, body, self.values, carried, possible, op.call)
            reached = {i for i, grad in zip(possible, self.part.results, strict=True) if grad is not None}
            if reached <= set(carried):
                break
            carried = sorted({*carried, *reached})
        self.carried = carried
        found = dict(zip(possible, self.part.results, strict=True))
        part = self.part
        with part.body:
            part.results = [self._gradient_of(i, found[i]) for i in carried]
        self.invariant = {
            part.arguments[i].endpoint: i
            for i in range(len(self.inputs))
            if part.outputs[i].endpoint == part.arguments[i].endpoint
        }
        captured = {inside.endpoint: outside for outside, inside in part.captured.items()}
        self.captured = captured
        self.pushed = [e for e in part.taken if e not in self.invariant and e not in captured]
        for endpoint in self.pushed:
            tensor = part.tensor(endpoint)
            if tensor.dtype.base is dtypes.resource:
                raise errors.UnsupportedError(
                    f"the gradient of loop '{op.name}' needs the handle '{tensor.name}' of each iteration; "
                    "handles that are made in a loop's body cannot be kept",
                    node=op.name,
                    op=op.type,
                )

    def _gradient_of(self, variable: int, grad: Tensor | None) -> Tensor:
        """In the body: the gradient of the value before an iteration; if there is none, zeros of the value's shape."""
        if grad is not None:
            return grad
        before, after = self.part.arguments[variable], self.part.outputs[variable]
        arrives = self.part.arrive[self.carried.index(variable)]
        alike = before.static_shape.is_fully_defined and before.static_shape == after.static_shape
        return ops.zeros_like(arrives) if alike else zeros_for(before)

    def build(self, grads: Grads) -> list[Tensor | None]:
        if not self.carried:
            return [None] * len(self.inputs)
        outside = list(self.captured.values())
        starts = self._change_forward(outside)
        first = len(self.inputs) + len(outside)
        count, *lists = (self.op.seen(self.node.output(first + i)) for i in range(len(starts)))
        arriving = [self._zeros(i) if (grad := grads[i]) is None else grad for i in self.carried]
        kept = [endpoint for endpoint in self.part.taken if endpoint in self.invariant or endpoint in self.captured]
        held = [
            self.op.inputs[self.invariant[e]] if e in self.invariant else self.op.seen(self.captured[e]) for e in kept
        ]
        values = [count, *arriving, *lists, *held]
        base = _base(self.node.attrs["body"].name)
        going = self._backward_body(f"__backward_{base}", values, kept)
        asking = FuncGraph(f"__backward_{_base(self.node.attrs['cond'].name)}", self.graph)
        with asking:
            left, *_ = [asking.argument(value, "value") for value in values]
            asking.outputs = [ops.greater(left, 0)]
        stateless = "" if is_stateful(going) else "Stateless"
        attrs = {
            "cond": add_function(asking, free_name(self.graph.library, asking.name)),
            "body": add_function(going, free_name(self.graph.library, going.name)),
            "output_shapes": [UNKNOWN_RANK if 0 < i <= len(arriving) else v.static_shape for i, v in enumerate(values)],
            "parallel_iterations": self.node.attrs.get("parallel_iterations", 10),
            **_LOWER,
        }
        made = create_node(f"{stateless}While", {"input": values}, attrs)
        results: list[Tensor | None] = [None] * first
        results += [None] * len(starts)
        for i, tensor in zip(self.carried, made.outputs[1 : 1 + len(self.carried)], strict=True):
            results[i] = tensor
        return results

    def _zeros(self, variable: int) -> Tensor:
        """Zeros for a loop variable without a gradient; for a handle that stays the same, those of the input."""
        if self.inputs[variable].dtype.base is dtypes.resource:
            return zeros_for(self.op.inputs[variable])
        return zeros_for(self.op.seen(self.node.output(variable)))

    def _change_forward(self, outside: Sequence[Tensor]) -> list[Tensor]:
        """Let the loop count and push; return the initial values of the counter and the lists."""
        part, node = self.part, self.node
        first = [self.inputs[0].node] if has_frames(self.graph) else []
        with control_dependencies(None), control_dependencies(first):
            starts = [constant(0, name="counter")]
            starts += [
                ops.empty_tensor_list(constant(-1), constant(-1), element_dtype=part.tensor(e).dtype.base)
                for e in self.pushed
            ]
        body, found = part.forward(f"__forward_{_base(node.attrs['body'].name)}", outside)
        count = body.argument(starts[0], "counter")
        lists = [body.argument(start, "list") for start in starts[1:]]
        with body:
            held = [body.captures[tensor] for tensor in outside]
            pushed = [
                ops.tensor_list_push_back(handle, found[endpoint])
                for handle, endpoint in zip(lists, self.pushed, strict=True)
            ]
            body.outputs = [*body.outputs, *held, count + 1, *pushed]
        asking = body_of(self.graph, node.attrs["cond"], self.values)
        asking.name = f"__forward_{_base(node.attrs['cond'].name)}"
        for tensor in (*outside, *starts):
            asking.argument(tensor, "value")
        stateful = is_stateful(body) or is_stateful(asking)
        attrs = {
            "body": add_function(body, free_name(self.graph.library, body.name)),
            "cond": add_function(asking, free_name(self.graph.library, asking.name)),
            "T": _extended(node, "T", (*outside, *starts)),
            **_shapes_of(node, (*outside, *starts)),
        }
        name = node.op.removeprefix("Stateless") if stateful else node.op
        _change(node, name, (*outside, *starts), (*outside, *starts), attrs)
        return starts

    def _backward_body(self, name: str, values: Sequence[Tensor], kept: Sequence[Endpoint]) -> FuncGraph:
        part = self.part
        body = FuncGraph(name, self.graph)
        body.original = part.body.original
        with body:
            arguments = [body.argument(value, "value") for value in values]
            count, rest = arguments[0], arguments[1:]
            grads, rest = rest[: len(self.carried)], rest[len(self.carried) :]
            lists, held = rest[: len(self.pushed)], rest[len(self.pushed) :]
            for grad, like in zip(grads, part.arrive, strict=True):
                grad.node.shapes = (like.static_shape,)
            known = {like.endpoint: grad for like, grad in zip(part.arrive, grads, strict=True)}
            known.update(zip(kept, held, strict=True))
            popped = []
            for handle, endpoint in zip(lists, self.pushed, strict=True):
                tensor = part.tensor(endpoint)
                shape = np.array(
                    tensor.static_shape.as_tuple() if tensor.static_shape.is_fully_defined else -1, np.int32
                )
                before, value = ops.tensor_list_pop_back(handle, shape, element_dtype=tensor.dtype.base)
                value.node.shapes = (value.node.shapes[0], tensor.static_shape)
                known[endpoint] = value
                popped.append(before)
            after = [new for new in part.put_backward(body, known) if new is not None]
            body.outputs = [count - 1, *after, *popped, *held]
        return body
