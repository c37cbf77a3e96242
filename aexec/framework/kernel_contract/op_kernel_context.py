"""What a kernel may use while it runs: its step, the session's state, and the call itself.

`Params` has what all calls of one step share; the runtime makes one for each step.  A kernel that asks for the context
while it is built (`OpKernelConstruction.need_context`) gets an `OpKernelContext`: one for all calls of an execution,
frame and iteration, made for the first of them.  A kernel written as a class (`op_kernel.OpKernel`) gets a context for
each call, which also has the call's inputs and outputs, under the names of OpKernelContext in TensorFlow's
core/framework/op_kernel.h.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from aexec.framework import errors
from aexec.framework.device_contract.call_results import Results
from aexec.framework.device_contract.rendezvous import Rendezvous
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.memory.allocator import Allocator, TrackedAllocations, cpu_allocator, watchers
from aexec.framework.memory.unshared import is_unshared
from aexec.framework.printed import Printer, print_text
from aexec.framework.shape import check_same_shape
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.session_state import SessionState, TensorStore
from aexec.framework.waiting.background_tasks import BackgroundTasks
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.worker_threads import WorkerThreads
from aexec.framework.wire.op_def import OpDef

__all__ = ["CallSignature", "FunctionLibraryRuntime", "OpKernelContext", "Params"]


T = TypeVar("T")

# (frame id, iteration) of calls outside of loops.
ROOT_FRAME_ITER = (0, 0)

_rendezvous_lock = threading.Lock()


class Function(Protocol):
    """A function of the graph's library, to be called from a kernel."""

    name: str

    @property
    def types(self) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """The types of the flattened arguments and results."""
        ...

    def small_body(self, most_nodes: int) -> Any:
        """The body as a graph, a `FunctionBody`, which must not be changed; None if it has more nodes.

        Raises what building it raises.
        """
        ...

    async def __call__(self, context: OpKernelContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run the body inside the step that `context` belongs to."""
        ...

    async def deliver(self, context: OpKernelContext, values: Sequence[Any]) -> tuple[Any, ...]:
        """Copy results that were left on the device that made them to where the calling node's outputs belong."""
        ...


class FunctionLibraryRuntime(Protocol):
    """The functions of a session's graph."""

    def function(
        self,
        reference: Any,
        attrs: Mapping[str, Any] | None = None,
        results: Results = Results.AS_OUTPUTS,
        target: str = "",
    ) -> Function:
        """The function that an attr of kind func, or a name, stands for.

        Args:
            results: where the calling kernel wants the results.
            target: name, or part of one, of the device for nodes of the body that request none; "" for that of the
                calling node.

        Raises:
            InvalidArgumentError: the library has no function of that name; or the target is not a device name.
            InternalError: the session has no such device.
        """
        ...

    def gradient(self, reference: Any) -> Function:
        """The function that computes the gradient of one, from its arguments and a gradient of each of its results.

        Raises:
            NotFoundError: a node of the body has no gradient.
        """
        ...

    def derived(self, key: Hashable, make: Callable[[Any, Any], T]) -> T:
        """What `make` gives, such as a reference to a function that it made from another one; called once for a key.

        Args:
            make: given the function library, to which it may add functions, and the versions of the graph.  Called in
                the calling thread, which is not the event loop's.

        Raises:
            ResourceExhaustedError: the functions that were made have too many nodes.
            Also what `make` raises.
        """
        ...


class Params:
    """What the kernel calls of one step have in common.

    Attributes:
        step_id: process-wide number of the step.
        loop: the event loop that the step runs on.
        worker_pool: the session's threads.
        cancellation: the step's manager; the step's first error cancels it.
        resources: the session's resource manager.
        session_state: the tensors that the session keeps.
        kept_tensors: the tensors for which this step was asked for a handle, or None.
    """

    __slots__ = (
        "_rendezvous",
        "cancellation",
        "kept_tensors",
        "loop",
        "resources",
        "session_state",
        "step_id",
        "worker_pool",
    )

    def __init__(
        self,
        step_id: int,
        loop: asyncio.AbstractEventLoop,
        worker_pool: WorkerThreads,
        cancellation: CancellationManager,
        resources: ResourceManager,
        session_state: SessionState,
    ) -> None:
        self.step_id = step_id
        self.loop = loop
        self.worker_pool = worker_pool
        self.cancellation = cancellation
        self.resources = resources
        self.session_state = session_state
        self.kept_tensors: TensorStore | None = None
        # (rendezvous, token of its cancellation callback); None until it is first used.
        self._rendezvous: tuple[Rendezvous, int] | None = None

    @property
    def stats_collector(self) -> Any:
        """The collector of the step's statistics, or None."""
        return None

    @property
    def printer(self) -> Printer:
        """The printer of the step."""
        return print_text

    @property
    def background(self) -> BackgroundTasks:
        """The session's tasks that go on between steps.  Raises InternalError if no session runs the step."""
        raise errors.InternalError("a step without a session has no background tasks")

    @property
    def step_container(self) -> str:
        """The name of the container whose resources are deleted when the step ends."""
        return f"__per_step_{self.step_id}"

    @property
    def tensor_store(self) -> TensorStore:
        """The tensors for which this step was asked for a handle."""
        if self.kept_tensors is None:
            self.kept_tensors = TensorStore()
        return self.kept_tensors

    @property
    def rendezvous(self) -> Rendezvous:
        """The rendezvous of the step's sends and receives; aborted with the cause when the step fails or is
        cancelled.
        """
        if self._rendezvous is not None:
            return self._rendezvous[0]
        with _rendezvous_lock:
            if self._rendezvous is not None:
                return self._rendezvous[0]
            token = self.cancellation.get_cancellation_token()
            made, _ = self._rendezvous = self.new_rendezvous(), token
        made.abort_when_cancelled(self.cancellation, token)
        return made

    @property
    def transfers(self) -> Rendezvous:
        """The rendezvous of the partitions of one execution: the step's, except in functions that are split."""
        return self.rendezvous if self._rendezvous is None else self._rendezvous[0]

    def new_rendezvous(self) -> Rendezvous:
        """Make the step's rendezvous; called at its first use."""
        return Rendezvous()

    def close(self) -> None:
        """Called when the step has ended: close its rendezvous."""
        if self._rendezvous is not None:
            rendezvous, token = self._rendezvous
            self.cancellation.try_deregister_callback(token)
            rendezvous.close()


class CallSignature:
    """What all calls of one kernel have in common: its inputs and outputs by name, number and type.

    Attributes:
        device: name of the device that it runs on.
        allocator: returns the allocator of the device's memory, for a call.
    """

    __slots__ = (
        "allocator",
        "device",
        "input_ranges",
        "input_types",
        "name",
        "op",
        "output_ranges",
        "output_types",
        "reserved",
    )

    def __init__(
        self,
        name: str,
        op_def: OpDef,
        attrs: Mapping[str, Any],
        input_types: tuple[DType, ...],
        output_types: tuple[DType, ...],
        device: str = "",
        allocator: Callable[[], Allocator] = cpu_allocator,
    ) -> None:
        self.name = name
        self.device = device
        self.allocator = allocator
        self.op = op_def.name
        self.input_types = input_types
        self.output_types = output_types
        self.input_ranges = op_def.input_ranges(attrs)
        self.output_ranges = op_def.output_ranges(attrs)
        pairs = list(attrs.get("_forward_input", ()))
        # Input → the output for which the node's `_forward_input` attr reserves its buffer.
        self.reserved = dict(zip(pairs[::2], pairs[1::2], strict=True))

    def index(self, which: int | str, kind: str) -> int:
        """The position of an input or output (`kind`) that is given by position, or by the name of a single tensor.

        Raises:
            InvalidArgumentError: there is none, or the name is that of a list.
        """
        types = self.input_types if kind == "input" else self.output_types
        if isinstance(which, int):
            if not 0 <= which < len(types):
                raise errors.InvalidArgumentError(f"{kind} {which} is not in [0, {len(types)})")
            return which
        start, stop = self.range(which, kind)
        if stop - start != 1:
            raise errors.InvalidArgumentError(
                f"OpKernel used list-valued {kind} name '{which}' when single-valued {kind} was expected"
            )
        return start

    def range(self, name: str, kind: str) -> tuple[int, int]:
        """[start, stop) of an argument.  Raises InvalidArgumentError if there is none of that name."""
        ranges = self.input_ranges if kind == "input" else self.output_ranges
        found = ranges.get(name)
        if found is None:
            raise errors.InvalidArgumentError(
                f"Unknown {kind} name: {name}; {self.op} has {', '.join(ranges) or 'none'}"
            )
        return found


class _NoCall(CallSignature):
    """The signature of a context that several calls share: it has no inputs and outputs."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = self.device = ""
        self.allocator = cpu_allocator
        self.input_types = self.output_types = ()

    def index(self, which: int | str, kind: str) -> int:
        raise errors.FailedPreconditionError(
            f"{kind} {which!r} was asked of the context of a kernel that is a function: it is given its inputs as "
            "arguments, and returns its outputs. Kernels derived from OpKernel have them in their context."
        )

    def range(self, name: str, kind: str) -> tuple[int, int]:
        return self.index(name, kind), 0


_NO_CALL = _NoCall()


class OpKernelContext:
    """What a kernel can use while it runs: its step, the session's state, and its call.

    Attributes:
        params: what all calls of the step share.
        cancellation: the manager to wait with: the step's, or a called function's own.
        resources: the session's resource manager.
        frame_iter: (frame id, iteration) of the call; (0, 0) outside loops.
        execution: the execution that the call is part of, for kernels that run others in it; None if not given.
        is_input_dead: True if an input is dead; only transfer nodes (Send, Recv) run then, all others see False.
    """

    __slots__ = (
        "_forwarded",
        "_inputs",
        "_outputs",
        "_signature",
        "_status",
        "cancellation",
        "execution",
        "frame_iter",
        "is_input_dead",
        "params",
        "resources",
    )

    def __init__(
        self,
        params: Params,
        cancellation: CancellationManager | None = None,
        frame_iter: tuple[int, int] = ROOT_FRAME_ITER,
        *,
        is_input_dead: bool = False,
        execution: Any = None,
    ) -> None:
        self.params = params
        self.execution = execution
        self.cancellation = params.cancellation if cancellation is None else cancellation
        self.resources = params.resources
        self.frame_iter = frame_iter
        self.is_input_dead = is_input_dead
        self._signature: CallSignature = _NO_CALL
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._forwarded: set[int] = set()
        self._status: errors.OpError | None = None

    def print_text(self, stream: str, text: str) -> None:
        """Print with the step's printer.  Arguments as of `printed.print_text`."""
        self.params.printer(stream, text)

    def for_call(self, signature: CallSignature, inputs: list[Any]) -> OpKernelContext:
        """The context of one call, with its inputs and outputs.

        Args:
            inputs: kept, not copied; an input to which nothing but this list refers may be forwarded.
        """
        call = OpKernelContext(
            self.params,
            self.cancellation,
            self.frame_iter,
            is_input_dead=self.is_input_dead,
            execution=self.execution,
        )
        call._signature = signature
        call._inputs = inputs
        call._outputs = [None] * len(signature.output_types)
        return call

    # The step

    @property
    def step_id(self) -> int:
        """Process-wide number of the step."""
        return self.params.step_id

    @property
    def step_container(self) -> str:
        """The name of the container whose resources are deleted when the step ends."""
        return self.params.step_container

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the step runs on."""
        return self.params.loop

    @property
    def worker_pool(self) -> WorkerThreads:
        """The session's threads."""
        return self.params.worker_pool

    @property
    def rendezvous(self) -> Rendezvous:
        """The rendezvous of the step's sends and receives."""
        return self.params.rendezvous

    @property
    def session_state(self) -> SessionState:
        """The tensors that the session keeps."""
        return self.params.session_state

    @property
    def tensor_store(self) -> TensorStore:
        """The tensors for which this step was asked for a handle."""
        return self.params.tensor_store

    @property
    def runner(self) -> Callable[[Callable[[], Any]], asyncio.Future[Any]]:
        """Runs a function in one of the session's threads; called on the event loop."""
        return self.params.worker_pool.start

    @property
    def stats_collector(self) -> Any:
        """The collector of the step's statistics, or None if it is not traced."""
        return self.params.stats_collector

    @property
    def background(self) -> BackgroundTasks:
        """The session's tasks that go on between steps.  Raises InternalError if no session runs the step."""
        return self.params.background

    # The device

    @property
    def device(self) -> str:
        """Full name of the device that the call runs on; "" for a context that several kernels share."""
        return self._signature.device

    @property
    def allocator(self) -> Allocator:
        """The allocator of the device's memory; of the host's for a context that several kernels share."""
        return self._signature.allocator()

    @property
    def wrapped_allocators(self) -> Mapping[str, Allocator]:
        """The allocators that a traced call has used, by name, each with a record of its allocations; else empty."""
        tracking = [watcher for watcher in watchers() if isinstance(watcher, TrackedAllocations)]
        return tracking[-1].wrapped_allocators if tracking else {}

    # Inputs

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    def input(self, which: int | str) -> Any:
        """An input by position, or by the name of an argument that is a single tensor.

        Raises:
            InvalidArgumentError: no such input, or the name of a list.
        """
        return self._inputs[self._signature.index(which, "input")]

    def input_list(self, name: str) -> list[Any]:
        """All tensors of an input argument.  Raises InvalidArgumentError if there is none of that name."""
        start, stop = self._signature.range(name, "input")
        return self._inputs[start:stop]

    def input_dtype(self, which: int | str) -> DType:
        return self._signature.input_types[self._signature.index(which, "input")]

    def input_is_ref(self, which: int | str) -> bool:
        return self.input_dtype(which).is_ref

    def mutable_input(self, which: int | str) -> RefCell:
        """The variable's cell of an input of ref type.  Raises InvalidArgumentError if the input is not a cell."""
        value = self.input(which)
        if not isinstance(value, RefCell):
            raise errors.InvalidArgumentError(f"{which}-th input expects a ref type")
        return value

    def replace_ref_input(self, which: int | str, value: Any) -> None:
        """Assign to the variable of an input of ref type."""
        self.mutable_input(which).value = np.asarray(value)

    def forward_ref_input_to_ref_output(self, input_index: int | str, output_index: int | str) -> None:
        """Make the variable of an input an output, too."""
        self.set_output(output_index, self.mutable_input(input_index))

    def validate_inputs_are_same_shape(self) -> None:
        """Raise InvalidArgumentError unless all inputs have the shape of the first."""
        check_same_shape(self._signature.name, self._signature.op, *self._inputs)

    # Outputs

    def set_output(self, which: int | str, value: Any) -> None:
        """Make `value` an output."""
        self._outputs[self._signature.index(which, "output")] = value

    def output_list(self, name: str, values: Sequence[Any]) -> None:
        """Set all tensors of an output argument.  Raises InvalidArgumentError for another number of them."""
        start, stop = self._signature.range(name, "output")
        if len(values) != stop - start:
            raise errors.InvalidArgumentError(f"output '{name}' has {stop - start} tensors, got {len(values)}")
        self._outputs[start:stop] = values

    def allocate_output(self, which: int | str, shape: Sequence[int]) -> Any:
        """A new array for an output, aligned and not initialised.

        Raises:
            InternalError: the output was allocated or set before.
            ResourceExhaustedError: no memory.
        """
        index = self._signature.index(which, "output")
        if self._outputs[index] is not None:
            raise errors.InternalError(f"output {index} of {self._signature.name} was allocated or set before")
        array = self._allocate(self._signature.output_types[index], shape)
        self._outputs[index] = array
        return array

    def allocate_temp(self, dtype: Any, shape: Sequence[int]) -> Any:
        """A new array for this call alone, aligned and not initialised.  Raises ResourceExhaustedError."""
        array = self._allocate(as_dtype(dtype), shape)
        for watcher in watchers():
            watcher.is_scratch(array)
        return array

    def allocate_persistent(self, dtype: Any, shape: Sequence[int]) -> Any:
        """A new array that the kernel keeps between calls, aligned and not initialised; the caller holds it.

        Raises:
            ResourceExhaustedError: no memory.
        """
        array = self._allocate(as_dtype(dtype), shape)
        for watcher in watchers():
            watcher.kept(array)
        return array

    def _allocate(self, dtype: DType, shape: Sequence[int]) -> Any:
        return self.allocator.allocate_tensor(shape, dtype.base, self.device)

    def forward_input(self, input_index: int, output_index: int, shape: Sequence[int]) -> Any | None:
        """An input's array as output, if nothing else holds it; else None.

        The input must have the output's type and number of elements, be the last use of its buffer (or be reserved for
        this output by the node's `_forward_input` attr), and not have been forwarded.
        """
        signature, inputs = self._signature, self._inputs
        reserved = signature.reserved
        if reserved.get(input_index, output_index) != output_index or input_index in self._forwarded:
            return None
        # Before a local variable refers to the array, too.
        if input_index not in reserved and not is_unshared(inputs, input_index):
            return None
        array = inputs[input_index]
        if not isinstance(array, np.ndarray) or signature.input_types[input_index].is_ref:
            return None
        same_type = signature.input_types[input_index] is signature.output_types[output_index]
        if not same_type or array.size != math.prod(shape) or not array.flags.c_contiguous:
            return None
        self._forwarded.add(input_index)
        result = array if array.shape == tuple(shape) else array.reshape(shape)
        self._outputs[output_index] = result
        return result

    def forward_input_or_allocate_output(
        self, candidates: Sequence[int], output_index: int, shape: Sequence[int]
    ) -> Any:
        """The first of the candidate inputs that can be forwarded, else a new array."""
        for candidate in candidates:
            forwarded = self.forward_input(candidate, output_index, shape)
            if forwarded is not None:
                return forwarded
        return self.allocate_output(output_index, shape)

    @property
    def status(self) -> errors.OpError | None:
        """The first error that the call has reported by `ctx_failure`."""
        return self._status

    def ctx_failure(self, error: errors.OpError) -> None:
        """Report an error without leaving the call; the first one is raised when the call has ended.

        Raises:
            FailedPreconditionError: the kernel is a function, which must raise its errors.
        """
        if self._signature is _NO_CALL:
            raise errors.FailedPreconditionError("a kernel that is a function raises its errors") from error
        if self._status is None:
            self._status = error

    def results(self) -> tuple[Any, ...]:
        """The outputs, as a compute callable returns them.  Raises the call's `status` if there is one."""
        if self._status is not None:
            raise self._status
        return tuple(self._outputs)
