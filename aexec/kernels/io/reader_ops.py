"""Readers: nodes that take file names from a queue and return the files' records, one or several a step.

A reader reads ahead in a worker thread, so that most records need neither a thread nor a wait.  Steps that use one
reader at the same time take turns in order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.shape import shape_text
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import handle_from_tensor
from aexec.framework.waiting.worker_threads import OnCancel
from aexec.io import record_source
from aexec.io.record import Compression
from aexec.io.record_source import Record
from aexec.kernels.common.handles import find_resource, shared
from aexec.queues.attempts import settled
from aexec.queues.queue_base import QueueBase

# Records that a reader reads ahead, at most.
_AHEAD_RECORDS = 256
_AHEAD_BYTES = 1 << 20

Source = Callable[[bytes], Iterator[Record]]
R = TypeVar("R")


class Reader:
    """The state that a reader keeps between steps.

    Args:
        name: for messages.
        source: opens a file and yields its records.
        whole: a file is one record, so it is finished as soon as that is read, and the state is a few numbers that can
            be saved.
    """

    def __init__(self, name: str, source: Source, *, whole: bool = False) -> None:
        self.name = name
        self.produced = 0
        self.finished = 0
        self._source = source
        self._whole = whole
        self._started = 0
        self._last_work = b""
        self._lock = asyncio.Lock()
        self._forget()

    def _forget(self) -> None:
        self._work: bytes | None = None
        self._records: Iterator[Record] | None = None
        self._ready: deque[Record] = deque()
        self._at_end = False
        self._error: errors.OpError | None = None

    def read(self, context: OpKernelContext, queue: QueueBase, count: int) -> Any:
        """Return the records as `read_later` does, or, if they are not at hand, a coroutine that does."""
        ready = self._ready
        if 0 < count <= len(ready) and not self._whole and not self._lock.locked():
            self.produced += count
            return [ready.popleft() for _ in range(count)]
        return self.read_later(context, queue, count)

    async def read_later(self, context: OpKernelContext, queue: QueueBase, count: int) -> list[Record]:
        """Return at least one record, and at most `count`, all of one file.

        Raises:
            OutOfRangeError: the queue is closed and empty.
            NotFoundError: there is no such file.
            DataLossError: the file is corrupt.
        """
        async with self._lock:
            taken: list[Record] = []
            while len(taken) < count:
                if self._ready:
                    taken.append(self._ready.popleft())
                    self.produced += 1
                    if self._whole:
                        self._finish_work()
                        break
                elif self._error is not None and not taken:
                    raise _again(self._error)
                elif self._at_end or self._error is not None:
                    if self._error is None:
                        self._finish_work()
                    if taken:
                        break
                elif self._work is None:
                    self._work = self._last_work = await _next_work(queue)
                    self._started += 1
                else:
                    try:
                        await _in_thread(context, self._read_ahead)
                    except asyncio.CancelledError:
                        self._ready.extendleft(reversed(taken))
                        self.produced -= len(taken)
                        raise
            return taken

    def _finish_work(self) -> None:
        self._forget()
        self.finished = self._started

    def _read_ahead(self) -> None:
        """Runs in a worker thread, while no other thread uses the reader."""
        work, records, ready = self._work, self._records, self._ready  # the reader may be closed meanwhile
        assert work is not None
        if records is None:
            try:
                records = self._records = self._source(work)
            except errors.OpError:
                self._work = None  # skip a file that cannot be opened
                raise
        size = 0
        try:
            while len(ready) < _AHEAD_RECORDS and size < _AHEAD_BYTES:
                record = next(records, None)
                if record is None:
                    self._at_end = True
                    return
                ready.append(record)
                size += len(record[1])
        except errors.OpError as error:
            self._error = error

    def close(self) -> None:
        """Close the file; called when the reader leaves its container."""
        self._forget()

    async def reset(self) -> None:
        """Forget the present file and reset all counters."""
        async with self._lock:
            self._forget()
            self.produced = self.finished = self._started = 0

    async def state(self) -> bytes:
        """Return the state, for `restore`.  Raises UnimplementedError unless a file is one record."""
        async with self._lock:
            if not self._whole:
                raise errors.UnimplementedError("Reader SerializeState")
            message = proto.ReaderBaseState(
                work_started=self._started, work_finished=self.finished, num_records_produced=self.produced
            )
            message.current_work = self._last_work
            return message.SerializeToString(deterministic=True)

    async def restore(self, state: bytes) -> None:
        """Replace the state.

        Raises:
            UnimplementedError: a file has several records.
            InvalidArgumentError: the data is not a state, or a state in the middle of a file.
        """
        async with self._lock:
            if not self._whole:
                raise errors.UnimplementedError("Reader RestoreState")
            try:
                message = proto.ReaderBaseState.FromString(state)
            except DecodeError:
                raise errors.InvalidArgumentError(f"Could not parse state for {self.name}: {state!r:.200}") from None
            for what in ("work_started", "work_finished", "num_records_produced"):
                if getattr(message, what) < 0:
                    raise errors.InvalidArgumentError(
                        f"Unexpected negative value when restoring in {self.name}: {what}"
                    )
            if message.work_started != message.work_finished:
                raise errors.InvalidArgumentError(
                    f"Inconsistent work started vs. finished when restoring in {self.name}: "
                    f"{message.work_started} vs. {message.work_finished}"
                )
            self._forget()
            self._started, self.finished = message.work_started, message.work_finished
            self.produced = message.num_records_produced
            self._last_work = message.current_work


def _again(error: errors.OpError) -> errors.OpError:
    """A copy of the error, so that every step reports its own."""
    return type(error)(error.message)


async def _next_work(queue: QueueBase) -> bytes:
    """Return the next file name.  If the step is cancelled meanwhile, the name stays in the queue."""
    components = queue.spec.types
    if len(components) != 1:
        raise errors.InvalidArgumentError("Expected single component queue")
    if components[0] is not dtypes.string:
        raise errors.InvalidArgumentError("Expected queue with single string component")
    (name,) = await settled(queue.dequeue())
    if name.size != 1:
        raise errors.InvalidArgumentError("Expected to dequeue a one-element string tensor")
    work: bytes = name.item()
    return work


async def _in_thread(context: OpKernelContext, call: Callable[[], None]) -> None:
    """Call in a worker thread.  A cancelled step waits for the call's end, since the records that it reads are kept."""
    await context.worker_pool.run(call, on_cancel=OnCancel.WAIT)


