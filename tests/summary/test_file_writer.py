"""The writer for event loops: what is in its files, and when it waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import aexec
from aexec import proto
from aexec.framework import errors
from aexec.graph.meta_graph import MetaGraph
from aexec.io.record import read_records
from aexec.summary import FileWriter


async def events(folder: Path) -> list[proto.Event]:
    def read() -> list[proto.Event]:
        return [proto.Event.FromString(data) for path in folder.iterdir() for data in read_records(str(path))]

    return await asyncio.to_thread(read)


async def test_every_kind_of_event(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        aexec.constant(1.0)
    described = proto.Summary()
    described.value.add(tag="t").metadata.plugin_data.plugin_name = "text"
    async with FileWriter(tmp_path, graph) as writer:
        await writer.add_graph(graph, 1)
        await writer.add_meta_graph(MetaGraph(graph), 2)
        await writer.add_run_metadata(aexec.RunMetadata(), "run", 3)
        with pytest.raises(errors.InvalidArgumentError, match="already used for this event type"):
            await writer.add_run_metadata(proto.RunMetadata(), "run", 3)
        await writer.add_session_log(proto.SessionLog(status=proto.SessionLog.START), 4)
        await writer.add_summary(described, 5)
        await writer.add_summary(described.SerializeToString(), 6)
        assert repr(writer) == f"<FileWriter to {str(tmp_path)!r}, 7 events wait>"
    await writer.close()
    with pytest.raises(errors.FailedPreconditionError, match="is closed"):
        await writer.add_graph(graph)
    found = await events(tmp_path)
    kinds = ["file_version", "graph_def", "graph_def", "meta_graph_def", "tagged_run_metadata", "session_log"]
    assert [event.WhichOneof("what") for event in found] == [*kinds, "summary", "summary"]
    assert [event.step for event in found] == [0, 0, 1, 2, 3, 4, 5, 6]
    assert [event.summary.value[0].HasField("metadata") for event in found[-2:]] == [True, False]


async def test_events_wait_in_a_bounded_queue(tmp_path: Path) -> None:
    now = 100.0
    writer = FileWriter(tmp_path, max_queue=2, flush_secs=10, clock=lambda: now)
    for step in range(2):
        await writer.add_summary(b"", step)
    assert not list(tmp_path.iterdir())
    await writer.add_summary(b"", 2)
    assert [event.step for event in await events(tmp_path)] == [0, 0, 1, 2]
    now += 11
    await writer.add_summary(b"", 3)
    assert len(await events(tmp_path)) == 5
    await writer.close()
