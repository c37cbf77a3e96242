"""The accountant of a step: counts the memory of kernel calls, and refuses calls that would exceed a limit.

Before a call it reserves memory for the outputs, whose sizes the op's shape function computes from the inputs, and for
the scratch memory that the kernel declares (`op_kernel.Scratch`).  Memory that the kernel takes from an allocator, or
announces, is taken from that reservation.  Outputs whose shapes only the kernel can compute are counted after the call;
if they are too large, the step fails.  Kernels with a `cost` of 0 return views and handles, so nothing is reserved for
them.

Under a limit below `EXACT_BELOW`, and in traced steps, a tracer counts every call.  Under larger limits only calls in
threads are counted: a call on the event loop is short and makes a few megabytes at most.  Steps that outlive their
slice are instead **looked** through for values, at most a fiftieth of the time, or an eighth where little room is left;
and resources count what they keep themselves (`aexec/framework/memory/kept_memory.py`).  So limits cost short runs
nothing.
Next to read: `aexec/framework/memory/memory_account.py`.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from random import randrange
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np

from aexec.framework import errors
from aexec.framework.device_contract.device_memory import DeviceMemory, HasMemory
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel import follows_from_shapes, scratch_bytes
from aexec.framework.kernel_contract.output_sizes import output_shapes
from aexec.framework.memory.allocator import watching
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.memory_account import CallMemory, MemoryAccount
from aexec.framework.memory.tensor_buffer import CPU_ALLOCATOR, buffer_of, measuring_ns, memory_bytes
from aexec.framework.waiting.futures import AWAITABLE, PendingOutputs
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import DEFAULT, MEASURE_NS
from aexec.framework.waiting.thrown_errors import forget_frames
from aexec.framework.wire import variant
from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.partition import SENDS
from aexec.runtime.plans.inferred_shapes import fully_known
from aexec.runtime.plans.plan import PlanNode
from aexec.runtime.profiling.tracing import OuterTracer, StepTracer, once_there

__all__ = [
    "EXACT_BELOW",
    "Expectations",
    "Expected",
    "MemoryAccountant",
    "StepMemory",
    "expected_of",
    "hand_over",
    "values_of_line",
]

# With a limit below this many bytes, every call is counted: one call on the event loop may take a good part of it.
EXACT_BELOW = 256 << 20
_MAX_KNOWN = 1 << 14
# Largest part of the time spent on looking for values; the part if memory has room for all that calls can make until
# the next look; and the rate at which calls can make values, in bytes per second.
_MOST_LOOKING = 1 / 8
_LOOKING = 1 / 50
_BYTES_PER_SECOND = 10e9
# The number of executions, of all steps in the process, that are being looked through.
_executions_looked_at = [0]
# At most this many strings of one array are measured; the rest are estimated from them.
_MOST_STRINGS = DEFAULT.pieces(MEASURE_NS) // 4
# Of a list with more values than `_LONG` about `_SAMPLED` are looked at, because the event loop waits; at least
# `_ENOUGH` of them must be arrays to tell of the others.
_LONG, _SAMPLED, _ENOUGH = 4096, 2048, 64
# Fed values of at least this many bytes are not counted as made by the step.
_LARGE_FEED = 1 << 16


class StepMemory:
    """The memory that one step uses, and how much its session allows.

    Args:
        limit: bytes that the step may have in use; None for no limit.
        session: the account of its session, if that has one.
        expectations: of the session; None where nothing is limited, and so nothing is to be known beforehand.
        device: the host's, for reports.
        is_exact: each call is accounted for.
        kept: what the resources of the session keep, if they are counted by themselves.
        step_tensors: gives what the resources of the step hold.

    Attributes:
        is_exact: as given.
    """

    __slots__ = (
        "_device",
        "_devices",
        "_fed",
        "_limit",
        "_looked",
        "_step",
        "_step_tensors",
        "expectations",
        "is_exact",
        "kept",
        "session",
    )

    def __init__(
        self,
        limit: int | None,
        session: MemoryAccount | None,
        expectations: Expectations | None,
        device: str,
        *,
        is_exact: bool,
        kept: KeptMemory | None = None,
        step_tensors: Callable[[], Iterable[Any]] = tuple,
    ) -> None:
        self._limit = limit
        self.session = session
        self.expectations = expectations
        self._device = device
        self.is_exact = is_exact
        self.kept = kept
        self._step_tensors = step_tensors
        self._step: MemoryAccount | None = None
        # By device name, for devices with memory of their own.
        self._devices: dict[str, DeviceMemory] = {}
        # By execution: the bytes found by the last look, and the time of the next.
        self._looked: dict[Any, tuple[int, float]] = {}
        self._fed: dict[int, weakref.ref[Any]] = {}

    @property
    def step(self) -> MemoryAccount:
        """The step's own account, made at its first use."""
        if self._step is None:
            self._step = MemoryAccount("step", "SessionConfig.step_bytes", self._limit, self.session)
        return self._step

    def of_device(self, device: HasMemory) -> DeviceMemory:
        """The step's memory on a device that is not the host."""
        found = self._devices.get(device.name)
        if found is None:
            account = MemoryAccount("step", within=self.step)
            found = self._devices[device.name] = DeviceMemory(account, device, self.report, self.session)
        return found

    @property
    def device_peaks(self) -> dict[str, int]:
        """By the names of devices that are not the host, the most bytes that the step had there at a time."""
        return {name: memory.account.peak for name, memory in self._devices.items()}

    def accounted(self, node: PlanNode, compute: Callable[..., Any]) -> Callable[..., Any]:
        """A compute callable for one call, which reserves the call's memory first and does the same otherwise."""
        return compute if self.is_exact else MemoryAccountant(self, None).wrap(node, compute, (0, 0), 0)

    def begin(self, node: PlanNode, inputs: Sequence[Any], *, overwrites: bool = False) -> CallMemory:
        """Reserve what a call of a node will take.  Raises ResourceExhaustedError if that does not fit.

        Args:
            overwrites: its output is written over one of the inputs.
        """
        call = CallMemory(self.step, node.name)
        if self.expectations is not None:
            outputs, scratch = self.expectations.of(node, inputs)
            try:
                call.begin(0 if overwrites else outputs, scratch)
            except errors.ResourceExhaustedError as error:
                raise self.refused(node, inputs, error) from None
        return call

    @contextmanager
    def making_feed(self, name: str, num_bytes: int) -> Iterator[Callable[[Any, int], None]]:
        """Context manager: make an array for a fed value, for which as many bytes are reserved meanwhile.

        Yields:
            a function to call with the array and its bytes; it counts as long as it lives.

        Raises:
            ResourceExhaustedError: the bytes exceed a limit.
        """
        step = self.step
        try:
            step.reserve(num_bytes)
            try:
                yield partial(step.add_sized, name)
            finally:
                step.give_back(num_bytes)
            step.check()
        except errors.ResourceExhaustedError as error:
            forget_frames(error)
            raise errors.ResourceExhaustedError(
                f"OOM when making {name}: {error.message}{self.report(self._device)}"
            ) from None

    def fed(self, values: Iterable[Any]) -> None:
        """Mark values as the caller's: they do not count."""
        if self.is_exact:
            return
        for value in values:
            if isinstance(value, np.ndarray) and value.nbytes >= _LARGE_FEED:
                owner = buffer_of(value)
                with suppress(TypeError):  # bytes, say, which `look` passes over
                    self._fed[id(owner)] = weakref.ref(owner)

    def look(self, execution: Any, values: Callable[[], Iterable[Any]]) -> None:
        """Count the values that an execution holds and that are not counted yet, unless it is too early for a new look.

        Args:
            values: returns all values that it holds.

        Raises:
            ResourceExhaustedError: they exceed the limit.
        """
        if not self.is_exact:
            self._look(execution, values)
            self._look(None, self._step_tensors)

    def _look(self, key: Any, values: Callable[[], Iterable[Any]]) -> None:
        found, again = self._looked.get(key, (0, 0.0))
        if perf_counter() < again:
            return
        # Not by the clock: other threads and processes may have had the processor for longer than the look takes.
        began = thread_time()
        step, total = self.step, 0
        seen: set[int] = set()
        for array in _arrays(values()):
            if isinstance(array, int):
                total += array
                continue
            owner = array if array.base is None else buffer_of(array)
            address = id(owner)
            if address in seen or not array.flags.writeable or not isinstance(owner, np.ndarray) or step.knows(owner):
                continue
            seen.add(address)
            if address not in self._fed or self._fed[address]() is not owner:
                total += _sampled_bytes(owner)
        if total > found:
            step.take(total - found)
        elif total < found:
            step.give_back(found - total)
        if key not in self._looked:
            _executions_looked_at[0] += 1
        # Together they take such a part of the time: each has its turns while the others wait.
        took = (thread_time() - began) * max(1, _executions_looked_at[0])
        pause = min(took / _LOOKING, max(took / _MOST_LOOKING, step.room / _BYTES_PER_SECOND))
        self._looked[key] = total, perf_counter() + pause
        try:
            step.check()
        except errors.ResourceExhaustedError as error:
            raise errors.ResourceExhaustedError(f"OOM: {error.message}{self.report(self._device)}") from None

    def close(self) -> None:
        """Release everything: the step has ended."""
        for key in list(self._looked):
            self.ended(key)

    def ended(self, execution: Any) -> None:
        """Forget an execution that holds no values any more."""
        found = self._looked.pop(execution, None)
        if found is not None:
            _executions_looked_at[0] -= 1
            if found[0]:
                self.step.give_back(found[0])

    def hand_over(self, fetched: Sequence[Any]) -> None:
        """Call the function `hand_over` for this step."""
        if self.session is not None:
            hand_over(fetched, self.session, self.kept)

    def report(self, device: str, allocator: str = CPU_ALLOCATOR) -> str:
        """The memory in use, in TensorFlow's words: the session's if it has an account, else the step's."""
        lines = "".join(f"  {line}\n" for line in (self.session or self.step).report())
        return f"\nCurrent usage from device: {device}, allocator: {allocator}\n{lines}"

    def refused(
        self, node: PlanNode, inputs: Sequence[Any], error: errors.ResourceExhaustedError
    ) -> errors.ResourceExhaustedError:
        """Return the error of a limit, with the outputs that were expected."""
        outputs = ", ".join(
            f"shape[{','.join(map(str, dims))}] and type {dtype}" for dims, dtype in _outputs(node, inputs, [])
        )
        what = f"tensor with {outputs}" if outputs else "the outputs"
        return errors.ResourceExhaustedError(
            f"OOM when allocating {what} on {node.device}: {error.message}{self.report(node.device)}"
        )


