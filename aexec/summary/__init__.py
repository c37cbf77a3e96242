"""Event files: what TensorBoard reads.  See `event_file_writer.py`."""

from aexec.summary.event_file_writer import EventFileWriter

__all__ = ["EventFileWriter"]
