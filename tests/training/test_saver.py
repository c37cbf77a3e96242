from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops, proto
from aexec.graph.meta_graph import MetaGraph
from aexec.io.tensor_bundle import BundleReader, BundleWriter
from aexec.training import (
    Saver,
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint,
    remove_checkpoint,
)
from tests.support.crashes import crash_at_every_write

V1 = Path(__file__).parent.parent / "io" / "data" / "checkpoints"


def build() -> aexec.Graph:
    """A ref variable `v`, a resource variable `h`, ops that set both to what is fed, and reads."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", name="x")
        ref = ops.variable_v2(shape=[2], dtype="float32", name="v")
        ops.assign(ref, x, name="set_v")
        handle = ops.var_handle_op(dtype="float32", shape=[2], name="h")
        ops.assign_variable_op(handle, x, name="set_h")
        ops.read_variable_op(handle, dtype="float32", name="r")
    return graph


async def set_all(session: aexec.Session, value: float) -> None:
    await session.run([], {"x": np.full(2, value, np.float32)}, ["set_v", "set_h"])


async def get_all(session: aexec.Session) -> list[list[float]]:
    return [value.tolist() for value in await session.run(["v:0", "r:0"])]


async def stored(path: str) -> dict[str, Any]:
    """Name → value of what a checkpoint holds."""

    def read() -> dict[str, Any]:
        with BundleReader(path) as reader:
            return {name: reader.read(name).tolist() for name in reader.keys()}  # noqa: SIM118

    return await asyncio.to_thread(read)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("sharded", [False, True])
async def test_saving_and_restoring(tmp_path: Path, sharded: bool) -> None:
    graph = build()
    saver = Saver(graph=graph, sharded=sharded)
    async with aexec.Session(graph) as session:
        await set_all(session, 1)
        path = await saver.save(session, str(tmp_path / "new" / "c"), 7)
        assert path == str(tmp_path / "new" / "c-7")
        await set_all(session, 2)
        await saver.restore(session, path)
        assert await get_all(session) == [[1, 1], [1, 1]]
    names = sorted(p.name for p in (tmp_path / "new").iterdir())
    assert names == ["c-7.data-00000-of-00001", "c-7.index", "c-7.meta", "checkpoint"]
    assert await stored(path) == {"h": [1, 1], "v": [1, 1]}


async def test_devices_get_shards(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        for number in range(2):
            with aexec.device(f"/device:CPU:{number}"):
                variable = ops.variable_v2(shape=[], dtype="int32", name=f"v{number}")
                ops.assign(variable, np.int32(number), name=f"init{number}")
        saver = Saver(sharded=True)
    async with aexec.Session(graph, config=aexec.SessionConfig(device_count={"CPU": 2})) as session:
        await session.run([], targets=["init0", "init1"])
        path = await saver.save(session, str(tmp_path / "c"))
        await saver.restore(session, path)
        assert await session.run(["v0:0", "v1:0"]) == [0, 1]
    assert sorted(p.name for p in tmp_path.iterdir() if "data" in p.name) == [
        "c.data-00000-of-00002",
        "c.data-00001-of-00002",
    ]


async def test_saver_keeps_the_newest_and_one_per_period(tmp_path: Path) -> None:
    graph, clock = build(), Clock()
    saver = Saver(graph=graph, max_to_keep=2, keep_checkpoint_every_n_hours=1, clock=clock)
    async with aexec.Session(graph) as session:
        await set_all(session, 1)
        for step in range(6):
            clock.now += 1300  # every third is more than an hour after the one that was kept before
            await saver.save(session, str(tmp_path / "c"), step)
    assert [Path(p).name for p in saver.last_checkpoints] == ["c-4", "c-5"]
    assert sorted(p.stem for p in tmp_path.glob("*.index")) == ["c-2", "c-4", "c-5"]
    assert sorted(p.stem for p in tmp_path.glob("*.meta")) == ["c-2", "c-4", "c-5"]
    state = await get_checkpoint_state(str(tmp_path))
    assert state is not None
    assert (state.latest, state.paths) == (str(tmp_path / "c-5"), saver.last_checkpoints)
    assert state.timestamps == (7500.0, 8800.0)
    assert state.last_preserved == 4900.0

    other = Saver(graph=build(), max_to_keep=2, clock=clock)
    await other.recover(str(tmp_path))
    assert other.last_checkpoints == saver.last_checkpoints
    await other.recover(str(tmp_path / "no"))


async def test_keeping_all_and_saving_again_under_one_name(tmp_path: Path) -> None:
    graph = build()
    saver = Saver(graph=graph, max_to_keep=0)
    async with aexec.Session(graph) as session:
        await set_all(session, 1)
        for step in (1, 2, 3, 2):
            await saver.save(session, str(tmp_path / "c"), step)
    assert [Path(p).name for p in saver.last_checkpoints] == ["c-1", "c-3", "c-2"]


async def test_step_number_from_a_tensor(tmp_path: Path) -> None:
    graph = build()
    with graph:
        aexec.constant(np.int64(12), name="step")
        saver = Saver()
    async with aexec.Session(graph) as session:
        await set_all(session, 1)
        path = await saver.save(session, str(tmp_path / "c"), "step:0", write_meta_graph=False, write_state=False)
    assert path.endswith("c-12")
    assert not (tmp_path / "checkpoint").exists()
    assert not list(tmp_path.glob("*.meta"))


async def test_step_of_a_variable_and_collections_beside_it(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        step = aexec.Variable(np.int64(3), name="step")
        saver = Saver()
    async with aexec.Session(graph) as session:
        await session.run(step.initializer)
        path = await saver.save(session, str(tmp_path / "c"), step, meta_graph=aexec.export_meta_graph(graph=graph))
    assert path == str(tmp_path / "c-3")
    written = await asyncio.to_thread(MetaGraph.load, path + ".meta")
    assert sorted(written.collections) == ["trainable_variables", "variables"]
    assert written.saver_def is not None and written.saver_def.restore_op_name == "save/restore_all"


async def test_chosen_variables_under_other_names(tmp_path: Path) -> None:
    graph = build()
    async with aexec.Session(graph) as session:
        await set_all(session, 1)
        await Saver({"other": "v"}, graph=graph).save(session, str(tmp_path / "a"))
        await Saver([graph.node("h")], graph=graph).save(session, str(tmp_path / "b"))
        await Saver([graph.tensor("v:0"), "h:0"], graph=graph).save(session, str(tmp_path / "c"))
    for name, wanted in (("a", ["other"]), ("b", ["h"]), ("c", ["h", "v"])):
        assert list(await stored(str(tmp_path / name))) == wanted


async def test_saver_from_a_meta_graph(tmp_path: Path) -> None:
    graph = build()
    saver = Saver(graph=graph, max_to_keep=3)
    async with aexec.Session(graph) as session:
        await set_all(session, 5)
        path = await saver.save(session, str(tmp_path / "c"))
    meta_graph = await asyncio.to_thread(MetaGraph.load, path + ".meta")
    again = Saver.from_meta_graph(meta_graph)
    assert again.saver_def == saver.saver_def
    assert again.saver_def.max_to_keep == 3
    async with aexec.Session(meta_graph.graph) as session:
        await again.restore(session, path)
        assert await get_all(session) == [[5, 5], [5, 5]]


async def test_partitioned_variables_of_a_meta_graph(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        definitions: list[Any] = []
        for number, (start, size) in enumerate([(0, 1), (1, 2)]):
            part = ops.variable_v2(shape=[size, 2], dtype="float32", name=f"w/part_{number}")
            ops.assign(part, np.full((size, 2), number, np.float32), name=f"init{number}")
            definition = proto.VariableDef(variable_name=f"w/part_{number}:0")
            info = definition.save_slice_info_def
            info.full_name = "w"
            info.full_shape.extend([3, 2])
            info.var_offset.extend([start, 0])
            info.var_shape.extend([size, 2])
            definitions.append(definition.SerializeToString())
        ops.variable_v2(shape=[], dtype="float32", name="plain")
        definitions.append(proto.VariableDef(variable_name="plain:0").SerializeToString())
        ops.assign(graph.tensor("plain:0"), np.float32(9), name="init2")
    saver = Saver.from_meta_graph(MetaGraph(graph, {"variables": definitions}))
    async with aexec.Session(graph) as session:
        await session.run([], targets=["init0", "init1", "init2"])
        path = await saver.save(session, str(tmp_path / "c"))
        assert await stored(path) == {"plain": 9, "w": [[0, 0], [1, 1], [1, 1]]}
        await saver.restore(session, path)
        assert (await session.run("w/part_1:0")).tolist() == [[1, 1], [1, 1]]


async def test_checkpoints_that_tensorflow_wrote(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        ops.variable_v2(shape=[3], dtype="int32", name="q")
        saver = Saver()
    async with aexec.Session(graph) as session:
        await saver.restore(session, str(V1 / "format_v1"))
        assert (await session.run("q:0")).tolist() == [1, 2, -3]
    assert await latest_checkpoint(str(V1 / "v1_saver_partitioned")) == str(
        V1 / "v1_saver_partitioned" / "model.ckpt-12"
    )


async def test_errors(tmp_path: Path) -> None:
    graph = build()
    for make, message in (
        (lambda: Saver(graph=aexec.Graph()), "No variables to save"),
        (lambda: Saver(["x"], graph=graph), "no variable of the graph"),
        (lambda: Saver([1], graph=graph), "no variable of the graph"),
        (lambda: Saver([build().node("v")], graph=graph), "no variable of the graph"),
        (lambda: Saver(["v", "v"], graph=graph), "At least two variables have the same name: v"),
        (lambda: Saver.from_meta_graph(MetaGraph(graph)), "No variables to save"),
        (lambda: Saver.from_meta_graph(MetaGraph(graph, {"variables": [b"\xff"]})), "no VariableDef"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            make()
    with pytest.raises(errors.FailedPreconditionError):
        Saver()
    saver = Saver(graph=graph)

    def write_half() -> None:
        with BundleWriter(str(tmp_path / "half")) as writer:
            writer.add("v", np.zeros(2, np.float32))

    await asyncio.to_thread(write_half)
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.FailedPreconditionError):
            await saver.save(session, str(tmp_path / "c"))
        for path in ("", str(tmp_path / "no")):
            with pytest.raises(errors.InvalidArgumentError, match="The passed save_path is not a valid checkpoint"):
                await saver.restore(session, path)
        with pytest.raises(errors.NotFoundError, match="Key h not found in checkpoint"):
            await saver.restore(session, str(tmp_path / "half"))
    assert saver.last_checkpoints == ()
    assert "0 checkpoints kept" in repr(saver)


async def test_removing(tmp_path: Path) -> None:
    graph = build()
    async with aexec.Session(graph) as session:
        await set_all(session, 1)
        path = await Saver(graph=graph).save(session, str(tmp_path / "c"))
    assert await checkpoint_exists(path)
    await remove_checkpoint(path)
    await remove_checkpoint(path)
    assert not await checkpoint_exists(path)
    assert await latest_checkpoint(str(tmp_path)) is None
    (tmp_path / "v1").write_bytes((V1 / "format_v1").read_bytes())
    assert await checkpoint_exists(str(tmp_path / "v1"))
    await remove_checkpoint(str(tmp_path / "v1"))
    assert not (tmp_path / "v1").exists()


# Crashes


@pytest.mark.parametrize("same_name", [False, True])
def test_crash_at_any_write_leaves_a_whole_latest_checkpoint(tmp_path: Path, same_name: bool) -> None:
    """A second checkpoint is written by a process that dies at its n-th write, for every n."""
    folder = tmp_path / "run"

    def write(first: int, last: int) -> None:
        async def run() -> None:
            graph = build()
            saver = Saver(graph=graph, max_to_keep=1)
            async with aexec.Session(graph) as session:
                await saver.recover(str(folder))
                for step in range(first, last + 1):
                    await set_all(session, step)
                    await saver.save(session, str(folder / "c"), None if same_name else step)

        asyncio.run(run())

    def latest() -> float:
        path = asyncio.run(latest_checkpoint(str(folder)))
        assert path is not None
        values = {tuple(value) for value in asyncio.run(stored(path)).values()}
        assert len(values) == 1  # both variables are of one step
        return values.pop()[0]

    write(1, 1)
    seen = []
    for _ in crash_at_every_write(lambda: write(2, 2)):
        seen.append(latest())
        for path in folder.iterdir():
            path.unlink()
        write(1, 1)
    assert latest() == 2
    assert set(seen) == {1, 2}
    assert seen == sorted(seen)
