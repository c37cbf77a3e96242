"""The accountant of a step: every call of a kernel is accounted for, and refused where it would exceed a limit.

Before a call its outputs are reserved, as large as the op's shape function says of these very inputs; what the kernel
takes of an allocator, or announces, is taken of that.  What nobody can say beforehand (outputs whose shape depends on
values that the kernel computes, what NumPy makes in between) is counted when it is there, and ends the step then if it
is too much.  Kernels whose time does not grow with their inputs, by their `cost` of 0, give views and handles.
Next to read: `aexec/framework/memory_account.py`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from aexec.framework import errors, op_registry
from aexec.framework.allocator import watching
from aexec.framework.device_name import DeviceName
from aexec.framework.dtypes import DType
from aexec.framework.futures import AWAITABLE
from aexec.framework.memory_account import CallMemory, MemoryAccount
from aexec.framework.shape import PartialTensorShape
from aexec.framework.shape_inference import InferenceContext, Shape
from aexec.framework.unique_tensor_references import UniqueTensorReferences
from aexec.graph.node import Node
from aexec.graph.partition import SENDS
from aexec.runtime.inferred_shapes import fully_known
from aexec.runtime.plan import PlanNode
from aexec.runtime.tracing import OuterTracer, StepTracer, once_there

__all__ = ["Expectations", "MemoryAccountant", "StepMemory", "expected_bytes"]

_MAX_KNOWN = 1 << 14


class StepMemory:
    """What a step takes of memory, and what its session allows.

    Args:
        limit: bytes that the step may have in use; None for no limit.
        session: the account of its session, if that has a limit.
        expectations: of the session; None where nothing is limited, and so nothing is to be known beforehand.
    """

    def __init__(self, limit: int | None, session: MemoryAccount | None, expectations: Expectations | None) -> None:
        self.step = MemoryAccount("step", "SessionConfig.step_bytes", limit)
        self.session = session
        self.expectations = expectations

    def hand_out(self, fetched: Sequence[Any]) -> None:
        """Fetched values are the caller's from now on, unless they are a variable's, say, which nobody can write to."""
        if self.session is None:
            return
        references = UniqueTensorReferences()
        for array in fetched:
            if isinstance(array, np.ndarray) and array.flags.writeable:
                references.add(array)
        for array in references.freeze():
            self.session.forget(array)

    def report(self, device: str) -> str:
        """What is in use, in TensorFlow's words: of the session if that has a limit, else of the step."""
        lines = (self.session or self.step).report()
        return f"\nCurrent usage from device: {device}, allocator: cpu\n" + "".join(f"  {line}\n" for line in lines)


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
        if node.transfers and _makes_nothing(node.node):
            return compute
        memory = self._memory

        def begin(arguments: Sequence[Any]) -> CallMemory:
            call = CallMemory(memory.step, memory.session, node.name)
            if overwrites or memory.expectations is None:
                return call
            try:
                call.begin(memory.expectations.of(node, _inputs(node, arguments)))
            except errors.ResourceExhaustedError as error:
                self.note(node, frame_iter, f"failed: {error.message}")
                raise self._refused(node, _inputs(node, arguments), error) from None
            return call

        def end(call: CallMemory, out: Any, arguments: Sequence[Any]) -> None:
            outputs = out if type(out) is tuple else (out,)
            inputs = _inputs(node, arguments)
            try:
                call.end(filter(_is_array, outputs), list(filter(_is_array, inputs)))
            except errors.ResourceExhaustedError as error:
                raise self._refused(node, inputs, error) from None

        def count(call: CallMemory, out: Any) -> None:
            with suppress(errors.ResourceExhaustedError):  # nobody can be told now: the next call does not fit
                end(call, out, ())

        def failed(call: CallMemory, error: BaseException) -> BaseException:
            call.end()
            if self._report and isinstance(error, MemoryError):
                error = errors.ResourceExhaustedError(f"OOM when running {{{{node {node.name}}}}} ({node.op}): {error}")
            if not isinstance(error, errors.ResourceExhaustedError) or "Current usage from" in error.message:
                return error
            limited = "SessionConfig." in error.message
            return self._with_report(node, error) if limited or self._report else error

        if inspect.iscoroutinefunction(compute):

            async def accounted_await(*arguments: Any) -> Any:
                call = CallMemory(memory.step, memory.session, node.name)  # who knows when it will be there
                try:
                    with watching(call):
                        out = await compute(*arguments)
                except BaseException as error:
                    told = failed(call, error)
                    if told is error:
                        raise
                    raise told from error
                end(call, out, arguments)
                return out

            return accounted_await

        def accounted(*arguments: Any) -> Any:
            call = begin(arguments)
            try:
                with watching(call):
                    out = compute(*arguments)
            except BaseException as error:
                told = failed(call, error)
                if told is error:
                    raise
                raise told from error
            if isinstance(out, AWAITABLE):
                call.end()
                return once_there(out, lambda out: count(call, out))
            end(call, out, arguments)
            return out

        return accounted

    def _refused(
        self, node: PlanNode, inputs: Sequence[Any], error: errors.ResourceExhaustedError
    ) -> errors.ResourceExhaustedError:
        """The error of a limit, with what was to be made."""
        outputs = ", ".join(
            f"shape[{','.join(map(str, dims))}] and type {dtype}" for dims, dtype in _outputs(node, inputs, [])
        )
        what = f"tensor with {outputs}" if outputs else "the outputs"
        made = errors.ResourceExhaustedError(f"OOM when allocating {what} on {node.device}: {error.message}")
        return self._with_report(node, made)

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