def _sampled_bytes(owner: Any) -> int:
    """Like `memory_bytes`, but estimates many strings from a sample, because the event loop waits."""
    apart = -(-owner.size // _MOST_STRINGS)
    return (
        memory_bytes(owner) if owner.dtype != object or apart < 2 else apart * memory_bytes(owner.reshape(-1)[::apart])
    )


def _arrays(values: Iterable[Any], opened: set[int] | None = None) -> Iterator[np.ndarray[Any, Any] | int]:
    """The arrays among values, including those in lists, tuples and variants; of a long list some of them, and a number
    of bytes for the others.

    Args:
        opened: ids of the object arrays visited so far.  A list of lists may refer to one array a billion times.
    """
    opened = set() if opened is None else opened
    for value in values:
        if type(value) is np.ndarray:
            yield value
            if value.dtype == object and id(value) not in opened:
                opened.add(id(value))
                yield from _arrays(variant.tensors_in(value), opened)
        elif type(value) is list or type(value) is tuple:
            if len(value) <= _LONG:
                yield from _arrays(value, opened)
            else:
                stride = len(value) // _SAMPLED
                some = value[randrange(stride) :: stride]
                yield from _arrays(some, opened)
                yield _bytes_of_others(some, stride)


def _bytes_of_others(some: Sequence[Any], stride: int) -> int:
    """An estimate of the bytes of a long list's arrays, without those of a sample, which is each `stride`-th element.

    Arrays that share memory with others of the sample are taken to share it with all.  A sample with few others says
    nothing of the rest: a few large arrays in a list that is nearly empty would count many times.
    """
    seen = Counter[int]()
    alone: dict[int, int] = {}
    for array in some:
        if type(array) is np.ndarray and array.flags.writeable:
            owner = id(array) if array.base is None else id(buffer_of(array))
            seen[owner] += 1
            alone[owner] = array.nbytes
    others = [num_bytes for owner, num_bytes in alone.items() if seen[owner] == 1]
    return (stride - 1) * sum(others) if len(others) >= _ENOUGH else 0


def values_of_line(line: Generator[Any, Any, Any]) -> Iterator[Any]:
    """The values of a suspended compiled line: its local variables, and those of the lines that it calls."""
    inner: Any = line
    while inner is not None and inner.gi_frame is not None:
        names = inner.gi_frame.f_locals
        values = tuple(names.values())
        if type(names) is dict:
            # Before Python 3.13 the frame keeps this copy of its variables, and so values that it has deleted, which
            # kernels then could not overwrite.
            names.clear()
        yield from values
        inner = inner.gi_yieldfrom


def hand_over(fetched: Sequence[Any], session: MemoryAccount, kept: KeptMemory | None) -> None:
    """Stop counting fetched values: they are the caller's now, except read-only ones, such as a variable's."""
    arrays = [array for array in fetched if isinstance(array, np.ndarray) and array.flags.writeable]
    if kept is not None and arrays:
        kept.forget(arrays)
    session.forget(arrays)


class MemoryAccountant(OuterTracer):
    """A tracer that accounts for memory, around another tracer if there is one.

    Args:
        memory: the step's.
        report: True if every out-of-memory error lists the memory in use, not only errors of limits.
    """

    def __init__(self, memory: StepMemory, inner: StepTracer | None, *, report: bool = False) -> None:
        super().__init__(inner)
        self._memory = memory
        self._report = report

    def wrap(
        self, node: PlanNode, compute: Callable[..., Any], frame_iter: tuple[int, int], ready: int
    ) -> Callable[..., Any]:
        """A compute callable that reserves the call's memory first, and does the same otherwise."""
        overwrites = compute is not node.compute  # one of its inputs
        if self._inner is not None:
            compute = self._inner.wrap(node, compute, frame_iter, ready)
        if node.queued_on is not None or (node.transfers and _makes_nothing(node.node)):
            return compute
        memory = self._memory

        def begin(arguments: Sequence[Any]) -> CallMemory:
            inputs = _inputs(node, arguments)
            if not overwrites and node.cost != 0:  # else it returns its input, and may not be called in a thread
                check_inline(sum(map(measuring_ns, filter(_is_array, inputs))))
            try:
                return memory.begin(node, inputs, overwrites=overwrites)
            except errors.ResourceExhaustedError as error:
                self.note(node, frame_iter, f"failed: {error.message}")
                raise

        def count(call: CallMemory, out: Any) -> None:
            with suppress(errors.ResourceExhaustedError):  # too late to raise here; the next call raises it
                self._end(node, call, out, ())

        if inspect.iscoroutinefunction(compute):

            async def accounted_await(*arguments: Any) -> Any:
                call = CallMemory(memory.step, node.name)  # reserves nothing: the call may wait for long
                try:
                    with watching(call, every=memory.is_exact):
                        out = await compute(*arguments)
                except BaseException as error:
                    told = self._failed(node, call, error)
                    try:
                        if told is error:
                            raise
                        raise told from error
                    finally:
                        del told  # whose traceback refers to this frame
                self._end(node, call, out, arguments)
                return out

            return accounted_await

        def accounted(*arguments: Any) -> Any:
            call = begin(arguments)
            try:
                with watching(call, every=memory.is_exact):
                    out = compute(*arguments)
            except BaseException as error:
                told = self._failed(node, call, error)
                try:
                    if told is error:
                        raise
                    raise told from error
                finally:
                    del told  # whose traceback refers to this frame
            if isinstance(out, AWAITABLE):
                call.end()
                if not isinstance(out, PendingOutputs):
                    out = _watched(out, call, every=memory.is_exact)
                return once_there(out, lambda out: count(call, out), lambda error: call.end())
            self._end(node, call, out, arguments)
            return out

        return accounted

    def _end(self, node: PlanNode, call: CallMemory, out: Any, arguments: Sequence[Any]) -> None:
        """A call has given its outputs.  Raises ResourceExhaustedError if there is no room for them."""
        outputs = out if type(out) is tuple else (out,)
        inputs = _inputs(node, arguments)
        try:
            call.end(filter(_is_array, outputs), list(filter(_is_array, inputs)))
        except errors.ResourceExhaustedError as error:
            raise self._memory.refused(node, inputs, error) from None

    def _failed(self, node: PlanNode, call: CallMemory, error: BaseException) -> BaseException:
        """Release the memory of a failed call; return the error to raise."""
        call.end()
        if self._report and isinstance(error, MemoryError):
            error = errors.ResourceExhaustedError(f"OOM when running {{{{node {node.name}}}}} ({node.op}): {error}")
        if not isinstance(error, errors.ResourceExhaustedError) or "Current usage from" in error.message:
            return error
        limited = "Config." in error.message
        return self._with_report(node, error) if limited or self._report else error

    def _with_report(self, node: PlanNode, error: errors.ResourceExhaustedError) -> errors.ResourceExhaustedError:
        return errors.ResourceExhaustedError(error.message + self._memory.report(node.device))


async def _watched(outputs: Any, call: CallMemory, *, every: bool) -> Any:
    with watching(call, every=every):
        return await outputs


def _makes_nothing(transfer: Node) -> bool:
    """True if a Send or Recv only passes a value on, or leaves copying to a device, which counts its own memory."""
    if transfer.op != "_Recv":
        return transfer.op in SENDS
    ends = [DeviceName.parse(transfer.attrs[end].decode()) for end in ("send_device", "recv_device")]
    return ends[0].type == ends[1].type


def _inputs(node: PlanNode, arguments: Sequence[Any]) -> Sequence[Any]:
    """The node's inputs among the arguments of its compute callable; empty if the kernel has emptied its list."""
    if node.takes_list:
        return tuple(arguments[1]) if len(arguments) > 1 else ()
    return arguments[1:] if node.wants_context else arguments


# Outputs of these may be views of an input unless they are larger: they are counted after the call.
_MAYBE_PARTS = frozenset(
    """BatchMatrixBandPart BatchMatrixDiagPart BatchToSpaceND BroadcastTo CheckNumerics CheckNumericsV2 DepthToSpace
    DiagPart ExtractVolumePatches Gather GatherNd MatrixBandPart MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3
    MirrorPad MirrorPadGrad Pad PadV2 RaggedTensorToSparse RandomShuffle Reshape SpaceToBatchND SparseAdd SparseReorder
    StatelessShuffle Tile _SumToShape""".split()
)


# The shape functions of these, which are TensorFlow's, ignore the lengths of the transforms.
_NOT_TOLD = frozenset({"FFTND", "IFFTND", "IRFFTND", "RFFTND"})


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


# Expected memory of calls


class Expected(NamedTuple):
    """Bytes that a call is expected to take: `outputs`, and scratch memory until it ends."""

    outputs: int
    scratch: int


_NOTHING = Expected(0, 0)


class Expectations:
    """Expected memory of calls, remembered by node and shapes unless it depends on values."""

    def __init__(self) -> None:
        # The node is kept, so that its id, which is in the key, is not reused.
        self._known: dict[Any, tuple[Expected, Node]] = {}

    def clear(self) -> None:
        """Release the nodes: none of them will run again."""
        self._known.clear()

    def of(self, node: PlanNode, inputs: Sequence[Any]) -> Expected:
        """Like `expected_of`."""
        if node.cost == 0:
            return _NOTHING
        key = (id(node.node), *[value.shape if _is_array(value) else None for value in inputs])
        found = self._known.get(key)
        if found is not None:
            return found[0]
        looked_at: list[int] = []
        expected = expected_of(node, inputs, looked_at)
        if not looked_at and not (callable(node.scratch) and not follows_from_shapes(node.scratch)):
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = expected, node.node
        return expected


def expected_of(node: PlanNode, inputs: Sequence[Any], looked_at: list[int] | None = None) -> Expected:
    """The memory that a call with these inputs will take, as far as shape function and kernel tell.

    Elements of strings count as references.

    Args:
        looked_at: the positions of inputs whose values the shape function used are appended to it.
    """
    outputs = elements = 0
    for dims, dtype in _outputs(node, inputs, [] if looked_at is None else looked_at):
        size = math.prod(dims)
        elements += size
        outputs += size * dtype.np.itemsize
    return Expected(outputs, scratch_bytes(node.scratch, inputs, elements))


def _outputs(node: PlanNode, inputs: Sequence[Any], looked_at: list[int]) -> Iterator[tuple[tuple[int, ...], DType]]:
    """Dimensions and types of the outputs that are new and of known shape."""
    if node.cost == 0 or node.passes_on or node.calls is not None or node.op in _NOT_TOLD:
        return
    largest = max((value.nbytes for value in inputs if _is_array(value)), default=0)
    shapes = output_shapes(node.node.op_def, node.node.attrs, inputs, looked_at, node.node.shapes or ())
    for shape, dtype in zip(shapes, node.node.output_types, strict=False):
        dims = fully_known(shape.dims)
        if dims is None or dtype.is_ref:
            continue
        if node.op not in _MAYBE_PARTS or math.prod(dims) * dtype.np.itemsize > largest:
            yield dims, dtype
