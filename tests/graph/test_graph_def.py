"""GraphDefs: what is read comes out as it was, devices, control edges, import into a graph that is there."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.graph.forms.graph_export import node_to_proto
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.op_functions import create_node
from tests.support.programs.graphs import GraphBuilder

CONST_CONST_ADD = r"""
node {
  name: "a"
  op: "Const"
  attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor {
    dtype: DT_INT32 tensor_shape { dim { size: 2 } } tensor_content: "\001\000\000\000\002\000\000\000" } } }
}
node {
  name: "b"
  op: "Const"
  attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor {
    dtype: DT_INT32 tensor_shape { dim { size: 2 } } tensor_content: "\002\000\000\000\001\000\000\000" } } }
}
node {
  name: "sum"
  op: "Add"
  input: "a"
  input: "b"
  attr { key: "T" value { type: DT_INT32 } }
}
versions { producer: 38 }
"""


def small() -> GraphBuilder:
    g = GraphBuilder()
    g.const("a", np.float32(2))
    g("b", "Square", "a", T=dtypes.float32)
    return g


class TestTheExampleOfTwoConstants:
    """Two constants as raw bytes, an Add, and an old producer version."""

    async def test_example_of_two_constants_runs(self) -> None:
        async with aexec.Session(aexec.Graph.from_text(CONST_CONST_ADD)) as session:
            result = await session.run("sum:0")
        np.testing.assert_array_equal(result, [3, 3])
        assert result.dtype == np.int32

    def test_example_of_two_constants_prints_as_it_was(self) -> None:
        graph = aexec.Graph.from_text(CONST_CONST_ADD)
        assert aexec.Graph.from_text(graph.to_text()).to_graph_def() == graph.to_graph_def()
        assert 'tensor_content: "\\001\\000\\000\\000\\002\\000\\000\\000"' in graph.to_text()
        assert graph.versions.producer == 38


class TestRoundTrip:
    def test_binary_text_and_json(self) -> None:
        graph = small().graph()
        message = graph.to_graph_def()
        for again in (
            aexec.Graph.from_bytes(graph.to_bytes()),
            aexec.Graph.from_text(graph.to_text()),
            aexec.Graph.from_json(graph.to_json()),
        ):
            assert again.to_graph_def() == message

    @pytest.mark.parametrize("suffix", [".pb", ".pbtxt", ".json"])
    def test_files_are_told_apart_by_their_names(self, suffix: str, tmp_path: Path) -> None:
        graph = small().graph()
        path = tmp_path / f"graph{suffix}"
        path.write_bytes(
            {".pb": graph.to_bytes(), ".pbtxt": graph.to_text().encode(), ".json": graph.to_json().encode()}[suffix]
        )
        assert aexec.load_graph(path).to_graph_def() == graph.to_graph_def()

    def test_old_version_field_is_ignored_and_kept_out(self) -> None:
        message = small().graph_def
        message.version = 7
        assert aexec.Graph.from_graph_def(message).versions.producer == 2474

    def test_internal_attrs_and_debug_info_come_out_as_they_went_in(self) -> None:
        g = small()
        square = g.graph_def.node[1]
        square.attr["_mine"].s = b"kept"
        square.experimental_debug_info.original_node_names.append("before")
        square.experimental_debug_info.original_func_names.append("f")
        again = g.graph().to_graph_def().node[1]
        assert again == square
        assert again.experimental_debug_info.original_node_names == ["before"]

    def test_same_graph_is_the_same_bytes(self) -> None:
        assert small().graph().to_bytes() == small().graph().to_bytes()


class TestEdges:
    async def test_control_edges_order_what_no_data_orders(self) -> None:
        ran: list[str] = []

        @aexec.op("GraphDefTestNote(x: string) -> y: string", stateful=True)
        def note(x: np.ndarray) -> object:
            ran.append(x.item().decode())
            return x

        with aexec.Graph() as graph:
            first = note(aexec.constant("first"), name="first")
            with aexec.control_dependencies([first]):
                second = note(aexec.constant("second"), name="second")
            with aexec.control_dependencies([second]):
                note(aexec.constant("third"), name="third")
        async with aexec.Session(graph) as session:
            await session.run("third")
        assert ran == ["first", "second", "third"]

    async def test_control_edges_hold_between_devices(self) -> None:
        g = small()
        g("c", "Identity", "a", "^b", T=dtypes.float32, device="/device:CPU:1")
        config = aexec.SessionConfig(device_count={"CPU": 2}, graph_passes=())
        async with aexec.Session(g.graph(), config=config) as session:
            metadata = aexec.RunMetadata()
            options = aexec.RunOptions(trace=True)
            assert await session.run("c:0", options=options, metadata=metadata) == 2
            assert len(session.devices()) == 2
        stats = [n for d in metadata.step_stats.dev_stats for n in d.node_stats]
        assert [n.node_name for n in stats if n.node_name in "bc"] == ["b", "c"]

    def test_types_are_inferred_from_the_inputs(self) -> None:
        with aexec.Graph():
            floats = aexec.constant([1.0])
            total = aexec.ops.add_v2(floats, floats)
            assert total.op.attrs["T"] is dtypes.float32
            assert total.dtype is dtypes.float32
            with pytest.raises(errors.InvalidArgumentError):
                aexec.ops.add_v2(floats, aexec.constant([1]))


class TestNode:
    def test_node_joins_definition_and_types(self) -> None:
        g = GraphBuilder()
        g.const("axis", np.int32(0))
        g.const("x", np.ones((4, 2), np.float32))
        g("parts", "Split", "axis", "x", num_split=2, T=dtypes.float32)
        node = g.graph().node("parts")
        assert node.op == node.op_def.name == "Split"
        assert node.input_types == (dtypes.int32, dtypes.float32)
        assert node.output_types == (dtypes.float32, dtypes.float32)
        assert node.op_def.output_ranges(node.attrs) == {"output": (0, 2)}
        assert [t.name for t in node.outputs] == ["parts:0", "parts:1"]
        assert node_to_proto(node).input == ["axis", "x"]


class TestImportOptions:
    """A GraphDef may be added to a graph that has nodes already."""

    def test_prefix(self) -> None:
        graph = small().graph()
        import_graph_def(graph, small().graph_def, ImportOptions(prefix="again"))
        assert [n.name for n in graph] == ["a", "b", "again/a", "again/b"]
        assert graph.node("again/b").input_names() == ["again/a"]

    def test_taken_names_are_refused_or_made_unique(self) -> None:
        graph = small().graph()
        with pytest.raises(errors.InvalidArgumentError, match="Node name 'a' already exists in the Graph"):
            import_graph_def(graph, small().graph_def)
        assert len(graph) == 2
        import_graph_def(graph, small().graph_def, ImportOptions(uniquify_names=True))
        assert [n.name for n in graph] == ["a", "b", "a_1", "b_1"]
        assert graph.node("b_1").input_names() == ["a_1"]

    def test_inputs_can_be_mapped_to_nodes_that_are_there(self) -> None:
        there = GraphBuilder()
        there.const("given", np.float32(3))
        graph = there.graph()
        import_graph_def(graph, small().graph_def, ImportOptions(prefix="p", input_map={"a": "given"}))
        assert graph.node("p/b").input_names() == ["given"]

    def test_control_dependencies_and_a_device_for_what_has_none(self) -> None:
        graph = small().graph()
        options = ImportOptions(prefix="p", control_dependencies=["b"], default_device="/device:CPU:0")
        import_graph_def(graph, small().graph_def, options)
        assert graph.node("p/a").input_names() == ["^b"]
        assert graph.node("p/b").input_names() == ["p/a"]
        assert graph.node("p/b").device == "/device:CPU:0"


def test_op_of_contrib_is_named_when_it_is_missing() -> None:
    message = proto.GraphDef(versions=proto.VersionDef(producer=134))
    message.node.add(name="n", op="BlockLSTMContrib")
    with pytest.raises(
        errors.NotFoundError, match=r"'BlockLSTMContrib'.*nor one of a loaded.*load_library.*1 node needs"
    ):
        aexec.Graph.from_graph_def(message)


def test_node_can_be_made_in_a_graph_that_is_empty_and_not_current() -> None:
    graph = aexec.Graph()
    node = create_node("NoOp", {}, {}, name="first", graph=graph)
    assert [n.name for n in graph] == ["first"]
    assert node.graph is graph


def test_large_tensors_are_kept_once_and_come_out_as_they_went_in() -> None:
    g = small()
    g.const("weights", np.arange(5000, dtype=np.float32))
    g.graph_def.node[-1].experimental_debug_info.original_node_names.append("w")
    g.graph_def.node[-1].attr["_mine"].i = 7
    data = g.graph_def.SerializeToString(deterministic=True)
    graph = aexec.Graph.from_bytes(data)
    kept = graph.node("weights").wire
    assert kept is not None
    assert sum(map(len, kept.attr)) < 100
    assert graph.to_graph_def().SerializeToString(deterministic=True) == data
    assert graph.node("weights").attrs["value"].array[-1] == 4999  # decoded from here on
    assert graph.to_graph_def().SerializeToString(deterministic=True) == data


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.uint8])
def test_content_of_a_large_constant_is_not_copied_before_it_is_needed(dtype: type) -> None:
    g = GraphBuilder()
    value = (np.arange(2**17) % 2).astype(dtype).reshape(2, -1)
    g.const("large", value)
    data = g.graph_def.SerializeToString(deterministic=True)
    attr = aexec.Graph.from_bytes(data).node("large").attrs["value"]
    assert attr.shape.as_tuple() == (2, 2**16) and attr.num_elements == value.size and attr.num_bytes >= value.nbytes
    assert attr._content is not None and attr._array is None
    assert attr.to_proto() == proto.AttrValue.FromString(g.graph_def.node[0].attr["value"].SerializeToString()).tensor
    assert aexec.Graph.from_bytes(data).to_bytes() == data
    assert not attr.array.flags.writeable and attr.array.flags.aligned
    np.testing.assert_array_equal(attr.array, value)
    assert attr._content is None and attr._encoded is None


def test_large_constant_of_the_wrong_size_is_refused_when_it_is_read() -> None:
    g = GraphBuilder()
    g.const("large", np.arange(2**17, dtype=np.float32))
    message = g.graph_def
    message.node[0].attr["value"].tensor.tensor_content += b"1"
    attr = aexec.Graph.from_bytes(message.SerializeToString()).node("large").attrs["value"]
    with pytest.raises(errors.InvalidArgumentError, match="expected 524288 bytes of tensor_content, got 524289"):
        _ = attr.array
    assert attr.to_proto() == message.node[0].attr["value"].tensor


@pytest.mark.parametrize("large_first", [False, True])
def test_last_of_several_attrs_of_one_name_holds(large_first: bool) -> None:
    g = GraphBuilder()
    g.const("large", np.arange(1000, dtype=np.float32))
    g.const("small", np.float32(3))
    values = [node.attr["value"] for node in g.graph_def.node]
    entries = [proto.NodeDef.AttrEntry(key="value", value=value).SerializeToString() for value in values]
    types = proto.NodeDef.AttrEntry(key="dtype", value=g.graph_def.node[0].attr["dtype"]).SerializeToString()
    flat = proto.FlatGraphDef(versions=g.graph_def.versions)
    flat.node.add(name="c", op="Const", attr=[*(entries if large_first else reversed(entries)), types])
    graph = aexec.Graph.from_bytes(flat.SerializeToString())
    size = 1 if large_first else 1000
    assert graph.node("c").attrs["value"].array.size == size
    again = aexec.Graph.from_bytes(graph.to_bytes())
    assert again.node("c").attrs["value"].array.size == size


def test_flat_view_of_a_graph_def_has_its_field_numbers() -> None:
    """Its messages are read from the bytes of TensorFlow's, and written to them."""
    for flat, whole in ((proto.FlatGraphDef, proto.GraphDef), (proto.FlatNodeDef, proto.NodeDef)):
        numbers = {field.name: field.number for field in whole.DESCRIPTOR.fields}
        assert all(field.number == numbers[field.name] for field in flat.DESCRIPTOR.fields)


