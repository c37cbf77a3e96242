from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops, proto
from aexec.framework import dtypes
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from aexec.saved_model import freeze, load_saved_model, save_saved_model
from aexec.saved_model.handles_to_values import FunctionTwins


def build() -> tuple[aexec.Graph, dict[str, Signature]]:
    """y = x * v + h, where both are variables, and c = the contents of a file."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        v = ops.variable_v2(shape=[], dtype="float32", name="v")
        h = ops.var_handle_op(dtype="float32", shape=[2], name="h", shared_name="h")
        init = [ops.assign(v, np.float32(3)).node, ops.assign_variable_op(h, np.float32([10, 20]))]
        aexec.group(*init, name="init")
        y = ops.add_v2(x * v, ops.read_variable_op(h, dtype="float32"), name="y")
        path = aexec.placeholder("string", [], name="path")
        ops.read_file(path, name="c")
        aexec.placeholder("string", [], name="path2")
        with aexec.device("/device:CPU:0"):
            ops.no_op(name="main")
    return graph, {"serving_default": Signature.of({"x": x}, {"y": y})}


async def test_model_comes_back(tmp_path: Path) -> None:
    graph, signatures = build()
    (tmp_path / "words.txt").write_text("words")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "words.txt").write_text("other words")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        written = await save_saved_model(
            session,
            tmp_path / "model",
            signatures,
            main_op="main",
            assets={"path:0": tmp_path / "words.txt", graph.tensor("path2:0"): tmp_path / "other" / "words.txt"},
            clear_devices=True,
        )
        with pytest.raises(errors.AlreadyExistsError, match="has a SavedModel in it already"):
            await save_saved_model(session, written, signatures)
    model = await asyncio.to_thread(load_saved_model, written)
    assert model.init_op == "main"
    assert model.meta_graph.assets == {"path:0": "words.txt", "path2:0": "words_1.txt"}
    assert (written / "assets" / "words_1.txt").read_text() == "other words"
    assert all(not node.device for node in model.graph)
    assert not list(written.rglob("*temp*"))
    async with aexec.Session(model) as session:
        signature = model.signatures["serving_default"]
        outputs = await session.run(signature.fetches(), signature.feeds({"x": [1, 2]}))
        assert outputs["y"].tolist() == [13, 26]
        feeds: dict[Any, Any] = {"path:0": model.asset_feeds()["path:0"]}
        assert await session.run("c:0", feeds) == b"words"


async def test_several_graphs_and_no_variables(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", name="x")
        y = ops.square(x, name="y")
    signatures = {"serving_default": Signature.of({"x": x}, {"y": y})}
    more = MetaGraph(graph, signatures=signatures, tags=frozenset({"train"}))
    async with aexec.Session(graph) as session:
        await save_saved_model(session, str(tmp_path), signatures, meta_graph=more, more=[more])
    assert {p.name for p in tmp_path.iterdir()} == {"saved_model.pb"}
    for tags in ("serve", "train"):
        model = await asyncio.to_thread(load_saved_model, tmp_path, tags)
        async with aexec.Session(model) as session:
            assert await session.run("y:0", {"x:0": 3}) == 9


async def test_invalid_models_are_not_written(tmp_path: Path) -> None:
    graph, signatures = build()
    with aexec.Graph() as other:
        z = aexec.placeholder("float32", name="z")
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.NotFoundError, match="'z' was not found"):
            await save_saved_model(session, tmp_path / "m", {"s": Signature.of({"z": z}, {})})
        with pytest.raises(errors.FailedPreconditionError):
            await save_saved_model(session, tmp_path / "m", signatures)
        await session.run([], targets=["init"])
        with pytest.raises(errors.NotFoundError, match="No such file"):
            await save_saved_model(session, tmp_path / "m", signatures, assets={"path:0": tmp_path / "no"})
    assert len(other) == 1
    with pytest.raises(errors.NotFoundError):
        await asyncio.to_thread(load_saved_model, tmp_path / "m")


# Frozen graphs


async def test_freezing(tmp_path: Path) -> None:
    graph, _ = build()
    with graph:
        h = graph.tensor("h:0")
        passed = ops.identity(h)
        ops.resource_gather(passed, np.int32([1, 0]), dtype="float32", name="gathered")
        ops.variable_shape(h, name="shape")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        wanted = await session.run(["y:0", "gathered:0", "shape:0"], {"x": [1.0, 2.0]})
        frozen = await freeze(session, ["y", "gathered:0", "shape"])
    assert not {"VariableV2", "VarHandleOp", "ReadVariableOp", "ResourceGather", "ReadFile"} & {n.op for n in frozen}
    async with aexec.Session(frozen) as session:
        got = await session.run(["y:0", "gathered:0", "shape:0"], {"x": [1.0, 2.0]})
    assert [g.tolist() for g in got] == [w.tolist() for w in wanted]


async def test_invalid_fetches_are_not_frozen() -> None:
    graph, _ = build()
    with graph:
        ops.assign_add(graph.tensor("v:0"), np.float32(1), name="more")
        ops.var_is_initialized_op(graph.tensor("h:0"), name="is")
        ops.var_handle_op(dtype="float32", shape=[], name="empty", shared_name="empty")
        ops.read_variable_op(graph.tensor("empty:0"), dtype="float32", name="read_empty")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        for name, why in (("more", "assigns to a variable"), ("is", "needs a variable itself")):
            with pytest.raises(errors.UnimplementedError, match=f"Node '{name}' .* {why}.* cannot be frozen"):
                await freeze(session, [name])
        with pytest.raises(errors.FailedPreconditionError, match="variable empty has no value to freeze"):
            await freeze(session, ["read_empty:0"])
        with pytest.raises(errors.NotFoundError):
            await freeze(session, ["no"])


@pytest.mark.parametrize(("name", "output"), [("tf2_unet_small", "output"), ("tf2_module_conv", "score")])
async def test_functions_take_values(models: Path, name: str, output: str) -> None:
    """Models of TensorFlow 2, one with a loop and a branch, give the same when frozen, and have no variables then."""
    model = await asyncio.to_thread(load_saved_model, models / name)
    signature = model.signatures["serving_default"]
    size = 3 if name == "tf2_unet_small" else 2
    image = np.linspace(0, 1, 8 * 8 * size, dtype=np.float32).reshape(1, 8, 8, size)
    feeds = signature.feeds({"image": image, "repeat": 3} if "repeat" in signature.inputs else {"image": image})
    fetch = signature.outputs[output].name
    async with aexec.Session(model) as session:
        wanted = await session.run(fetch, feeds)
        frozen = await freeze(session, [fetch])
    again = aexec.Graph.from_bytes(frozen.to_bytes())
    assert "VarHandleOp" not in {node.op for node in again}
    async with aexec.Session(again) as session:
        np.testing.assert_array_equal(await session.run(fetch, feeds), wanted)


async def test_functions_that_cannot_take_values() -> None:
    library = proto.FunctionDefLibrary()
    for name, op in (("Assigns", "AssignAddVariableOp"), ("Returns", "")):
        function = library.function.add()
        function.signature.name = name
        function.signature.input_arg.add(name="v", type=dtypes.resource.enum)
        if op:
            function.node_def.add(name="a", op=op, input=["v", "v"])
        else:
            function.signature.output_arg.add(name="out", type=dtypes.resource.enum)
            function.ret["out"] = "v"
    twins = FunctionTwins(library)
    with pytest.raises(errors.UnimplementedError, match=r"Node 'a' \(AssignAddVariableOp\) needs a variable itself"):
        twins.twin("Assigns", {0: dtypes.float32})
    with pytest.raises(errors.UnimplementedError, match="Function 'Returns' returns a variable"):
        twins.twin("Returns", {0: dtypes.float32})
    with pytest.raises(errors.InvalidArgumentError, match="Function 'No' is not defined"):
        twins.twin("No", {0: dtypes.float32})


async def test_table_stays(models: Path) -> None:
    model = await asyncio.to_thread(load_saved_model, models / "tf1_vocabulary")
    async with aexec.Session(model) as session:
        frozen = await freeze(session, ["Sum:0"])
    assert frozen.node("emb").op == "Const"
    assert "t" in frozen


@pytest.mark.parametrize("strip_default_attrs", [False, True])
async def test_attributes_with_default_values_are_stripped_if_asked(tmp_path: Path, strip_default_attrs: bool) -> None:
    """The expected attributes of the graph's nodes are those of TensorFlow 2.21."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [2, 2], name="x")
        ops.mat_mul(x, x, name="plain")
        y = ops.mat_mul(x, x, transpose_b=True, name="transposed")
        aexec.data.Dataset.from_tensors(x).map(lambda row: ops.mat_mul(row, row))
    signatures = {"serving_default": Signature.of({"x": x}, {"y": y})}
    async with aexec.Session(graph) as session:
        await save_saved_model(session, tmp_path, signatures, strip_default_attrs=strip_default_attrs)
    written = proto.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes()).meta_graphs[0]
    assert written.meta_info_def.stripped_default_attrs is strip_default_attrs
    attrs = {node.name: {name for name in node.attr if name[0] != "_"} for node in written.graph_def.node}
    (inner,) = (node for f in written.graph_def.library.function for node in f.node_def if node.op == "MatMul")
    if strip_default_attrs:
        assert attrs["plain"] == set(inner.attr) == {"T"} and attrs["transposed"] == {"T", "transpose_b"}
    else:
        usual = {"T", "transpose_a", "transpose_b", "grad_a", "grad_b"}
        assert attrs["plain"] == attrs["transposed"] == set(inner.attr) == usual
    model = await asyncio.to_thread(load_saved_model, tmp_path)
    async with aexec.Session(model) as session:
        assert (await session.run("transposed:0", {"x:0": [[1, 2], [3, 4]]})).tolist() == [[5, 11], [11, 25]]
