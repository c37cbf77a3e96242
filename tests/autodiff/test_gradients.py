"""`aexec.gradients`: what it takes, what it gives, and how the nodes it adds are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops


@pytest.fixture
def graph() -> Iterator[aexec.Graph]:
    with aexec.Graph() as graph:
        yield graph


async def run(graph: aexec.Graph, fetches: Any, feeds: Any = None) -> Any:
    async with aexec.Session(graph) as session:
        return await session.run(fetches, feeds)


def vector(*values: float) -> Any:
    return aexec.constant(np.array(values))


async def test_gradients_of_several_ys_are_added(graph: aexec.Graph) -> None:
    x = vector(1.0, 2.0)
    (grad,) = aexec.gradients([ops.square(x), 3.0 * x], x)
    np.testing.assert_array_equal(await run(graph, grad), [5.0, 7.0])


async def test_names_are_those_of_tensorflow(graph: aexec.Graph) -> None:
    x = aexec.placeholder("float32", [2], name="x")
    y = ops.add_v2(ops.mul(x, x, name="square"), x, name="sum")
    (grad,) = aexec.gradients(y, x)
    assert grad is not None
    assert grad.name == "gradients/AddN:0"
    assert {"gradients/grad_ys_0", "gradients/square_grad/Mul", "gradients/square_grad/Mul_1"} <= {
        n.name for n in graph
    }
    (again,) = aexec.gradients(y, x)
    assert again is not None
    assert again.name == "gradients_1/AddN:0"


async def test_gradient_by_an_unused_tensor_is_none_or_zeros(graph: aexec.Graph) -> None:
    x, other = vector(1.0), vector(2.0, 3.0)
    assert aexec.gradients(x * 2.0, [other]) == [None]
    (zeros,) = aexec.gradients(x * 2.0, [other], unconnected="zero")
    np.testing.assert_array_equal(await run(graph, zeros), [0.0, 0.0])
    with pytest.raises(errors.InvalidArgumentError, match="unconnected must be one of 'none', 'zero'; got 'zeros'"):
        aexec.gradients(x, x, unconnected="zeros")


async def test_gradients_stop_where_it_is_said(graph: aexec.Graph) -> None:
    x = vector(3.0)
    doubled = 2.0 * x
    y = doubled * x
    whole, stopped = aexec.gradients(y, x)[0], aexec.gradients(y, x, stop_gradients=[doubled])[0]
    by_op = aexec.gradients(ops.stop_gradient(doubled) * x, x)[0]
    assert await run(graph, [whole, stopped, by_op]) == [12.0, 6.0, 6.0]


async def test_gradient_by_an_intermediate_tensor(graph: aexec.Graph) -> None:
    """Each has its own, as if the ones after it did not depend on the ones before."""
    x = vector(3.0)
    doubled = 2.0 * x
    by_x, by_doubled = aexec.gradients(doubled * x, [x, doubled])
    assert await run(graph, [by_x, by_doubled]) == [12.0, 3.0]


async def test_grad_ys_is_the_gradient_at_y(graph: aexec.Graph) -> None:
    x = vector(1.0, 2.0)
    (grad,) = aexec.gradients(ops.square(x), x, grad_ys=[np.array([1.0, 10.0])])
    np.testing.assert_array_equal(await run(graph, grad), [2.0, 40.0])
    with pytest.raises(errors.InvalidArgumentError, match="cannot be the gradient of 'Square_1:0', which has shape"):
        aexec.gradients(ops.square(x), x, grad_ys=np.zeros(3))
    with pytest.raises(errors.InvalidArgumentError, match="grad_ys must be one for each of 1 ys, got 2"):
        aexec.gradients(x, x, grad_ys=[None, None])


def test_grad_ys_is_required_for_complex_tensors(graph: aexec.Graph) -> None:
    x = aexec.placeholder("complex64", [])
    with pytest.raises(errors.InvalidArgumentError, match="gradients of complex tensors need grad_ys"):
        aexec.gradients(ops.square(x), x)
    assert aexec.gradients(ops.square(x), x, grad_ys=1j)[0] is not None


async def test_rows_that_were_gathered_stay_rows(graph: aexec.Graph) -> None:
    table = aexec.placeholder("float32", [None, 2])
    used = ops.gather_v2(ops.identity(table), [2, 0, 2], 0) + ops.gather_v2(table, [1], 0)
    (grad,) = aexec.gradients(used, table)
    assert isinstance(grad, aexec.IndexedSlices)
    values, indices, shape = await run(graph, list(grad), {table: np.zeros((4, 2))})
    dense = np.zeros(shape)
    np.add.at(dense, indices, values)
    np.testing.assert_array_equal(dense, [[1, 1], [3, 3], [2, 2], [0, 0]])


async def test_rows_and_dense_gradients_are_added_densely(graph: aexec.Graph) -> None:
    """As in TensorFlow, where the norm of a gradient of rows is not that of their sum."""
    table = vector(1.0, 2.0, 3.0)
    (grad,) = aexec.gradients([ops.gather_v2(table, [1], 0), ops.square(table)], table)
    assert isinstance(grad, aexec.Tensor)
    np.testing.assert_array_equal(await run(graph, grad), [2.0, 5.0, 6.0])


async def test_ways_of_adding(graph: aexec.Graph) -> None:
    x = vector(1.0)
    ys = [x * float(k) for k in range(1, 6)]
    (at_once,) = aexec.gradients(ys, x)
    (in_pairs,) = aexec.gradients(ys, x, aggregation="tree")
    assert at_once is not None
    assert in_pairs is not None
    assert [len(tensor.node.inputs) for tensor in (at_once, in_pairs)] == [5, 2]
    assert await run(graph, [at_once, in_pairs]) == [15.0, 15.0]


def test_gated_gradients_wait_for_one_another(graph: aexec.Graph) -> None:
    x, y = vector(1.0), vector(2.0)
    by_x, by_y = aexec.gradients(x * y, [x, y], gate_gradients=True)
    assert by_x is not None
    assert by_y is not None
    waited = [
        {graph.nodes[i].op for i in (*tensor.node.control_inputs, tensor.node.inputs[0][0])} for tensor in (by_x, by_y)
    ]
    assert waited == [{"Mul"}, {"Mul"}]
    assert by_x.node.control_inputs != by_y.node.control_inputs


def test_gradients_may_be_colocated(graph: aexec.Graph) -> None:
    x = aexec.placeholder("float32", [2])
    with aexec.device("/device:CPU:0"):
        y = ops.square(x, name="square")
    (grad,) = aexec.gradients(y, x, colocate=True)
    assert grad is not None
    assert grad.node.colocation_groups == ["square"]
    (elsewhere,) = aexec.gradients(y, x)
    assert elsewhere is not None
    assert elsewhere.node.colocation_groups == []


async def test_gradient_of_another_op_may_be_used(graph: aexec.Graph) -> None:
    x = vector(-2.0, 3.0)
    with aexec.gradient_override_map({"Sign": "Identity"}):
        straight_through = ops.sign(x)
    (grad,) = aexec.gradients(straight_through, x)
    np.testing.assert_array_equal(await run(graph, grad), [1.0, 1.0])
    np.testing.assert_array_equal(await run(graph, aexec.gradients(ops.sign(x), x)[0]), [0.0, 0.0])
    assert aexec.gradients(ops.round(x), x) == [None]
    copy = aexec.Graph.from_bytes(graph.to_bytes())
    assert copy.node("Sign").attrs["_gradient_op_type"] == b"Identity"


async def test_ops_of_ones_own_have_gradients(graph: aexec.Graph) -> None:
    @aexec.op(
        "GradientTestCube(x: double) -> y: double", gradient=lambda op, grad: 3.0 * grad * ops.square(op.inputs[0])
    )
    def cube(x: np.ndarray) -> np.ndarray:
        return x**3

    x = vector(2.0)
    (grad,) = aexec.gradients(cube(x), x)
    assert await run(graph, grad) == [12.0]


def test_op_without_one_is_named(graph: aexec.Graph) -> None:
    @aexec.op("GradientTestNothing(x: float) -> y: float")
    def nothing(x: np.ndarray) -> np.ndarray:
        return x

    x = aexec.placeholder("float32", [])
    y = nothing(x, name="here")
    with pytest.raises(
        errors.NotFoundError, match=r"No gradient defined for operation 'here'.*@aexec.gradient"
    ) as caught:
        aexec.gradients(y, x)
    assert (caught.value.node, caught.value.op) == ("here", "GradientTestNothing")


def test_gradient_function_that_gives_too_few(graph: aexec.Graph) -> None:
    @aexec.op("GradientTestTwo(x: float, y: float) -> z: float", gradient=lambda op, grad: grad)
    def two(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    x = aexec.placeholder("float32", [])
    with pytest.raises(
        errors.InvalidArgumentError, match=r"Num gradients 1 generated for op .* do not match num inputs 2"
    ):
        aexec.gradients(two(x, x), x)


def test_prevented_gradients_say_why(graph: aexec.Graph) -> None:
    x = aexec.placeholder("float32", [])
    with pytest.raises(
        errors.InvalidArgumentError, match=r"explicitly disabled at node 'PreventGradient'. Reason: no way"
    ):
        aexec.gradients(ops.prevent_gradient(x, message="no way"), x)


def test_tensors_of_two_graphs(graph: aexec.Graph) -> None:
    x = vector(1.0)
    with aexec.Graph():
        other = vector(1.0)
    with pytest.raises(errors.InvalidArgumentError, match="is of another graph than"):
        aexec.gradients(x, other)
    with pytest.raises(errors.InvalidArgumentError, match="needs at least one tensor in ys"):
        aexec.gradients([], [])
    with pytest.raises(errors.InvalidArgumentError, match="xs must be tensors, got 'x'"):
        aexec.gradients(x, ["x"])  # type: ignore[list-item]


async def test_variables(graph: aexec.Graph) -> None:
    """Gradients arrive at the handle: dense of what was read, rows of what was gathered."""
    handle = ops.var_handle_op("float64", [3, 2], shared_name="v")
    init = ops.assign_variable_op(handle, np.ones((3, 2)))
    read = ops.square(ops.read_variable_op(handle, "float64"))
    rows = ops.resource_gather(handle, [2, 2], "float64")
    chosen = ops.resource_gather_nd(handle, [[0, 1], [1, 1]], "float64")
    one_axis = ops.resource_gather_nd(handle, [[1]], "float64")
    dense, slices, scattered, one = (aexec.gradients(y, handle)[0] for y in (read, rows, chosen, one_axis))
    assert isinstance(slices, aexec.IndexedSlices)
    assert isinstance(one, aexec.IndexedSlices)
    async with aexec.Session(graph) as session:
        await session.run([], targets=[init])
        np.testing.assert_array_equal(await session.run(dense), np.full((3, 2), 2.0))
        np.testing.assert_array_equal(await session.run(scattered), [[0, 1], [0, 1], [0, 0]])
        for rows_found, indices in ((slices, [2, 2]), (one, [1])):
            values, where, shape = await session.run(list(rows_found))
            assert (values.tolist(), where.tolist(), shape.tolist()) == ([[1.0, 1.0]] * len(indices), indices, [3, 2])


async def test_batches_gathered_from_a_variable(graph: aexec.Graph) -> None:
    handle = ops.var_handle_op("float64", [2, 3], shared_name="v")
    rows = ops.resource_gather(handle, [[0, 0], [2, 1]], "float64", batch_dims=1)
    (grad,) = aexec.gradients(rows, handle)
    async with aexec.Session(graph) as session:
        await session.run([], targets=[ops.assign_variable_op(handle, np.ones((2, 3)))])
        np.testing.assert_array_equal(await session.run(grad), [[2, 0, 0], [0, 1, 1]])


async def test_variables_by_reference(graph: aexec.Graph) -> None:
    variable = ops.variable_v2([2], "float64")
    init = ops.assign(variable, np.array([1.0, 2.0]))
    (grad,) = aexec.gradients(ops.square(ops.ref_identity(variable)), variable)
    async with aexec.Session(graph) as session:
        await session.run([], targets=[init.node])
        np.testing.assert_array_equal(await session.run(grad), [2.0, 4.0])


async def test_rounding_passes_its_gradient_within_its_range(graph: aexec.Graph) -> None:
    x = aexec.constant(np.array([-9.0, 0.3, 9.0], np.float32))
    low, high = aexec.constant(np.float32(-6.0)), aexec.constant(np.float32(6.0))
    made = [
        ops.fake_quant_with_min_max_args(x),
        ops.fake_quant_with_min_max_vars(x, low, high),
        ops.fake_quant_with_min_max_vars_per_channel(x, [-6.0] * 3, [6.0] * 3),
        ops.quantize_and_dequantize_v4(x, low, high, range_given=True),
        ops.quantize_and_dequantize_v2(x, low, high, range_given=True),
    ]
    found = await run(graph, [aexec.gradients(y, x)[0] for y in made])
    assert [grad.tolist() for grad in found] == [[0, 1, 0]] * 4 + [[1, 1, 1]]


async def test_sample_stays_at_its_quantile(graph: aexec.Graph) -> None:
    """How samples of a truncated normal move with its parameters."""
    from scipy.stats import truncnorm

    parameters = [np.array(value) for value in (0.3, 1.2, -1.0, 2.0)]
    tensors = [aexec.constant(value) for value in parameters]
    sample = ops.stateless_parameterized_truncated_normal([1], [1, 2], *tensors)
    made = aexec.gradients(sample, tensors)
    x, *found = await run(graph, [sample, *made])

    def quantile(x: Any, mean: Any, deviation: Any, low: Any, high: Any) -> Any:
        return truncnorm.cdf(x, (low - mean) / deviation, (high - mean) / deviation, mean, deviation)

    expected = quantile(x, *parameters)
    for index, grad in enumerate(found):
        moved = list(parameters)
        moved[index] = moved[index] + 1e-5
        np.testing.assert_allclose(quantile(x + 1e-5 * grad, *moved), expected, atol=1e-9)


async def test_recurrent_layers(graph: aexec.Graph) -> None:
    """BlockLSTM, by difference quotients in single precision."""
    random = np.random.default_rng(2)
    arrays = [random.normal(size=s).astype(np.float32) for s in ((2, 1, 2), (1, 3), (1, 3), (5, 12), 3, 3, 3, 12)]
    xs = [aexec.placeholder("float32", a.shape) for a in arrays]
    for block in (ops.block_lstm, ops.block_lstmv2):
        outputs = block(aexec.constant(2, "int64"), *xs, use_peephole=True)
        y = ops.sum(outputs[6] * outputs[6] + outputs[1], [0, 1, 2])
        made = aexec.gradients(y, xs)
        async with aexec.Session(graph) as session:
            found = await session.run(made, dict(zip(xs, arrays, strict=True)))
            call = session.make_callable(y, xs)
            for index, grad in enumerate(found):
                direction = random.normal(size=grad.shape)
                values = []
                for step in (5e-3, -5e-3):
                    moved = list(arrays)
                    moved[index] = (moved[index] + step * direction).astype(np.float32)
                    values.append(await call(*moved))
                assert np.vdot(direction, grad) == pytest.approx((values[0] - values[1]) / 1e-2, rel=2e-2, abs=2e-2)


def test_thousand_layers_take_no_recursion(graph: aexec.Graph) -> None:
    x = aexec.placeholder("float32", [2])
    y = x
    for _ in range(3000):
        y = ops.tanh(y)
    assert aexec.gradients(y, x)[0] is not None


# Derivatives that a division by a factor of zero would spoil.

PRODUCTS = {
    "prod": lambda x: ops.prod(x, [0]),
    "cumprod": lambda x: ops.cumprod(x, 0),
    "cumprod, exclusive and reverse": lambda x: ops.cumprod(x, 0, exclusive=True, reverse=True),
    "segment_prod": lambda x: ops.segment_prod(x, [0, 0, 0, 2]),
    "unsorted_segment_prod": lambda x: ops.unsorted_segment_prod(x, [0, 0, 0, 1], 3),
}


@pytest.mark.parametrize("name", PRODUCTS)
async def test_second_derivatives_of_products_with_a_factor_of_zero(name: str) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float64", [4])
        (first,) = aexec.gradients(PRODUCTS[name](x), x)
        weighted = ops.sum(first * [1.0, -0.5, 2.0, 0.7], [0])
        (second,) = aexec.gradients(weighted, x, unconnected="zero")
    async with aexec.Session(graph) as session:
        for index in range(4):
            start = np.array([2.0, -1.5, 3.0, 0.5])
            start[index] = 0.0
            found = await session.run(second, {x: start})
            steps = np.eye(4) * 1e-6
            ends = [[await session.run(weighted, {x: start + sign * step}) for sign in (1, -1)] for step in steps]
            np.testing.assert_allclose(found, [(there - back) / 2e-6 for there, back in ends], atol=1e-6)


async def test_gradient_of_a_running_product_at_zero_is_exact() -> None:
    with aexec.Graph() as graph:
        x = aexec.constant([2.0, 0.0, 3.0])
        (grad,) = aexec.gradients(ops.cumprod(x, 0), x)
    async with aexec.Session(graph) as session:
        np.testing.assert_array_equal(await session.run(grad), [1.0, 8.0, 0.0])
