"""Models that the server serves: their versions, how they are swapped, and where they come from."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aexec_server.models.models import VersionState
from aexec_server.settings.model_source import Batching, ModelSource, find_versions

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from aexec.saved_model import save_saved_model
from aexec.training import Saver
from tests.server.conftest import Api, Start
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until


def times(factor: float) -> bytes:
    """A GraphDef whose `y` is so many times `x`."""
    with aexec.Graph() as graph:
        aexec.ops.mul(aexec.placeholder("float32", [None], name="x"), factor, name="y")
    return graph.to_bytes()


def add_version(folder: Path, number: int, data: bytes | None = None) -> None:
    version = folder / str(number)
    version.mkdir(parents=True)
    (version / "model.pb").write_bytes(times(number) if data is None else data)


# What may be missing of a model while it is copied: a file, a folder, or the end of a file.
INCOMPLETE = [
    "variables",
    "variables/variables.index",
    "variables/variables.data-00000-of-00001",
    "end of variables/variables.index",
    "end of variables/variables.data-00000-of-00001",
    "saved_model.pb",
    "end of saved_model.pb",
    "assets",
    "assets/words.txt",
]


def save_model(folder: Path, value: float) -> None:
    """A SavedModel with a variable, a table, and the table's file."""
    words = folder.parent / "words.txt"
    words.parent.mkdir(parents=True, exist_ok=True)
    words.write_text("zero\none\n")

    async def save() -> None:
        with aexec.Graph() as graph:
            v = aexec.ops.variable_v2(shape=[], dtype="float32", name="v")
            path = aexec.constant(str(words), name="path")
            table = aexec.ops.hash_table_v2(key_dtype="string", value_dtype="int64", name="table")
            begin = aexec.ops.initialize_table_from_text_file_v2(
                table, path, key_index=-2, value_index=-1, name="begin"
            )
            x = aexec.placeholder("float32", [None], name="x")
            y = aexec.ops.mul(x, v, name="y")
            aexec.ops.assign(v, value, name="assign")
        async with aexec.Session(graph) as session:
            await session.run([], targets=["assign"])
            signatures = {"serving_default": Signature.of({"x": x}, {"y": y})}
            await save_saved_model(session, folder, signatures, main_op=begin, assets={"path:0": words})

    asyncio.run(save())
    words.unlink()


def take_away(folder: Path, missing: str, aside: Path) -> bytes | None:
    """Move a part of a model aside, or cut a file and give its bytes."""
    if missing.startswith("end of "):
        file = folder / missing.removeprefix("end of ")
        data = file.read_bytes()
        file.write_bytes(data[:-2])
        return data
    (folder / missing).rename(aside)
    return None


def give_back(folder: Path, missing: str, data: bytes | None) -> None:
    """Undo `take_away`."""
    if data is None:
        (folder.parent.parent / "late").rename(folder / missing)
    else:
        (folder / missing.removeprefix("end of ")).write_bytes(data)


async def ask(api: Api, name: str = "m") -> tuple[int, Any]:
    """What a model makes of 1; or the error."""
    status, answer = await api.run(name, inputs={"x": [1]})
    return status, answer["outputs"]["y"][0] if status == 200 else answer["error"]


async def loaded(api: Api) -> None:
    await until(lambda: api.server.ready)


class TestSources:
    def test_versions_are_numbered_folders(self, tmp_path: Path) -> None:
        for number in (1, 2, 10):
            add_version(tmp_path, number)
        (tmp_path / "notes").mkdir()
        (tmp_path / "3").write_text("no folder")
        found = find_versions(ModelSource(tmp_path))
        assert sorted(found) == [1, 2, 10]

    @pytest.mark.parametrize(
        ("versions", "wanted"), [(1, [10]), (2, [2, 10]), (None, [1, 2, 10]), ((2, 7), [2]), ([1, 10], [1, 10])]
    )
    def test_which_are_served(self, versions: Any, wanted: list[int]) -> None:
        assert ModelSource("model", versions=versions).wanted([10, 1, 2]) == wanted

    def test_missing_model_is_not_found(self, tmp_path: Path) -> None:
        with pytest.raises(errors.NotFoundError, match="No such file or directory"):
            find_versions(ModelSource(tmp_path / "none"))
        with pytest.raises(errors.NotFoundError, match=r"neither a saved_model\.pb nor a folder"):
            find_versions(ModelSource(tmp_path))

    def test_half_a_signature_is_refused(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="both inputs and outputs"):
            ModelSource("model.pb", inputs={"x": "x:0"})


