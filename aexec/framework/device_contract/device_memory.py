"""Accounts for the memory of devices other than the host: which step holds how much of it.

While a step's memory is accounted for (`accounting_for`), everything that its task queues on a device counts for the
step: the device gets its `DeviceMemory` when it queues a call or a copy.  What its thread then allocates is reserved
before, and counts until the memory is freed.  Without accounting this costs one look at a context variable.
Next to read: `memory/memory_account.py`, and `aexec/runtime/interpreter/memory_accountant.py`, which has the accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

from aexec.framework import errors
from aexec.framework.memory.allocator import Allocator, watching
from aexec.framework.memory.memory_account import CallMemory, MemoryAccount
from aexec.framework.waiting.thrown_errors import forget_frames

__all__ = ["DeviceMemory", "HasMemory", "accounted", "accounting_for", "device_memory", "without_arrays"]


class HasMemory(Protocol):
    """The part of a `Device` that accounting uses."""

    name: str
    allocator: Allocator


class DeviceMemory:
    """What a step holds in the memory of one device.

    Args:
        account: the account of that memory, within the step's.
        report: returns text about the memory in use, for errors, from the names of a device and its allocator.
        session: the account of the step's session, or None.
    """

    def __init__(
        self,
        account: MemoryAccount,
        device: HasMemory,
        report: Callable[[str, str], str],
        session: MemoryAccount | None = None,
    ) -> None:
        self.account = account
        self._session = session
        self._device = device.name
        self._allocator = device.allocator.name
        self._report = report

    @contextmanager
    def of_call(self, node: str) -> Iterator[None]:
        """Context manager: allocations of the device's allocator in this thread count for the node.

        Raises:
            ResourceExhaustedError: an allocation would exceed a limit; nothing was allocated.
        """
        call = _DeviceCall(self.account, node, self._allocator)
        try:
            with watching(call):
                yield
        except errors.ResourceExhaustedError as error:
            if not call.refused:
                raise
            forget_frames(error)
            raise errors.ResourceExhaustedError(
                f"{error.message}{self._report(self._device, self._allocator)}"
            ) from None
        finally:
            call.end()

    def hand_out(self, array: Any) -> None:
        """Stop counting an array: it belongs to the caller from now on."""
        if self._session is not None:
            self._session.forget([array])


class _DeviceCall(CallMemory):
    """A call or copy whose allocations of one allocator are accounted for.

    Attributes:
        refused: True if one of them did not fit.
    """

    def __init__(self, account: MemoryAccount, node: str, allocator: str) -> None:
        super().__init__(account, node)
        self._of_device = allocator
        self.refused = False

    def wrap(self, allocator: Allocator) -> Allocator:
        return super().wrap(allocator) if allocator.name == self._of_device else allocator

    def announce(self, num_bytes: int) -> None:
        try:
            super().announce(num_bytes)
        except errors.ResourceExhaustedError:
            self.refused = True
            raise

    def _part(self) -> CallMemory:
        return _DeviceCall(self._step, self._node, self._of_device)


def without_arrays(error: BaseException) -> BaseException:
    """The error; if it is an out-of-memory error, without its traceback, whose frames keep arrays."""
    if isinstance(error, errors.ResourceExhaustedError):
        error.__context__ = None
        return error.with_traceback(None)
    return error


# Returns the running step's memory on a device.
_of_step: ContextVar[Callable[[HasMemory], DeviceMemory] | None] = ContextVar("aexec_device_memory", default=None)


@contextmanager
def accounting_for(of_device: Callable[[HasMemory], DeviceMemory] | None) -> Iterator[None]:
    """Context manager: what this task, and tasks that it makes, queue on devices counts for a step."""
    token = _of_step.set(of_device)
    try:
        yield
    finally:
        _of_step.reset(token)


def device_memory(device: HasMemory) -> DeviceMemory | None:
    """What the running step holds on a device; None if it is not accounted for."""
    of_device = _of_step.get()
    return None if of_device is None else of_device(device)


def accounted(memory: DeviceMemory | None, node: str) -> AbstractContextManager[None]:
    """`DeviceMemory.of_call`, or a context manager without effect if memory is not accounted for."""
    return _NOBODY if memory is None else memory.of_call(node)


_NOBODY = nullcontext()