def test_nodes_come_out_as_they_went_in_with_all_that_is_about_them() -> None:
    g = small()
    node = g.graph_def.node[1]
    node.device = "/device:CPU:0"
    node.attr["_mine"].list.func.add(name="f").attr["T"].placeholder = "T"
    node.attr["_empty"].SetInParent()
    node.attr["unknown"].s = b"\xff"
    node.experimental_debug_info.original_node_names.extend(["n", "m"])
    node.experimental_debug_info.original_func_names.append("f")
    node.experimental_type.type_id = 1000
    node.experimental_type.args.add(type_id=2)
    graph = g.graph()
    assert graph.to_graph_def() == g.graph_def
    assert graph.node("b").origin == "node 'n', 'm' of function 'f'"
    assert pickle.loads(pickle.dumps(graph)).to_graph_def() == g.graph_def


def test_equal_nodes_share_their_attrs() -> None:
    g = small()
    g("p", "Square", "a", T=dtypes.float32)
    g("q", "Square", "p", T=dtypes.float32)
    g("r", "Square", "a", T=dtypes.float32, _mine=1)
    graph = g.graph()
    p, q, r = graph.node("p"), graph.node("q"), graph.node("r")
    assert p.attrs is q.attrs
    assert p.wire is q.wire
    assert p.input_types is q.input_types
    assert p.inputs[0] is r.inputs[0]
    assert r.attrs == {**p.attrs, "_mine": 1}


def test_attrs_that_are_no_messages() -> None:
    flat = proto.FlatGraphDef(node=[proto.FlatNodeDef(name="n", op="NoOp", attr=[b"\x0a\x02_a\x12\x03\x0a\x7f"])])
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse GraphDef: the attrs of node 'n'"):
        aexec.Graph.from_bytes(flat.SerializeToString())