async def test_bad_name_of_a_model_is_called_that(start: Start) -> None:
    api = await start()
    with pytest.raises(errors.InvalidArgumentError, match=r"^A model's name must be .*, got 'we\"ird'"):
        await api.server.models.load('we"ird', ModelSource(aexec.Graph()))


async def test_graph_gets_the_signature_that_is_given(start: Start, tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_bytes(times(3))
    source = ModelSource(tmp_path / "graph.pb", {"image": "x:0"}, {"label": "y:0"})
    api = await start(models={"m": source})
    await loaded(api)
    status, answer = await api.run("m", inputs={"image": [2]})
    assert status == 200 and answer["outputs"] == {"label": [6]}
    _, document = await api.call("GET", "/v1/sessions/m")
    assert list(document["signatures"]) == ["serving_default"]


async def test_meta_graph_has_the_values_of_its_checkpoint(start: Start, tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        variable = aexec.ops.variable_v2(shape=[], dtype="float32", name="v")
        aexec.ops.mul(aexec.placeholder("float32", [None], name="x"), variable, name="y")
        aexec.ops.assign(variable, 4.0, name="begin")
        saver = Saver()
    async with aexec.Session(graph) as session:
        await session.run([], targets=["begin"])
        await saver.save(session, str(tmp_path / "model"))
    source = ModelSource(tmp_path / "model.meta", {"x": "x:0"}, {"y": "y:0"})
    api = await start(models={"m": source})
    await loaded(api)
    assert await ask(api) == (200, 4)


async def test_only_the_graph_itself_refuses_shapes_that_come_over_a_protocol(start: Start, tmp_path: Path) -> None:
    """As TensorFlow's C++ session, which looks at types: half_plus_two of one value answers for three."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [1], name="x")
        aexec.ops.add_v2(aexec.ops.mul(x, 0.5), 2.0, name="y")
        aexec.ops.reshape(x, np.int32([1]), name="one")
    (tmp_path / "graph.pb").write_bytes(graph.to_bytes())
    api = await start(models={"m": ModelSource(tmp_path / "graph.pb", {"x": "x:0"}, {"y": "y:0"})})
    await loaded(api)
    assert await api.call("POST", "/v1/models/m:predict", {"instances": [1, 2, 5]}) == (
        200,
        {"predictions": [2.5, 3, 4.5]},
    )
    tensor = {"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 5]}
    status, answer = await api.call("POST", "/v2/models/m/infer", {"inputs": [tensor]})
    assert (status, answer["outputs"][0]["data"]) == (200, [2.5, 3, 4.5])
    status, answer = await api.run("m", feeds={"x": [[1], [2]]}, fetches=["y"])
    assert (status, answer["outputs"]["y"]) == (200, [[2.5], [3]])
    for feeds in ({"x": [1, 2, 5]}, {"x": []}):
        status, answer = await api.run("m", feeds=feeds, fetches=["one"])
        assert status == 400 and "Input to reshape" in answer["error"]
    status, answer = await api.run("m", feeds={"x": ["text"]}, fetches=["y"])
    assert status == 400 and "Expects arg[0] to be float" in answer["error"]


async def test_newest_version_is_served(start: Start, tmp_path: Path) -> None:
    add_version(tmp_path, 2)
    add_version(tmp_path, 10)
    api = await start(models={"m": ModelSource(tmp_path, versions=2)})
    await loaded(api)
    assert await ask(api) == (200, 10)
    assert await ask(api, "m@2") == (200, 2)
    assert (await ask(api, "m@10"))[0] == 404


async def test_server_is_ready_when_its_models_are(start: Start, tmp_path: Path) -> None:
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
    add_version(tmp_path, 1, g.graph_def.SerializeToString())
    extra = tmp_path / "1" / "assets.extra"
    extra.mkdir()
    (extra / "warm_up.json").write_text(json.dumps({"requests": [{"inputs": {"x": [1]}}]}))
    api = await start(models={"m": ModelSource(tmp_path)})
    async with asyncio.timeout(100):
        await gate.entered.wait()  # the warm-up request is being answered
    for path in ("/readyz", "/v2/health/ready"):
        assert (await api.call("GET", path))[0] == 503
    assert (await api.call("GET", "/livez"))[0] == 200
    status, answer = await api.call("GET", "/v2/models/m/ready")
    assert status == 503 and answer == {"name": "m", "ready": False}
    status, answer = await api.call("POST", "/v2/models/m/infer", {"inputs": []})
    assert status == 503 and answer["error"] == "Model 'm' version 1 is loading"
    gate.open.set()
    await loaded(api)
    assert (await api.call("GET", "/readyz"))[0] == 200
    assert await ask(api) == (200, 1)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ({"requests": [{"inputs": {"z": [1]}}]}, "no input 'z'; there are x"),
        ({"request": []}, "Unknown field 'request'"),
    ],
)
async def test_model_that_fails_to_warm_up_is_not_served(
    start: Start, tmp_path: Path, requests: Any, message: str
) -> None:
    add_version(tmp_path, 1)
    extra = tmp_path / "1" / "assets.extra"
    extra.mkdir()
    (extra / "warm_up.json").write_text(json.dumps(requests))
    api = await start(models={"m": ModelSource(tmp_path)})
    await until(lambda: api.server.repository.looked)
    assert not api.server.ready
    version = api.server.models.find("m").version(1)
    assert version.state is VersionState.END and version.error is not None and message in version.error.message


class TestSwaps:
    async def test_requests_that_have_begun_end_where_they_began(self, start: Start, tmp_path: Path) -> None:
        gate = gates.Gate()
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32, [None])
        g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
        add_version(tmp_path, 1, g.graph_def.SerializeToString())
        source = ModelSource(tmp_path)
        api = await start(models={"m": source})
        await loaded(api)
        old = api.server.models.find("m").version(1)
        begun = asyncio.create_task(api.run("m", run_id="r1", inputs={"x": [7]}))
        await gate.entered.wait()
        await asyncio.to_thread(add_version, tmp_path, 2)
        await api.server.models.load("m", source)
        assert await ask(api) == (200, 2)
        assert old.state is VersionState.UNLOADING
        _, runs = await api.call("GET", "/v1/sessions/m/runs")  # a swap hides no run
        assert [run["run_id"] for run in runs["runs"]] == ["r1"]
        assert api.server.sessions.live_runs == 1
        gate.open.set()
        status, answer = await begun
        assert status == 200 and answer["outputs"] == {"y": [7]}
        await until(lambda: old.state is VersionState.END)

    async def test_run_of_an_old_version_can_be_cancelled(self, start: Start, tmp_path: Path) -> None:
        gate = gates.Gate()
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32, [None])
        g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
        add_version(tmp_path, 1, g.graph_def.SerializeToString())
        api = await start(models={"m": ModelSource(tmp_path)})
        await loaded(api)
        begun = asyncio.create_task(api.run("m", run_id="r1", inputs={"x": [7]}))
        await gate.entered.wait()
        await asyncio.to_thread(add_version, tmp_path, 2)
        await api.server.models.load("m", ModelSource(tmp_path))
        assert await api.call("POST", "/v1/sessions/m/runs/r1:cancel", {}) == (200, {"cancelled": True})
        status, answer = await begun
        assert status == 499 and answer["code"] == "CANCELLED"

    async def test_requests_succeed_while_versions_are_swapped(self, start: Start, tmp_path: Path) -> None:
        add_version(tmp_path, 1)
        source = ModelSource(tmp_path)
        api = await start(models={"m": source})
        await loaded(api)
        swaps, answers = 20, []
        done = False

        async def client() -> None:
            while not done:
                answers.append(await ask(api))

        clients = [asyncio.create_task(client()) for _ in range(4)]
        for number in range(2, 2 + swaps):
            await asyncio.to_thread(add_version, tmp_path, number)
            await api.server.models.load("m", source)
        done = True
        await asyncio.gather(*clients)
        assert {status for status, _ in answers} == {200}
        assert await ask(api) == (200, 1 + swaps)
        model = api.server.models.find("m")
        await until(lambda: all(v.state is VersionState.END for n, v in model.versions.items() if n <= swaps))

    async def test_version_that_cannot_be_loaded_leaves_the_old_one(self, start: Start, tmp_path: Path) -> None:
        add_version(tmp_path, 1)
        api = await start(models={"m": ModelSource(tmp_path)})
        await loaded(api)
        await asyncio.to_thread(add_version, tmp_path, 2, b"no graph")
        with pytest.raises(errors.InvalidArgumentError):
            await api.server.models.load("m", ModelSource(tmp_path))
        assert await ask(api) == (200, 1)
        assert api.server.models.find("m").version(2).state is VersionState.END

    @pytest.mark.parametrize("missing", INCOMPLETE)
    async def test_incomplete_version_waits_for_its_files(self, start: Start, tmp_path: Path, missing: str) -> None:
        models, late = tmp_path / "models", tmp_path / "late"
        await asyncio.to_thread(save_model, models / "1", 10.0)
        await asyncio.to_thread(save_model, models / "2", 20.0)
        data = await asyncio.to_thread(take_away, models / "2", missing, late)
        # The test looks itself, in place of the watching task.
        api = await start(models={"m": ModelSource(models)}, repository_poll_seconds=3600)
        await loaded(api)
        assert await ask(api) == (200, 10)
        model = api.server.models.find("m")
        assert [v.number for v in model.available] == [1]
        assert model.version(2).reason
        _, status = await api.call("GET", "/v1/models/m")
        newest = status["model_version_status"][0]
        assert newest["state"] == "END" and newest["status"]["error_message"] == model.version(2).reason
        _, index = await api.call("POST", "/v2/repository/index", {})
        assert {"name": "m", "version": "2", "state": "UNAVAILABLE", "reason": model.version(2).reason} in index

        await asyncio.to_thread(give_back, models / "2", missing, data)
        await api.server.repository.look()
        assert await ask(api) == (200, 20)
        assert [v.number for v in model.available] == [2]

    async def test_version_whose_files_change_while_they_are_read_waits(self, start: Start, tmp_path: Path) -> None:
        gate = gates.Gate()
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32, [None])
        g.const("one", np.float32([1]))
        g("y", "Mul", "x", "one", T=dtypes.float32)
        g("begin", "TestGate", "one", key=gate.key, T=dtypes.float32)
        message = MetaGraph(g.graph(), tags=frozenset(["serve"]), collections={"saved_model_main_op": ["begin"]})
        folder = tmp_path / "1"
        folder.mkdir()
        (folder / "saved_model.pb").write_bytes(proto.SavedModel(meta_graphs=[message.to_proto()]).SerializeToString())
        api = await start(models={"m": ModelSource(tmp_path, {"x": "x:0"}, {"y": "y:0"})})
        await gate.entered.wait()
        (folder / "more.txt").write_text("more")
        gate.open.set()
        await until(lambda: api.server.repository.looked)
        assert "changed while they were read" in api.server.models.find("m").version(1).reason
        await api.server.repository.look()
        assert await ask(api) == (200, 1)

    async def test_version_whose_files_change_is_loaded_again(self, start: Start, tmp_path: Path) -> None:
        add_version(tmp_path, 1)
        api = await start(models={"m": ModelSource(tmp_path)}, repository_poll_seconds=3600)
        await loaded(api)
        file = tmp_path / "1" / "model.pb"
        await asyncio.to_thread(file.write_bytes, b"half a graph")
        await api.server.repository.look()
        assert await ask(api) == (200, 1)
        await asyncio.to_thread(file.write_bytes, times(12.5))
        await api.server.repository.look()
        assert await ask(api) == (200, 12.5)

    @pytest.mark.parametrize(("versions", "served"), [(1, [3]), (2, [2, 3]), (None, [1, 2, 3]), ([1, 4], [1])])
    async def test_older_versions_stand_in_for_one_that_cannot_be_loaded(
        self, start: Start, tmp_path: Path, versions: Any, served: list[int]
    ) -> None:
        for number in (1, 2, 3):
            add_version(tmp_path, number)
        add_version(tmp_path, 4, b"no graph")
        api = await start(models={"m": ModelSource(tmp_path, versions=versions)}, repository_poll_seconds=3600)
        await loaded(api)
        assert [v.number for v in api.server.models.find("m").available] == served
        await api.server.repository.look()
        await asyncio.to_thread((tmp_path / "4" / "model.pb").write_bytes, times(4))
        await api.server.repository.look()
        available = [v.number for v in api.server.models.find("m").available]
        assert available == ModelSource(tmp_path, versions=versions).wanted([1, 2, 3, 4])

    async def test_model_that_is_deleted_cancels_its_runs(self, start: Start, tmp_path: Path) -> None:
        gate = gates.Gate()
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32, [None])
        g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
        api = await start(graphs={"m": g.graph()}, allow_model_changes=True)
        begun = asyncio.create_task(api.run("m", inputs={"x": [7]}))
        await gate.entered.wait()
        assert (await api.call("DELETE", "/v1/sessions/m"))[0] == 204
        assert (await begun)[0] == 499
        assert (await ask(api))[0] == 404


class TestUploads:
    async def test_files_go_with_the_model(self, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        api = await start(allow_model_changes=True)

        def files() -> list[str]:
            return [name for _, _, names in os.walk(tmp_path) for name in names if name == "model.graphdef"]

        async def send(data: bytes) -> int:
            encoded = {"file:1/model.graphdef": base64.b64encode(data).decode()}
            return (await api.call("POST", "/v2/repository/models/m/load", {"parameters": encoded}))[0]

        assert await send(times(2)) == 200
        assert await ask(api) == (200, 2)
        assert len(files()) == 1
        assert await send(times(3)) == 200
        await until(lambda: len(files()) == 1)
        assert await send(b"no graph") == 400
        assert len(files()) == 1
        assert await ask(api) == (200, 3)
        assert (await api.call("POST", "/v2/repository/models/m/load", {}))[0] == 200
        assert await ask(api) == (200, 3)
        assert len(files()) == 1
        assert (await api.call("POST", "/v2/repository/models/m/unload", {}))[0] == 200
        await until(lambda: not files())
        status, answer = await api.call("POST", "/v2/repository/models/m/load", {})
        assert status == 404 and "its files went when it was unloaded" in answer["error"]
        assert await send(times(4)) == 200
        assert await ask(api) == (200, 4)


class TestRepository:
    async def test_models_that_come_change_and_go_are_followed(self, start: Start, tmp_path: Path) -> None:
        add_version(tmp_path / "one", 1)
        add_version(tmp_path / "bad", 1, b"no graph")
        (tmp_path / ".hidden").mkdir()
        # The test looks itself, in place of the watching task.
        api = await start(model_repository=tmp_path, repository_poll_seconds=3600)
        await loaded(api)
        assert {model.name for model in api.server.models} == {"one", "bad"}
        assert await ask(api, "one") == (200, 1)
        status, _ = await ask(api, "bad")
        assert status == 404

        await asyncio.to_thread(add_version, tmp_path / "one", 2)
        await asyncio.to_thread(add_version, tmp_path / "two", 5)
        await asyncio.to_thread((tmp_path / "bad" / "1" / "model.pb").write_bytes, times(9))
        await api.server.repository.look()
        assert await ask(api, "one") == (200, 2)
        assert await ask(api, "two") == (200, 5)
        assert await ask(api, "bad") == (200, 9)

        await asyncio.to_thread((tmp_path / "two").rename, tmp_path / ".gone")
        await api.server.repository.look()
        assert (await ask(api, "two"))[0] == 404

    async def test_repository_is_polled(self, start: Start, tmp_path: Path) -> None:
        api = await start(model_repository=tmp_path, repository_poll_seconds=0.001)
        await loaded(api)
        await asyncio.to_thread(add_version, tmp_path / "late", 1)
        await until(lambda: (model := api.server.models.get("late")) and model.ready)
        assert await ask(api, "late") == (200, 1)

    async def test_folder_that_cannot_be_a_name_is_left_out(self, start: Start, tmp_path: Path) -> None:
        add_version(tmp_path / "a b", 1)
        api = await start(model_repository=tmp_path)
        await loaded(api)
        assert not list(api.server.models)


class TestBatching:
    @pytest.fixture
    async def gated(self, start: Start, tmp_path: Path) -> tuple[Api, gates.Gate]:
        """Model `m`: batches of two rows, which wait at the gate."""
        gate = gates.Gate()
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32, [None])
        g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
        add_version(tmp_path, 1, g.graph_def.SerializeToString())
        api = await start(models={"m": ModelSource(tmp_path, batching=Batching(2, 60.0))})
        await loaded(api)
        return api, gate

    async def test_requests_of_all_protocols_are_joined(self, gated: tuple[Api, gates.Gate]) -> None:
        api, gate = gated
        gate.open.set()
        x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [2]}
        one, other = await asyncio.gather(
            api.call("POST", "/v1/models/m:predict", {"instances": [1]}),
            api.call("POST", "/v2/models/m/infer", {"inputs": [x]}),
        )
        assert one == (200, {"predictions": [1]}) and other[1]["outputs"][0]["data"] == [2]
        assert gate.count == 1
        _, answer = await api.call("GET", "/v2/models/m/stats")
        (statistics,) = answer["model_stats"]
        assert (statistics["inference_count"], statistics["execution_count"]) == (2, 1)
        (batch,) = statistics["batch_stats"]
        assert batch["batch_size"] == 2 and batch["compute_infer"]["count"] == 1

    @pytest.mark.parametrize("victim", [0, 1])
    async def test_cancelled_request_leaves_the_other(self, gated: tuple[Api, gates.Gate], victim: int) -> None:
        api, gate = gated
        tasks = [asyncio.create_task(api.run("m", run_id=f"r{i}", inputs={"x": [i]})) for i in range(2)]
        await gate.entered.wait()
        assert await api.call("POST", f"/v1/sessions/m/runs/r{victim}:cancel", {}) == (200, {"cancelled": True})
        assert (await tasks[victim])[0] == 499
        gate.open.set()
        status, answer = await tasks[1 - victim]
        assert status == 200 and answer["outputs"] == {"y": [1 - victim]}

    async def test_client_that_leaves_takes_no_other_with_it(self, gated: tuple[Api, gates.Gate]) -> None:
        api, gate = gated
        tasks = [asyncio.create_task(api.run("m", inputs={"x": [i]})) for i in range(2)]
        await gate.entered.wait()
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        await until(lambda: len(api.hosted("m").runs.live) == 1)
        gate.open.set()
        status, answer = await tasks[1]
        assert status == 200 and answer["outputs"] == {"y": [1]}

    async def test_runs_by_tensor_and_traced_ones_are_alone(self, gated: tuple[Api, gates.Gate]) -> None:
        api, gate = gated
        gate.open.set()
        assert (await api.run("m", feeds={"x:0": [1]}, fetches=["y:0"]))[0] == 200
        status, answer = await api.run("m", inputs={"x": [1]}, options={"trace_level": "FULL_TRACE"})
        assert status == 200 and "step_stats" in answer["metadata"]

    @pytest.mark.parametrize(
        "settings", [{"max_rows": 0}, {"max_delay": -1}, {"max_delay": 1e9}, {"sizes": (4, 2)}, {"sizes": (4,)}]
    )
    def test_impossible_settings(self, settings: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError):
            Batching(**settings)

    async def test_request_without_rows_runs_alone(self, start: Start) -> None:
        def scalar() -> aexec.Graph:
            with aexec.Graph() as graph:
                aexec.ops.neg(aexec.placeholder("float32", [], name="x"), name="y")
            return graph

        api = await start(models={"m": ModelSource(scalar, batching=Batching(2, 60.0))})
        await loaded(api)
        status, answer = await api.run("m", inputs={"x": 1})
        assert status == 200 and answer["outputs"] == {"y": -1}
