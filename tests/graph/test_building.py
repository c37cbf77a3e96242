"""Looking things up in a graph that is built, closing it, importing into it, and MetaGraphs with collections."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import aexec
from aexec import errors, ops, proto
from aexec.graph.collections import GraphKeys
from aexec.queues.queue_runner import add_queue_runner, queue_runners


class TestNames:
    """The sequences of TensorFlow."""

    def test_sequence(self) -> None:
        with aexec.Graph():
            names = [aexec.constant(0, name=name).node.name for name in ["a", "a", "A", "a_1", "a"]]
        assert names == ["a", "a_1", "A_2", "a_1_1", "a_3"]

    def test_scopes_and_operations_share_names(self) -> None:
        with aexec.Graph():
            found = []
            for name in ("s", "s", "S", "s/", None, ""):
                with aexec.name_scope(name) as scope:
                    found.append((scope, aexec.constant(0, name="c").node.name))
            with aexec.name_scope("outer"), aexec.name_scope("inner") as scope:
                found.append((scope, aexec.constant(0, name="c").node.name))
                with aexec.name_scope("s/") as scope:
                    found.append((scope, aexec.constant(0, name="c").node.name))
            found.append(("", aexec.constant(0, name="s").node.name))
        assert found == [
            ("s/", "s/c"),
            ("s_1/", "s_1/c"),
            ("S_2/", "S_2/c"),
            ("s/", "s/c_1"),
            ("", "c"),
            ("", "c_1"),
            ("outer/inner/", "outer/inner/c"),
            ("s/", "s/c_2"),
            ("", "s_3"),
        ]


class TestElements:
    def test_elements_by_name(self) -> None:
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [2], name="x")
            v = aexec.Variable([1.0], name="v")
        assert graph.get_operation_by_name("x") is x.node and graph.get_tensor_by_name("x:0") == x
        assert graph.as_graph_element("x") is x.node and graph.as_graph_element("x:0") == x
        assert graph.as_graph_element(v) == v.reference and graph.as_graph_element(x.node) is x.node
        for call, argument, kind, message in (
            (graph.get_operation_by_name, "x:0", errors.InvalidArgumentError, "no name of an operation"),
            (graph.get_operation_by_name, "z", errors.NotFoundError, "Node 'z' was not found"),
            (graph.get_tensor_by_name, "x", errors.InvalidArgumentError, "form '<op_name>:<output_index>'"),
            (graph.get_tensor_by_name, "x:1", errors.OutOfRangeError, "does not have output 1"),
            (graph.as_graph_element, 3, errors.InvalidArgumentError, r"Can not convert 3 \(int\)"),
        ):
            with pytest.raises(kind, match=message):
                call(argument)
        with pytest.raises(errors.InvalidArgumentError, match="'x:0' is not an operation"):
            graph.as_graph_element("x:0", allow_tensor=False)
        with pytest.raises(errors.InvalidArgumentError, match="is not a tensor"):
            graph.as_graph_element(x.node, allow_operation=False)
        with aexec.Graph():
            stranger = aexec.constant(1)
        with pytest.raises(errors.InvalidArgumentError, match="is not an element of this graph"):
            graph.as_graph_element(stranger)

    def test_finalized_graph_and_versions(self) -> None:
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [], name="x")
            before = graph.version
            y = ops.square(x, name="y")
            assert graph.version == before + 1
            assert [node.name for node in graph.to_graph_def(from_version=before).node] == ["y"]
            assert not graph.finalized
            graph.finalize()
            assert graph.finalized
            for add in (lambda: x + 1.0, lambda: aexec.gradients(y, x), lambda: aexec.import_graph_def(part())):
                with pytest.raises(errors.FailedPreconditionError, match="Graph is finalized and cannot be modified"):
                    add()


async def test_tuples_wait_for_all() -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable(1.0, use_resource=True, name="v")
        init = aexec.global_variables_initializer()
        change = v.assign_add(1.0, read_value=False)
        rows = aexec.IndexedSlices(aexec.constant([1.0]), aexec.constant([0]))
        one, none, sliced, operation = aexec.tuple([aexec.constant(5), None, rows, change], name="t")
        same = aexec.identity(3.0, name="same")
        with pytest.raises(errors.InvalidArgumentError, match="Must have at least one Tensor"):
            aexec.tuple([None])
    assert none is None and operation.name == "t/group_deps" and same.name == "same:0"
    assert one.node.control_inputs == (operation.id,) and sliced.values.node.control_inputs == (operation.id,)
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert await session.run(one) == 5
        assert await session.run(v) == 2.0


def part() -> aexec.Graph:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [2], name="x")
        with aexec.control_dependencies([aexec.constant(1, name="first")]):
            ops.mul(x, 2.0, name="y")
    return graph


class TestImport:
    async def test_under_a_scope_with_other_inputs(self) -> None:
        with aexec.Graph() as graph:
            mine = aexec.constant([1.0, 5.0], name="mine")
            with aexec.name_scope("outer"):
                y, x = aexec.import_graph_def(part(), {"x": mine}, ["y:0", "x"])
                again = aexec.import_graph_def(part().to_bytes(), {"x:0": [0.0, 1.0]}, ["y", "x:0"])
            at_root = aexec.import_graph_def(part().to_graph_def(), None, ["y:0"], name="")
            assert aexec.import_graph_def(part()) is None
        assert (y.name, x.name) == ("outer/import/y:0", "outer/import/x")
        assert again[0].name == "outer/import_1/y" and again[1].node.op == "Const"
        assert at_root[0].name == "y:0" and "import/y" in graph
        async with aexec.Session(graph) as session:
            assert (await session.run(y)).tolist() == [2.0, 10.0]

    def test_nodes_that_are_replaced_can_be_left_out(self) -> None:
        with aexec.Graph() as graph:
            mine = aexec.constant([1.0, 5.0], name="mine")
            (y,) = aexec.import_graph_def(part(), {"x": mine}, ["y:0"], name="p", skip_mapped_nodes=True)
            assert "p/x" not in graph and y.name == "p/y:0"
            with pytest.raises(errors.InvalidArgumentError, match="operations cannot be returned where"):
                aexec.import_graph_def(part(), {"x": mine}, ["y"], skip_mapped_nodes=True)

    def test_prefixes(self) -> None:
        with aexec.Graph() as graph:
            aexec.import_graph_def(part(), name="p")
            aexec.import_graph_def(part(), name="p", uniquify_prefix=False)
        assert [node.name for node in graph if node.op == "Placeholder"] == ["p/x", "p/x_1"]

    def test_missing_names_are_refused(self) -> None:
        with aexec.Graph():
            with pytest.raises(errors.InvalidArgumentError, match=r"not found in graph_def: \[nope:0\]"):
                aexec.import_graph_def(part(), {"nope:0": aexec.constant(1)})
            with pytest.raises(errors.InvalidArgumentError, match="Requested return_element 'nope' not found"):
                aexec.import_graph_def(part(), None, ["nope"])
            with pytest.raises(errors.InvalidArgumentError, match="must be an operation"):
                aexec.import_graph_def(part(), {"^first": aexec.constant(1)})

    def test_control_inputs(self) -> None:
        with aexec.Graph():
            before = ops.no_op(name="before")
            with aexec.control_dependencies([before]):
                y, x = aexec.import_graph_def(part(), {"^first": before}, ["y", "x"])
        factor = y.graph.nodes[y.inputs[1][0]]
        assert y.input_names() == ["import/x", "import/y/y"]
        assert x.input_names() == factor.input_names() == ["^before"]


class TestMetaGraphs:
    def built(self) -> aexec.Graph:
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [2], name="x")
            aexec.Variable([1.0, 2.0], name="v")
            r = aexec.Variable([1.0, 2.0], name="r", use_resource=True, trainable=False)

            def body(i: Any, a: Any) -> Any:
                return i + 1, aexec.cond(ops.less(i, 1), lambda: a * x, lambda: ops.tanh(a * r))

            y = aexec.while_loop(lambda i, _: ops.less(i, 3), body, (0, x))[1]
            z = aexec.cond(ops.less(x[0], 9.0), lambda: ops.exp(y), lambda: y, name="branch")
            for value in (z, z.node, 3, "text"):
                aexec.add_to_collection(f"mine_{type(value).__name__.lower()}", value)
            queue = ops.fifo_queue_v2(["float32"], name="q")
            add_queue_runner(aexec.QueueRunner(queue, [ops.queue_enqueue_v2(queue, [1.0], name="enqueue")]))
        return graph

    def test_meta_graph_is_written_and_read_back(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.meta"
        with self.built():
            first = aexec.export_meta_graph(path)
        with aexec.Graph() as graph:
            read = aexec.import_meta_graph(path, import_scope="s")
            assert [v.name for v in aexec.global_variables()] == ["s/v:0", "s/r:0"]
            (trainable,) = aexec.trainable_variables()
            assert trainable is aexec.global_variables()[0] and not trainable.is_resource
            assert aexec.global_variables()[1].handle.name == "s/r:0"
            assert aexec.get_collection("mine_tensor") == [graph.tensor("s/branch/Merge:0")]
            assert aexec.get_collection("mine_node") == [graph.node("s/branch/Merge")]
            assert [*aexec.get_collection("mine_int"), *aexec.get_collection("mine_str")] == [3, "text"]
            assert queue_runners(graph)[0].enqueue_ops == ["s/enqueue"]
            (loop,) = aexec.get_collection(GraphKeys.WHILE_CONTEXT)
            second = aexec.export_meta_graph(collection_list=["variables", "while_context"])
        assert read.graph is not graph and {*first.collections} == {*read.collections}
        assert isinstance(loop, proto.WhileContextDef) and loop.context_name == "s/while/while_context"
        assert {*second.collections} == {"variables", "while_context"}

    def test_contexts_are_those_of_tensorflow(self) -> None:
        with self.built():
            made = aexec.export_meta_graph()
        loop = proto.WhileContextDef.FromString(made.collections["while_context"][0])
        assert (loop.context_name, loop.parallel_iterations) == ("while/while_context", 10)
        assert loop.pivot_name == "while/LoopCond:0"
        assert (loop.pivot_for_pred_name, loop.pivot_for_body_name) == ("while/Merge:0", "while/Identity:0")
        assert list(loop.loop_enter_names) == ["while/Enter:0", "while/Enter_1:0"]
        assert list(loop.loop_exit_names) == ["while/Exit:0", "while/Exit_1:0"]
        assert loop.values_def.external_values["x:0"] in loop.values_def.values
        assert [context.cond_ctxt.branch for context in loop.nested_contexts] == [1, 0]
        yes, no = (proto.CondContextDef.FromString(data) for data in made.collections["cond_context"])
        assert (yes.context_name, no.context_name) == ("branch/cond_text", "branch/cond_text_1")
        assert (yes.pred_name, yes.pivot_name) == ("branch/pred_id:0", "branch/switch_t:0")
        assert yes.values_def.external_values["while/Exit_1:0"] == "branch/Exp/Switch:1"

    def test_collection_without_a_message_form_is_left_out(self, caplog: pytest.LogCaptureFixture) -> None:
        with aexec.Graph():
            aexec.add_to_collection("odd", object())
            with caplog.at_level(logging.WARNING):
                made = aexec.export_meta_graph()
        assert made.collections == {} and "Collection 'odd' is not written" in caplog.text

    def test_collection_of_something_else(self) -> None:
        with aexec.Graph():
            made = aexec.export_meta_graph()
            made.collections["variables"] = ["name"]
            with pytest.raises(errors.InvalidArgumentError, match="'variables' holds 'name': it is no serial"):
                aexec.import_meta_graph(made)
