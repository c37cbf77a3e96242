"""Summaries: ops that describe tensors for TensorBoard, and the writer of their outputs.

::

    aexec.summary.scalar("loss", loss)
    merged = aexec.summary.merge_all()
    ...
    async with aexec.summary.FileWriter("logs", graph) as writer:
        await writer.add_summary(await session.run(merged), step)

`summaries.py` has the ops, `file_writer.py` the writer, `aexec/io/event_file_writer.py` the file's format.
"""

from aexec.io.event_file_writer import EventFileWriter
from aexec.summary.file_writer import FileWriter
from aexec.summary.summaries import audio, histogram, image, merge, merge_all, scalar, tensor_summary, text

__all__ = [
    "EventFileWriter",
    "FileWriter",
    "audio",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "scalar",
    "tensor_summary",
    "text",
]
