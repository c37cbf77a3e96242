"""`CudaSequence`: kernel calls that are captured as a CUDA graph, and replayed in one launch.

For each tuple of input shapes and types the calls are first made as usual, on the stream that will be captured: this
compiles kernels, and the recording's own pool gets the memory that the capture will take.  A replay copies its inputs
to where the recording reads them, launches the graph, and copies the outputs, so that no array in use is written by the
next replay. A call that cannot be captured (it reads values, waits, or copies arrays from the host) is made as usual;
the calls before and after it are captured separately if that is worth it, and a line in the log names the node. All of
it runs in the issuer of the streams.  Next to read: `cuda_streams.py`,
`aexec/framework/device_contract/queued_kernel.py`.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from aexec.devices.cuda_streams import CudaStreams, streams_here
from aexec.framework import errors
from aexec.framework.device_contract.queued_kernel import CallSequence, SequencePart

__all__ = ["CudaSequence", "guard_captures"]

logger = logging.getLogger("aexec")

# Most recordings of a sequence that are kept: each has memory of its own.
_MOST_RECORDINGS = 4
_capturing = threading.local()


class _NotCapturedError(Exception):
    """Calls cannot be captured.

    Attributes:
        node: the node whose call cannot; "" if it is about all of them.
    """

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(reason)
        self.node = node


class CudaSequence:
    """Makes the calls of a sequence, by recordings if it can; see `CapturedCalls`.

    Args:
        cupy: the module.
        malloc: the device's.
    """

    def __init__(self, cupy: Any, malloc: Callable[[int], Any], sequence: CallSequence) -> None:
        self._sequence = sequence
        self._parts = [_Part(cupy, malloc, sequence.part(0, len(sequence.calls)))]
        self._told: set[str] = set()
        self.refused: dict[str, str] = {}

    @property
    def recordings(self) -> int:
        """Like `CapturedCalls.recordings`."""
        return sum(len(part.recordings) for part in self._parts)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs of the calls for arrays on the device."""
        sequence, streams = self._sequence, streams_here()
        table = sequence.table(inputs, [streams.argument(value) for value in sequence.constants])
        position = 0
        while position < len(self._parts):
            part = self._parts[position]
            try:
                part.run(streams, table)
            except _NotCapturedError as refused:
                self._parts[position : position + 1] = self._without(part, refused)
            else:
                position += 1
        return tuple([table[i] for i in sequence.outputs])

    def _without(self, part: _Part, refused: _NotCapturedError) -> list[_Part]:
        """Split a part at the call that cannot be captured; it is made as usual, as are pieces not worth capturing."""
        start, calls = part.calls.start, part.calls.sequence.calls
        at = next((i for i, call in enumerate(calls) if call.kernel.name == refused.node), None)
        cuts = [0, len(calls)] if at is None else [0, at, at + 1, len(calls)]
        pieces = [
            part.of(self._sequence.part(start + begin, start + end))
            for begin, end in itertools.pairwise(cuts)
            if begin < end
        ]
        for piece in pieces:
            only = piece.calls.sequence
            piece.is_captured = at is not None and piece.calls.start != start + at and is_worth_it(only)
        self._note(refused, None if at is None else calls[at].kernel.op)
        return pieces

    def _note(self, refused: _NotCapturedError, op: str | None) -> None:
        name, reason = self._sequence.name, str(refused)
        if op is None:
            self.refused[name] = reason
            logger.warning("%s is not captured, its nodes run instead: %s", name, reason)
            return
        self.refused[refused.node] = reason
        if op not in self._told:  # one line for each op
            self._told.add(op)
            logger.warning("%s is captured without its nodes of op %s, which run: %s", name, op, reason)


def is_worth_it(sequence: CallSequence) -> bool:
    """True if a replay takes fewer launches (one, and one for each input and output) than the calls do."""
    return len(sequence.calls) > sequence.num_inputs + len(sequence.outputs) + 1


