from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import aexec
from aexec import cli, errors, ops, proto
from aexec.framework import dtypes
from aexec.graph.meta_graph import MetaGraph
from aexec.io.checkpoint_v1 import CheckpointV1Writer
from aexec.saved_model import (
    MetaGraphModel,
    is_saved_model,
    load_saved_model,
    load_saved_model_async,
    loader,
    saved_model_tags,
)
from aexec.saved_model.loader import SavedModel
from aexec.training import Saver
from tests.conformance.cases import Case, decode, names


@pytest.mark.parametrize("name", names("saved_model"))
async def test_models_that_tensorflow_wrote(models: Path, name: str) -> None:
    """Every signature, from the folder itself: variables, tables, assets, TF1 and TF2 forms."""
    case = Case.load("saved_model", name)
    description = case.description["saved_model"]
    async with aexec.Session(models / name.partition(".")[2]) as session:
        for call in description["calls"]:
            step = case.steps[call["step"]]
            types = {feed["key"]: feed["dtype"] for feed in step["feeds"] if "key" in feed}
            values = {key: decode(case.feeds, stored, types[stored]) for key, stored in call["inputs"].items()}
            outputs = await session.call(call.get("signature", description["signature"]), values)
            entries = {entry["key"]: entry for entry in step["expected"]}
            for key, stored in call["outputs"].items():
                entry = entries[stored]
                want = decode(case.expected, stored, entry["dtype"])
                if entry["compare"] == "close":
                    np.testing.assert_allclose(outputs[key], want, entry["rtol"], entry["atol"])
                else:
                    assert outputs[key].tolist() == want.tolist()


def test_model_has_signatures_and_tags(models: Path) -> None:
    model = load_saved_model(str(models / "tf1_vocabulary"), "serve")
    info = model.signatures["serving_default"].inputs["words"]
    assert (info.name, info.dtype.name if info.dtype else None, str(info.shape)) == ("words:0", "string", "[?,?]")
    assert model.init_op == "InitializeTableFromTextFileV2"
    assert model.asset_feeds() == {"Const:0": str(models / "tf1_vocabulary" / "assets" / "vocab.txt").encode()}
    assert model.has_variables()
    assert model.tags == {"serve"}
    assert "serving_default" in repr(model)
    assert list(load_saved_model(models / "tf2_module_conv").signatures) == ["head", "serving_default"]


def test_invalid_models_are_refused(models: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=r"Could not find SavedModel \.pb or \.pbtxt at supplied export"):
        load_saved_model(tmp_path)
    with pytest.raises(errors.NotFoundError, match=r"tags: \{ gpu serve \} in .*; there are \{ serve \}"):
        load_saved_model(models / "tf2_module_conv", ["serve", "gpu"])
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse SavedModel"):
        load_saved_model(tmp_path)
    assert is_saved_model(tmp_path)
    assert not is_saved_model(tmp_path / "saved_model.pb")
    with pytest.raises(errors.NotFoundError):
        load_saved_model(tmp_path / "saved_model.pb")
    (tmp_path / "saved_model.pb").unlink()
    (tmp_path / "saved_model.pb").mkdir()
    with pytest.raises(errors.InvalidArgumentError, match="Cannot read"):
        load_saved_model(tmp_path)


def test_text_form(models: Path, tmp_path: Path) -> None:
    message = proto.SavedModel.FromString((models / "tf1_vocabulary" / "saved_model.pb").read_bytes())
    text = text_format.MessageToString(message)
    asset = '[type.googleapis.com/tensorflow.AssetFileDef] { tensor_info { name: "Const:0" } filename: "vocab.txt" }'
    start = text.index("any_list {")
    end = text.index("collection_def", start)
    assert "AssetFileDef" in text[start:end]
    text = text[:start] + "any_list { value { " + asset + " } } } }\n  " + text[end:]
    (tmp_path / "saved_model.pbtxt").write_text(text)
    assert load_saved_model(tmp_path).meta_graph.assets == {"Const:0": "vocab.txt"}
    assert saved_model_tags(tmp_path) == [("serve",)]
    (tmp_path / "saved_model.pbtxt").write_text("nonsense")
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse"):
        load_saved_model(tmp_path)


def test_assets_may_not_lead_elsewhere(models: Path) -> None:
    model = load_saved_model(models / "tf1_vocabulary")
    for name in ("../../etc/passwd", "/etc/passwd", "a/../../b", ""):
        model.meta_graph.assets["Const:0"] = name
        with pytest.raises(errors.InvalidArgumentError, match="no file of the model's assets directory"):
            model.asset_feeds()


def test_several_main_ops(models: Path) -> None:
    model = load_saved_model(models / "tf1_vocabulary")
    model.meta_graph.collections["saved_model_main_op"] = ["a", "b"]
    with pytest.raises(errors.FailedPreconditionError, match="Expected exactly one main op"):
        _ = model.init_op
    del model.meta_graph.collections["saved_model_main_op"]
    assert model.init_op is None
    model.meta_graph.collections["legacy_init_op"] = ["old:0"]
    assert model.init_op == "old"


# When the variables are restored


async def unet(models: Path) -> tuple[SavedModel, dict[str, object], dict[str, str]]:
    model = await asyncio.to_thread(load_saved_model, models / "tf2_unet_small")
    signature = model.signatures["serving_default"]
    return model, signature.feeds({"image": np.zeros((1, 8, 8, 3), np.float32)}), signature.fetches()


