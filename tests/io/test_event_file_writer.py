"""Event files: what is written can be read back, when it is written, and what cannot be."""

from __future__ import annotations

import os

import pytest

from aexec import proto
from aexec.framework import errors
from aexec.io.event_file_writer import EventFileWriter
from aexec.io.record import read_records


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 1_700_000_000.5

    def __call__(self):
        return self.now


def events(writer):
    return [proto.Event.FromString(record) for record in read_records(writer.path)]


def scalar(tag, value):
    return proto.Summary(value=[proto.Summary.Value(tag=tag, simple_value=value)])


def test_writers_of_one_second_have_a_file_each(tmp_path):
    clock = Clock()
    with EventFileWriter(tmp_path, clock=clock) as one, EventFileWriter(tmp_path, clock=clock) as other:
        one.add_summary(scalar("one", 1.0), step=1)
        other.add_summary(scalar("other", 2.0), step=1)
    assert [event.summary.value[0].tag for writer in (one, other) for event in events(writer)[1:]] == ["one", "other"]


def test_file_begins_with_its_version_and_holds_what_was_added(tmp_path):
    clock = Clock()
    with EventFileWriter(tmp_path / "new" / "logs", filename_suffix=".v2", clock=clock) as writer:
        name = os.path.basename(writer.path)
        assert name.startswith("events.out.tfevents.1700000000.") and name.endswith(".v2")
        writer.add_summary(scalar("loss", 0.5), step=7)
        writer.add_graph(b"\x22\x00", step=8)
        writer.add_event(proto.Event(wall_time=1.0, log_message=proto.LogMessage(message="hello")))
    first, summary, graph, log = events(writer)
    assert (first.file_version, first.wall_time) == ("brain.Event:2", clock.now)
    assert (summary.step, summary.summary.value[0].tag, summary.wall_time) == (7, "loss", clock.now)
    assert (graph.step, graph.graph_def) == (8, b"\x22\x00")
    assert log.log_message.message == "hello"
    assert repr(writer) == f"<EventFileWriter of {writer.path}>"


def test_events_wait_until_there_are_many_or_the_last_flush_is_long_ago(tmp_path):
    clock = Clock()
    writer = EventFileWriter(tmp_path, max_queue=2, flush_seconds=10, clock=clock)

    def add():
        writer.add_summary(scalar("a", 1), step=1)
        return len(events(writer)) - 1

    assert [add() for _ in range(4)] == [0, 0, 3, 3]
    clock.now += 11
    assert add() == 5
    assert add() == 5
    writer.flush()
    assert len(events(writer)) == 7
    writer.close()


def test_closed_writer_takes_nothing(tmp_path):
    writer = EventFileWriter(tmp_path)
    writer.close()
    writer.close()
    writer.flush()
    with pytest.raises(errors.FailedPreconditionError, match="is closed"):
        writer.add_summary(scalar("a", 1), step=1)
    assert len(events(writer)) == 1


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.OpError):
        EventFileWriter(tmp_path / "file" / "logs")
