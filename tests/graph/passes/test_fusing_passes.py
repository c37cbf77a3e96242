"""Passes that join a convolution or product with its neighbours: what they join, what not, and how exact that is."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aexec
from aexec import errors, native
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph import passes
from aexec.graph.passes import PASSES, WorkingGraph, pass_names, product_layout
from aexec.kernels.nn import winograd, winograd_rows, winograd_tiles
from tests.graph.passes.test_passes import run
from tests.kernels.harness import run_op
from tests.support.programs.functions import calls as calls_of
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32
FUSION = ("fusion", "pruning")
PADDING = ("padding", "pruning")
FOLDING = ("batch_norm_folding", "pruning")


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(dtype)


class Net(GraphBuilder):
    """A graph that grows node behind node; `at` is the last one."""

    def __init__(self, *shape: int | None, dtype: DType = F) -> None:
        super().__init__()
        self.dtype = dtype
        self.at = self.placeholder("x", dtype, shape)
        self.x = normal(*(2 if size is None else size for size in shape), dtype=dtype.np)

    def then(self, name: str, op: str, *others: str, **attrs: Any) -> Net:
        self.at = self(name, op, self.at, *others, T=self.dtype, **attrs)
        return self

    def number(self, name: str, *shape: int, seed: int = 1) -> str:
        return self.const(name, normal(*shape, seed=seed, dtype=self.dtype.np))

    def conv(self, name: str = "conv", filters: int = 5, size: int = 3, **attrs: Any) -> Net:
        self.number(f"{name}_w", size, size, 3, filters)
        return self.then(name, "Conv2D", f"{name}_w", **{"strides": [1, 1, 1, 1], "padding": b"SAME", **attrs})

    def depthwise(self, name: str = "conv", times: int = 2, **attrs: Any) -> Net:
        self.number(f"{name}_w", 3, 3, 3, times)
        attrs = {"strides": [1, 1, 1, 1], "padding": b"SAME", **attrs}
        return self.then(name, "DepthwiseConv2dNative", f"{name}_w", **attrs)

    def conv_3d(self, name: str = "conv") -> Net:
        self.number(f"{name}_w", 2, 2, 2, 3, 5)
        return self.then(name, "Conv3D", f"{name}_w", strides=[1] * 5, padding=b"SAME")

    def product(self, name: str = "conv", transpose_b: bool = False) -> Net:
        self.number(f"{name}_w", *((5, 3) if transpose_b else (3, 5)))
        return self.then(name, "MatMul", f"{name}_w", transpose_b=transpose_b)

    def bias(self, name: str = "bias", channels: int = 5) -> Net:
        return self.then(name, "BiasAdd", self.number(f"{name}_b", channels, seed=2))

    def batch_norm(self, name: str = "bn", channels: int = 5, **attrs: Any) -> Net:
        names = [self.number(f"{name}_{i}", channels, seed=3 + i) for i in range(3)]
        names.append(self.const(f"{name}_3", np.abs(normal(channels, seed=7)) + np.float32(0.1)))
        return self.then(name, "FusedBatchNormV3", *names, **{"U": F, "is_training": False, "epsilon": 0.01, **attrs})

    async def both(self, names: Any, fetches: Any = "", feeds: Any = None) -> tuple[Any, Any, dict[str, str]]:
        """Without passes, with these, and name → op of what was executed."""
        fetches, feeds = fetches or f"{self.at}:0", {"x:0": self.x, **(feeds or {})}
        plain, _ = await run(self, fetches, feeds, ())
        value, executed = await run(self, fetches, feeds, names)
        return plain, value, {name: op for name, op in executed.items() if op != "Const"}

    async def same(self, names: Any, fetches: Any = "", feeds: Any = None) -> dict[str, str]:
        """What was executed, when it gives the same bits."""
        plain, value, executed = await self.both(names, fetches, feeds)
        for one, other in zip(plain, value, strict=True) if isinstance(plain, list) else [(plain, value)]:
            assert one.tobytes() == other.tobytes()
        return executed


def image() -> Net:
    return Net(None, 6, 7, 3)


PRODUCTS = {
    "Conv2D": lambda: image().conv(),
    "DepthwiseConv2dNative": lambda: image().depthwise(),
    "Conv3D": lambda: Net(None, 3, 4, 5, 3).conv_3d(),
    "MatMul": lambda: Net(None, 3).product(),
}
FUSED = {
    "Conv2D": "_FusedConv2D",
    "DepthwiseConv2dNative": "_FusedDepthwiseConv2dNative",
    "Conv3D": "_FusedConv3D",
    "MatMul": "_FusedMatMul",
}
CHANNELS = {"DepthwiseConv2dNative": 6}


class TestFusion:
    @pytest.mark.parametrize("product", PRODUCTS)
    @pytest.mark.parametrize("activation", ["", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh"])
    async def test_bias_and_activation(self, product: str, activation: str) -> None:
        net = PRODUCTS[product]().bias(channels=CHANNELS.get(product, 5))
        if activation:
            net.then("y", activation, **({"alpha": 0.3} if activation == "LeakyRelu" else {}))
        assert await net.same(FUSION) == {net.at: FUSED[product]}

    @pytest.mark.parametrize("product", ["Conv2D", "DepthwiseConv2dNative"])
    @pytest.mark.parametrize("activation", ["", "Relu", "Relu6", "Elu", "LeakyRelu"])
    async def test_batch_norm(self, product: str, activation: str) -> None:
        net = PRODUCTS[product]().batch_norm(channels=CHANNELS.get(product, 5))
        if activation:
            net.then("y", activation)
        assert await net.same(FUSION) == {net.at: FUSED[product]}

    @pytest.mark.parametrize("product", PRODUCTS)
    @pytest.mark.parametrize("first", [True, False])
    async def test_residual(self, product: str, first: bool) -> None:
        net = PRODUCTS[product]().bias(channels=CHANNELS.get(product, 5))
        shape = {"Conv2D": (6, 7, 5), "DepthwiseConv2dNative": (6, 7, 6), "Conv3D": (3, 4, 5, 5), "MatMul": (5,)}[
            product
        ]
        net.placeholder("side", F, (None, *shape))
        net("sum", "AddV2", *(("bias", "side") if first else ("side", "bias")), T=F)
        net.at = net("y", "Relu", "sum", T=F)
        assert await net.same(FUSION, feeds={"side:0": normal(2, *shape, seed=9)}) == {"y": FUSED[product]}
        # The batch is not known when the request is planned: one of the two may be broadcast.
        assert await net.same(FUSION, feeds={"side:0": normal(1, *shape, seed=9)}) == {"y": FUSED[product]}
        net.x = net.x[:1]
        assert await net.same(FUSION, feeds={"side:0": normal(3, *shape, seed=9)}) == {"y": FUSED[product]}

    async def test_explicit_paddings(self) -> None:
        """There is no fused depthwise convolution that has them."""
        explicit = {"padding": b"EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 3, 0, 0]}
        assert await image().conv(**explicit).bias().same(FUSION) == {"bias": "_FusedConv2D"}
        kept = {"conv": "DepthwiseConv2dNative", "bias": "BiasAdd"}
        assert await image().depthwise(**explicit).bias(channels=6).same(FUSION) == kept

    async def test_residuals_that_do_not_fit(self) -> None:
        net = image().conv().bias()
        net.placeholder("side", F, (None, 6, 7, 5))
        net.at = net("y", "AddV2", "bias", "side", T=F)
        with pytest.raises(
            errors.InvalidArgumentError, match=r"Incompatible shapes: \[2,6,7,5\] vs. \[3,6,7,5\]"
        ) as caught:
            await run(net, "y:0", {"x:0": net.x, "side:0": normal(3, 6, 7, 5)}, FUSION)
        assert caught.value.node == "y"
        assert "derived from node 'conv', 'bias', 'y'" in str(caught.value)

    async def test_sum_of_two_products_is_fused(self) -> None:
        net = image().conv().bias()
        net.at = "x"
        net.conv("other").bias("other_bias")
        net.at = net("y", "AddV2", "bias", "other_bias", T=F)
        assert sorted((await net.same(FUSION)).values()) == ["_FusedConv2D", "_FusedConv2D"]

    async def test_sum_with_a_variable_of_one_number_per_channel_is_a_bias(self) -> None:
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [None, 6, 7, 3], name="x")
            bias = aexec.get_variable("bias", [5], initializer=aexec.initializers.RandomNormal(seed=1))
            conv = aexec.nn.conv2d(x, aexec.constant(normal(3, 3, 3, 5)), padding="SAME", name="conv")
            aexec.ops.relu(aexec.ops.add_v2(bias.value(), conv), name="y")
            wide = aexec.get_variable("wide", [7, 1], initializer=aexec.initializers.RandomNormal(seed=2))
            other = aexec.nn.conv2d(x, aexec.constant(normal(3, 3, 3, 5)), padding="SAME", name="other")
            aexec.ops.relu(aexec.ops.add_v2(other, wide.value()), name="z")
            aexec.group(aexec.global_variables_initializer(), name="init")
        values, ops = [], {}
        for names in ((), ("fusion",)):
            metadata, options = aexec.RunMetadata(), aexec.RunOptions(output_partition_graphs=True)
            async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=names)) as session:
                await session.run([], targets=["init"])
                feeds = {"x:0": normal(2, 6, 7, 3, seed=3)}
                values.append(await session.run(["y:0", "z:0"], feeds, options=options, metadata=metadata))
            ops = {node.name: node.op for part in metadata.partition_graphs or () for node in part.node}
        assert (ops["y"], ops["z"]) == ("_FusedConv2D", "Relu")
        for plain, fused in zip(*values, strict=True):
            assert plain.tobytes() == fused.tobytes()

    @pytest.mark.parametrize("shape", [(5,), (1, 1, 1, 5)])
    async def test_constant_sum_is_a_bias(self, shape: tuple[int, ...]) -> None:
        net = image().conv()
        net.at = net("sum", "AddV2", net.number("b", *shape), "conv", T=F)
        net.then("y", "Relu")
        assert await net.same(FUSION) == {"y": "_FusedConv2D"}

    @pytest.mark.parametrize("shape", [(), (1,), (7, 1), (7, 5), (2, 6, 7, 5)])
    async def test_sums_of_other_shapes_are_not_fused(self, shape: tuple[int, ...]) -> None:
        net = image().conv()
        net.then("y", "AddV2", net.number("b", *shape))
        assert await net.same(FUSION) == {"conv": "Conv2D", "y": "AddV2"}

    @pytest.mark.parametrize("fetched", ["conv", "bias"])
    async def test_fetched_node_is_kept(self, fetched: str) -> None:
        net = image().conv().bias().then("y", "Relu")
        executed = await net.same(FUSION, [f"{fetched}:0", "y:0"])
        assert executed[fetched] == {"conv": "Conv2D", "bias": "_FusedConv2D"}[fetched]
        assert executed["y"] == "Relu"

    async def test_fed_node_is_not_fused(self) -> None:
        net = image().conv().bias().then("y", "Relu")
        fed = normal(2, 6, 7, 5, seed=8)
        assert await net.same(FUSION, feeds={"conv:0": fed}) == {"bias": "BiasAdd", "y": "Relu"}
        assert await net.same(FUSION, feeds={"bias:0": fed}) == {"y": "Relu"}
        assert await net.same(FUSION, feeds={"bias_b:0": normal(5, seed=8)}) == {"y": "_FusedConv2D"}

    async def test_node_with_two_users_is_not_fused_into_one(self) -> None:
        net = image().conv().bias()
        net.at = net("y", "AddV2", "bias", "bias", T=F)
        assert await net.same(FUSION) == {"bias": "_FusedConv2D", "y": "AddV2"}
        net = image().conv().bias()
        net("z", "Neg", "conv", T=F)
        assert (await net.same(FUSION, ["bias:0", "z:0"]))["conv"] == "Conv2D"

    async def test_node_without_outputs_is_not_fused(self) -> None:
        net = image().conv()
        net("v", "VarHandleOp", dtype=F, shape=PartialTensorShape(None), shared_name=b"v")
        net("y", "AssignVariableOp", "v", "conv", dtype=F)
        _, executed = await run(net, ["y"], {"x:0": net.x}, FUSION)
        assert executed["conv"] == "Conv2D"

    async def test_node_with_control_edges_is_not_fused(self) -> None:
        net = image().conv().bias().then("y", "Relu")
        net("after", "Identity", "x", "^conv", T=F)
        executed = await net.same(FUSION, ["y:0", "after:0"])
        assert executed["conv"] == "Conv2D"
        net = image().conv()
        net("other", "Neg", "x", T=F)
        net.at = net("bias", "BiasAdd", "conv", net.number("b", 5), "^other", T=F)
        assert (await net.same(FUSION))["bias"] == "BiasAdd"

    async def test_product_that_waits(self) -> None:
        net = image()
        net("other", "Neg", "x", T=F)
        net("conv", "Conv2D", "x", net.number("w", 3, 3, 3, 5), "^other", T=F, strides=[1] * 4, padding=b"SAME")
        net.at = "conv"
        assert await net.bias().same(FUSION) == {"other": "Neg", "bias": "_FusedConv2D"}

    @pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64])
    async def test_other_types_are_left(self, dtype: DType) -> None:
        """Narrow types would be rounded less often, and not every fused op has wide ones."""
        assert await Net(None, 6, 7, 3, dtype=dtype).conv().bias().same(FUSION) == {"conv": "Conv2D", "bias": "BiasAdd"}

    async def test_training_is_left(self) -> None:
        net = image().conv().batch_norm(is_training=True)
        assert await net.same(FUSION) == {"conv": "Conv2D", "bn": "FusedBatchNormV3"}

    async def test_statistics_of_a_batch_norm_that_are_used(self) -> None:
        net = image().conv().batch_norm().then("y", "Relu")
        executed = await net.same(FUSION, ["y:0", "bn:1"])
        assert executed["bn"] == "FusedBatchNormV3"

    async def test_nodes_on_two_devices(self) -> None:
        net = image().conv()
        net("bias", "BiasAdd", "conv", net.number("b", 5), T=F, device="/cpu:1")
        _, executed = await run(net, "bias:0", {"x:0": net.x}, FUSION, device_count={"CPU": 2})
        assert {"Conv2D", "BiasAdd"} <= set(executed.values())

    async def test_fused_node_names_its_parts(self) -> None:
        net = image().conv().bias().then("y", "Relu")
        metadata = aexec.RunMetadata()
        options = aexec.RunOptions(output_partition_graphs=True, trace=True)
        config = aexec.SessionConfig(check_feed_shapes=False)
        async with aexec.Session(net.graph(), config=config) as session:
            await session.run("y:0", {"x:0": net.x}, options=options, metadata=metadata)
            with pytest.raises(errors.InvalidArgumentError, match="input must be 4-dimensional") as caught:
                await session.run("y:0", {"x:0": net.x[..., 0]})
        (fused,) = [node for graph in metadata.partition_graphs for node in graph.node if node.name == "y"]
        assert fused.op == "_FusedConv2D"
        assert list(fused.experimental_debug_info.original_node_names) == ["conv", "bias", "y"]
        assert "y" in {stats.node_name for device in metadata.step_stats.dev_stats for stats in device.node_stats}
        assert caught.value.node == "y"
        assert "derived from node 'conv', 'bias', 'y'" in str(caught.value)

    async def test_inlined_functions(self) -> None:
        body = [
            ("c", "Conv2D", ["x", "w"], {"T": F, "strides": [1, 1, 1, 1], "padding": b"SAME"}),
            ("b", "BiasAdd", ["c:output:0", "v"], {"T": F}),
            ("r", "Relu", ["b:output:0"], {"T": F}),
        ]
        layer = function_def("Layer(x: float, w: float, v: float) -> y: float", body=body, ret={"y": "r:activations:0"})
        net = image()
        net.graph_def.library.function.extend([layer])
        for name, op in {"y": "Layer", "z": "PartitionedCall"}.items():
            attrs = {"Tin": [F] * 3, "Tout": [F], "f": calls_of("Layer")} if op == "PartitionedCall" else {}
            net(name, op, "x", net.number(f"{name}_w", 3, 3, 3, 5), net.number(f"{name}_b", 5), **attrs)
        executed = await net.same(("function_inlining", *FUSION), ["y:0", "z:0"])
        assert sorted(executed.values()).count("_FusedConv2D") == 2
        # In the body of a call that is not inlined, too.
        assert await net.same(FUSION, ["y:0", "z:0"]) == {"y": "Layer", "z": "PartitionedCall"}


class TestPadding:
    @pytest.mark.parametrize("pad", ["Pad", "PadV2"])
    @pytest.mark.parametrize("attrs", [{}, {"strides": [1, 2, 2, 1]}, {"dilations": [1, 2, 1, 1]}], ids=str)
    async def test_zeros_around_an_image(self, pad: str, attrs: Any) -> None:
        net = image()
        others = [net.const("p", [[0, 0], [0, 1], [2, 1], [0, 0]], dtypes.int32)]
        if pad == "PadV2":
            others.append(net.const("zero", np.float32(0)))
        net.then("pad", pad, *others, Tpaddings=dtypes.int32)
        net.conv(padding=b"VALID", **attrs)
        assert await net.same(PADDING) == {"conv": "Conv2D"}
        net.bias()
        assert await net.same((*PADDING, *FUSION)) == {"bias": "_FusedConv2D"}

    async def test_depthwise_convolutions_keep_it(self) -> None:
        net = image()
        net.then("pad", "Pad", net.const("p", [[0, 0], [0, 1], [2, 1], [0, 0]], dtypes.int32), Tpaddings=dtypes.int32)
        net.depthwise(padding=b"VALID").bias(channels=6)
        fused = {"pad": "Pad", "bias": "_FusedDepthwiseConv2dNative"}
        assert await net.same((*PADDING, *FUSION)) == fused

    async def test_explicit_paddings_add_up(self) -> None:
        net = image()
        net.then("pad", "Pad", net.const("p", [[0, 0], [0, 1], [2, 1], [0, 0]], dtypes.int32), Tpaddings=dtypes.int32)
        net.conv(padding=b"EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])
        assert await net.same(PADDING) == {"conv": "Conv2D"}

    @pytest.mark.parametrize(
        ("paddings", "value", "conv"),
        [
            ([[0, 1], [0, 0], [0, 0], [0, 0]], 0, {}),
            ([[0, 0], [1, 1], [1, 1], [0, 0]], 1, {}),
            ([[0, 0], [1, 1], [1, 1], [0, 0]], 0, {"padding": b"SAME"}),
            ([[0, 0], [1, 1], [1, 1], [0, 0]], 0, {"size": 1}),
        ],
    )
    async def test_other_pads_stay(self, paddings: Any, value: float, conv: Any) -> None:
        net = image()
        others = [net.const("p", paddings, dtypes.int32), net.const("value", np.float32(value))]
        net.then("pad", "PadV2", *others, Tpaddings=dtypes.int32).conv(**{"padding": b"VALID", **conv})
        assert await net.same(PADDING) == {"pad": "PadV2", "conv": "Conv2D"}

    async def test_fed_paddings_and_fetched_images(self) -> None:
        net = image()
        paddings = np.int32([[0, 0], [1, 1], [1, 1], [0, 0]])
        net.then("pad", "Pad", net.const("p", paddings, dtypes.int32), Tpaddings=dtypes.int32).conv(padding=b"VALID")
        assert "pad" in await net.same(PADDING, feeds={"p:0": 2 * paddings})
        assert "pad" in await net.same(PADDING, ["pad:0", "conv:0"])
        net("z", "Neg", "pad", T=F)
        assert "pad" in await net.same(PADDING, ["z:0", "conv:0"])


TAPS = {"Conv2D": 27, "DepthwiseConv2dNative": 9, "Conv3D": 24, "MatMul": 3}


class Checked:
    """What a product followed by arithmetic gives in double precision, and the sum of the magnitudes in it."""

    def __init__(self, net: Net, product: str) -> None:
        attrs = {} if product == "MatMul" else {"strides": [1] * net.x.ndim, "padding": "SAME"}
        weights = normal(*WEIGHTS[product], seed=1).astype(np.float64)
        x = net.x.astype(np.float64)
        self.net, self.product = net, product
        self.channels = CHANNELS.get(product, 5)
        self.exact = run_op(product, [x, weights], **attrs)
        self.magnitude = run_op(product, [abs(x), abs(weights)], **attrs)

    def then(self, op: str, value: Any, *, first: bool = True) -> Checked:
        """Add a node, of which the product is the first operand, or the second."""
        value, net = np.asarray(value, np.float32), self.net
        name = f"step{len(net.graph_def.node)}"
        operands = (net.at, net.const(f"{name}_c", value))
        net.at = net(name, op, *(operands if first else operands[::-1]), T=F)
        wide = value.astype(np.float64)
        if op in ("BiasAdd", "AddV2", "Sub"):
            sign = -1 if op == "Sub" else 1
            self.exact = self.exact + sign * wide if first else wide + sign * self.exact
            self.magnitude = self.magnitude + abs(wide)
        else:
            factor = 1 / wide if op == "RealDiv" else wide
            self.exact, self.magnitude = self.exact * factor, self.magnitude * abs(factor)
        return self

    def batch_norm(self) -> Checked:
        net, c = self.net, self.channels
        scale, offset, mean, variance = (normal(c, seed=i).astype(np.float64) for i in (3, 4, 5, 7))
        factor = scale / np.sqrt(abs(variance) + np.float32(0.1) + np.float32(0.01))
        net.batch_norm(channels=c)
        self.exact = (self.exact - mean) * factor + offset
        self.magnitude = (self.magnitude + abs(mean)) * abs(factor) + abs(offset)
        return self

    async def folds(self, names: Any = FOLDING) -> dict[str, str]:
        """What was executed, when the result is within as many roundings of the exact one as it has terms, and some."""
        value, executed = await run(self.net, f"{self.net.at}:0", {"x:0": self.net.x}, names)
        roundings = TAPS[self.product] + 6
        assert (abs(value - self.exact) <= roundings * np.finfo(np.float32).eps / 2 * self.magnitude).all()
        return {name: op for name, op in executed.items() if op != "Const"}


WEIGHTS = {
    "Conv2D": (3, 3, 3, 5),
    "DepthwiseConv2dNative": (3, 3, 3, 2),
    "Conv3D": (2, 2, 2, 3, 5),
    "MatMul": (3, 5),
}


def checked(product: str) -> Checked:
    return Checked(PRODUCTS[product](), product)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, Any, bool]]:
    """Arithmetic with a number per channel, or one for all, that scales at least once."""
    numbers = st.floats(0.125, 8, width=32) | st.floats(-8, -0.125, width=32)
    values = numbers | st.lists(numbers, min_size=5, max_size=5)
    ops = st.sampled_from(["AddV2", "Sub", "Mul", "RealDiv"])
    row = [(op, draw(values), op == "RealDiv" or draw(st.booleans())) for op in draw(st.lists(ops, max_size=5))]
    return [*row, ("Mul", draw(values), True)]


class TestBatchNormFolding:
    @pytest.mark.parametrize("product", PRODUCTS)
    async def test_numbers_per_channel(self, product: str) -> None:
        at, channels = checked(product), CHANNELS.get(product, 5)
        at.then("BiasAdd", normal(channels, seed=3)).then("Mul", normal(channels, seed=4))
        at.then("Sub", normal(*[1] * (at.exact.ndim - 1), channels, seed=5), first=False)
        at.then("RealDiv", 3).then("AddV2", normal(channels, seed=6))
        assert await at.folds() == {"conv": product, at.net.at: "BiasAdd"}
        assert await at.folds((*FOLDING, *FUSION)) == {at.net.at: FUSED[product]}

    @settings(max_examples=40, deadline=None)
    @given(row=steps(), product=st.sampled_from(["Conv2D", "Conv3D", "MatMul"]))
    async def test_any_chain_is_folded(self, row: Any, product: str) -> None:
        at = checked(product)
        for op, value, first in row:
            at.then(op, value, first=first)
        assert len(await at.folds()) == 2

    @pytest.mark.parametrize("product", ["Conv2D", "DepthwiseConv2dNative"])
    @pytest.mark.parametrize("biased", [True, False])
    async def test_fused_batch_norm(self, product: str, biased: bool) -> None:
        at = checked(product)
        if biased:
            at.then("BiasAdd", normal(at.channels, seed=8))
        assert await at.batch_norm().folds() == {"conv": product, "bn": "BiasAdd"}

    async def test_written_out(self) -> None:
        """As Keras writes it: the factors are folded by constant folding first."""
        net = image().conv()
        names = [net.number(f"bn_{i}", 5, seed=3 + i) for i in range(3)]
        net.const("variance", np.abs(normal(5, seed=7)) + np.float32(0.1))
        net("v", "AddV2", "variance", net.const("epsilon", np.float32(0.01)), T=F)
        net("rsqrt", "Rsqrt", "v", T=F)
        net("factor", "Mul", "rsqrt", names[0], T=F)
        net.then("scaled", "Mul", "factor")
        net("shift", "Mul", names[1], "factor", T=F)
        net("offset", "Sub", names[2], "shift", T=F)
        net.then("y", "AddV2", "offset")
        plain, value, executed = await net.both(("constant_folding", *FOLDING))
        assert executed == {"conv": "Conv2D", "y": "BiasAdd"}
        np.testing.assert_allclose(value, plain, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("transpose_b", [True, False])
    async def test_transposed_weights(self, transpose_b: bool) -> None:
        net = Net(None, 3).product(transpose_b=transpose_b)
        net.then("y", "Mul", net.number("m", 5, seed=4))
        plain, value, executed = await net.both(FOLDING)
        assert executed == {"conv": "MatMul", "y": "BiasAdd"}
        np.testing.assert_allclose(value, plain, rtol=1e-5, atol=1e-5)

    async def test_shifts_alone_are_left(self) -> None:
        net = image().conv().bias()
        net.then("y", "AddV2", net.number("a", 5))
        assert await net.same(FOLDING) == {"conv": "Conv2D", "bias": "BiasAdd", "y": "AddV2"}

    @pytest.mark.parametrize(
        ("op", "shape", "swapped"),
        [("Mul", (7, 1), False), ("Mul", (1, 1, 1, 1, 5), False), ("Mul", (6, 7, 5), False), ("RealDiv", (5,), True)],
    )
    async def test_other_arithmetic_is_left(self, op: str, shape: tuple[int, ...], swapped: bool) -> None:
        net = image().conv()
        other = net.number("m", *shape)
        net.at = net("y", op, *((other, "conv") if swapped else ("conv", other)), T=F)
        assert await net.same(FOLDING) == {"conv": "Conv2D", "y": op}

    async def test_weights_that_are_no_constants(self) -> None:
        net = image()
        net.placeholder("w", F, (3, 3, 3, 5))
        net.then("conv", "Conv2D", "w", strides=[1] * 4, padding=b"SAME").batch_norm()
        feeds = {"w:0": normal(3, 3, 3, 5)}
        assert await net.same(FOLDING, feeds=feeds) == {"conv": "Conv2D", "bn": "FusedBatchNormV3"}
        net = image().conv().batch_norm()
        for fed in ("conv_w", "bn_1", "conv"):
            shape = {"conv_w": (3, 3, 3, 5), "bn_1": (5,), "conv": (2, 6, 7, 5)}[fed]
            executed = await net.same(FOLDING, feeds={f"{fed}:0": normal(*shape, seed=9)})
            assert executed["bn"] == "FusedBatchNormV3"

    async def test_shared_weights_stay_what_they_are(self) -> None:
        net = image().conv()
        net.at = net("y", "Mul", "conv", net.number("m", 5), T=F)
        net("z", "Neg", "conv_w", T=F)
        plain, value, executed = await net.both(FOLDING, ["y:0", "z:0", "conv_w:0"])
        assert executed["y"] == "BiasAdd"
        assert plain[1].tobytes() == value[1].tobytes() and plain[2].tobytes() == value[2].tobytes()

    @pytest.mark.parametrize("factor", [np.inf, np.nan, 1e38])
    async def test_infinite_products_are_not_folded(self, factor: float) -> None:
        net = Net(None, 3)
        net.x[:] = 0
        net.then("conv", "MatMul", net.const("w", np.full((3, 5), 1e30, np.float32)))
        net.then("y", "Mul", net.const("m", np.float32([factor] * 5)))
        assert await net.same(FOLDING) == {"conv": "MatMul", "y": "Mul"}

    async def test_double_precision(self) -> None:
        net = Net(None, 6, 7, 3, dtype=dtypes.float64).conv()
        net.then("y", "Mul", net.number("m", 5, seed=4))
        plain, value, executed = await net.both(FOLDING)
        assert executed == {"conv": "Conv2D", "y": "BiasAdd"}
        np.testing.assert_allclose(value, plain, rtol=1e-13, atol=1e-13)

    async def test_loop_is_not_held_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Planning a small graph with large weights moves to a thread."""
        folded_in: list[str] = []
        run_pass = PASSES["batch_norm_folding"]

        def noted(working: WorkingGraph, *rest: Any) -> None:
            run_pass(working, *rest)
            folded_in.append(threading.current_thread().name)

        monkeypatch.setitem(passes.PASSES, "batch_norm_folding", passes.GraphPass(noted, exact=False))
        for size, inside in ((3, True), (900, False)):
            g = GraphBuilder()
            g.placeholder("x", F, [None, size])
            g.const("w", normal(size, size))
            g("conv", "MatMul", "x", "w", T=F)
            g("y", "Mul", "conv", g.const("m", np.float32(2)), T=F)
            folded_in.clear()
            async with aexec.Session(g.graph()) as session:
                await session.run("y:0", {"x:0": normal(1, size)})
            assert folded_in
            assert all((name == threading.current_thread().name) is inside for name in folded_in)

    async def test_plans_share_what_was_folded(self) -> None:
        net = image().conv().batch_norm().then("y", "Relu")
        graph = net.graph()
        memory: dict[Any, Any] = {}
        values = []
        for _ in range(2):
            working = WorkingGraph(graph, [], [(graph.node("y").id, 0)], [], memory=memory)
            PASSES["batch_norm_folding"](working, lambda node, inputs: None, lambda node: None)
            conv = working.nodes[graph.node("conv").id]
            values.append(working.nodes[conv.inputs[1][0]].attrs["value"].array)
        assert len(memory) == 1
        assert values[0] is values[1]


