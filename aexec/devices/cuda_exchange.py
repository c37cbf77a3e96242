"""Exchange of arrays with users on a GPU: arrays of CuPy, or of others by DLPack, fed without a copy; results as
copies.

A fed array is used when the work that its owner's current stream has queued by then is done.  A result is copied on the
current stream of the thread that takes it, into memory of that stream: the user may write to it, drop it, and use it on
that stream at once.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from aexec.framework.device_contract.dlpack import DLPACK_GPU, array_from_dlpack

__all__ = ["CudaExchange"]


class CudaExchange:
    """Feeds arrays that users have on a GPU without a copy, and gives them results as copies on that GPU.

    Args:
        cupy: the module.
        number: CUDA's number of the GPU.
    """

    def __init__(self, cupy: Any, number: int) -> None:
        self._cupy = cupy
        self._number = number
        self._lock = threading.Lock()
        # (event, array): arrays that were copied for users, each with the event behind its copy.
        self._lent: deque[tuple[Any, Any]] = deque()

    def holds(self, value: Any) -> bool:
        """True if this is an array in the GPU's memory."""
        where = getattr(type(value), "__dlpack_device__", None)
        if where is None:
            return False
        kind, number = where(value)
        return int(kind) in DLPACK_GPU and number == self._number

    def array_of(self, value: Any, node: str) -> Any:
        """CuPy's array of a value that the GPU holds, safe to use on the thread's current stream.

        Raises:
            InvalidArgumentError: its owner refuses, or CuPy has no such type.
        """
        cupy = self._cupy
        if isinstance(value, cupy.ndarray):
            return value
        with cupy.cuda.Device(self._number):
            return array_from_dlpack(cupy.from_dlpack, value, node)

    def copied(self, array: Any, computed: Any) -> Any:
        """A copy for the user, made in the user's thread.

        Args:
            computed: CUDA event behind the work that makes the array; the array is kept until it was copied.
        """
        cuda = self._cupy.cuda
        with cuda.Device(self._number):
            stream = cuda.get_current_stream()
            stream.wait_event(computed)
            copied = array.copy()
            passed = cuda.Event(block=True, disable_timing=True)
            passed.record(stream)
        self.let_go()
        with self._lock:
            self._lent.append((passed, array))
        return copied

    def let_go(self) -> None:
        """Drop arrays that users' streams have copied."""
        with self._lock:
            while self._lent and self._lent[0][0].done:
                self._lent.popleft()

    def finish(self) -> None:
        """Wait until users' streams have copied all arrays."""
        while self._lent:
            self._lent[0][0].synchronize()
            self.let_go()
