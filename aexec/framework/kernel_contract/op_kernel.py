"""The contract of a kernel: its construction, its arguments, its results.

An op says *what* is computed (OpDef), a kernel says *how* on one kind of device.
A kernel is registered as a **builder** (see `kernel_registry.kernel`).  The builder
runs once per node, does all checking and attr reading, and returns the **compute
callable**, which runs once per step:

* it takes the node's inputs as positional arrays (list inputs flattened in order)
  and returns one array, or a tuple with one entry per output, or None for no output;
* a numeric 0-d result may be a NumPy scalar; strings, handles and variants are
  always object arrays, 0-d ones included;
* inputs are read-only: an input may be fed by the user or shared with other nodes.  A kernel that asks for it
  (`c.forward_inputs()`) may write its output over an input that nothing else holds;
* a coroutine function is an asynchronous kernel; a function that takes the context may also return a
  coroutine or `futures.PendingOutputs` if it has to wait for its outputs;
* an `errors.OpError` that it raises ends the step; the executor adds the node's name.

A kernel that needs the step asks for it while being built (`c.need_context()`); its
compute callable then gets the `OpKernelContext` as first argument.  One that wants to keep an
input without a copy asks for the list of inputs (`c.take_list()`).
Next to read: `kernel_registry.py`, then `aexec/runtime/plans/plan.py`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.functional_call import FunctionalCall
from aexec.framework.kernel_contract.memory_types import memory_types
from aexec.framework.kernel_contract.node_estimate import NodeEstimate
from aexec.framework.kernel_contract.op_kernel_context import CallSignature, FunctionLibraryRuntime, OpKernelContext
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory import log_memory
from aexec.framework.memory.allocation_logger import AllocationLogger
from aexec.framework.memory.allocator import Allocator, allocator_names, cpu_allocator, watched, watchers, watching
from aexec.framework.types import MemoryType
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import TensorAttr

if TYPE_CHECKING:
    from aexec.framework.device_contract.device import Device
    from aexec.framework.kernel_contract.variable_use import VariableUse
    from aexec.framework.wire.op_def import OpDef

__all__ = [
    "DEFAULT_COST",
    "AsyncOpKernel",
    "Builder",
    "BuiltKernel",
    "Compute",
    "Cost",
    "DilatedCost",
    "OpKernel",
    "OpKernelConstruction",
    "OpKernelContext",
    "PaddedCost",
    "Scratch",
    "follows_from_shapes",
    "of_shapes",
    "scratch_bytes",
]

# The compute callable, which a step calls with the arrays of a node's inputs, and what makes it: see the head.
Compute = Callable[..., Any]
Builder = Callable[["OpKernelConstruction"], Compute]


# Nanoseconds per input element, or a function of the inputs that returns nanoseconds. # 0: the time does not depend on
# the size of the inputs, and the call always runs inline.
Cost = float | Callable[..., float]
DEFAULT_COST = 1.0
# Bytes that a call needs for itself until it ends, besides its outputs, per element of the inputs or of the outputs, #
# whichever are more; or a function of the inputs that returns bytes.
Scratch = float | Callable[..., float]
_OF_SHAPES: set[Callable[..., float]] = set()


def of_shapes(cost: Callable[..., float]) -> Callable[..., float]:
    """Declare that a cost function uses only the shapes and types of the inputs, so that its result may be
    remembered.
    """
    _OF_SHAPES.add(cost)
    return cost


def scratch_bytes(scratch: Scratch, inputs: Sequence[Any], made: int) -> int:
    """The bytes of memory that a call with these inputs needs for itself.

    Args:
        scratch: as its kernel declares it.
        made: the number of elements of its outputs.
    """
    if callable(scratch):
        try:
            return max(0, int(scratch(*inputs)))
        except Exception:
            return 0  # the kernel reports what is wrong with its inputs
    if not scratch:
        return 0
    return int(scratch * max(made, sum(getattr(value, "size", 0) for value in inputs)))


class PaddedCost:
    """The cost of a kernel that pads its inputs, computed from the kernel's cost for the unpadded ones.

    Args:
        cost: the kernel's.
        paddings: before and after each dimension of an input.
    """

    __slots__ = ("_paddings", "cost")

    def __init__(self, cost: Callable[..., float], paddings: Sequence[int]) -> None:
        self.cost = cost
        self._paddings = [
            max(0, before) + max(0, after) for before, after in zip(paddings[::2], paddings[1::2], strict=False)
        ]

    def __call__(self, *inputs: Any) -> float:
        return float(self.cost(*inputs) * max(map(self._growth, inputs)))

    def _growth(self, value: Any) -> float:
        """The size of the padded input divided by that of the input."""
        if value.ndim != len(self._paddings):
            return 1.0
        growth: float = math.prod([1 + more / max(1, n) for more, n in zip(self._paddings, value.shape, strict=True)])
        return growth


class DilatedCost(PaddedCost):
    """The cost of a kernel that pads its first input by a dilated filter, its second one, to keep its size.

    A gradient may have the shape of one of them in its place.

    Args:
        cost: the kernel's.
        dilations: of each dimension of the first input.
    """

    __slots__ = ("_dilations",)

    def __init__(self, cost: Callable[..., float], dilations: Sequence[int]) -> None:
        super().__init__(cost, ())
        self._dilations = dilations

    def __call__(self, *inputs: Any) -> float:
        cost = float(self.cost(*inputs))
        rank = len(self._dilations)
        padded, weights = [_shape_given(value, rank) for value in inputs[:2]] if len(inputs) > 1 else ((), ())
        if not len(padded) == len(weights) == rank:
            return cost
        taps = max(weights[:-2], default=0)
        steps = zip(self._dilations, padded, strict=True)
        growth: float = math.prod([1 + max(0, (by - 1) * (taps - 1)) / max(1, size) for by, size in steps])
        return cost * growth


def _shape_given(value: Any, rank: int) -> Sequence[int]:
    """The shape of an array of this rank, or that a vector says, of height and width alone too; else nothing."""
    if value.ndim == rank:
        return tuple(value.shape)
    if value.ndim != 1 or value.size not in (rank - 2, rank):
        return ()
    sizes: list[int] = value.tolist()
    # Without the other two, any layout's growth is at most this.
    return sizes if len(sizes) == rank else [1, *sizes, 1] if rank == 4 else ()


def follows_from_shapes(cost: Cost) -> bool:
    """True if a cost was declared by `of_shapes`."""
    return (cost.cost if isinstance(cost, PaddedCost) else cost) in _OF_SHAPES


Explain = Callable[..., errors.OpError]


class OpKernelConstruction:
    """What a kernel's builder may use while it builds.  Wrong uses are raised as errors.

    Attributes:
        name, op: the node's name and op type.
        op_def: the op's definition.
        attrs: attr name → Python value (int, float, bool, bytes, DType, PartialTensorShape, numpy array, NameAttrList,
            or a list of one of these); defaults filled in.
        input_types, output_types: DTypes of the flattened inputs and outputs.
        device: full name of the device that the node is placed on.
        placed_on: that device, or None if a kernel is built by itself, for the host.
        xp: the array module, `numpy` or `cupy`.
        graph_version: producer version of the GraphDef.
        max_image_pixels: the most pixels of an image to decode; None for no limit.
        cache_files: datasets may be cached in files.
        host_memory: names of arguments that the kernel was registered to keep in host memory.
        calls: set by the builder of a kernel that does nothing but call functions.
        may_be_abandoned: set by the builder of a stateful op's kernel whose state is consistent at any time, such as a
            generator that advances before it draws.  Calls of other stateful ops are waited for when their step is
            over.
        in_any_thread: set by the builder of a stateful op's kernel that never waits and may be called in any thread,
            since it reads and changes variables under their own locks, or only what belongs to its step.
        explain: set by the builder to turn a foreign exception of the compute callable (such as NumPy's ValueError)
            into an `OpError`: `explain(exception, *inputs)`.  With it, a compute callable can be a bare NumPy function
            without checks.
        variables: set by the builder of a kernel that is queued on a device and works on values of variables there.
    """

    __slots__ = (
        "_allocator",
        "_functions",
        "_status",
        "attrs",
        "cache_files",
        "calls",
        "device",
        "explain",
        "forwards",
        "gives_new_array",
        "graph_version",
        "host_memory",
        "in_any_thread",
        "input_types",
        "max_image_pixels",
        "may_be_abandoned",
        "name",
        "op",
        "op_def",
        "output_types",
        "placed_on",
        "takes_list",
        "variables",
        "wants_context",
        "xp",
    )

    def __init__(
        self,
        *,
        name: str,
        op_def: OpDef,
        attrs: Mapping[str, Any],
        input_types: Sequence[DType],
        output_types: Sequence[DType],
        device: str = "/job:localhost/replica:0/task:0/device:CPU:0",
        xp: Any = np,
        graph_version: int = 0,
        functions: FunctionLibraryRuntime | None = None,
        allocator: Allocator | None = None,
        placed_on: Device | None = None,
        max_image_pixels: int | None = None,
        cache_files: bool = True,
    ) -> None:
        self.name = name
        self.op = op_def.name
        self.op_def = op_def
        self.attrs = attrs
        self.input_types = tuple(input_types)
        self.output_types = tuple(output_types)
        self.device = device
        self.xp = xp
        self.graph_version = graph_version
        self.max_image_pixels = max_image_pixels
        self.cache_files = cache_files
        self._functions = functions
        self._allocator = allocator
        self.placed_on = placed_on
        self._status: errors.OpError | None = None
        self.wants_context = False
        self.takes_list = False
        self.forwards: tuple[int, ...] = ()
        self.gives_new_array = False
        self.explain: Explain | None = None
        self.host_memory: tuple[str, ...] = ()
        self.calls: FunctionalCall | None = None
        self.variables: VariableUse | None = None
        self.may_be_abandoned = False
        self.in_any_thread = False

    def attr(self, name: str) -> Any:
        """The value of an attr.  Raises InvalidArgumentError if the node has none of that name."""
        try:
            value = self.attrs[name]
        except KeyError:
            raise errors.InvalidArgumentError(f"No attr named '{name}' in NodeDef") from None
        return value.array if isinstance(value, TensorAttr) else value

    def text(self, name: str) -> str:
        """The value of a string attr as `str`.  Raises InvalidArgumentError if it is not UTF-8."""
        try:
            return str(self.attr(name), "utf-8")
        except UnicodeDecodeError:
            raise errors.InvalidArgumentError(
                f"attr '{name}' is not UTF-8: {abridged(repr(self.attr(name)))}"
            ) from None

    def input_range(self, name: str) -> tuple[int, int]:
        """[start, stop) of the input argument `name` in the flat input list."""
        return self.op_def.input_ranges(self.attrs)[name]

    def output_range(self, name: str) -> tuple[int, int]:
        """[start, stop) of the output argument `name` in the flat output list."""
        return self.op_def.output_ranges(self.attrs)[name]

    @property
    def functions(self) -> FunctionLibraryRuntime:
        """The functions of the graph's library.  Raises FailedPreconditionError if there is no library."""
        if self._functions is None:
            raise errors.FailedPreconditionError(f"{self.name} ({self.op}) is built without a function library")
        return self._functions

    @property
    def device_type(self) -> str:
        """`CPU`, `GPU`, …: the type in the device's name."""
        return self.device.rpartition("device:")[2].partition(":")[0] or "CPU"

    @property
    def node_def(self) -> proto.NodeDef:
        """The node as a message, without its inputs, which a kernel does not know."""
        message = proto.NodeDef(name=self.name, op=self.op, device=self.device)
        kinds = {attr.name: attr.type for attr in self.op_def.attrs}
        for name, value in self.attrs.items():
            message.attr[name].CopyFrom(attr_value.encode(value, kinds.get(name)))
        return message

    @property
    def input_memory_types(self) -> tuple[MemoryType, ...]:
        """The memory type of each input: see `memory_types.py`."""
        ranges = self.op_def.input_ranges(self.attrs)
        return memory_types(self.input_types, ranges, self.host_memory, self.attrs, "_input_hostmem")

    @property
    def output_memory_types(self) -> tuple[MemoryType, ...]:
        ranges = self.op_def.output_ranges(self.attrs)
        return memory_types(self.output_types, ranges, self.host_memory, self.attrs, "_output_hostmem")

    @property
    def allocator(self) -> Allocator:
        """The allocator of the device's memory, for the builder.

        The compute callable must use `allocator_of_calls` at each call instead, so that the call's allocations can be
        watched.
        """
        return self.allocator_of_calls()

    @property
    def allocator_of_calls(self) -> Callable[[], Allocator]:
        """A function that returns the allocator of the device's memory; called by each call of the kernel."""
        allocator = self._allocator
        return cpu_allocator if allocator is None else lambda: watched(allocator)

    @property
    def has_registered_allocator(self) -> bool:
        """True if the host's memory comes from an allocator that a program has registered."""
        return self._allocator is None and self.xp is np and allocator_names()[0] != "cpu"

    def allocate_temp(self, dtype: DType, shape: Sequence[int]) -> Any:
        """An array for use while building, aligned and not initialised.  Raises ResourceExhaustedError."""
        array = self._allocate(dtype, shape)
        for watcher in watchers():
            watcher.is_scratch(array)
        return array

    def allocate_persistent(self, dtype: DType, shape: Sequence[int]) -> Any:
        """An array that the kernel keeps; the caller holds it.  Raises ResourceExhaustedError."""
        array = self._allocate(dtype, shape)
        for watcher in watchers():
            watcher.kept(array)
        return array

    def _allocate(self, dtype: DType, shape: Sequence[int]) -> Any:
        if not log_memory.is_enabled():
            return self.allocator.allocate_tensor(shape, dtype, self.device)
        with watching(AllocationLogger(log_memory.SpecialStep.KERNEL_CONSTRUCTION, self.name)):
            return self.allocator.allocate_tensor(shape, dtype, self.device)

    @property
    def status(self) -> errors.OpError | None:
        """The first error that was reported by `ctx_failure`, or None."""
        return self._status

    def ctx_failure(self, error: errors.OpError) -> None:
        """Report an error of the node without raising it; the first one reported is raised when the builder has
        returned.
        """
        if self._status is None:
            self._status = error

    def need_context(self) -> None:
        """Ask that the compute callable get an `OpKernelContext` before its inputs."""
        self.wants_context = True

    def take_list(self) -> None:
        """Ask that the compute callable be called as `compute(context, inputs)`, with one list of all inputs.

        The executor refers to the inputs through that list alone, so that `unshared.is_unshared` can tell whether
        something else holds one.
        """
        self.wants_context = self.takes_list = True

    def forward_inputs(self, *positions: int) -> None:
        """Declare that the compute callable takes `out`, as NumPy's ufuncs do: an array to write its first output into.

        If nothing else holds one of these inputs, a call gets that input as `out`, so each element must be read before
        its place is written.  The call returns `out` or a fresh array, never another input or a view of one.  If an
        input's type is not the output's, this has no effect.

        Args:
            positions: of the inputs to choose from, whose shapes are broadcast to the output's; a single one has the
                output's shape.
        """
        wanted = self.output_types[0]
        if all(self.input_types[position] is wanted for position in positions):
            self.forwards = positions
            self.give_new_array()

    def give_new_array(self) -> None:
        """Declare that the first output of each call is a new array, or a number, to which nothing else refers.

        The call that uses it may write its own output over it.  `forward_inputs` declares it, too.
        """
        self.gives_new_array = True

    def match_signature(self, inputs: Sequence[DType], outputs: Sequence[DType]) -> None:
        """Raise InvalidArgumentError unless the node's types are these (a ref may stand for its value type)."""
        have_in, have_out = self.input_types, self.output_types
        if _compatible(have_in, inputs) and _compatible(have_out, outputs):
            return
        raise errors.InvalidArgumentError(
            f"Signature mismatch, have: {_signature(have_in, have_out)} expected: {_signature(inputs, outputs)}"
        )


def _compatible(have: Sequence[DType], wanted: Sequence[DType]) -> bool:
    return len(have) == len(wanted) and all(h is w or h.base is w for h, w in zip(have, wanted, strict=True))


def _signature(inputs: Sequence[DType], outputs: Sequence[DType]) -> str:
    return ", ".join(map(str, inputs)) + "->" + ", ".join(map(str, outputs))


class OpKernel:
    """Base for kernels written as a class, as TensorFlow's are: `__init__` is the builder.

    `compute` takes the context of one call, which has its inputs and outputs.  A subclass may define it as a coroutine
    function, if it has to wait.
    """

    def __init__(self, c: OpKernelConstruction) -> None:
        self.name = c.name
        self.op = c.op
        self.xp = c.xp

    def compute(self, context: OpKernelContext) -> Any:
        """Read inputs, set outputs."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not define compute")

    def compute_callable(self, c: OpKernelConstruction) -> Callable[..., Any]:
        """The function that a step calls: it runs `compute` with a context of the call's own."""
        signature = CallSignature(
            c.name, c.op_def, c.attrs, c.input_types, c.output_types, c.device, c.allocator_of_calls
        )
        compute = self.compute
        c.take_list()
        if inspect.iscoroutinefunction(compute):

            async def await_call(context: OpKernelContext, inputs: list[Any]) -> Any:
                call = context.for_call(signature, inputs)
                await compute(call)
                return call.results()

            return await_call

        def run_call(context: OpKernelContext, inputs: list[Any]) -> Any:
            call = context.for_call(signature, inputs)
            compute(call)
            return call.results()

        return run_call


class AsyncOpKernel(OpKernel):
    """Base for asynchronous kernels written as a class: `compute` is a coroutine function."""

    async def compute(self, context: OpKernelContext) -> Any:
        """Read inputs, set outputs, awaiting where needed."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not define compute")


@dataclass(slots=True)
class BuiltKernel:
    """A kernel bound to one node, as a plan keeps it.

    Attributes:
        wants_context, takes_list, forwards: what `compute` is called with; see `OpKernelConstruction`.
        gives_new_array: nothing else refers to the first output of a call.
        device: name of the device that it runs on; `on_host` says whether that is one of the host's.
        queued_on: the device that its calls are queued on, or None if the host computes them.
        host_outputs: of a queued kernel, positions of the outputs in host memory.
        variables: of a queued kernel, the variables that it reads or changes.
        scratch: estimate of the memory that a call needs for itself; see `Scratch`.
        estimate: by how much `cost` is wrong, as measured calls have shown; all plans with the node share it.
    """

    compute: Compute
    wants_context: bool
    cost: Cost = DEFAULT_COST
    explain: Explain | None = None
    device: str = ""
    on_host: bool = False
    queued_on: Device | None = None
    host_outputs: frozenset[int] = frozenset()
    takes_list: bool = False
    forwards: tuple[int, ...] = ()
    gives_new_array: bool = False
    calls: FunctionalCall | None = None
    variables: VariableUse | None = None
    may_be_abandoned: bool = False
    in_any_thread: bool = False
    scratch: Scratch = 0.0
    estimate: NodeEstimate = field(default_factory=NodeEstimate)
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_async = inspect.iscoroutinefunction(self.compute)
