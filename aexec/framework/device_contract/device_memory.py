"""Memory of devices, accounted for: which step has what in the memory of a device that is not the host.

Whatever is queued on a device in a task in which a step's memory is accounted for (`accounting_for`) is that step's:
the device asks for its `DeviceMemory` where it queues a call or a copy, and when its thread makes that, what it takes
of the device's allocator is reserved before it is allocated, and counts until its memory dies.  Where nobody accounts
for memory that costs a look at a variable of the context.
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

__all__ = ["DeviceMemory", "HasMemory", "accounted", "accounting_for", "device_memory", "without_arrays"]


class HasMemory(Protocol):
    """What is asked of a `Device`."""

    name: str
    allocator: Allocator


class DeviceMemory:
    """What a step has in the memory of one device.

    Args:
        account: of that, within the step's.
        report: what is in use, for errors, given the names of a device and its allocator.
        session: the account of the step's session, if that has one.
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
        """Within, in this thread, what is taken of the device's allocator is a node's.

        Raises:
            ResourceExhaustedError: it would exceed a limit; nothing was allocated.
        """
        call = _DeviceCall(self.account, node, self._allocator)
        try:
            with watching(call):
                yield
        except errors.ResourceExhaustedError as error:
            if not call.refused:
                raise
            raise errors.ResourceExhaustedError(
                f"{error.message}{self._report(self._device, self._allocator)}"
            ) from None
        finally:
            call.end()

    def hand_out(self, array: Any) -> None:
        """An array is the caller's from now on."""
        if self._session is not None:
            self._session.forget(array)


class _DeviceCall(CallMemory):
    """A call or copy whose allocations of one allocator are accounted for.

    Attributes:
        refused: one of them did not fit.
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


def without_arrays(error: BaseException) -> BaseException:
    """An error; if it says that memory is out, without the frames that it came through: these keep arrays."""
    if isinstance(error, errors.ResourceExhaustedError):
        error.__context__ = None
        return error.with_traceback(None)
    return error


# Gives the memory of the running step on a device.
_of_step: ContextVar[Callable[[HasMemory], DeviceMemory] | None] = ContextVar("aexec_device_memory", default=None)


@contextmanager
def accounting_for(of_device: Callable[[HasMemory], DeviceMemory] | None) -> Iterator[None]:
    """Within, in this task and those that it makes, what is queued on devices is a step's."""
    token = _of_step.set(of_device)
    try:
        yield
    finally:
        _of_step.reset(token)


def device_memory(device: HasMemory) -> DeviceMemory | None:
    """What the running step has on a device; None where nobody accounts for it."""
    of_device = _of_step.get()
    return None if of_device is None else of_device(device)


def accounted(memory: DeviceMemory | None, node: str) -> AbstractContextManager[None]:
    """`DeviceMemory.of_call`, if anybody accounts for the memory."""
    return _NOBODY if memory is None else memory.of_call(node)


_NOBODY = nullcontext()