class TestProductLayout:
    ONLY = ("product_layout", "pruning")

    async def laid_out(self, net: Net, passes: Any, feeds: Any = None) -> list[tuple[bool, list[int]]]:
        """Of each product that is executed: whether it transposes, and the shape of a new constant, if it has one."""
        metadata, options = aexec.RunMetadata(), aexec.RunOptions(output_partition_graphs=True)
        async with aexec.Session(net.graph(), config=aexec.SessionConfig(graph_passes=passes)) as session:
            feeds = {"x:0": net.x, **(feeds or {})}
            value = await session.run(f"{net.at}:0", feeds, options=options, metadata=metadata)
        plain, _ = await run(net, f"{net.at}:0", feeds, ())
        np.testing.assert_allclose(value, plain, rtol=1e-5, atol=1e-5)
        nodes = {node.name: node for graph in metadata.partition_graphs for node in graph.node}
        found = []
        for node in nodes.values():
            if node.op in ("MatMul", "BatchMatMulV2"):
                factor = nodes[node.input[1]]
                shape = [dim.size for dim in factor.attr["value"].tensor.tensor_shape.dim]
                transposes = node.attr["transpose_b"].b or node.attr["adj_y"].b
                found.append((transposes, shape if factor.name == f"{node.name}/rows" else []))
        return found

    @pytest.mark.parametrize("rows", [1, 9])
    async def test_transposed_factor(self, rows: int) -> None:
        net = Net(rows, 3).product(transpose_b=True)
        assert await self.laid_out(net, self.ONLY) == [(False, [3, 5])]
        assert await self.laid_out(Net(rows, 3).product(), self.ONLY) == [(False, [])]

    async def test_transposed_constant(self) -> None:
        net = Net(9, 3)
        net.number("w", 5, 3)
        net("turned", "Transpose", "w", net.const("order", [1, 0], dtypes.int32), T=F, Tperm=dtypes.int32)
        net.then("y", "MatMul", "turned")
        assert await self.laid_out(net, ("constant_folding", *self.ONLY)) == [(False, [3, 5])]

    async def test_matrices_side_by_side(self) -> None:
        net = Net(2, 4, 3)
        net.then("y", "BatchMatMulV2", net.number("w", 2, 5, 3), adj_y=True)
        assert await self.laid_out(net, self.ONLY) == [(False, [2, 3, 5])]

    async def test_requests_that_fold_other_factors_before(self) -> None:
        net = Net(9, 3).product(transpose_b=True)
        net.then("y", "Mul", net.number("m", 5, seed=4))
        feeds = {"x:0": net.x}
        plain, _ = await run(net, ["conv:0", "y:0"], feeds, ())
        async with aexec.Session(net.graph()) as session:
            for fetches, wanted in ((["conv:0", "y:0"], plain), (["y:0"], plain[1:]), (["conv:0"], plain[:1])):
                for value, want in zip(await session.run(fetches, feeds), wanted, strict=True):
                    np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5)

    async def test_unsuitable_products_keep_their_layout(self, monkeypatch: pytest.MonkeyPatch) -> None:
        net = Net(9, 3).product(transpose_b=True)
        assert await self.laid_out(net, self.ONLY, {"conv_w:0": normal(5, 3)}) == [(True, [])]
        monkeypatch.setattr(product_layout, "MAX_BYTES", 59)
        assert await self.laid_out(net, self.ONLY) == [(True, [])]
        half = Net(9, 3, dtype=dtypes.float16).product(transpose_b=True)
        assert (await half.same(self.ONLY)) == {"conv": "MatMul"}


