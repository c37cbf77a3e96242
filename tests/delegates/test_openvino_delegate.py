"""OpenVINO gives what the kernels give, but for float32's last digits; what could be otherwise it is not given."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.delegates.delegate_registry import make_delegate
from aexec.framework import dtypes
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.partitioning.regions import Region
from aexec.graph.passes import WorkingGraph

pytest.importorskip("openvino")

rng = np.random.default_rng(3)
X = rng.normal(size=(2, 8, 8, 4)).astype(np.float32)
FLAT = rng.normal(size=(3, 5)).astype(np.float32)


def openvino() -> aexec.SessionConfig:
    return aexec.SessionConfig(delegates=["openvino"])


def weights(*shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


def regions_in(call: aexec.SessionCallable) -> list[Any]:
    assert call.plan is not None
    return [node for node in call.plan.nodes if node.op == "_DelegatedRegion"]


def image(build: Callable[[Any], Any], x: Any = X) -> tuple[Callable[[Any], Any], Any]:
    return build, x


UNARY = (
    "abs neg exp sqrt rsqrt square reciprocal sigmoid tanh relu relu6 elu selu softplus softsign erf erfc sin cos "
    "floor ceil sign log log1p"
).split()
CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    **{name: (getattr(ops, name), np.abs(FLAT) if "sqrt" in name or "log" in name else FLAT) for name in UNARY},
    "leaky_relu": (lambda x: ops.leaky_relu(x, alpha=0.3), FLAT),
    "softmax": (ops.softmax, FLAT),
    "log_softmax": (ops.log_softmax, FLAT),
    "arithmetic": (lambda x: (x + 1.5) * 2.0 - x / 3.0, FLAT),
    "maximum": (lambda x: ops.maximum(ops.minimum(x, 0.5), -0.5), FLAT),
    "pow": (lambda x: ops.pow(ops.abs(x), 1.7), FLAT),
    "squared_difference": (lambda x: ops.squared_difference(x, 0.3), FLAT),
    "add_n": (lambda x: ops.add_n([x, x * 2.0, x + 1.0]), FLAT),
    "select": (lambda x: ops.select_v2(ops.logical_not(ops.greater(x, 0.1)), x, x * 3.0), FLAT),
    "comparisons": (lambda x: ops.select_v2(ops.logical_and(x >= 0.0, ops.less(x, 1.0)), x, -x), FLAT),
    "clip": (lambda x: ops.clip_by_value(x, -0.5, 0.5), FLAT),
    "bias_add": (lambda x: ops.bias_add(x, weights(5)), FLAT),
    "matmul": (lambda x: ops.mat_mul(x, weights(5, 4)), FLAT),
    "matmul_transposed": (lambda x: ops.mat_mul(x, weights(4, 5), transpose_b=True), FLAT),
    "batch_matmul": (lambda x: ops.batch_mat_mul_v2(x, x, adj_y=True), X),
    "einsum": (lambda x: ops.einsum([x, weights(4, 3)], equation="bhwc,cd->bhwd"), X),
    **{
        f"conv2d {padding} {stride} {dilation}": (
            lambda x, p=padding, s=stride, d=dilation: ops.conv2d(
                x, weights(3, 3, 4, 6), strides=[1, s, s, 1], padding=p, dilations=[1, d, d, 1]
            ),
            X,
        )
        for padding, stride, dilation in [("SAME", 1, 1), ("VALID", 1, 1), ("SAME", 2, 1), ("SAME", 1, 2)]
    },
    "conv2d explicit": (
        lambda x: ops.conv2d(
            x, weights(3, 3, 4, 6), strides=[1, 2, 2, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 0, 0, 2, 0, 0]
        ),
        X,
    ),
    "conv2d grouped": (lambda x: ops.conv2d(x, weights(3, 3, 2, 6), strides=[1, 1, 1, 1], padding="SAME"), X),
    **{
        f"depthwise {stride} {multiplier}": (
            lambda x, s=stride, m=multiplier: ops.depthwise_conv2d_native(
                x, weights(3, 3, 4, m), strides=[1, s, s, 1], padding="SAME"
            ),
            X,
        )
        for stride in (1, 2)
        for multiplier in (1, 2)
    },
    **{
        f"{pool} {padding}": (
            lambda x, f=pool, p=padding: getattr(ops, f)(x, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=p),
            X,
        )
        for pool in ("max_pool", "avg_pool")
        for padding in ("SAME", "VALID")
    },
    "batch_norm": (
        lambda x: ops.fused_batch_norm_v3(
            x, weights(4), weights(4), weights(4), np.abs(weights(4)), is_training=False, epsilon=1e-3
        )[0],
        X,
    ),
    **{f"reduce_{f}": (lambda x, f=f: getattr(ops, f)(x, [1, 2], keep_dims=True), X) for f in ("mean", "sum", "max")},
    "reduce_last": (lambda x: ops.mean(x, -1), X),
    "reduce_all": (lambda x: ops.min(x, [0, 1, 2, 3]), X),
    "reshape": (lambda x: ops.reshape(x, [-1, 64, 4]), X),
    "reshape_by_shape": (
        lambda x: ops.reshape(x, ops.pack([ops.strided_slice(ops.shape(x), [0], [1], [1], shrink_axis_mask=1), -1])),
        X,
    ),
    "shape_product": (
        lambda x: ops.reshape(x, ops.pack([-1, ops.prod(ops.gather_v2(ops.shape(x), [1, 2], 0), [0])])),
        X,
    ),
    "transpose": (lambda x: ops.transpose(x, [0, 3, 1, 2]), X),
    "squeeze": (lambda x: ops.squeeze(ops.expand_dims(x, 1), squeeze_dims=[1]), X),
    "concat": (lambda x: ops.concat_v2([x, x * 2.0], -1), X),
    "split": (lambda x: ops.add_n(ops.split(3, x, 2)), X),
    "pack": (lambda x: ops.pack([x, x + 1.0], axis=1), X),
    "unpack": (lambda x: ops.add_n(ops.unpack(x, 4, axis=3)), X),
    "slice": (lambda x: ops.slice(x, [0, 1, 0, 2], [-1, 3, -1, 1]), X),
    "strided_slice": (
        lambda x: ops.strided_slice(x, [0, 7, 0, 1], [0, 0, 8, 4], [1, -2, 3, 1], begin_mask=1, end_mask=1),
        X,
    ),
    "pad": (lambda x: ops.pad(x, [[0, 0], [1, 2], [0, 3], [0, 0]]), X),
    "pad_v2": (lambda x: ops.pad_v2(x, [[0, 0], [1, 2], [0, 3], [0, 0]], 1.5), X),
    "mirror_pad": (lambda x: ops.mirror_pad(x, [[0, 0], [1, 2], [0, 3], [0, 0]], mode="REFLECT"), X),
    "tile": (lambda x: ops.tile(x, [1, 2, 1, 3]), X),
    "space_to_batch": (
        lambda x: ops.batch_to_space_nd(
            ops.space_to_batch_nd(x, [2, 2], [[1, 1], [0, 2]]) * 2.0, [2, 2], [[0, 1], [1, 0]]
        ),
        X,
    ),
    "space_to_depth": (lambda x: ops.depth_to_space(ops.space_to_depth(x, 2) + 1.0, 2), X),
    **{
        f"{op} {size} {mode}": (
            lambda x, f=op, s=size, m=mode: getattr(ops, f)(x, [s, s + 1], **({m: True} if m else {})),
            X,
        )
        for op in ("resize_bilinear", "resize_nearest_neighbor")
        for size in (3, 16, 21)
        for mode in ("", "align_corners", "half_pixel_centers")
    },
    **{
        f"conv2d_backprop_input {padding} {stride} {size}": (
            lambda x, p=padding, s=stride, size=size: ops.conv2d_backprop_input(
                [2, size, size, 6], weights(3, 3, 6, 4), x, strides=[1, s, s, 1], padding=p
            ),
            X,
        )
        for padding, stride, size in [("SAME", 2, 16), ("VALID", 2, 17), ("SAME", 1, 8), ("SAME", 2, 15)]
    },
    "cast": (lambda x: ops.cast(ops.greater(x, 0.0), "float32") + x, X),
}


def case_graph(name: str, dims: list[int | None]) -> aexec.Graph:
    build, _ = CASES[name]
    with aexec.Graph() as graph:
        x = ops.identity(aexec.placeholder("float32", dims, name="x"))
        # One operation more on either side, so that it is in the middle of a region.
        ops.mul(build(ops.mul(x, 1.25)), 0.75, name="y")
    return graph


@pytest.mark.parametrize("name", CASES)
async def test_op(name: str) -> None:
    x = CASES[name][1]
    graph = case_graph(name, [None, *x.shape[1:]])
    async with aexec.Session(graph, config=aexec.SessionConfig(delegates=())) as session:
        expected = await session.run("y:0", {"x:0": x})
    async with aexec.Session(graph, config=openvino()) as session:
        call = session.make_callable("y:0", ["x:0"])
        kept = x.copy()
        y = await call(x)
        (region,) = regions_in(call)
        assert call.plan is not None and call.plan.num_nodes <= 2, "something stayed outside"
        np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-6)
        assert y.dtype == np.float32
        np.testing.assert_array_equal(x, kept)
        assert region.node.traced_inputs()


MLP_WEIGHTS = [weights(64, 64) / 8 for _ in range(3)]


def mlp() -> aexec.Graph:
    with aexec.Graph() as graph:
        h = aexec.placeholder("float32", [None, 64], name="x")
        for k, w in enumerate(MLP_WEIGHTS):
            h = ops.relu(ops.mat_mul(h, w), name=f"h{k}")
        ops.identity(h, name="y")
    return graph


def mlp_expected(x: Any) -> Any:
    for w in MLP_WEIGHTS:
        x = np.maximum(x @ w, 0)
    return x


async def test_batches_of_every_size_need_one_compiled_region() -> None:
    async with aexec.Session(mlp(), config=openvino()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for rows in (1, 7, 2, 300, 1):
            x = weights(rows, 64)
            np.testing.assert_allclose(await call(x), mlp_expected(x), rtol=1e-4, atol=1e-5)
        assert len(regions_in(call)) == 1


async def test_empty_batch_goes_the_ordinary_way() -> None:
    async with aexec.Session(mlp(), config=openvino()) as session:
        assert (await session.run("y:0", {"x:0": np.zeros((0, 64), np.float32)})).shape == (0, 64)


async def test_feeds_are_shared_and_stay_as_they_are() -> None:
    """In-place kernels are given their own memory, also where the feed could be overwritten."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 64], name="x")
        ops.relu(x, name="r")
        ops.reshape(ops.neg(ops.reshape(x, [-1, 8, 8])), [-1, 64], name="n")
        ops.concat_v2([x, ops.exp(x)], 1, name="c")
    x = weights(32, 64)
    kept = x.copy()
    async with aexec.Session(graph, config=openvino()) as session:
        call = session.make_callable(["r:0", "n:0", "c:0"], ["x:0"])
        for writeable in (True, False):
            x.flags.writeable = writeable
            r, n, c = await call(x)
            np.testing.assert_array_equal(x, kept)
            np.testing.assert_array_equal(r, np.maximum(kept, 0))
            np.testing.assert_array_equal(n, -kept)
            np.testing.assert_array_equal(c[:, :64], kept)
            assert not any(np.shares_memory(x, out) for out in (r, n, c))