class _Part:
    """Calls of a sequence that are captured together, for each tuple of input shapes and types.

    Attributes:
        is_captured: True if they are captured; otherwise each is made as usual.
        recordings: by shapes and types; the most recently used is last.
    """

    def __init__(self, cupy: Any, malloc: Callable[[int], Any], calls: SequencePart) -> None:
        self._cupy = cupy
        self._malloc = malloc
        self.calls = calls
        self.is_captured = True
        self.recordings: dict[Any, _Recording] = {}

    def of(self, calls: SequencePart) -> _Part:
        """A part with other calls of the same sequence."""
        return _Part(self._cupy, self._malloc, calls)

    def run(self, streams: CudaStreams, table: list[Any]) -> None:
        """Make the calls on the sequence's table.

        Raises:
            _NotCapturedError: they cannot be captured, and the table is unchanged.
        """
        calls = self.calls
        inputs, constants = ([table[i] for i in positions] for positions in (calls.inputs, calls.constants))
        if self.is_captured:
            try:
                made: Sequence[Any] = self._recording(streams, inputs, constants).replay(inputs)
            except (self._cupy.cuda.memory.OutOfMemoryError, errors.ResourceExhaustedError) as error:
                self.recordings.clear()  # its calls by themselves need less
                raise _NotCapturedError("", str(error)) from error
        else:
            made = calls.sequence.run(inputs, constants)
        for position, value in zip(calls.outputs, made, strict=True):
            table[position] = value
        for position in calls.drops:
            table[position] = None

    def _recording(self, streams: CudaStreams, inputs: list[Any], constants: list[Any]) -> _Recording:
        key = (streams, *[(array.shape, array.dtype) for array in inputs])
        recording = self.recordings.pop(key, None)
        if recording is None:
            if len(self.recordings) == _MOST_RECORDINGS:
                del self.recordings[next(iter(self.recordings))]
            recording = _Recording(self._cupy, streams, self._malloc, self.calls.sequence, inputs, constants)
        self.recordings[key] = recording
        return recording


class _Recording:
    """A graph, and the memory that it works on, which is freed on the compute stream that replays it."""

    def __init__(
        self,
        cupy: Any,
        streams: CudaStreams,
        malloc: Callable[[int], Any],
        sequence: CallSequence,
        inputs: Sequence[Any],
        constants: Sequence[Any],
    ) -> None:
        def of_compute_stream(num_bytes: int) -> Any:
            with streams.compute:
                return malloc(num_bytes)

        cuda = cupy.cuda
        self._streams = streams
        self._inputs = [array.copy() for array in inputs]
        self._constants = constants
        self._pool = cuda.MemoryPool(of_compute_stream)
        stream = cuda.Stream(non_blocking=True)
        stream.wait_event(streams.recorded())
        rehearsed = cuda.Event(block=True, disable_timing=True)
        with stream, cuda.using_allocator(self._pool.malloc):
            try:
                sequence.run(self._inputs, constants)
            finally:
                rehearsed.record(stream)
                streams.compute.wait_event(rehearsed)
            self._graph, self._outputs = self._capture(cuda, stream, sequence)

    def _capture(self, cuda: Any, stream: Any, sequence: CallSequence) -> tuple[Any, list[Any]]:
        # Only this thread's calls are captured, as others work meanwhile; calls here that a capture misses are errors.
        stream.begin_capture(cuda.runtime.streamCaptureModeThreadLocal)
        _capturing.here = True
        try:
            outputs = sequence.run(self._inputs, self._constants)
            graph = stream.end_capture()
        except BaseException as error:
            # An invalidated capture must be ended as well, and raises again.
            with suppress(cuda.runtime.CUDARuntimeError):
                stream.end_capture()
            if not isinstance(error, Exception):
                raise
            node = getattr(error, "failed_node", "")
            where = node or sequence.name
            raise _NotCapturedError(node, f"{{{{node {where}}}}}: {type(error).__name__}: {error}") from error
        finally:
            _capturing.here = False
        return graph, outputs

    def replay(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        for own, array in zip(self._inputs, inputs, strict=True):
            own[...] = array
        self._graph.launch(self._streams.compute)
        return tuple([array.copy() for array in self._outputs])


def guard_captures(cupy: Any) -> None:
    """Refuse to allocate pinned memory during a capture.

    CuPy copies arrays from the host through it: each replay of the graph would copy whatever the memory holds then.
    """

    def malloc(num_bytes: int) -> Any:
        if getattr(_capturing, "here", False):
            raise RuntimeError("it brings an array from the host")
        return cupy.get_default_pinned_memory_pool().malloc(num_bytes)

    cupy.cuda.set_pinned_memory_allocator(malloc)
