"""Summary writers as resources: what each op writes, their lives, refusals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from aexec import proto
from aexec.framework import errors
from aexec.io.record import read_records
from tests.kernels.array_support import F32, I32, I64
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op, strings
from tests.support.stand_ins import contexts


@pytest.mark.parametrize("op", ops_of("logging.summary_writer_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def text(data):
    return strings(data, shape=())


@pytest.fixture
def writer(tmp_path):
    """Runs ops on one writer, whose file lies in a folder of the test's."""
    context = contexts.context()
    handle = run_op("SummaryWriter", [], shared_name="w")

    def run(op, *inputs, **attrs):
        return run_op(op, [handle, *inputs], context=context, **attrs)

    def create(suffix=""):
        run("CreateSummaryFileWriter", text(str(tmp_path)), I32(10), I32(60_000), text(suffix))

    def events():
        run("FlushSummaryWriter")
        (path,) = tmp_path.iterdir()
        return [proto.Event.FromString(record) for record in read_records(str(path))][1:]

    yield SimpleNamespace(run=run, create=create, events=events, folder=tmp_path)
    context.resources.clear()


STEP = I64(7)


@pytest.mark.parametrize(
    ("op", "inputs", "field"),
    [
        ("WriteScalarSummary", [text("t"), F32(1.5)], "simple_value"),
        ("WriteHistogramSummary", [text("t"), F32([1, 2])], "histo"),
        ("WriteHistogramSummary", [text("t"), np.array([True, False])], "histo"),
        ("WriteImageSummary", [text("t"), F32(np.ones((1, 2, 2, 1))), np.uint8([255, 0, 0, 255])], "image"),
        ("WriteAudioSummary", [text("t"), F32(np.ones((1, 2, 1))), F32(8000)], "audio"),
        ("WriteSummary", [F32([1, 2]), text("t"), text("")], "tensor"),
        (
            "WriteRawProtoSummary",
            [text(proto.Summary(value=[proto.Summary.Value(tag="t", simple_value=2)]).SerializeToString())],
            "simple_value",
        ),
    ],
)
def test_summaries_are_written(writer, op, inputs, field):
    writer.create()
    assert writer.run(op, STEP, *inputs) is None
    (event,) = writer.events()
    (value,) = event.summary.value
    assert event.step == 7 and event.wall_time > 0
    assert value.WhichOneof("value") == field and value.tag.startswith("t")


def test_graphs_and_whole_events_are_written(writer):
    writer.create()
    graph = proto.GraphDef(versions=proto.VersionDef(producer=5)).SerializeToString()
    writer.run("WriteGraphSummary", STEP, text(graph))
    writer.run("ImportEvent", text(proto.Event(wall_time=1.0, step=3).SerializeToString()))
    first, second = writer.events()
    assert (first.step, first.graph_def) == (7, graph)
    assert (second.step, second.wall_time) == (3, 1.0)


def test_writer_is_made_once_and_closed_for_good(writer):
    with pytest.raises(errors.NotFoundError):
        writer.run("WriteScalarSummary", STEP, text("t"), F32(1))
    writer.create(".end")
    writer.create(".other")
    (path,) = writer.folder.iterdir()
    assert path.name.endswith(".end")
    writer.run("WriteScalarSummary", STEP, text("t"), F32(1))
    writer.run("CloseSummaryWriter")
    assert len(list(read_records(str(path)))) == 2
    for op in ("FlushSummaryWriter", "CloseSummaryWriter"):
        with pytest.raises(errors.NotFoundError):
            writer.run(op)


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        (
            "WriteRawProtoSummary",
            [STEP, text("junk")],
            "Bad tf.compat.v1.Summary binary proto tensor string at index 0",
        ),
        ("WriteGraphSummary", [STEP, text("junk")], "Bad tf.GraphDef binary proto tensor string"),
        ("ImportEvent", [text("junk")], "Bad tf.Event binary proto tensor string"),
        ("WriteSummary", [STEP, F32(1), text("t"), text("junk")], "Bad tf.SummaryMetadata binary proto tensor string"),
    ],
)
def test_messages_that_are_none(writer, op, inputs, message):
    writer.create()
    with pytest.raises(errors.DataLossError) as caught:
        writer.run(op, *inputs)
    assert caught.value.message == message
    assert not writer.events()


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        ("WriteScalarSummary", [I64([7]), text("t"), F32(1)], "step must be scalar"),
        ("WriteScalarSummary", [STEP, strings("t"), F32(1)], "tag must be scalar"),
        ("WriteScalarSummary", [STEP, text(b"\xff"), F32(1)], "tag is not UTF-8: b'\\xff'"),
        ("WriteScalarSummary", [STEP, text("t"), F32([1])], "value must be scalar"),
        (
            "WriteImageSummary",
            [STEP, text("t"), F32(np.ones((1, 2, 2, 1))), np.uint8(1)],
            "bad_color must be a vector",
        ),
        (
            "WriteHistogramSummary",
            [STEP, text("t"), F32([np.nan])],
            "Nan in summary histogram for: WriteHistogramSummary",
        ),
    ],
)
def test_inputs_are_checked(writer, op, inputs, message):
    writer.create()
    with pytest.raises(errors.InvalidArgumentError) as caught:
        writer.run(op, *inputs)
    assert caught.value.message == message


def test_file_names_stay_in_their_folder(writer):
    with pytest.raises(errors.InvalidArgumentError, match="filename_suffix is no end of a name"):
        writer.create("/../../elsewhere")