async def test_results_stay_while_others_are_computed() -> None:
    async with aexec.Session(mlp(), config=openvino()) as session:
        call = session.make_callable("y:0", ["x:0"])
        inputs = [weights(5, 64) for _ in range(6)]
        results = await asyncio.gather(*map(call, inputs))
        for x, y in zip(inputs, results, strict=True):
            np.testing.assert_allclose(y, mlp_expected(x), rtol=1e-4, atol=1e-5)
        assert all(y.flags.writeable for y in results)
    results[0][:] = 0  # the caller's own, also when the session is closed
    np.testing.assert_allclose(results[1], mlp_expected(inputs[1]), rtol=1e-4, atol=1e-5)


async def test_outputs_that_are_always_equal_are_two_arrays() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 4], name="x")
        a = ops.neg(x, name="a")
        ops.identity(a, name="b")
        ops.mul(a, 2.0, name="c")
    async with aexec.Session(graph, config=openvino()) as session:
        a, b, c = await session.run(["a:0", "b:0", "c:0"], {"x:0": np.ones((2, 4), np.float32)})
    a[:] = 5
    np.testing.assert_array_equal(b, -np.ones((2, 4)))
    np.testing.assert_array_equal(c, -2 * np.ones((2, 4)))


async def test_shapes_that_do_not_fit_are_told_in_the_nodes_words() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        ops.neg(ops.reshape(ops.neg(x), [2, 2], name="wrong"), name="y")
    async with aexec.Session(graph, config=openvino()) as session:
        call = session.make_callable("y:0", ["x:0"])
        with pytest.raises(errors.InvalidArgumentError, match="requested shape has 4") as caught:
            await call(np.ones(3, np.float32))
        assert caught.value.node == "wrong"
        np.testing.assert_array_equal(await call(np.ones(4, np.float32)), np.ones((2, 2)))
        assert len(regions_in(call)) == 1


