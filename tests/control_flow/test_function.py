"""`aexec.function`: signatures, captures, recursion, side effects, and what is said when something does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.control_flow.function import TracedFunction
from aexec.graph.func_graph import FuncGraph


async def run(graph: aexec.Graph, fetches: Any, feeds: Any = None, *, before: Any = None) -> Any:
    """The fetches of the graph, and of the graph that is read from what is written of it, which must be the same."""
    found = []
    for each in (graph, aexec.Graph.from_bytes(graph.to_bytes())):
        async with aexec.Session(each) as session:
            if before is not None:
                await session.run([], targets=[before.name])
            names = [fetch.name for fetch in fetches]
            found.append(await session.run(names, {tensor.name: value for tensor, value in (feeds or {}).items()}))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    return found[0]


async def test_calls_share_a_trace_where_types_shapes_and_python_values_are_the_same() -> None:
    @aexec.function
    def scaled(x: Any, factor: Any = 2, *, offset: Any = None) -> Any:
        """Scale."""
        return {"y": x * ops.cast(factor, DstT=x.dtype), "same": (x, offset)}

    assert isinstance(scaled, TracedFunction) and scaled.__doc__ == "Scale."
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [2], name="x")
        first, second = scaled(x), scaled(x=x, factor=2)
        third, fourth = scaled(x, 3), scaled(np.array([1.0, 2.0]))
        assert len(scaled.traces(graph)) == 3 and len(graph.library) == 3
    assert first["same"][1] is None and first["y"].name == "PartitionedCall:1" and str(first["y"].shape) == "[2]"
    values = await run(graph, [first["y"], second["y"], third["y"], fourth["y"], fourth["same"][0]], {x: [1.0, 5.0]})
    assert [value.tolist() for value in values] == [[2, 10], [2, 10], [3, 15], [2, 4], [1, 2]]
    with aexec.Graph() as other:
        scaled(aexec.placeholder("float32", [2]))
        assert len(scaled.traces(other)) == 1


async def test_python_values_that_differ_though_they_are_equal_have_traces_of_their_own() -> None:
    @aexec.function
    def angle(y: Any) -> Any:
        return ops.atan2(aexec.constant(float(y)), aexec.constant(-1.0)), aexec.constant(type(y).__name__)

    with aexec.Graph() as graph:
        values = [0.0, -0.0, 0, False, float("nan")]
        found = await run(graph, [tensor for value in values for tensor in angle(value)])
        assert angle.get_concrete_function(float("nan")) is angle.get_concrete_function(float("nan"))
    np.testing.assert_array_equal(found[::2], np.float32([np.pi, -np.pi, np.pi, np.pi, np.nan]))
    assert found[1::2] == [b"float", b"float", b"int", b"bool", b"float"]


async def test_outside_tensor_becomes_an_argument_of_all_functions_between() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        w = aexec.placeholder("float32", [], name="w")

        @aexec.function
        def inner(x: Any) -> Any:
            return x * w

        @aexec.function
        def outer(x: Any) -> Any:
            return aexec.cond(ops.less(x, 0.0), lambda: inner(x), lambda: inner(x) + inner(w))

        y, z = outer(x), inner(x)
        (trace,) = outer.traces(graph)
        assert trace.captured_inputs == [w]
        assert len(inner.traces(graph)) == 1
        assert repr(trace) == "<ConcreteFunction __inference_outer_0(x: float[]) -> float[]>"
    assert [float(v) for v in await run(graph, [y, z], {x: 2.0, w: 3.0})] == [15.0, 6.0]
    assert [float(v) for v in await run(graph, [y, z], {x: -2.0, w: 3.0})] == [-6.0, -6.0]


async def test_function_may_call_itself_if_it_says_what_it_gives() -> None:
    with aexec.Graph() as graph:
        n, one = aexec.placeholder("int32", [], name="n"), aexec.placeholder("int32", [], name="one")

        @aexec.function(output_signature=aexec.TensorSpec([], "int32"))
        def factorial(n: Any) -> Any:
            return aexec.cond(ops.less_equal(n, 1), lambda: one, lambda: n * factorial(n - one))

        @aexec.function
        def without(n: Any) -> Any:
            return aexec.cond(ops.less_equal(n, 1), lambda: n, lambda: without(n - 1))

        @aexec.function
        def for_ever(n: Any, depth: int = 0) -> Any:
            return for_ever(n, depth + 1)

        y = factorial(n)
        with pytest.raises(errors.FailedPreconditionError, match=r"without calls itself: say what it gives"):
            without(n)
        with pytest.raises(errors.FailedPreconditionError, match=r"for_ever calls itself with ever new signatures"):
            for_ever(n)
        with pytest.raises(errors.UnimplementedError, match=r"calls itself: gradients of recursive functions"):
            aexec.gradients(_recursive_float(), graph.tensor("f:0"))
    assert (await run(graph, [y], {n: 5, one: 1}))[0] == 120


def _recursive_float() -> Any:
    x = aexec.placeholder("float32", [], name="f")

    @aexec.function(output_signature=aexec.TensorSpec([]))
    def halved(x: Any) -> Any:
        return aexec.cond(ops.less(x, 1.0), lambda: x, lambda: halved(x / 2.0))

    return halved(x)


async def test_side_effects_happen_in_the_order_of_the_program() -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable([1.0], use_resource=True, name="v")
        init = aexec.global_variables_initializer()

        @aexec.function
        def bump(x: Any) -> Any:
            v.assign_add(x)
            middle = v * 1.0
            v.assign(v * 2.0)
            return middle

        @aexec.function
        def nothing(x: Any) -> None:
            v.assign_add(x)

        middle = bump(aexec.constant([2.0]))
        with aexec.control_dependencies([middle]):
            after = ops.identity(v.read_value())
        assert middle.node.op == "StatefulPartitionedCall"
        assert nothing(aexec.constant([2.0])) is None
    values = await run(graph, [middle, after], before=init)
    assert [value.tolist() for value in values] == [[3.0], [6.0]]


async def test_loops_in_functions_and_functions_in_loops() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")

        @aexec.function
        def squared(x: Any) -> Any:
            return x * x

        @aexec.function
        def rows(x: Any) -> Any:
            return aexec.map_fn(squared, x)

        @aexec.function
        def sixth(x: Any) -> Any:
            _, y = aexec.while_loop(lambda i, y: ops.less(i, 2), lambda i, y: (i + 1, squared(y)), (0, x))
            return y

        in_loop = aexec.while_loop(lambda i, y: ops.less(i, 2), lambda i, y: (i + 1, squared(y)), (0, x))[1]
        mapped, looped = rows(x), sixth(x)
        ops_inside = {node.op for fdef in graph.library.to_proto().function for node in fdef.node_def}
    assert {"StatelessWhile"} <= ops_inside and "Enter" not in ops_inside
    values = await run(graph, [mapped, looped, in_loop], {x: [1.0, 2.0]})
    assert [value.tolist() for value in values] == [[1, 4], [1, 16], [1, 16]]


async def test_input_signatures() -> None:
    @aexec.function(input_signature=[aexec.TensorSpec([None], "float32", "rows"), aexec.TensorSpec([], "int32")])
    def total(x: Any, n: Any) -> Any:
        return ops.sum(x, 0) * ops.cast(n, DstT="float32")

    with aexec.Graph() as graph:
        results = [total([1.0, 2.0], 3), total(aexec.constant([1.0]), np.int32(2))]
        (trace,) = total.traces(graph)
        assert total.get_concrete_function() is trace
        assert repr(trace.inputs) == "[float[?], int32[]]"
        assert trace.inputs[0].name == "rows"
        again = trace([4.0], 1)
        with pytest.raises(errors.InvalidArgumentError, match=r"argument 'rows' must be float\[\?\], got"):
            total(aexec.constant(1.0), 3)
        with pytest.raises(errors.InvalidArgumentError, match=r"argument 'n' must be int32\[\], got 1.5"):
            total([1.0], 1.5)
        with pytest.raises(errors.InvalidArgumentError, match=r"takes 2 tensors, \(float\[\?\], int32\[\]\), got 1"):
            trace([4.0])
        with pytest.raises(TypeError, match=r"total\(\): missing a required argument: 'n'; signature: total\(x"):
            total([1.0])
    assert [float(v) for v in await run(graph, [*results, again])] == [9.0, 2.0, 4.0]


async def test_trace_from_descriptions() -> None:
    @aexec.function
    def f(x: Any, times: int) -> Any:
        return x * float(times)

    with aexec.Graph() as graph:
        trace = f.get_concrete_function(aexec.TensorSpec([2]), 3)
        assert trace.structured_outputs == aexec.TensorSpec(
            trace.graph.outputs[0].shape, trace.graph.outputs[0].dtype, "mul"
        )
        y = f(aexec.placeholder("float32", [2], name="x"), 3)
        assert len(f.traces(graph)) == 1 and y.node.attrs["f"].name == trace.name


async def test_methods_and_operations() -> None:
    class Model:
        def __init__(self) -> None:
            self.v = aexec.Variable(1.0, use_resource=True, name="v")

        @aexec.function
        def step(self, x: Any) -> Any:
            return self.v.assign_add(x), ops.no_op()

    with aexec.Graph() as graph:
        model = Model()
        value, operation = model.step(aexec.constant(1.0))
        init = aexec.global_variables_initializer()
        assert operation is value.node
    assert (await run(graph, [value], before=init))[0] == 2.0


def test_tensors_of_another_graph_are_refused() -> None:
    with aexec.Graph():
        stranger = aexec.constant(1.0)
    with aexec.Graph():
        v = aexec.Variable(1.0, use_resource=False, name="v")

        @aexec.function
        def changes() -> Any:
            return v.assign_add(1.0)

        @aexec.function
        def uses() -> Any:
            return stranger + 1.0

        with pytest.raises(errors.InvalidArgumentError, match=r"takes the ref of .* use a resource variable"):
            changes()
        with pytest.raises(errors.InvalidArgumentError, match=r"neither of the function '__inference_uses_.*' that"):
            uses()
    with pytest.raises(errors.FailedPreconditionError, match="no graph is being built"):
        uses()


async def test_control_dependencies_and_devices_of_outside() -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable(1.0, use_resource=True, name="v")
        init = aexec.global_variables_initializer()
        changed = v.assign_add(1.0)

        @aexec.function
        def later() -> Any:
            with aexec.control_dependencies([changed]), aexec.colocate_with(changed):
                return ops.identity(v.read_value())

        y = later()
    assert changed.node.id in y.node.control_inputs
    assert (await run(graph, [y], before=init))[0] == 2.0


def test_body_knows_what_it_is() -> None:
    with aexec.Graph() as graph:
        body = FuncGraph("f", graph)
        assert body.outermost is graph and body.functional_control_flow and body.collections is graph.collections
        assert repr(body) == "<FuncGraph 'f' 0 nodes, 0 inputs, 0 outputs>"


async def test_variables_that_are_made_inside_are_of_the_graph_around() -> None:
    @aexec.function
    def layer(x: Any) -> Any:
        with aexec.variable_scope("layer", reuse=aexec.AUTO_REUSE, use_resource=True):
            w = aexec.get_variable("w", initializer=aexec.initializers.Ones(), shape=[2])
        return x * w

    with aexec.Graph() as graph:
        with aexec.variable_scope("net"):
            y = layer(aexec.constant([2.0, 3.0])) + layer(aexec.constant([[1.0, 1.0]]))
        assert [v.name for v in aexec.global_variables()] == ["net/layer/w:0"]
        init = aexec.global_variables_initializer()
    assert (await run(graph, [y], before=init))[0].tolist() == [[3.0, 4.0]]