# Making readers


def _reader(make: Callable[[OpKernelConstruction], Reader]) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        make(c)  # raises errors of the node's attrs before it runs
        return shared(c, Reader, lambda: make(c))

    return build


def _named(c: OpKernelConstruction) -> str:
    return f"{c.op.removesuffix('V2')} '{c.name}'"


def _not_negative(c: OpKernelConstruction, *names: str) -> None:
    for name in names:
        if c.attr(name) < 0:
            raise errors.InvalidArgumentError(f"{name} must be >= 0 not {c.attr(name)}")


def _compression(name: bytes) -> Compression:
    """TensorFlow's readers treat an unknown name as no compression."""
    try:
        return Compression.of(name)
    except errors.InvalidArgumentError:
        return Compression.NONE


@kernel("WholeFileReader", "WholeFileReaderV2", cost=0)
@_reader
def whole_file_reader(c: OpKernelConstruction) -> Reader:
    return Reader(_named(c), record_source.whole_file, whole=True)


@kernel("IdentityReader", "IdentityReaderV2", cost=0)
@_reader
def identity_reader(c: OpKernelConstruction) -> Reader:
    return Reader(_named(c), record_source.identity, whole=True)


@kernel("TextLineReader", "TextLineReaderV2", cost=0)
@_reader
def text_line_reader(c: OpKernelConstruction) -> Reader:
    _not_negative(c, "skip_header_lines")
    return Reader(_named(c), partial(record_source.text_lines, skip_header_lines=c.attr("skip_header_lines")))


@kernel("TFRecordReader", "TFRecordReaderV2", cost=0)
@_reader
def tf_record_reader(c: OpKernelConstruction) -> Reader:
    compression = _compression(c.attr("compression_type"))
    return Reader(_named(c), partial(record_source.tf_records, compression=compression))