async def test_first_run_restores_if_the_session_was_not_entered(models: Path) -> None:
    model, feeds, fetches = await unet(models)
    session = aexec.Session(model)
    try:
        # All wait for one restoration, whichever way they were started.
        results = await asyncio.gather(session.run(fetches, feeds), session.start(fetches, feeds), session.initialize())
        assert results[0]["output"].tolist() == results[1]["output"].tolist()
        before = session.statistics().runs
        await session.run(fetches, feeds)
        assert session.statistics().runs == before + 1
    finally:
        await session.close()


@pytest.mark.parametrize(
    ("model", "missing", "error"),
    [
        ("tf1_vocabulary", "variables", errors.NotFoundError),
        ("tf1_vocabulary", "assets", errors.NotFoundError),
        ("tf2_unet_small", "variables/variables.index", errors.NotFoundError),
        ("tf2_unet_small", "variables/variables.data-00000-of-00001", errors.NotFoundError),
        ("tf2_unet_small", "end of variables/variables.data-00000-of-00001", errors.DataLossError),
    ],
)
async def test_incomplete_model_is_refused_wherever_it_is_opened(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, missing: str, error: type[Exception]
) -> None:
    folder = tmp_path / model
    await asyncio.to_thread(shutil.copytree, models / model, folder)
    part = folder / missing.removeprefix("end of ")
    if missing.startswith("end of "):
        os.truncate(part, part.stat().st_size - 1)
    else:
        part.rename(tmp_path / "aside")
    with pytest.raises(error, match=part.name):
        async with aexec.Session(folder):
            pass
    loaded = await load_saved_model_async(folder)
    session = aexec.Session(loaded)
    with pytest.raises(error, match=part.name):
        await session.run([], targets=[next(iter(loaded.graph)).name])
    await session.close()
    assert await asyncio.to_thread(cli.main, ["run", str(folder), "--target", next(iter(loaded.graph)).name]) != 0
    assert part.name in capsys.readouterr().err


async def test_meta_graph_without_its_checkpoint_is_refused(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        ops.variable_v2(shape=[], dtype="float32", name="v")
        saver = Saver()
    model = MetaGraphModel(MetaGraph(graph, saver_def=saver.saver_def), str(tmp_path / "model"))
    with pytest.raises(errors.NotFoundError, match=r"not a valid checkpoint: .*model: there is no .*model\.index"):
        async with aexec.Session(model):
            pass


async def test_checkpoint_of_the_first_format_is_restored(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        ops.variable_v2(shape=[], dtype="float32", name="v")
        saver = Saver()
    await asyncio.to_thread(write_first_format, tmp_path / "model")
    model = MetaGraphModel(MetaGraph(graph, saver_def=saver.saver_def), str(tmp_path / "model"))
    async with aexec.Session(model) as session:
        assert await session.run("v:0") == 4


def write_first_format(path: Path) -> None:
    writer = CheckpointV1Writer(str(path))
    writer.add("v", np.array(4, np.float32), dtypes.float32)
    writer.finish()


async def test_model_without_variables_needs_no_checkpoint(tmp_path: Path) -> None:
    """Its saver has a restore op that restores nothing."""
    with aexec.Graph() as graph:
        aexec.placeholder("float32", [], name="x")
        ops.no_op(name="restore")
    saver = proto.SaverDef(restore_op_name="restore", filename_tensor_name="x:0")
    model = SavedModel(tmp_path, MetaGraph(graph, saver_def=saver))
    async with aexec.Session(model) as session:
        assert await session.run("x:0", {"x:0": 2.0}) == 2


async def test_error_comes_from_entering_and_from_waiting_runs(models: Path) -> None:
    model, feeds, fetches = await unet(models)
    model.meta_graph.saver_def.restore_op_name = "no_such_op"
    with pytest.raises(errors.NotFoundError, match="no_such_op"):
        async with aexec.Session(model):
            pass
    session = aexec.Session(model)
    try:
        for _ in range(2):
            with pytest.raises(errors.NotFoundError, match="no_such_op"):
                await session.run(fetches, feeds)
    finally:
        await session.close()


async def test_closing_while_it_restores(models: Path) -> None:
    model, feeds, fetches = await unet(models)
    session = aexec.Session(model)
    step = session.start(fetches, feeds)
    await asyncio.sleep(0)
    await session.close()
    with pytest.raises(errors.CancelledError):
        await step


async def test_cancelled_run_does_not_end_the_restoration_for_others(models: Path) -> None:
    model, feeds, fetches = await unet(models)
    session = aexec.Session(model)
    try:
        cancelled, other = session.start(fetches, feeds), session.start(fetches, feeds)
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(errors.CancelledError):
            await cancelled
        assert (await other)["output"].shape == (1, 8, 8, 2)
    finally:
        await session.close()


async def test_model_without_variables(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        ops.square(aexec.placeholder("float32", name="x"), name="y")
    model = SavedModel(tmp_path, MetaGraph(graph))
    async with aexec.Session(model) as session:
        assert await session.run("y:0", {"x": 3.0}) == 9.0


async def test_model_is_loaded_beside_the_loop(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    read = loader.read_saved_model

    def read_here(directory: Path) -> proto.SavedModel:
        threads.append(threading.current_thread().name)
        return read(directory)

    monkeypatch.setattr(loader, "read_saved_model", read_here)
    model = await aexec.load_saved_model_async(models / "tf2_module_conv", "serve")
    assert list(model.signatures) == ["head", "serving_default"]
    assert threads != [threading.main_thread().name]
    with pytest.raises(errors.NotFoundError, match="Could not find SavedModel"):
        await aexec.load_saved_model_async(tmp_path)
