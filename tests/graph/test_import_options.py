"""Import into a graph that has nodes already: what the options name, and how they meet the imported names."""

from __future__ import annotations

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.graph.graph_import import ImportOptions, import_graph_def
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32


def existing() -> aexec.Graph:
    g = GraphBuilder()
    g.const("x", np.float32(3))
    g.const("pair", np.ones(2, np.float32))
    g("parts", "Split", "axis", "pair", num_split=2, T=F)
    g.const("axis", 0, dtypes.int32)
    return g.graph()


def imported() -> GraphBuilder:
    """`x`, `y` = sqrt(x), and `z` = -y after `x`."""
    g = GraphBuilder()
    g.const("x", np.float32(9))
    g("y", "Sqrt", "x", T=F)
    g("z", "Neg", "y", "^x", T=F)
    return g


def names_of_inputs(options: ImportOptions, source: GraphBuilder | None = None) -> dict[str, list[str]]:
    graph = existing()
    nodes = import_graph_def(graph, (source or imported()).graph_def, options)
    return {node.name: node.input_names() for node in nodes}


class TestInputMap:
    @pytest.mark.parametrize("key", ["x", "x:0"])
    @pytest.mark.parametrize("value", ["x", "x:0"])
    def test_target_is_of_the_existing_graph_though_an_imported_node_has_its_name(self, key: str, value: str) -> None:
        inputs = names_of_inputs(ImportOptions(prefix="p", input_map={key: value}))
        assert inputs == {"p/x": [], "p/y": ["x"], "p/z": ["p/y", "^p/x"]}

    def test_target_named_as_a_later_imported_node_makes_no_cycle(self) -> None:
        g = GraphBuilder()
        g.placeholder("a")
        g("x", "Sqrt", "a", T=F)
        assert names_of_inputs(ImportOptions(prefix="p", input_map={"a": "x"}), g)["p/x"] == ["x"]

    def test_other_outputs(self) -> None:
        assert names_of_inputs(ImportOptions(prefix="p", input_map={"x": "parts:1"}))["p/y"] == ["parts:1"]
        g = GraphBuilder()
        g("y", "Neg", "nowhere:1", T=F)
        assert names_of_inputs(ImportOptions(input_map={"nowhere:1": "parts:1"}), g)["y"] == ["parts:1"]

    def test_control_input(self) -> None:
        inputs = names_of_inputs(ImportOptions(prefix="p", input_map={"^x": "^parts"}))
        assert inputs["p/z"] == ["p/y", "^parts"]
        assert inputs["p/y"] == ["p/x"]

    @pytest.mark.parametrize("entry", [("x", "^x"), ("^x", "x"), ("^x", "parts:1")])
    def test_tensor_is_no_control_input(self, entry: tuple[str, str]) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="between control edge and non-control edge"):
            names_of_inputs(ImportOptions(prefix="p", input_map=dict([entry])))

    def test_target_that_is_not_there(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="node 'y' in input_map does not exist in graph"):
            names_of_inputs(ImportOptions(prefix="p", input_map={"x": "y"}))

    def test_output_that_is_not_there(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="Connecting to invalid output 2 of source node parts"):
            names_of_inputs(ImportOptions(prefix="p", input_map={"x": "parts:2"}))

    def test_key_that_is_no_input(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="expected name, name:k or"):
            names_of_inputs(ImportOptions(prefix="p", input_map={"^x:0": "x"}))

    def test_unmapped_input_must_be_imported(self) -> None:
        g = GraphBuilder()
        g("y", "AddV2", "a", "x", T=F)
        with pytest.raises(errors.InvalidArgumentError, match="Unknown input node 'x'"):
            names_of_inputs(ImportOptions(prefix="p", input_map={"a": "x"}), g)


class TestControlDependencies:
    def test_only_nodes_without_imported_inputs_wait(self) -> None:
        g = imported()
        g("after", "NoOp", "^x")
        inputs = names_of_inputs(ImportOptions(prefix="p", control_dependencies=["parts"]), g)
        assert inputs == {
            "p/x": ["^parts"],
            "p/y": ["p/x"],
            "p/z": ["p/y", "^p/x"],
            "p/after": ["^p/x"],
        }

    def test_mapped_input_is_not_an_imported_one(self) -> None:
        options = ImportOptions(prefix="p", input_map={"x": "x"}, control_dependencies=["parts"])
        assert names_of_inputs(options)["p/y"] == ["x", "^parts"]

    def test_node_that_is_not_there(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="node 'gone' in control_dependencies does not exist"):
            names_of_inputs(ImportOptions(prefix="p", control_dependencies=["gone"]))


@pytest.mark.parametrize("options", [ImportOptions(prefix="p"), ImportOptions(uniquify_names=True)])
def test_colocation_groups_are_renamed_with_their_nodes(options: ImportOptions) -> None:
    g = imported()
    g.graph_def.node[1].attr["_class"].list.s.append(b"loc:@x")
    before = g.graph_def.SerializeToString(deterministic=True)
    graph = existing()
    nodes = import_graph_def(graph, g.graph_def, options)
    assert nodes[1].attrs["_class"] == [b"loc:@" + nodes[0].name.encode()]
    assert list(graph.to_graph_def().node[nodes[1].id].attr["_class"].list.s) == nodes[1].attrs["_class"]
    assert g.graph_def.SerializeToString(deterministic=True) == before


def test_colocation_group_of_the_existing_graph_is_unknown_to_an_import() -> None:
    g = imported()
    g.graph_def.node[1].attr["_class"].list.s.append(b"loc:@parts")
    with pytest.raises(errors.InvalidArgumentError, match="expects to be colocated with unknown node 'parts'"):
        names_of_inputs(ImportOptions(prefix="p", input_map={"x": "x"}), g)
