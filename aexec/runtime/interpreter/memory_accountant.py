"""The accountant of a step: calls of kernels are accounted for, and refused where they would exceed a limit.

Before a call its outputs are reserved, as large as the op's shape function says of these very inputs, and besides them
what the kernel says that it needs for itself (`op_kernel.Scratch`); what it takes of an allocator, or announces, is
taken of the former.  What nobody can say beforehand (outputs whose shape depends on values that the kernel computes) is
counted when it is there, and ends the step then if it is too much.  Kernels whose time does not grow with their inputs,
by their `cost` of 0, give views and handles.

With a limit of less than `EXACT_BELOW`, and in traced steps, each call is accounted for, by a tracer.  Under larger
ones only those are that go to a thread.  Calls on the event loop are short, so that none makes more than some
megabytes: what they have made is **looked** for in the steps that outlive their slice, so often that it takes a
fiftieth of the time, or where there is little room left an eighth; and what resources keep is counted by these
(`aexec/framework/memory/kept_memory.py`).  So limits cost nothing where runs are short.
Next to read: `aexec/framework/memory/memory_account.py`.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from time import perf_counter
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
from aexec.framework.waiting.futures import AWAITABLE
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import DEFAULT, MEASURE_NS
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

# Bytes: below, a limit is not many times what one call on the event loop may make.
EXACT_BELOW = 256 << 20
_MAX_KNOWN = 1 << 14
# Looking for values takes such a part of the time at most; and such a part where there is room for what may be made
# until the next look, at so many bytes a second.
_MOST_LOOKING = 1 / 8
_LOOKING = 1 / 50
_BYTES_PER_SECOND = 10e9
# How many executions are looked at, of all steps.
_executions_looked_at = [0]
# Strings of an array that are looked at.
_MOST_STRINGS = DEFAULT.pieces(MEASURE_NS) // 4
# Bytes of fed values that are worth telling apart from what a step made.
_LARGE_FEED = 1 << 16


class StepMemory:
    """What a step takes of memory, and what its session allows.

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
        # What it has on devices that are not the host.
        self._devices: dict[str, DeviceMemory] = {}
        # Of each execution: the bytes that were found, and when to look for more.
        self._looked: dict[Any, tuple[int, float]] = {}
        self._fed: dict[int, weakref.ref[Any]] = {}

    @property
    def step(self) -> MemoryAccount:
        """The step's own account; most steps need none."""
        if self._step is None:
            self._step = MemoryAccount("step", "SessionConfig.step_bytes", self._limit, self.session)
        return self._step

    def of_device(self, device: HasMemory) -> DeviceMemory:
        """What the step has in the memory of a device that is not the host."""
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
        """A compute callable for one call that does the same, if there is room for it."""
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

    def fed(self, values: Iterable[Any]) -> None:
        """These are the caller's."""
        if self.is_exact:
            return
        for value in values:
            if isinstance(value, np.ndarray) and value.nbytes >= _LARGE_FEED:
                owner = buffer_of(value)
                with suppress(TypeError):  # bytes, say, which `look` passes over
                    self._fed[id(owner)] = weakref.ref(owner)

    def look(self, execution: Any, values: Callable[[], Iterable[Any]]) -> None:
        """Count what an execution has in use, but for what is counted already, unless that was done a moment ago.

        Args:
            values: gives all that it holds.

        Raises:
            ResourceExhaustedError: it is too much.
        """
        if not self.is_exact:
            self._look(execution, values)
            self._look(None, self._step_tensors)

    def _look(self, key: Any, values: Callable[[], Iterable[Any]]) -> None:
        found, again = self._looked.get(key, (0, 0.0))
        began = perf_counter()
        if began < again:
            return
        step, total = self.step, 0
        seen: set[int] = set()
        for array in _arrays(values()):
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
        now = perf_counter()
        # Together they take such a part of the time: each has its turns while the others wait.
        took = (now - began) * max(1, _executions_looked_at[0])
        pause = min(took / _LOOKING, max(took / _MOST_LOOKING, step.room / _BYTES_PER_SECOND))
        self._looked[key] = total, now + pause
        try:
            step.check()
        except errors.ResourceExhaustedError as error:
            raise errors.ResourceExhaustedError(f"OOM: {error.message}{self.report(self._device)}") from None

    def close(self) -> None:
        """The step has ended."""
        for key in list(self._looked):
            self.ended(key)

    def ended(self, execution: Any) -> None:
        """An execution has let go of its values."""
        found = self._looked.pop(execution, None)
        if found is not None:
            _executions_looked_at[0] -= 1
            if found[0]:
                self.step.give_back(found[0])

    def hand_over(self, fetched: Sequence[Any]) -> None:
        """As the function of this name."""
        if self.session is not None:
            hand_over(fetched, self.session, self.kept)

    def report(self, device: str, allocator: str = CPU_ALLOCATOR) -> str:
        """What is in use, in TensorFlow's words: of the session if that has an account, else of the step."""
        lines = "".join(f"  {line}\n" for line in (self.session or self.step).report())
        return f"\nCurrent usage from device: {device}, allocator: {allocator}\n{lines}"

    def refused(
        self, node: PlanNode, inputs: Sequence[Any], error: errors.ResourceExhaustedError
    ) -> errors.ResourceExhaustedError:
        """The error of a limit, with what was to be made."""
        outputs = ", ".join(
            f"shape[{','.join(map(str, dims))}] and type {dtype}" for dims, dtype in _outputs(node, inputs, [])
        )
        what = f"tensor with {outputs}" if outputs else "the outputs"
        return errors.ResourceExhaustedError(
            f"OOM when allocating {what} on {node.device}: {error.message}{self.report(node.device)}"
        )