class Expectations:
    """What calls will make, remembered by node and shapes where no values were looked at."""

    def __init__(self) -> None:
        # With the node, which keeps the number by which it is known its own.
        self._known: dict[Any, tuple[int, Node]] = {}

    def of(self, node: PlanNode, inputs: Sequence[Any]) -> int:
        """As `expected_bytes`."""
        if node.cost == 0:
            return 0
        key = (id(node.node), *[value.shape if _is_array(value) else None for value in inputs])
        found = self._known.get(key)
        if found is not None:
            return found[0]
        looked_at: list[int] = []
        expected = expected_bytes(node, inputs, looked_at)
        if not looked_at:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = expected, node.node
        return expected


def expected_bytes(node: PlanNode, inputs: Sequence[Any], looked_at: list[int] | None = None) -> int:
    """Bytes of the outputs of a node, for these inputs, as far as its shape function tells.

    Elements of strings count as references.

    Args:
        looked_at: gets the positions of the inputs whose values were looked at.
    """
    seen = [] if looked_at is None else looked_at
    return sum(math.prod(dims) * dtype.np.itemsize for dims, dtype in _outputs(node, inputs, seen))


def _outputs(node: PlanNode, inputs: Sequence[Any], looked_at: list[int]) -> Iterator[tuple[tuple[int, ...], DType]]:
    """Dimensions and types of the outputs that are new and of known shape."""
    if node.cost == 0 or node.passes_on or node.calls is not None or node.op in _NOT_TOLD:
        return
    largest = max((value.nbytes for value in inputs if _is_array(value)), default=0)
    shapes = _output_shapes(node, inputs, looked_at)
    for shape, dtype in zip(shapes, node.node.output_types, strict=False):
        dims = fully_known(shape.dims)
        if dims is None or dtype.is_ref:
            continue
        if node.op not in _MAYBE_PARTS or math.prod(dims) * dtype.np.itemsize > largest:
            yield dims, dtype


def _output_shapes(node: PlanNode, inputs: Sequence[Any], looked_at: list[int]) -> Sequence[PartialTensorShape]:
    """What the op's shape function says of these inputs; where it cannot, what was inferred of the graph."""
    inferred = node.node.shapes or ()
    data = op_registry.global_registry.find(node.op)
    if data is None or data.shape_fn is None:
        return inferred

    def value(index: int) -> Any:
        looked_at.append(index)
        return inputs[index] if _is_array(inputs[index]) else None

    try:
        context = InferenceContext(
            node.node.op_def,
            node.node.attrs,
            [Shape(value.shape if _is_array(value) or isinstance(value, np.generic) else None) for value in inputs],
            evaluate=value,
        )
        data.shape_fn(context)
        return context.outputs
    except Exception:
        return inferred  # the kernel says what is wrong with its inputs
