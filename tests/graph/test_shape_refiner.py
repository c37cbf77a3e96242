"""Shape inference over graphs: values that a graph fixes, loops, calls, handles, and its errors."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.op_contract import op_registry
from aexec.framework.shape import PartialTensorShape
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.shape_refiner import set_shape
from tests.support.programs.graphs import GraphBuilder, chain, counting_loop

F, I32, I64 = dtypes.float32, dtypes.int32, dtypes.int64
REF = {"T": F, "Index": I32, "shrink_axis_mask": 1}


def shapes(g: GraphBuilder) -> dict[str, Any]:
    """Node → dims of its first output."""
    return {node.name: node.shapes[0].dims for node in g.graph() if node.shapes}


def element(g: GraphBuilder, name: str, vector: str, index: int, **more: Any) -> str:
    """`vector[index]` as Python writes it."""
    for part, value in (("begin", index), ("end", index + 1), ("stride", 1)):
        g.const(f"{name}/{part}", [value], I32)
    masks = {"T": I32, "Index": I32, "shrink_axis_mask": 1, **more}
    return g(name, "StridedSlice", vector, f"{name}/begin", f"{name}/end", f"{name}/stride", **masks)


@pytest.fixture
def g() -> GraphBuilder:
    """With `x`, of which the first dimension is known to be 3, the second unknown."""
    builder = GraphBuilder()
    builder.placeholder("x", F, [3, None])
    builder.const("one", 1.0, F)
    builder.const("two", 2, I32)
    return builder


class TestValues:
    """What a vector of sizes may come from: `Fill` takes the shape that it says."""

    def fill(self, g: GraphBuilder, dims: str) -> Any:
        g("filled", "Fill", dims, "one", T=F, index_type=I32)
        return shapes(g)["filled"]

    def test_constant(self, g: GraphBuilder) -> None:
        g.const("dims", [4, 5], I32)
        assert self.fill(g, "dims") == (4, 5)

    def test_shape_of_which_a_part_is_known(self, g: GraphBuilder) -> None:
        g("dims", "Shape", "x", T=F)
        assert self.fill(g, "dims") == (3, None)

    def test_value_of_one_of_several_shapes_is_known(self, g: GraphBuilder) -> None:
        g("dims", "ShapeN", "one", "x", T=F, N=2)
        assert self.fill(g, "dims:1") == (3, None)

    def test_element_of_a_shape_is_a_value(self, g: GraphBuilder) -> None:
        element(g, "rows", g("s", "Shape", "x", T=F), 0)
        g("twice", "Mul", "rows", "two", T=I32)
        g("dims", "Pack", "twice", "two", T=I32, N=2)
        assert self.fill(g, "dims") == (6, 2)

    def test_value_of_an_unpacked_shape_is_known(self, g: GraphBuilder) -> None:
        g("parts", "Unpack", g("s", "Shape", "x", T=F), T=I32, num=2)
        g("dims", "Pack", "parts", "parts:1", "two", T=I32, N=3)
        assert self.fill(g, "dims") == (3, None, 2)

    @pytest.mark.parametrize("masks", [{"begin_mask": 1}, {"end_mask": 1}, {"shrink_axis_mask": 0}])
    def test_values_of_other_slices_are_unknown(self, g: GraphBuilder, masks: dict[str, int]) -> None:
        element(g, "rows", g("s", "Shape", "x", T=F), 0, **masks)
        g("twice", "Mul", "rows", "two", T=I32)
        g("dims", "Reshape", "twice", g.const("vector", [1], I32), T=I32, Tshape=I32)
        assert self.fill(g, "dims") == (None,)

    def test_slice_of_a_shape_is_a_shape(self, g: GraphBuilder) -> None:
        element(g, "dims", g("s", "Shape", "x", T=F), 1, shrink_axis_mask=0, begin_mask=1)
        assert self.fill(g, "dims") == (3, None)

    def test_shapes_joined(self, g: GraphBuilder) -> None:
        g("s", "Shape", "x", T=F)
        g.const("axis", 0, I32)
        g.const("more", [7], I32)
        g("dims", "ConcatV2", "s", "more", "axis", T=I32, N=2, Tidx=I32)
        assert self.fill(g, "dims") == (3, None, 7)

    def test_shape_of_another_type(self, g: GraphBuilder) -> None:
        g("dims", "Cast", g("s", "Shape", "x", T=F, out_type=I64), SrcT=I64, DstT=I32)
        assert self.fill(g, "dims") == (3, None)

    def test_computed_by_kernels(self, g: GraphBuilder) -> None:
        g.const("a", [2, 3], I32)
        g("dims", "AddV2", "a", "a", T=I32)
        assert self.fill(g, "dims") == (4, 6)

    def test_rank_and_a_size(self, g: GraphBuilder) -> None:
        g.placeholder("y", F, [2, 5])
        g("dims", "Pack", g("r", "Rank", "x", T=F), g("n", "Size", "y", T=F), T=I32, N=2)
        assert self.fill(g, "dims") == (2, 10)

    def test_length_of_a_fed_value_is_known(self, g: GraphBuilder) -> None:
        g.placeholder("dims", I32, [2])
        assert self.fill(g, "dims") == (None, None)

    def test_placeholder_with_default_is_fed(self, g: GraphBuilder) -> None:
        g("dims", "PlaceholderWithDefault", g.const("d", [2, 3], I32), dtype=I32, shape=PartialTensorShape([2]))
        assert self.fill(g, "dims") == (None, None)

    def test_value_that_a_kernel_refuses_is_unknown(self, g: GraphBuilder) -> None:
        g.const("zero", [0], I32)
        g("dims", "FloorDiv", g.const("d", [2], I32), "zero", T=I32)
        assert self.fill(g, "dims") == (None,)

    def test_random_value_is_unknown(self, g: GraphBuilder) -> None:
        g("r", "RandomUniform", g.const("n", [2], I32), dtype=F, T=I32)
        assert self.fill(g, g("dims", "Cast", "r", SrcT=F, DstT=I32)) == (None, None)

    def test_value_that_enters_a_loop_is_known(self, g: GraphBuilder) -> None:
        g.const("d", [2, 3], I32)
        g("in", "Enter", "d", T=I32, frame_name=b"f", is_constant=True)
        assert self.fill(g, "in") == (2, 3)

    def test_long_way_back(self, g: GraphBuilder) -> None:
        """No recursion: the way from a value to its constants may be as long as the graph."""
        previous = g.const("d", [1], I32)
        for index in range(3000):
            previous = g(f"i{index}", "Identity", previous, T=I32)
        assert self.fill(g, previous) == (1,)

    def test_too_large_value_is_not_evaluated(self, g: GraphBuilder) -> None:
        """A hundred bytes must not ask for terabytes at import."""
        g("ones", "Fill", g.const("many", [10**12], I64), "two", T=I32, index_type=I64)
        g("dims", "Slice", "ones", g.const("begin", [0], I32), g.const("size", [2], I32), T=I32, Index=I32)
        assert self.fill(g, "dims") == (None, None)

    def test_shape_of_very_many_dimensions(self, g: GraphBuilder) -> None:
        previous = g("s", "Shape", "x", T=F)
        g.const("axis", 0, I32)
        for index in range(40):
            previous = g(f"c{index}", "ConcatV2", previous, previous, "axis", T=I32, N=2, Tidx=I32)
        assert self.fill(g, previous) is None

    def test_files_are_not_read(self, g: GraphBuilder, tmp_path: Path) -> None:
        path = tmp_path / "sizes"
        path.write_bytes(np.int32([2, 3]).tobytes())
        g("file", "ReadFile", g.const("name", str(path).encode()))
        assert self.fill(g, g("dims", "DecodeRaw", "file", out_type=I32)) is None

    def test_shape_nested_more_deeply_than_is_looked_into(self, g: GraphBuilder) -> None:
        previous = g("s", "Shape", "x", T=F)
        for index in range(3000):
            previous = g(f"c{index}", "Cast", previous, SrcT=I32, DstT=I32)
        assert self.fill(g, previous) in {(3, None), (None, None), None}


class TestLoops:
    def test_shape_of_a_loop_variable_is_unknown(self) -> None:
        found = shapes(counting_loop())
        assert found["merge"] is None
        assert found["enter_one"] == ()
        assert found["result"] is None

    def test_claim_refines_and_flows_on(self) -> None:
        g = GraphBuilder()
        g.placeholder("x", F, [None, 2])
        g("y", "Identity", "x", T=F, _output_shapes=[PartialTensorShape([7, None])])
        g("z", "Identity", "y", T=F)
        assert shapes(g)["z"] == (7, 2)


class TestMerging:
    @pytest.mark.parametrize(
        ("first", "second", "want"),
        [([2, 3], [2, 3], (2, 3)), ([2, 3], [4, 3], (None, 3)), ([2], [2, 3], None), ([2], None, None)],
    )
    def test_either_branch(self, first: Any, second: Any, want: Any) -> None:
        g = GraphBuilder()
        g.placeholder("a", F, first)
        g.placeholder("b", F, second)
        g("m", "Merge", "a", "b", T=F, N=2)
        assert shapes(g)["m"] == want
        assert g.graph().node("m").shapes[1].dims == ()

    def test_set_shape_merges_with_the_known_shape(self) -> None:
        g = GraphBuilder()
        g.placeholder("x", F, [None, 2])
        node = g.graph().node("x")
        set_shape(node, 0, PartialTensorShape([5, None]))
        assert node.shapes[0].dims == (5, 2)
        with pytest.raises(errors.InvalidArgumentError, match="Dimension 0 in both shapes must be equal"):
            set_shape(node, 0, PartialTensorShape([6, 2]))


FUNCTION = """
signature {
  name: "blow_up"
  input_arg { name: "x" type: DT_FLOAT }
  input_arg { name: "dims" type: DT_INT32 }
  output_arg { name: "y" type: DT_FLOAT }
}
node_def { name: "sum" op: "BroadcastTo" input: "x" input: "dims"
  attr { key: "T" value { type: DT_FLOAT } } attr { key: "Tidx" value { type: DT_INT32 } } }