@kernel("FixedLengthRecordReader", "FixedLengthRecordReaderV2", cost=0)
@_reader
def fixed_length_record_reader(c: OpKernelConstruction) -> Reader:
    lengths = ("header_bytes", "record_bytes", "footer_bytes", "hop_bytes")
    _not_negative(c, *lengths)
    source = partial(
        record_source.fixed_length_records,
        compression=_compression(c.attrs.get("encoding", b"")),
        **{length: c.attr(length) for length in lengths},
    )
    return Reader(_named(c), source)


# Using them


def _lookup(context: OpKernelContext, handle: Any, kind: type[R]) -> R:
    if isinstance(handle, RefCell):
        return find_resource(context, handle, kind)
    return context.resources.lookup_handle(handle_from_tensor(handle, kind), kind)


def _find(context: OpKernelContext, handle: Any) -> Reader:
    return _lookup(context, handle, Reader)


@kernel("ReaderRead", "ReaderReadV2", cost=0)
def reader_read(c: OpKernelConstruction) -> Compute:
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, queue_handle: Any) -> Any:
        queue = _lookup(context, queue_handle, QueueBase)
        return _outputs(_find(context, handle).read(context, queue, 1), _one)

    return compute


@kernel("ReaderReadUpTo", "ReaderReadUpToV2", cost=0)
def reader_read_up_to(c: OpKernelConstruction) -> Compute:
    """May return fewer records than requested: those of one file."""
    c.need_context()

    def compute(context: OpKernelContext, handle: Any, queue_handle: Any, num_records: Any) -> Any:
        if num_records.size != 1:
            shape = shape_text(num_records.shape)
            raise errors.InvalidArgumentError(f"num_records must be a number >= 0, but had shape: {shape}")
        if num_records.item() < 0:
            raise errors.InvalidArgumentError(f"num_records must be a number >= 0, got {num_records.item()}")
        queue = _lookup(context, queue_handle, QueueBase)
        return _outputs(_find(context, handle).read(context, queue, int(num_records.item())), _many)

    return compute


def _outputs(records: Any, join: Callable[[list[Record]], Any]) -> Any:
    """The outputs for records, or a coroutine of them if `records` is one."""
    return join(records) if type(records) is list else _outputs_later(records, join)


async def _outputs_later(records: Any, join: Callable[[list[Record]], Any]) -> Any:
    return join(await records)


def _one(records: list[Record]) -> Any:
    ((key, value),) = records
    return np.array(key, object), np.array(value, object)


def _many(records: list[Record]) -> Any:
    return tuple(np.fromiter((r[part] for r in records), object, len(records)) for part in (0, 1))


@kernel("ReaderNumRecordsProduced", "ReaderNumRecordsProducedV2", cost=0)
def reader_num_records_produced(c: OpKernelConstruction) -> Compute:
    c.need_context()
    return lambda context, handle: np.int64(_find(context, handle).produced)


@kernel("ReaderNumWorkUnitsCompleted", "ReaderNumWorkUnitsCompletedV2", cost=0)
def reader_num_work_units_completed(c: OpKernelConstruction) -> Compute:
    c.need_context()
    return lambda context, handle: np.int64(_find(context, handle).finished)


@kernel("ReaderSerializeState", "ReaderSerializeStateV2", cost=0)
def reader_serialize_state(c: OpKernelConstruction) -> Compute:
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any) -> Any:
        return np.array(await _find(context, handle).state(), object)

    return compute


@kernel("ReaderRestoreState", "ReaderRestoreStateV2", cost=0)
def reader_restore_state(c: OpKernelConstruction) -> Compute:
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any, state: Any) -> None:
        if state.ndim:
            raise errors.InvalidArgumentError(f"Reader state must be scalar, but had shape: {shape_text(state.shape)}")
        await _find(context, handle).restore(state.item())

    return compute


@kernel("ReaderReset", "ReaderResetV2", cost=0)
def reader_reset(c: OpKernelConstruction) -> Compute:
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any) -> None:
        await _find(context, handle).reset()

    return compute