async def test_cancelled_between_two_layers() -> None:
    with aexec.Graph() as graph:
        h = aexec.placeholder("float32", [None, 1024], name="x")
        w = weights(1024, 1024) / 32
        for _ in range(60):
            h = ops.mat_mul(h, w)
        ops.neg(h, name="y")
    x = weights(256, 1024)
    async with aexec.Session(graph, config=openvino()) as session:
        call = session.make_callable("y:0", ["x:0"])
        await call(x[:1])
        loop = asyncio.get_running_loop()
        began = loop.time()
        await call(x)
        whole = loop.time() - began
        step = call.start(x)
        while step.statistics().running == 0:
            await asyncio.sleep(0)
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        began = loop.time()
    assert loop.time() - began < whole / 2  # what the session waited for


async def test_refused_after_all_it_says_which_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An op that its frontend does not know, let in on purpose."""
    from aexec.delegates import openvino_ops

    monkeypatch.setitem(openvino_ops._CHECKS, "Lgamma", lambda graph, node: "")
    with aexec.Graph() as graph:
        ops.neg(ops.lgamma(aexec.placeholder("float32", [None], name="x"), name="bad"), name="y")
    async with aexec.Session(graph, config=openvino()) as session:
        with caplog.at_level(logging.WARNING, "aexec"):
            np.testing.assert_allclose(await session.run("y:0", {"x:0": np.float32([3, 4])}), -np.log([2.0, 6.0]), 1e-6)
    assert "openvino refuses a region of 1 Lgamma, 1 Neg" in caplog.text
    assert "Lgamma" in caplog.text.partition("instead:")[2]


def refusal(graph: aexec.Graph, node: Node, feeds: Sequence[Endpoint] = ()) -> str:
    return make_delegate("openvino").refusal(WorkingGraph(graph, feeds, [(node.id, 0)], []), node, [0])


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "float64": (lambda: ops.neg(aexec.placeholder("float64", [2])), "double"),
    "float16": (lambda: ops.neg(aexec.placeholder("float16", [2])), "half"),
    "int64": (lambda: ops.add_v2(aexec.placeholder("int64", [2]), aexec.placeholder("int64", [2])), "int64"),
    "matrices of int32": (
        lambda: ops.add_v2(aexec.placeholder("int32", [2, 2]), aexec.placeholder("int32", [2, 2])),
        "int32 of rank 2",
    ),
    "division of int32": (lambda: ops.div(aexec.placeholder("int32", []), aexec.placeholder("int32", [])), "of int32"),
    "unknown rank": (lambda: ops.neg(aexec.placeholder("float32", None)), "unknown rank"),
    "no elements": (lambda: ops.neg(aexec.placeholder("float32", [0, 2])), r"of shape \[0, 2\]"),
    "a look-up": (
        lambda: ops.gather_v2(aexec.placeholder("float32", [9, 2]), aexec.placeholder("int32", [3]), 0),
        "gathers from no shape",
    ),
    "a look-up out of range": (
        lambda: ops.gather_v2(ops.shape(aexec.placeholder("float32", [9, 2])), [2], 0),
        "no constants in range",
    ),
    "training": (
        lambda: ops.fused_batch_norm_v3(*[aexec.placeholder("float32", d) for d in ([2, 2, 2, 3], *[[3]] * 4)])[0].op,
        "is_training is set",
    ),
    "channels first": (
        lambda: ops.bias_add(aexec.placeholder("float32", [2, 3, 4]), weights(3), data_format="NCHW"),
        "data_format",
    ),
    "paddings that are fed": (
        lambda: ops.pad(aexec.placeholder("float32", [2]), aexec.placeholder("int32", [1, 2])),
        "int32 of rank 2",
    ),
    "axes that are fed": (
        lambda: ops.sum(aexec.placeholder("float32", [2, 2]), aexec.placeholder("int32", [1]), keep_dims=True),
        "input 1 is no constant",
    ),
    "many dimensions": (lambda: ops.neg(aexec.placeholder("float32", [1] * 7)), "of shape"),
    "an op that it is not given": (lambda: ops.lgamma(aexec.placeholder("float32", [2])), "Lgamma is not among"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_nodes_are_refused_with_the_reason(name: str) -> None:
    build, message = REFUSED[name]
    with aexec.Graph() as graph:
        made = build()
    node = made if isinstance(made, Node) else made.op
    assert re.search(message, refusal(graph, node))


CONSTANTS: dict[str, Callable[[Any, Any], Any]] = {
    "axes": lambda x, k: ops.sum(x, k),
    "permutation": lambda x, k: ops.transpose(x, k),
    "bounds": lambda x, k: ops.strided_slice(x, k, [2, 2], [1, 1]),
    "indices": lambda x, k: ops.gather_v2(ops.shape(x), k, 0),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_that_is_fed_is_none(name: str) -> None:
    with aexec.Graph() as graph:
        k = aexec.constant([0, 1], name="k")
        node = CONSTANTS[name](aexec.placeholder("float32", [2, 2]), k).op
    assert not refusal(graph, node)
    assert refusal(graph, node, [k.endpoint]) == "an input is of unknown rank"


def test_constant_that_cannot_be_decoded_is_none() -> None:
    with aexec.Graph() as graph:
        ops.clip_by_value(aexec.placeholder("float32", [2]), 0.0, aexec.constant(1.0, "float32", name="most"), name="y")
    message = graph.to_graph_def()
    (most,) = [node for node in message.node if node.name == "most"]
    most.attr["value"].tensor.Clear()
    most.attr["value"].tensor.dtype = dtypes.float32.enum
    most.attr["value"].tensor.tensor_content = b"one"
    graph = aexec.Graph.from_graph_def(message)
    assert refusal(graph, graph.node("y")) == "input 2 is no constant"


def test_compiling_is_expected_to_take_longer_for_more() -> None:
    def region(nodes: int, values: int) -> Region:
        with aexec.Graph() as graph:
            k = aexec.constant(np.zeros(values, np.float32))
            members = [ops.neg(k).op for _ in range(nodes)]
        return Region(graph, tuple(members), (k.op,), (), (), (), False, (), (), (), ())

    expect = make_delegate("openvino").compile_seconds
    assert expect(region(1, 1)) < expect(region(10, 1)) < expect(region(10, 10_000_000))