ret { key: "y" value: "sum:output:0" }
"""

RECURSIVE = """
signature {
  name: "again"
  input_arg { name: "x" type: DT_FLOAT }
  output_arg { name: "y" type: DT_FLOAT }
}
node_def { name: "once_more" op: "PartitionedCall" input: "x"
  attr { key: "Tin" value { list { type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } }
  attr { key: "f" value { func { name: "again" } } } }
ret { key: "y" value: "once_more:output:0" }
"""


class TestCalls:
    def calling(self, *texts: str) -> GraphBuilder:
        g = GraphBuilder()
        for text in texts:
            g.graph_def.library.function.append(text_format.Parse(text, proto.FunctionDef()))
        g.placeholder("x", F, [1, 3])
        return g

    @pytest.mark.parametrize("directly", [True, False])
    def test_body_sees_shapes_and_values_of_the_caller(self, directly: bool) -> None:
        g = self.calling(FUNCTION)
        g.const("dims", [5, 3], I32)
        if directly:
            g("y", "blow_up", "x", "dims")
        else:
            f = NameAttrList("blow_up", {})
            g("y", "PartitionedCall", "x", "dims", Tin=[F, I32], Tout=[F], f=f)
        assert shapes(g)["y"] == (5, 3)

    def test_calls_of_one_function_have_their_own_shapes(self) -> None:
        g = self.calling(FUNCTION)
        g("a", "blow_up", "x", g.const("d", [5, 3], I32))
        g("b", "blow_up", "x", g.placeholder("e", I32, [3]))
        found = shapes(g)
        assert found["a"] == (5, 3)
        assert found["b"] == (None, None, 3)

    def test_error_in_the_body_names_the_node_there(self) -> None:
        g = self.calling(FUNCTION)
        g("y", "blow_up", "x", g.const("dims", [5, 4], I32))
        with pytest.raises(errors.InvalidArgumentError, match=r"equal, but are 3 and 4.*node sum.*BroadcastTo"):
            g.graph()

    def test_shape_inference_of_a_call_can_be_disabled(self) -> None:
        g = self.calling(FUNCTION)
        g("y", "blow_up", "x", g.const("dims", [5, 4], I32), _disable_call_shape_inference=True)
        assert shapes(g)["y"] is None

    def test_function_that_calls_itself(self) -> None:
        g = self.calling(RECURSIVE)
        g("y", "again", "x")
        assert shapes(g)["y"] is None


class TestHandles:
    def test_handles_flow_through_branches(self) -> None:
        g = GraphBuilder()
        g("v", "VarHandleOp", dtype=F, shape=PartialTensorShape([2, 3]))
        g("s", "Switch", "v", g.const("p", True), T=dtypes.resource)
        g("r", "ReadVariableOp", "s:1", dtype=F)
        assert shapes(g)["r"] == (2, 3)

    def test_variable_of_another_type(self) -> None:
        g = GraphBuilder()
        g("v", "VarHandleOp", dtype=F, shape=PartialTensorShape([2, 3]))
        g("r", "ReadVariableOp", "v", dtype=I32)
        with pytest.raises(errors.InvalidArgumentError, match=r"wrong dtype\. Expected float got int32"):
            g.graph()

    def test_list_knows_its_elements(self) -> None:
        g = GraphBuilder()
        g.const("shape", [-1, 3], I32)
        g("list", "TensorListReserve", "shape", g.const("n", 4, I32), element_dtype=F, shape_type=I32)
        g("all", "TensorListStack", "list", "shape", element_dtype=F, num_elements=4)
        assert shapes(g)["all"] == (4, None, 3)


class TestErrors:
    def test_node_and_its_inputs_are_shown(self) -> None:
        g = GraphBuilder()
        g.placeholder("a", F, [2])
        g.placeholder("b", F, [3])
        g("m", "AddV2", "a", "b", "^a", T=F, device="/cpu:0")
        with pytest.raises(errors.InvalidArgumentError) as caught:
            g.graph()
        assert caught.value.node == "m"
        assert caught.value.message == (
            'Dimensions must be equal, but are 2 and 3 for \'{{node m}} = AddV2[T=DT_FLOAT, _device="/cpu:0"]'
            "(a, b, ^a)' with input shapes: [2], [3]."
        )

    def test_values_that_were_used_are_shown(self) -> None:
        g = GraphBuilder()
        g.placeholder("a", F, [2, 3])
        g("m", "ExpandDims", "a", g.const("d", 5, I32), T=F, Tdim=I32)
        with pytest.raises(errors.InvalidArgumentError, match=r"\[-3, 2\]\. for .* input tensors: input\[1\] = <5>\."):
            g.graph()

    def test_value_that_was_not_needed_for_the_error_is_not(self) -> None:
        g = GraphBuilder()
        g.placeholder("a", F, [])
        g.const("i", [0], I32)
        g("m", "GatherV2", "a", "i", g.const("axis", 0, I32), Tparams=F, Tindices=I32, Taxis=I32)
        with pytest.raises(errors.InvalidArgumentError, match=r"with input shapes: \[\], \[1\], \[\]\."):
            g.graph()

    def test_refused_import_leaves_nothing(self) -> None:
        good = chain(2).graph()
        before = good.to_bytes()
        bad = GraphBuilder()
        bad.placeholder("p", F, [2])
        bad("q", "MatMul", "p", "p", T=F)
        with pytest.raises(errors.InvalidArgumentError):
            bad.graph()
        assert good.to_bytes() == before


class TestOps:
    """Ops of one's own: with no shape function, or with one that has a bug."""

    @pytest.fixture(autouse=True)
    def ops(self) -> Any:
        def broken(c: InferenceContext) -> None:
            raise ZeroDivisionError("a bug")

        def from_attr(c: InferenceContext) -> None:
            c.set_output(0, c.make_shape([c.attr("n"), None]))

        op_registry.register_op("RefinerNone(x: float) -> y: float, z: float")
        op_registry.register_op("RefinerBroken(x: float) -> y: float", shape_fn=broken)
        op_registry.register_op("RefinerAttr(x: float) -> y: float", "n: int", shape_fn=from_attr)
        yield
        for name in ("RefinerNone", "RefinerBroken", "RefinerAttr"):
            op_registry.global_registry.unregister(name)

    def build(self, op: str, **attrs: Any) -> aexec.Graph:
        g = GraphBuilder()
        g.placeholder("x", F, [2])
        g("y", op, "x", **attrs)
        return g.graph()

    def test_none(self) -> None:
        assert [s.dims for s in self.build("RefinerNone").node("y").shapes] == [None, None]

    def test_shape_function_of_an_op_is_used(self) -> None:
        assert self.build("RefinerAttr", n=4).node("y").shapes[0].dims == (4, None)

    def test_bug_refuses_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            assert self.build("RefinerBroken").node("y").shapes[0].dims is None
        assert "Shape inference of node 'y' (RefinerBroken) failed" in caplog.text


def test_nodes_added_one_by_one_know_those_before() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 4])
        y = aexec.ops.square(x)
        z = aexec.ops.add_v2(x, y)
    assert z.shape.dims == (None, 4)
    known = [node.shapes[0] for node in graph]
    assert all(isinstance(shape, Shape) for shape in known)
    assert known[0].handles[0] is known[1].handles[0] is known[2].handles[0]


def test_known_shapes_are_shared() -> None:
    nodes = chain(50).graph().nodes
    assert len({id(node.shapes[0]) for node in nodes if node.shapes[0].dims == (4, 4)}) == 1


def test_large_graph_takes_little_time() -> None:
    graph_def = chain(20_000).graph_def
    start = time.perf_counter()
    graph = aexec.Graph.from_graph_def(graph_def)
    # Some 3 µs a node on one slow core; the bound leaves room for a busy machine.
    assert time.perf_counter() - start < 10
    assert graph.node("last").shapes[0].dims is None
    assert np.all([len(node.shapes) == 1 for node in graph])


class TestNothingLarge:
    def test_is_computed(self) -> None:
        """It is not known how many values there are of which so many copies are asked for."""
        g = GraphBuilder()
        g.const("v", np.arange(10, dtype=np.int32))
        g("u", "Unique", "v", T=I32, out_idx=I32)
        g.const("m", np.array([10**9], np.int32))
        g("t", "Tile", "u", "m", T=I32, Tmultiples=I32)
        g.const("x", np.float32(0))
        g("r", "Fill", "t", "x", T=dtypes.float32, index_type=I32)
        assert g.graph().node("r").shapes[0].rank is None