def _sampled_bytes(owner: Any) -> int:
    """As `memory_bytes`; of many strings as much as some of them make likely, as it is asked for on the event loop."""
    apart = -(-owner.size // _MOST_STRINGS)
    return (
        memory_bytes(owner) if owner.dtype != object or apart < 2 else apart * memory_bytes(owner.reshape(-1)[::apart])
    )


def _arrays(values: Iterable[Any], opened: set[int] | None = None) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays among what executions hold: in lists and tuples too, and those that variants hold.

    Args:
        opened: arrays of objects that were looked into.  A list of lists may have one of them in a billion places.
    """
    opened = set() if opened is None else opened
    for value in values:
        if type(value) is np.ndarray:
            yield value
            if value.dtype == object and id(value) not in opened:
                opened.add(id(value))
                yield from _arrays(variant.tensors_in(value), opened)
        elif type(value) is list or type(value) is tuple:
            yield from _arrays(value, opened)


def values_of_line(line: Generator[Any, Any, Any]) -> Iterator[Any]:
    """All that a compiled line holds which is suspended: its variables, and those of what it calls."""
    inner: Any = line
    while inner is not None and inner.gi_frame is not None:
        names = inner.gi_frame.f_locals
        values = tuple(names.values())
        if type(names) is dict:
            # Before Python 3.13 the frame keeps this copy of its variables, and with it values that it lets go of:
            # kernels could not write over them.
            names.clear()
        yield from values
        inner = inner.gi_yieldfrom


def hand_over(fetched: Sequence[Any], session: MemoryAccount, kept: KeptMemory | None) -> None:
    """Fetched values are the caller's from now on, unless they are a variable's, say, which nobody can write to."""
    arrays = [array for array in fetched if isinstance(array, np.ndarray) and array.flags.writeable]
    if kept is not None and arrays:
        kept.forget(arrays)
    for array in arrays:
        if session.knows(array):
            session.forget(array)


class MemoryAccountant(OuterTracer):
    """A tracer that accounts for memory, around another tracer if there is one.

    Args:
        memory: the step's.
        report: let every error of memory that is out say what is in use, not only those of the limits.
    """

    def __init__(self, memory: StepMemory, inner: StepTracer | None, *, report: bool = False) -> None:
        super().__init__(inner)
        self._memory = memory
        self._report = report

    def wrap(
        self, node: PlanNode, compute: Callable[..., Any], frame_iter: tuple[int, int], ready: int
    ) -> Callable[..., Any]:
        """A compute callable that does the same, if there is room for it."""
        overwrites = compute is not node.compute  # one of its inputs
        if self._inner is not None:
            compute = self._inner.wrap(node, compute, frame_iter, ready)
        if node.queued_on is not None or (node.transfers and _makes_nothing(node.node)):
            return compute
        memory = self._memory

        def begin(arguments: Sequence[Any]) -> CallMemory:
            inputs = _inputs(node, arguments)
            if not overwrites and node.cost != 0:  # else it gives what it is given, and may not be called in a thread
                check_inline(sum(map(measuring_ns, filter(_is_array, inputs))))
            try:
                return memory.begin(node, inputs, overwrites=overwrites)
            except errors.ResourceExhaustedError as error:
                self.note(node, frame_iter, f"failed: {error.message}")
                raise

        def end(call: CallMemory, out: Any, arguments: Sequence[Any]) -> None:
            outputs = out if type(out) is tuple else (out,)
            inputs = _inputs(node, arguments)
            try:
                call.end(filter(_is_array, outputs), list(filter(_is_array, inputs)))
            except errors.ResourceExhaustedError as error:
                raise memory.refused(node, inputs, error) from None

        def count(call: CallMemory, out: Any) -> None:
            with suppress(errors.ResourceExhaustedError):  # nobody can be told now: the next call does not fit
                end(call, out, ())

        def failed(call: CallMemory, error: BaseException) -> BaseException:
            call.end()
            if self._report and isinstance(error, MemoryError):
                error = errors.ResourceExhaustedError(f"OOM when running {{{{node {node.name}}}}} ({node.op}): {error}")
            if not isinstance(error, errors.ResourceExhaustedError) or "Current usage from" in error.message:
                return error
            limited = "Config." in error.message
            return self._with_report(node, error) if limited or self._report else error

        if inspect.iscoroutinefunction(compute):

            async def accounted_await(*arguments: Any) -> Any:
                call = CallMemory(memory.step, node.name)  # who knows when it will be there
                try:
                    with watching(call, every=memory.is_exact):
                        out = await compute(*arguments)
                except BaseException as error:
                    told = failed(call, error)
                    try:
                        if told is error:
                            raise
                        raise told from error
                    finally:
                        del told  # whose traceback refers to this frame
                end(call, out, arguments)
                return out

            return accounted_await

        def accounted(*arguments: Any) -> Any:
            call = begin(arguments)
            try:
                with watching(call, every=memory.is_exact):
                    out = compute(*arguments)
            except BaseException as error:
                told = failed(call, error)
                try:
                    if told is error:
                        raise
                    raise told from error
                finally:
                    del told  # whose traceback refers to this frame
            if isinstance(out, AWAITABLE):
                call.end()
                return once_there(out, lambda out: count(call, out))
            end(call, out, arguments)
            return out

        return accounted

    def _with_report(self, node: PlanNode, error: errors.ResourceExhaustedError) -> errors.ResourceExhaustedError:
        return errors.ResourceExhaustedError(error.message + self._memory.report(node.device))


def _makes_nothing(transfer: Node) -> bool:
    """Does a Send or Recv only pass a value on, or leave copying it to a device, which knows its own memory?"""
    if transfer.op != "_Recv":
        return transfer.op in SENDS
    ends = [DeviceName.parse(transfer.attrs[end].decode()) for end in ("send_device", "recv_device")]
    return ends[0].type == ends[1].type


def _inputs(node: PlanNode, arguments: Sequence[Any]) -> Sequence[Any]:
    """Of what a compute callable is called with, the node's inputs; none if a kernel has taken them out of its list."""
    if node.takes_list:
        return tuple(arguments[1]) if len(arguments) > 1 else ()
    return arguments[1:] if node.wants_context else arguments


# What these give may be a part of an input, or all of it, where it is no larger: it is counted when it is there.
_MAYBE_PARTS = frozenset(
    """BatchMatrixBandPart BatchMatrixDiagPart BatchToSpaceND BroadcastTo CheckNumerics CheckNumericsV2 DepthToSpace
    DiagPart ExtractVolumePatches Gather GatherNd MatrixBandPart MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3
    MirrorPad MirrorPadGrad Pad PadV2 RaggedTensorToSparse RandomShuffle Reshape SpaceToBatchND SparseAdd SparseReorder
    StatelessShuffle Tile""".split()
)


# Their shape functions, which are TensorFlow's, leave the lengths of the transforms out of account.
_NOT_TOLD = frozenset({"FFTND", "IFFTND", "IRFFTND", "RFFTND"})


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


# What a call will make


class Expected(NamedTuple):
    """Bytes that a call is expected to make of outputs, and to need for itself besides until it ends."""

    outputs: int
    scratch: int


_NOTHING = Expected(0, 0)


class Expectations:
    """What calls will take, remembered by node and shapes where no values were looked at."""

    def __init__(self) -> None:
        # With the node, which keeps the number by which it is known its own.
        self._known: dict[Any, tuple[Expected, Node]] = {}

    def clear(self) -> None:
        """Let go of the nodes: none will be run any more."""
        self._known.clear()

    def of(self, node: PlanNode, inputs: Sequence[Any]) -> Expected:
        """As `expected_of`."""
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
    """What a call of a node will take for these inputs, as far as its shape function and its kernel tell.

    Elements of strings count as references.

    Args:
        looked_at: gets the positions of the inputs whose values the shape function looked at.
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