class TestWinograd:
    ONLY = ("winograd", "pruning")

    def wide(self, size: int = 3, dtype: DType = F, **attrs: Any) -> Net:
        net = Net(1, 28, 28, 32, dtype=dtype)
        net.number("w", size, size, 32, 32)
        return net.then("conv", "Conv2D", "w", **{"strides": [1, 1, 1, 1], "padding": b"SAME", **attrs})

    async def computed(
        self, net: Net, monkeypatch: pytest.MonkeyPatch, feeds: Any = None, runs: int = 1, **config: Any
    ) -> list[int]:
        """How many convolutions were computed so, and how many kernels were turned for it."""
        counts = [0, 0]

        def counted(place: int, function: Any) -> Any:
            def call(*args: Any) -> Any:
                counts[place] += 1
                return function(*args)

            return call

        feeds = {"x:0": net.x, **(feeds or {})}
        plain, _ = await run(net, f"{net.at}:0", feeds, ())
        with monkeypatch.context() as patched:
            patched.setattr(winograd, "forward", counted(0, winograd.forward))
            patched.setattr(winograd, "turned", counted(1, winograd.turned))
            async with aexec.Session(net.graph(), config=aexec.SessionConfig(**config)) as session:
                for _ in range(runs):
                    value = await session.run(f"{net.at}:0", feeds)
                    np.testing.assert_allclose(value, plain, rtol=1e-5, atol=1e-3)
        return counts

    async def test_constant_kernel_is_turned_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        net = self.wide()
        assert await self.computed(net, monkeypatch, runs=5, graph_passes=self.ONLY) == [5, 1]
        net.then("bias", "BiasAdd", net.number("b", 32)).then("y", "Relu")
        assert await self.computed(net, monkeypatch) == [1, 1]

    async def test_exact_passes_leave_it_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert await self.computed(self.wide(), monkeypatch, graph_passes="exact") == [0, 0]

    async def test_unsuitable_convolutions_are_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert await self.computed(self.wide(size=5), monkeypatch) == [0, 0]
        assert await self.computed(self.wide(strides=[1, 2, 2, 1]), monkeypatch) == [0, 0]
        fed = {"w:0": normal(3, 3, 32, 32)}
        assert await self.computed(self.wide(), monkeypatch, fed) == [0, 0]
        double = self.wide(dtype=dtypes.float64)
        assert await self.computed(double, monkeypatch) == [0, 0]

    @pytest.mark.parametrize(("module", "near"), [(winograd_rows, 1e-5), (winograd_tiles, 1e-4)])
    async def test_kernels_that_change_and_gradients_have_fewer_products(
        self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, near: float
    ) -> None:
        if module is winograd_rows:
            monkeypatch.setattr(native, "loops", None)
        elif native.loops is None:
            pytest.skip("aexec was installed without a C compiler")
        calls = []
        for name in ("forward", "backprop_filter"):
            function = getattr(module, name)
            monkeypatch.setattr(module, name, lambda *args, name=name, of=function: calls.append(name) or of(*args))
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [1, 28, 28, 32], name="x")
            w = aexec.placeholder("float32", [5, 5, 32, 32], name="w")
            y = aexec.nn.conv2d(x, w, padding="SAME")
            fetches = [y, *aexec.gradients(y, [x, w])]
        feeds = {x: normal(1, 28, 28, 32), w: normal(5, 5, 32, 32)}
        async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes="exact")) as session:
            exact = await session.run(fetches, feeds)
        assert not calls
        async with aexec.Session(graph) as session:
            values = await session.run(fetches, feeds)
        assert sorted(calls) == ["backprop_filter", "forward", "forward"]
        for value, wanted in zip(values, exact, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=near, atol=near * abs(wanted).max())

    async def test_marked_node_whose_kernel_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        net = self.wide(_winograd=True)
        weights = normal(3, 3, 32, 32)
        assert await self.computed(net, monkeypatch, {"w:0": weights}, graph_passes=()) == [0, 0]


class TestGroups:
    def test_exact(self) -> None:
        exact = pass_names("exact")
        assert pass_names(["exact"]) == exact
        assert frozenset(PASSES) - exact == {
            "recurrent_loops",
            "log_softmax",
            "batch_norm_folding",
            "product_layout",
            "winograd",
        }
        assert pass_names(["exact", *PASSES]) == frozenset(PASSES)
        assert {"fusion", "padding"} < exact

    async def test_session_with_the_exact_ones(self) -> None:
        net = image()
        net.then("pad", "Pad", net.const("p", [[0, 0], [1, 1], [1, 1], [0, 0]], dtypes.int32), Tpaddings=dtypes.int32)
        net.conv(padding=b"VALID").batch_norm().then("y", "Relu6")
        assert await net.same("exact") == {"y": "_FusedConv2D"}
        async with aexec.Session(net.graph(), config=aexec.SessionConfig(graph_passes="exact")) as session:
            assert (await session.run("y:0", {"x:0": net.x})).shape == (2, 6, 7, 5)
