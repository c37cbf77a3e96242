"""Variables: their nodes, what they may be given as, and how runs read and change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.collections import GraphKeys

both_forms = pytest.mark.parametrize("use_resource", [False, True], ids=["reference", "resource"])


def nodes(graph: aexec.Graph) -> list[str]:
    """Each node as TensorFlow was asked for its own: name, op, inputs, colocation."""
    written = []
    for node in graph:
        together = [name for name in node.colocation_groups if name != node.name]
        written.append(" ".join([node.name, node.op, *node.input_names(), *(f"@{name}" for name in together)]))
    return written


def built(use_resource: bool) -> list[str]:
    with aexec.Graph() as graph:
        v = aexec.Variable([1.0, 2.0], name="v", use_resource=use_resource)
        aexec.Variable(lambda: aexec.constant(0.0, shape=[2, 3], name="zeros"), name="v", use_resource=use_resource)
        v + 1.0
        ops.square(v)
        v.assign([3.0, 4.0])
        v.assign_add([1.0, 1.0], read_value=False)
        v.read_value()
        v[0]
        aexec.global_variables_initializer()
        v.is_initialized()
    return nodes(graph)


SLICED = [f"strided_slice/{name} Const" for name in ("stack", "stack_1", "stack_2")]


def test_nodes_of_the_reference_form_are_those_of_tensorflow() -> None:
    assert built(use_resource=False) == [
        "v/initial_value Const",
        "v VariableV2",
        "v/Assign Assign v v/initial_value @v",
        "v/read Identity v @v",
        "v_1/Initializer/zeros Const @v_1",
        "v_1 VariableV2",
        "v_1/Assign Assign v_1 v_1/Initializer/zeros @v_1",
        "v_1/read Identity v_1 @v_1",
        "add/y Const",
        "add AddV2 v/read add/y",
        "Square Square v/read",
        "Assign/value Const @v",
        "Assign Assign v Assign/value @v",
        "AssignAdd/value Const @v",
        "AssignAdd AssignAdd v AssignAdd/value @v",
        "read Identity v",
        *SLICED,
        "strided_slice StridedSlice v/read strided_slice/stack strided_slice/stack_1 strided_slice/stack_2",
        "init NoOp ^v/Assign ^v_1/Assign",
        "IsVariableInitialized IsVariableInitialized v @v",
    ]


def test_nodes_of_the_resource_form_are_those_of_tensorflow() -> None:
    assert built(use_resource=True) == [
        "v/Initializer/initial_value Const @v",
        "v VarHandleOp",
        "v/IsInitialized/VarIsInitializedOp VarIsInitializedOp v",
        "v/Assign AssignVariableOp v v/Initializer/initial_value",
        "v/Read/ReadVariableOp ReadVariableOp v",
        "v_1/Initializer/zeros Const @v_1",
        "v_1 VarHandleOp",
        "v_1/IsInitialized/VarIsInitializedOp VarIsInitializedOp v_1",
        "v_1/Assign AssignVariableOp v_1 v_1/Initializer/zeros",
        "v_1/Read/ReadVariableOp ReadVariableOp v_1",
        "ReadVariableOp ReadVariableOp v",
        "add/y Const",
        "add AddV2 ReadVariableOp add/y",
        "Square/ReadVariableOp ReadVariableOp v",
        "Square Square Square/ReadVariableOp",
        "Const Const",
        "AssignVariableOp AssignVariableOp v Const",
        "ReadVariableOp_1 ReadVariableOp v ^AssignVariableOp",
        "Const_1 Const",
        "AssignAddVariableOp AssignAddVariableOp v Const_1",
        "Read/ReadVariableOp ReadVariableOp v",
        "Identity Identity Read/ReadVariableOp",
        "ReadVariableOp_2 ReadVariableOp v",
        *SLICED,
        "strided_slice StridedSlice ReadVariableOp_2 strided_slice/stack strided_slice/stack_1 strided_slice/stack_2",
        "init NoOp ^v/Assign ^v_1/Assign",
        "VarIsInitializedOp VarIsInitializedOp v",
    ]


@both_forms
async def test_variable_is_initialised_changed_and_read(use_resource: bool) -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable([1.0, 2.0], name="v", use_resource=use_resource)
        changes = [v.assign([3.0, 4.0]), v.assign_add([1.0, 1.0]), v.assign_sub([0.0, 5.0])]
        quiet = v.assign([7.0, 7.0], read_value=False)
        init = aexec.global_variables_initializer()
        missing = aexec.report_uninitialized_variables()
        checked = aexec.assert_variables_initialized()
        doubled = 2 * v - v / 1.0
    async with aexec.Session(graph) as session:
        assert (await session.run(missing)).tolist() == [b"v"]
        with pytest.raises(errors.FailedPreconditionError, match="v"):
            await session.run(checked)
        await session.run(init)
        await session.run(checked)
        assert (await session.run(missing)).tolist() == []
        seen = [(await session.run(change)).tolist() for change in changes]
        assert seen == [[3.0, 4.0], [4.0, 5.0], [4.0, 0.0]]
        assert await session.run(quiet) is None
        assert (await session.run(v)).tolist() == [7.0, 7.0]
        assert (await session.run(doubled)).tolist() == [7.0, 7.0]
        assert (await session.run(v, {v: [1.0, 1.0]})).tolist() == [1.0, 1.0]


@both_forms
async def test_rows_are_changed_and_gathered(use_resource: bool) -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable([[1.0], [2.0], [4.0]], use_resource=use_resource)
        rows = IndexedSlices([[8.0], [8.0]], [0, 2])
        changes = [
            v.scatter_add(rows),
            v.scatter_sub(rows),
            v.scatter_mul(rows),
            v.scatter_div(rows),
            v.scatter_max(rows),
            v.scatter_min(IndexedSlices([[3.0]], [1])),
            v.scatter_update(IndexedSlices([[0.0]], [1])),
            v.scatter_nd_add([[1]], [[5.0]]),
            v.scatter_nd_sub([[1]], [[2.0]]),
            v.scatter_nd_update([[0]], [[6.0]]),
        ]
        gathered = v.sparse_read([2, 0])
        init = aexec.variables_initializer([v])
    async with aexec.Session(graph) as session:
        await session.run(init)
        seen = [(await session.run(change)).ravel().tolist() for change in changes]
        assert seen == [
            [9.0, 2.0, 12.0],
            [1.0, 2.0, 4.0],
            [8.0, 2.0, 32.0],
            [1.0, 2.0, 4.0],
            [8.0, 2.0, 8.0],
            [8.0, 2.0, 8.0],
            [8.0, 0.0, 8.0],
            [8.0, 5.0, 8.0],
            [8.0, 3.0, 8.0],
            [6.0, 3.0, 8.0],
        ]
        assert (await session.run(gathered)).tolist() == [[8.0], [6.0]]


@both_forms
async def test_initial_value_may_be_that_of_another(use_resource: bool) -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable(3.0, use_resource=use_resource)
        w = aexec.Variable(v.initialized_value() * 2.0, use_resource=use_resource)
        init = aexec.global_variables_initializer()
        change = v.assign(5.0)
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert await session.run(w) == 6.0
        await session.run(change)
        await session.run(w.initializer)
        assert await session.run(w) == 10.0


@both_forms
async def test_gradients_with_respect_to_it(use_resource: bool) -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable([1.0, 2.0], use_resource=use_resource)
        other = aexec.Variable([1.0], use_resource=use_resource)
        found = aexec.gradients(ops.sum(v * v, [0]), [v, other])
        zero = aexec.gradients(ops.sum(v * v, [0]), other, unconnected="zero")
        stopped = aexec.gradients(v * 1.0, v, stop_gradients=[v])
        init = aexec.global_variables_initializer()
    assert found[1] is None
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert (await session.run(found[0])).tolist() == [2.0, 4.0]
        assert (await session.run(zero[0])).tolist() == [0.0]
        assert (await session.run(stopped[0])).tolist() == [1.0, 1.0]


@both_forms
async def test_saver_takes_them(use_resource: bool, tmp_path: Any) -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable([1.0, 2.0], name="v", use_resource=use_resource)
        change = v.assign([0.0, 0.0])
        saver = aexec.training.Saver({"renamed": v})
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        path = await saver.save(session, str(tmp_path / "model"))
        await session.run(change)
        await saver.restore(session, path)
        assert (await session.run(v)).tolist() == [1.0, 2.0]


def test_variable_shows_its_name_type_and_shape() -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable(np.zeros([2, 3], np.float64), name="v", trainable=False)
        handle = aexec.Variable(1, use_resource=True)
        shapeless = aexec.Variable(ops.placeholder("float32"), validate_shape=False)
    assert repr(v) == "<Variable 'v:0' shape=[2,3] dtype=double>"
    assert (v.name, v.op.name, v.dtype, str(v.shape), v.trainable) == ("v:0", "v", aexec.float64, "[2,3]", False)
    assert handle.handle is handle.reference and handle.dtype is aexec.int32
    assert shapeless.shape.rank is None
    assert v.graph is graph
    with pytest.raises(errors.InvalidArgumentError, match="reference form"):
        v.handle
    with graph, pytest.raises(errors.InvalidArgumentError, match="must have a shape specified"):
        aexec.Variable(ops.placeholder("float32"))
    with graph, pytest.raises(errors.InvalidArgumentError, match=r"Shape mismatch.*incompatible"):
        handle.assign([1, 2])
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(v)


def test_collections_of_variables() -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable(1.0, name="a/v")
        kept = aexec.Variable(1.0, name="b/v", trainable=False)
        local = aexec.Variable(1.0, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES])
        aexec.add_to_collection(GraphKeys.MODEL_VARIABLES, v)
        assert aexec.global_variables() == [v, kept]
        assert aexec.global_variables("b/") == [kept]
        assert aexec.trainable_variables() == [v]
        assert aexec.local_variables() == [local]
        assert aexec.model_variables() == [v]
        assert aexec.moving_average_variables() == []
        assert aexec.local_variables_initializer().control_inputs == (local.initializer.id,)
        aexec.get_collection_ref("mine").append(3)
        assert aexec.get_collection("mine") == [3] and aexec.get_collection("mine", "x") == []
    assert graph.collections.keys == ["variables", "trainable_variables", "local_variables", "model_variables", "mine"]
    graph.collections.get_ref("__private").append(1)
    assert "__private" not in graph.collections.keys
    graph.collections.clear("mine")
    assert graph.collections.get("mine") == []
    assert repr(graph.collections).startswith("<Collections variables (2), trainable_variables (1)")


def test_scopes_of_attrs_and_containers() -> None:
    with aexec.Graph() as graph:
        with aexec.attr_scope({"_mark": 1, "_other": b"x"}), aexec.attr_scope({"_other": None}):
            aexec.constant(1, name="marked")
        with aexec.container("mine"):
            aexec.Variable(1.0, name="v")
            aexec.constant(1, name="stateless")
        aexec.Variable(1.0, name="w")
    assert graph.node("marked").attrs["_mark"] == 1 and "_other" not in graph.node("marked").attrs
    assert graph.node("v").attrs["container"] in ("mine", b"mine")
    assert "container" not in graph.node("stateless").attrs
    assert graph.node("w").attrs["container"] in ("", b"")
