"""Copies between the host's memory and a GPU's, through pinned memory.

Only pinned memory can be copied asynchronously, and there is little of it.  So small arrays go through a block of their
own, at once, and large ones in pieces through two blocks in turn: a thread fills or empties one while the GPU copies
the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["SMALL", "Staging", "copied_in", "copied_out", "pieces_in", "pieces_out"]

# Arrays of up to this many bytes are copied where the call is made: 20 µs.
SMALL = 1 << 18
# Bytes of each of the two blocks for large arrays.
_PIECE = 4 << 20
_TO_DEVICE, _TO_HOST = "memcpyHostToDevice", "memcpyDeviceToHost"


class Staging:
    """The pinned memory of one stream of copies, used by one thread.

    Args:
        cupy: the module.
        stream: `cupy.cuda.Stream` of all copies.
    """

    def __init__(self, cupy: Any, stream: Any) -> None:
        self.cupy = cupy
        self.stream = stream
        self._pieces: list[tuple[Any, Any]] = []
        # (event, block) of blocks that the stream may not have read yet.
        self._in_flight: deque[tuple[Any, Any]] = deque()

    def block(self, num_bytes: int) -> Any:
        """Pinned memory as a uint8 array."""
        while self._in_flight and self._in_flight[0][0].done:
            self._in_flight.popleft()
        memory = self.cupy.cuda.alloc_pinned_memory(num_bytes)
        return np.frombuffer(memory, np.uint8, num_bytes)

    def sent(self, block: Any) -> Any:
        """Keep a block until the stream has done the work queued now; return the event."""
        event = self.event()
        event.record(self.stream)
        self._in_flight.append((event, block))
        return event

    def event(self) -> Any:
        return self.cupy.cuda.Event(block=True, disable_timing=True)

    def pieces(self) -> list[tuple[Any, Any]]:
        """The two blocks for large arrays, each with the event of its last copy."""
        if not self._pieces:
            self._pieces = [(self.block(_PIECE), self.event()) for _ in range(2)]
        return self._pieces

    def copy(self, destination: int, source: int, num_bytes: int, direction: str) -> None:
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(destination, source, num_bytes, getattr(runtime, direction), self.stream.ptr)


def copied_in(staging: Staging, array: Any) -> tuple[Any, Any]:
    """A small array as an array of CuPy's, and the event of its copy.

    Args:
        array: a NumPy array; not needed any more when this returns.
    """
    with staging.stream:  # CuPy's pool gives a stream only memory that this stream has passed
        target = staging.cupy.empty(array.shape, array.dtype)
    if not array.nbytes:
        return target, None
    block = staging.block(array.nbytes)
    np.copyto(block.view(array.dtype).reshape(array.shape), array)
    staging.copy(target.data.ptr, block.ctypes.data, array.nbytes, _TO_DEVICE)
    return target, staging.sent(block)


def pieces_in(staging: Staging, array: Any) -> tuple[Any, Any]:
    """Like `copied_in`, for a large array.  Takes as long as the copy; its last pieces may still be in flight."""
    with staging.stream:
        target = staging.cupy.empty(array.shape, array.dtype)
    source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    pieces = staging.pieces()
    for number, start in enumerate(range(0, source.size, _PIECE)):
        block, event = pieces[number % len(pieces)]
        event.synchronize()  # the copy before last; at once if there was none
        size = min(_PIECE, source.size - start)
        np.copyto(block[:size], source[start : start + size])
        staging.copy(target.data.ptr + start, block.ctypes.data, size, _TO_DEVICE)
        event.record(staging.stream)
    arrival = staging.event()
    arrival.record(staging.stream)
    return target, arrival


def copied_out(staging: Staging, array: Any) -> Callable[[], Any]:
    """Queue the copy of a small array of CuPy's.

    Args:
        array: contiguous.

    Returns:
        a function that returns the NumPy array; call it once the stream has passed.  It keeps `array` until then.
    """
    if not array.nbytes:
        return lambda: np.empty(array.shape, array.dtype)
    block = staging.block(array.nbytes)
    staging.copy(block.ctypes.data, array.data.ptr, array.nbytes, _TO_HOST)
    return lambda: block.view(array.dtype).reshape(array.shape).copy()


def pieces_out(staging: Staging, array: Any) -> Any:
    """A large array of CuPy's as a NumPy array.  Takes as long as the copy."""
    result = np.empty(array.shape, array.dtype)
    target = result.reshape(-1).view(np.uint8)
    pieces = staging.pieces()
    starts = range(0, target.size, _PIECE)

    def empty(number: int) -> None:
        block, event = pieces[number % len(pieces)]
        event.synchronize()
        piece = target[starts[number] : starts[number] + _PIECE]
        np.copyto(piece, block[: piece.size])

    for number, start in enumerate(starts):
        block, event = pieces[number % len(pieces)]
        if number >= len(pieces):
            empty(number - len(pieces))
        size = min(_PIECE, target.size - start)
        staging.copy(block.ctypes.data, array.data.ptr + start, size, _TO_HOST)
        event.record(staging.stream)
    for number in range(max(0, len(starts) - len(pieces)), len(starts)):
        empty(number)
    return result
