"""Sums to the shape of an operand: found in gradients, with the same bits as the nodes that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import aexec
from aexec import errors
from aexec.framework import dtypes
from tests.graph.passes.test_passes import run
from tests.support.programs.functions import calls as calls_of
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder

F, I = dtypes.float32, dtypes.int32  # noqa: E741
ON = ("broadcast_gradients", "pruning")
TYPES = [t for t in dtypes.NUMBER if t.is_floating or t.is_complex]


def gradient(dtype: Any = F, index_type: Any = I, *, keep_dims: bool = False) -> GraphBuilder:
    """Sums of `dy` to the shapes of `x` and `y`, of unknown ranks: `dx` and `dy_of_y`."""
    g = GraphBuilder()
    for name in ("x", "y", "dy"):
        g.placeholder(name, dtype)
    for name in ("x", "y"):
        g(f"shape_{name}", "Shape", name, T=dtype, out_type=index_type)
    g("axes", "BroadcastGradientArgs", "shape_x", "shape_y", T=index_type)
    for name, axes in (("x", "axes"), ("y", "axes:1")):
        g(f"sum_{name}", "Sum", "dy", axes, T=dtype, Tidx=index_type, keep_dims=keep_dims)
        g(f"d{name}_out", "Reshape", f"sum_{name}", f"shape_{name}", T=dtype, Tshape=index_type)
    return g


def values(shape: Any, dtype: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    real = rng.normal(size=shape)
    return np.asarray(real + 1j * rng.normal(size=shape) if dtype.is_complex else real).astype(dtype.np)


def feeds(x: Any, y: Any, dtype: Any = F, dy: Any = None) -> dict[str, Any]:
    wide = np.broadcast_shapes(x, y) if dy is None else dy
    return {
        f"{name}:0": values(shape, dtype, i) for i, (name, shape) in enumerate({"x": x, "y": y, "dy": wide}.items())
    }


async def both(g: GraphBuilder, fetches: Any, given: Any) -> dict[str, str]:
    """Compare with and without the pass, by their bytes; return what was executed with it."""
    got, executed = await run(g, fetches, given, ON)
    want, _ = await run(g, fetches, given, ("pruning",))
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())
    return executed


class TestPass:
    @given(
        arrays.mutually_broadcastable_shapes(num_shapes=2, min_dims=0, max_dims=4, min_side=0, max_side=4),
        st.sampled_from(TYPES),
        st.sampled_from([dtypes.int32, dtypes.int64]),
    )
    async def test_bits_of_any_shapes_are_the_same(self, shapes: Any, dtype: Any, index_type: Any) -> None:
        given = feeds(*shapes.input_shapes, dtype)
        executed = await both(gradient(dtype, index_type), ["dx_out:0", "dy_out:0"], given)
        assert sorted(executed.values()).count("_SumToShape") == 2
        assert "BroadcastGradientArgs" not in executed.values()

    @pytest.mark.parametrize("fetch", ["dx_out:0", "dy_out:0"])
    async def test_one_operand_alone(self, fetch: str) -> None:
        executed = await both(gradient(), [fetch], feeds((3, 1), (2, 1, 4)))
        assert executed[fetch[:-2]] == "_SumToShape"

    async def test_large_gradient_is_summed_by_rows(self) -> None:
        await both(gradient(), ["dx_out:0", "dy_out:0"], feeds((700, 64), (64,)))

    @pytest.mark.parametrize("fetched", ["sum_x:0", "axes:0"])
    async def test_fetched_node_between_stays(self, fetched: str) -> None:
        executed = await both(gradient(), ["dx_out:0", fetched], feeds((3, 1), (3, 4)))
        name = fetched[:-2]
        assert executed[name] == {"sum_x": "Sum", "axes": "BroadcastGradientArgs"}[name]
        assert executed["dx_out"] == ("Reshape" if name == "sum_x" else "_SumToShape")

    @pytest.mark.parametrize("fed", ["sum_x:0", "axes:0"])
    async def test_fed_node_between_stays(self, fed: str) -> None:
        given = {**feeds((3, 1), (3, 4)), fed: np.float32([1, 2, 3]) if fed == "sum_x:0" else np.int32([1])}
        assert (await both(gradient(), ["dx_out:0"], given))["dx_out"] == "Reshape"

    async def test_other_forms_stay(self) -> None:
        kept = gradient(keep_dims=True)
        assert "_SumToShape" not in (await both(kept, ["dx_out:0"], feeds((3, 1), (3, 4)))).values()
        crossed = gradient()
        crossed("other", "Reshape", "sum_x", "shape_y", T=F, Tshape=I)
        assert (await both(crossed, ["other:0"], feeds((1, 4), (4,))))["other"] == "Reshape"
        waited = gradient()
        waited("late", "Reshape", "sum_x", "shape_x", "^y", T=F, Tshape=I)
        assert (await both(waited, ["late:0"], feeds((3, 1), (3, 4))))["late"] == "Reshape"

    @pytest.mark.parametrize("passes", [ON, ("pruning",)])
    @pytest.mark.parametrize(
        ("y", "dy", "message"),
        [
            ((4, 4), (3, 4), r"Incompatible shapes: \[3,1\] vs. \[4,4\]"),
            ((3, 4), (3,), r"Invalid reduction dimension \(1 for input with 1 dimension"),
            ((3, 4), (2, 4), r"Input to reshape is a tensor with 2 values, but the requested shape has 3"),
        ],
    )
    async def test_errors_are_the_same(self, passes: tuple[str, ...], y: Any, dy: Any, message: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            await run(gradient(), "dx_out:0", feeds((3, 1), y, dy=dy), passes)

    async def test_gradient_read_from_a_variable_is_its_value_of_then(self) -> None:
        v1 = aexec.compat.v1
        with aexec.Graph() as graph:
            v = v1.Variable(np.ones(3, np.float32), use_resource=False, name="v")
            shape = aexec.ops.shape(aexec.placeholder("float32", None, name="x"))
            axes, _ = aexec.ops.broadcast_gradient_args(shape, aexec.ops.shape(v))
            out = aexec.ops.reshape(aexec.ops.sum(v, axes), shape, name="out")
            with aexec.control_dependencies([out]):
                v1.assign_add(v, np.ones(3, np.float32), name="add")
            v1.global_variables_initializer()
        async with aexec.Session(graph) as session:
            await session.run("init")
            for i in range(5):
                out, _ = await session.run(["out:0", "add:0"], {"x:0": np.zeros(3, np.float32)})
                assert out.tolist() == [1 + i] * 3


class TestPlaces:
    def operands(self) -> Any:
        """Return two operands of unknown ranks."""
        x = aexec.placeholder("float32", None, name="x")
        y = aexec.placeholder("float32", None, name="y")
        return x, y

    async def same(self, graph: Any, fetches: Any, given: Any) -> list[str]:
        got = []
        ran: list[str] = []
        for passes in (tuple(aexec.graph.passes.PASSES), ()):
            metadata = aexec.RunMetadata()
            options = aexec.RunOptions(output_partition_graphs=True)
            async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=passes)) as session:
                got.append(await session.run(fetches, given, options=options, metadata=metadata))
                for _ in range(4):  # compiled from the third run on
                    np.testing.assert_array_equal(await session.run(fetches, given), got[-1])
            if passes:
                ran = [node.op for part in metadata.partition_graphs for node in part.node]
        np.testing.assert_allclose(got[0], got[1], rtol=1e-6)
        return ran

    @pytest.mark.parametrize("y", [np.float32([1.5]), np.float32([[1], [2]]), np.float32([[1, 2, 3], [4, 5, 6]])])
    async def test_loop(self, y: Any) -> None:
        v1 = aexec.compat.v1
        with aexec.Graph() as graph:
            x, factor = self.operands()
            _, z = v1.while_loop(
                lambda i, _: i < 3,
                lambda i, z: (i + 1, z * factor + v1.tanh(factor)),
                [v1.constant(0), x],
                shape_invariants=[v1.TensorShape([]), v1.TensorShape(None)],
            )
            gradients = v1.gradients(z, [x, factor])
        given = {"x:0": np.ones((2, 3), np.float32), "y:0": y}
        assert "_SumToShape" in await self.same(graph, gradients[1].name, given)

    @pytest.mark.parametrize("flag", [True, False])
    async def test_branch(self, flag: bool) -> None:
        v1 = aexec.compat.v1
        with aexec.Graph() as graph:
            x, y = self.operands()
            chosen = aexec.placeholder("bool", [], name="flag")
            z = v1.cond(chosen, lambda: x * y, lambda: x + y)
            gradients = v1.gradients(z, [x, y])
        given = {"x:0": np.ones((2, 3), np.float32), "y:0": np.float32([[3], [4]]), "flag:0": flag}
        assert "_SumToShape" in await self.same(graph, gradients[1].name, given)

    async def test_function_body(self) -> None:
        g = gradient()
        body = [
            ("axes", "BroadcastGradientArgs", ["sx", "sy"], {"T": I}),
            ("total", "Sum", ["dy", "axes:r1:0"], {"T": F, "Tidx": I}),
            ("shaped", "Reshape", ["total:output:0", "sy"], {"T": F, "Tshape": I}),
        ]
        signature = "Summed(dy: float, sx: int32, sy: int32) -> out: float"
        g.graph_def.library.function.append(function_def(signature, body=body, ret={"out": "shaped:output:0"}))
        g(
            "called",
            "StatefulPartitionedCall",
            "dy",
            "shape_x",
            "shape_y",
            Tin=[F, I, I],
            Tout=[F],
            f=calls_of("Summed"),
        )
        await both(g, ["called:0", "dy_out:0"], feeds((2, 3), (3,)))
        _, executed = await run(g, ["called:0"], feeds((2, 3), (3,)))
        assert "_SumToShape" in executed.values(), "the function is inlined before"
