"""Writers of event files as resources, and the ops that write summaries with them.

SummaryWriter returns only a handle; CreateSummaryFileWriter makes the file unless it exists, and CloseSummaryWriter
closes it.  All ops but SummaryWriter use files, and so run in a worker thread.
Next to read: `aexec/io/event_file_writer.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import ContainerInfo, ResourceHandle, handle_from_tensor, make_handle_tensor
from aexec.io.event_file_writer import EventFileWriter
from aexec.kernels.common.tensor_bytes import tensor_message
from aexec.kernels.logging.summaries import histogram, pictures, sounds

__all__: list[str] = []

# Adds to a summary from the op's inputs after writer and step.
Fill = Callable[..., None]


def _file_cost(*_: Any) -> float:
    """More than the event loop allows."""
    return 1e6


def _scalar(value: Any, name: str) -> Any:
    if value.ndim:
        raise errors.InvalidArgumentError(f"{name} must be scalar")
    return value.item()


def _text(value: Any, name: str) -> str:
    data = _scalar(value, name)
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise errors.InvalidArgumentError(f"{name} is not UTF-8: {abridged(repr(data))}") from None


def _find(context: OpKernelContext, handle: Any) -> EventFileWriter:
    return context.resources.lookup_handle(handle_from_tensor(handle), EventFileWriter)


@kernel("SummaryWriter", cost=0)
def summary_writer(c: OpKernelConstruction) -> Compute:
    """Return a handle to a writer that may not exist yet."""
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    handle = make_handle_tensor(ResourceHandle.of_type(EventFileWriter, info, c.device))
    return lambda: handle


@kernel("CreateSummaryFileWriter", cost=_file_cost)
def create_summary_file_writer(c: OpKernelConstruction) -> Compute:
    """Makes the writer and its file, unless the writer exists."""
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, logdir: Any, queue: Any, millis: Any, suffix: Any) -> None:
        folder, ending = _text(logdir, "logdir"), _text(suffix, "filename_suffix")
        most, seconds = _scalar(queue, "max_queue"), _scalar(millis, "flush_millis") / 1000
        if "/" in ending or "\0" in ending:
            raise errors.InvalidArgumentError(f"filename_suffix is no end of a name: {abridged(repr(ending))}")
        found = handle_from_tensor(handle, EventFileWriter)
        context.resources.lookup_or_create(
            found.container,
            found.name,
            EventFileWriter,
            lambda: EventFileWriter(folder, max_queue=most, flush_seconds=seconds, filename_suffix=ending),
        )

    return compute


@kernel("FlushSummaryWriter", cost=_file_cost)
def flush_summary_writer(c: OpKernelConstruction) -> Compute:
    """Writes all events to the file, so that readers see them."""
    c.need_context()
    return lambda context, handle: _find(context, handle).flush()


@kernel("CloseSummaryWriter", cost=_file_cost)
def close_summary_writer(c: OpKernelConstruction) -> Compute:
    """Closes the file and deletes the writer: the resource manager closes resources that it deletes."""
    c.need_context()
    return lambda context, handle: context.resources.delete_handle(handle_from_tensor(handle, EventFileWriter))


def _scalars(c: OpKernelConstruction) -> Fill:
    def fill(summary: proto.Summary, tag: Any, value: Any) -> None:
        summary.value.add(tag=_text(tag, "tag"), simple_value=float(_scalar(value, "value")))

    return fill


def _histograms(c: OpKernelConstruction) -> Fill:
    name = c.name

    def fill(summary: proto.Summary, tag: Any, values: Any) -> None:
        summary.value.add(tag=_text(tag, "tag"), histo=histogram(values, name))

    return fill


def _pictures(c: OpKernelConstruction) -> Fill:
    most = c.attr("max_images")

    def fill(summary: proto.Summary, tag: Any, images: Any, bad_color: Any) -> None:
        if bad_color.ndim != 1:
            raise errors.InvalidArgumentError("bad_color must be a vector")
        summary.value.extend(pictures(_text(tag, "tag"), images, most, bad_color))

    return fill


def _sounds(c: OpKernelConstruction) -> Fill:
    most = c.attr("max_outputs")

    def fill(summary: proto.Summary, tag: Any, audio: Any, sample_rate: Any) -> None:
        summary.value.extend(sounds(_text(tag, "tag"), audio, sample_rate, most))

    return fill


def _tensors(c: OpKernelConstruction) -> Fill:
    dtype = c.attr("T")

    def fill(summary: proto.Summary, tensor: Any, tag: Any, metadata: Any) -> None:
        value = summary.value.add(tag=_text(tag, "tag"), tensor=tensor_message(tensor, dtype))
        _parse(_scalar(metadata, "summary_metadata"), value.metadata, "tf.SummaryMetadata")

    return fill


def _parse(data: bytes, message: Any, name: str, where: str = "") -> None:
    """Parse `data` into the message.  Raises DataLossError if it is malformed."""
    try:
        message.MergeFromString(data)
    except DecodeError:
        raise errors.DataLossError(f"Bad {name} binary proto tensor string{where}") from None


def _serialized(c: OpKernelConstruction) -> Fill:
    def fill(summary: proto.Summary, tensor: Any) -> None:
        for number, data in enumerate(tensor.ravel().tolist()):
            _parse(data, summary, "tf.compat.v1.Summary", f" at index {number}")

    return fill


_FILLS: dict[str, Callable[[OpKernelConstruction], Fill]] = {
    "WriteScalarSummary": _scalars,
    "WriteHistogramSummary": _histograms,
    "WriteImageSummary": _pictures,
    "WriteAudioSummary": _sounds,
    "WriteSummary": _tensors,
    "WriteRawProtoSummary": _serialized,
}


@kernel(*_FILLS, cost=_file_cost)
def write_summary(c: OpKernelConstruction) -> Compute:
    """Writes an event with a summary of one step."""
    fill = _FILLS[c.op](c)
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, step: Any, *inputs: Any) -> None:
        writer = _find(context, handle)
        summary = proto.Summary()
        fill(summary, *inputs)
        writer.add_summary(summary, int(_scalar(step, "step")))

    return compute


@kernel("WriteGraphSummary", cost=_file_cost)
def write_graph_summary(c: OpKernelConstruction) -> Compute:
    """Writes an event with a serialised GraphDef."""
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, step: Any, tensor: Any) -> None:
        writer = _find(context, handle)
        data = _scalar(tensor, "tensor")
        _parse(data, proto.GraphDef(), "tf.GraphDef")
        writer.add_graph(data, int(_scalar(step, "step")))

    return compute


@kernel("ImportEvent", cost=_file_cost)
def import_event(c: OpKernelConstruction) -> Compute:
    """Writes an event that is already serialised."""
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, event: Any) -> None:
        writer = _find(context, handle)
        message = proto.Event()
        _parse(_scalar(event, "event"), message, "tf.Event")
        writer.add_event(message)

    return compute
