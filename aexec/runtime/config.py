"""Settings: `SessionConfig` of a session, `RunOptions` of one run; and `RunMetadata`, what a run reports."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from numbers import Real
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from aexec import proto
from aexec.delegates.delegate_registry import delegate_names
from aexec.framework import errors
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.device_contract.rendezvous import TransportFactory
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.waiting.loop_budget import SHORTEST_SLICE, SLICE_SECONDS
from aexec.framework.wire.messages import as_message
from aexec.graph.passes import MAX_INLINED_NODES, PASSES, pass_names
from aexec.runtime.proto_options import CONFIG_HINTS, CONFIG_HONOURED, RUN_HINTS, RUN_HONOURED, check_options

if TYPE_CHECKING:
    from aexec.runtime.profiling.cost_model import CostModel
    from aexec.runtime.profiling.profile import Profile

__all__ = ["MAX_PRINTS", "RunMetadata", "RunOptions", "SessionConfig", "ThreadPool", "callable_arguments"]

# Most characters of a run's prints in its metadata.
MAX_PRINTS = 1 << 16


@dataclass(frozen=True, slots=True)
class ThreadPool:
    """A pool of threads of a session.

    Attributes:
        threads: most heavy kernels that run in it at once; 0 for the number in `inter_op_threads`.
        name: sessions that name the same pool share it, and must agree on `threads`; "" for a pool of the session's
            own.
    """

    threads: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Settings of a session.

    Attributes:
        inter_op_threads: most heavy kernels that run in threads at once; 0 chooses by the number of cores.  The
            sessions of a process share its threads (`aexec/runtime/threads/shared_threads.py`): one has half of them at
            most.
        thread_pools: several pools of such threads, one of which each run chooses (`RunOptions.thread_pool`); () for a
            single pool.  See `aexec/runtime/threads/thread_pools.py`.
        intra_op_threads: threads that work on heavy kernels together, if fewer kernels than that run at once; 0 for
            one per core.
        slice_seconds: longest time in seconds for which inline work may hold the event loop; it decides which calls
            are made inline, and which in a thread.  At least 10 µs.  None is 1 ms, and 20 ms while a session has its
            loop to itself (`SyncSession`, with one caller).
        operation_timeout: deadline in seconds for runs that set none; None for no deadline.
        max_steps: most steps that run at once; further ones wait for a place in order of arrival.  A step that waits
            for another one, such as for an element of a queue, keeps its place.  None for no limit.
        max_waiting_steps: most steps that wait for a place; one more fails with ResourceExhaustedError.  None for no
            limit.
        device_count: device type → number of devices, e.g. `{"CPU": 2}`.
        device_filters: device names, e.g. `["/device:CPU:1"]`: the session has only devices that match one of them,
            and the one where feeds enter and fetches leave; () for all.
        memory_limits: device type, or name as in `device_filters` → most bytes of memory on each such device, or as a
            float up to 1 the fraction of its memory, e.g. `{"GPU": 0.5, "/device:GPU:1": 2 << 30}`.  CPUs cannot be
            limited here; `step_bytes` and `session_bytes` do that.
        allow_soft_placement: place a node elsewhere if its requested device does not exist.
        place_pruned_graph: check placement only of the nodes that a run needs, instead of the whole graph when the
            session is made.
        log_device_placement: log each node's device at level INFO.
        log_memory: write the memory log of the whole process at level INFO while the session is open; see
            `aexec/framework/memory/log_memory.py`.
        cost_model: costs of earlier runs, by which each node is placed where it would end first in a simulated step;
            requests and colocation still hold.  None places each node on the first possible device.
        build_cost_model: measure every nth step of each signature for `Session.cost_model`; 0 for none.
        build_cost_model_after: number of steps of each signature before the first one that is measured.
        check_feed_shapes: refuse a feed whose shape contradicts the static shape of its tensor, as TensorFlow's
            Python layer does; False allows any shape, as TensorFlow's C API does.
        executor_type: name of the registered executor that runs the steps; "" for the default.
        share: names of containers that the session shares with others of the process whose configs name them too; all
            other containers are its own.
        session_tensor_bytes: most bytes of the tensors that the session keeps under handles; None for no limit.
        step_bytes: most bytes of the tensors of one step at a time; None for no limit.  A kernel that would exceed it
            is refused with ResourceExhaustedError before it runs, if the shapes determine its outputs.
        session_bytes: most bytes of all steps of the session, and of what they leave in variables, queues and other
            resources; None for no limit.  A session with a limit below 256 MiB interprets its plans, to count every
            call; with a larger limit small values are counted from time to time.
        max_image_pixels: most pixels, of all frames together, of an image that a kernel decodes, by the image's header
            before it is decoded; None for no limit but 2^30 bytes.
        cache_files: the datasets of the graph may be cached in files (the `filename` of CacheDataset); False refuses
            that with PermissionDeniedError.
        printed_bytes: most bytes that its graph prints in a second (Print, PrintV2) outside of runs' own answers; the
            rest is dropped, and a line says how much it was.  None for no limit.
        memory_account: account of the memory of several sessions, with the limit that they share.
        graph_passes: names, from `aexec.graph.passes.PASSES`, of the rewrites that make plans smaller and cheaper; all
            by default, `"exact"` for those that change no bit of any result, and `()` to run every node as written.
        max_inlined_nodes: most nodes that bodies of functions may add to a plan; further calls are not inlined.
        compile_plans: compile a plan that runs repeatedly to a Python function, see
            `aexec.runtime.compiled.compiled_plan`; False interprets every run.
        compress_transfers: send float32 values from one device to another as bfloat16, which drops the lower half of
            their bits.
        schedule_receives: receive a value from another device shortly before a simulated step, by `cost_model`, needs
            it, instead of as soon as it is there, so that fewer values are in memory.  Not for steps that wait for
            their own queue operations, as these waits are no edges of the graph.
        capture_graphs: on GPUs, capture regions of a plan as CUDA graphs when they first run with inputs of some
            shapes, and replay them in one launch from then on.
        delegates: names, from `aexec.delegates`, of the libraries that may run regions of a plan, from its first run
            on; `"auto"` uses the installed ones after some runs, if that is worth it, and `()` none.  Results may
            differ in float32's last digits.
        transport: called with a step's id and rendezvous when its first value goes to another device; makes the
            transport of values that are sent elsewhere.
        cluster: for a session across machines: job → number of its tasks, or the addresses of their workers, e.g.
            `{"ps": 1, "worker": 2}`; None is one job, `worker`, of all workers.
        replicated: for a session across machines: each worker has the whole graph, with variables of its own, and each
            step runs on the least busy one.
    """

    inter_op_threads: int = 0
    thread_pools: Sequence[ThreadPool] = ()
    intra_op_threads: int = 0
    slice_seconds: float | None = None
    operation_timeout: float | None = None
    max_steps: int | None = None
    max_waiting_steps: int | None = None
    device_count: Mapping[str, int] = field(default_factory=dict)
    device_filters: Collection[str] = ()
    memory_limits: Mapping[str, int | float] = field(default_factory=dict)
    allow_soft_placement: bool = False
    place_pruned_graph: bool = False
    log_device_placement: bool = False
    log_memory: bool = False
    cost_model: CostModel | None = None
    build_cost_model: int = 0
    build_cost_model_after: int = 0
    check_feed_shapes: bool = True
    executor_type: str = ""
    share: Collection[str] = ()
    session_tensor_bytes: int | None = None
    step_bytes: int | None = None
    session_bytes: int | None = None
    max_image_pixels: int | None = None
    cache_files: bool = True
    printed_bytes: int | None = None
    memory_account: MemoryAccount | None = None
    graph_passes: Collection[str] = tuple(PASSES)
    max_inlined_nodes: int = MAX_INLINED_NODES
    compile_plans: bool = True
    compress_transfers: bool = False
    schedule_receives: bool = False
    capture_graphs: bool = False
    delegates: str | Collection[str] = "auto"
    transport: TransportFactory | None = None
    cluster: Mapping[str, int | Sequence[str]] | None = None
    replicated: bool = False

    def __post_init__(self) -> None:
        seconds = SLICE_SECONDS if self.slice_seconds is None else self.slice_seconds
        if not (isinstance(seconds, Real) and SHORTEST_SLICE <= seconds < math.inf):
            raise errors.InvalidArgumentError(
                f"slice_seconds must be a number of seconds, at least {SHORTEST_SLICE:g}, got {self.slice_seconds!r}"
            )
        if self.inter_op_threads < 0 or self.intra_op_threads < 0:
            raise errors.InvalidArgumentError("thread counts must not be negative")
        if self.max_steps is not None and self.max_steps < 1:
            raise errors.InvalidArgumentError(f"max_steps must be at least 1, got {self.max_steps}")
        if self.max_waiting_steps is not None and (self.max_steps is None or self.max_waiting_steps < 0):
            raise errors.InvalidArgumentError(
                f"max_waiting_steps must not be negative, and goes with max_steps, got {self.max_waiting_steps}"
            )
        if self.build_cost_model < 0 or self.build_cost_model_after < 0:
            raise errors.InvalidArgumentError("build_cost_model and build_cost_model_after must not be negative")
        if self.max_inlined_nodes < 0:
            raise errors.InvalidArgumentError(f"max_inlined_nodes must not be negative, got {self.max_inlined_nodes}")
        for name in ("session_tensor_bytes", "step_bytes", "session_bytes", "max_image_pixels", "printed_bytes"):
            if (limit := getattr(self, name)) is not None and limit < 0:
                raise errors.InvalidArgumentError(f"{name} must not be negative, got {limit}")
        _check_timeout("operation_timeout", self.operation_timeout)
        self._check_devices()
        self._check_names()

    def _check_devices(self) -> None:
        for name in ("share", "device_filters"):
            if isinstance(value := getattr(self, name), str):
                raise errors.InvalidArgumentError(f"{name} must be a collection of names, got the string {value!r}")
        for each in self.device_filters:
            DeviceName.parse(each)
        for name, limit in self.memory_limits.items():
            if "/" in name:
                DeviceName.parse(name)
            if limit <= 0 or (isinstance(limit, float) and limit > 1):
                raise errors.InvalidArgumentError(
                    f"memory_limits of {name} must be a number of bytes, or as a float a share up to 1, got {limit!r}"
                )
        if self.cost_model is not None:
            from aexec.runtime.profiling.cost_model import CostModel

            if not isinstance(self.cost_model, CostModel):
                raise errors.InvalidArgumentError(
                    f"cost_model must be an aexec.CostModel, got {type(self.cost_model).__name__}"
                )

    def _check_names(self) -> None:
        pass_names(self.graph_passes)
        if isinstance(self.delegates, str):
            if self.delegates != "auto":
                raise errors.InvalidArgumentError(
                    f"delegates must be 'auto' or a collection of names, got {self.delegates!r}"
                )
        elif unknown := sorted(set(self.delegates) - set(delegate_names())):
            raise errors.InvalidArgumentError(f"no delegate '{unknown[0]}'; there are {', '.join(delegate_names())}")

    @classmethod
    def of(cls, config: SessionConfig | Message | None) -> SessionConfig:
        """Settings as sessions take them: None for the defaults, or a ConfigProto message."""
        if config is None:
            return cls()
        return config if isinstance(config, cls) else cls.from_proto(config)  # type: ignore[arg-type]

    @classmethod
    def from_proto(cls, message: proto.ConfigProto | Message) -> SessionConfig:
        """The settings of a ConfigProto, of this package or of TensorFlow.

        Hints that mean nothing here are logged; `proto_options.py` lists them with the reasons.

        Raises:
            UnimplementedError: a field is set that would be ignored, though results depend on it.
        """
        message = as_message(message, proto.ConfigProto)
        check_options(message, CONFIG_HONOURED, CONFIG_HINTS)
        timeout = message.operation_timeout_in_ms
        gpu_share = message.gpu_options.per_process_gpu_memory_fraction
        if gpu_share > 1:
            raise errors.UnimplementedError(
                "ConfigProto.gpu_options.per_process_gpu_memory_fraction above 1 asks for unified memory, "
                "which is not supported"
            )
        level = message.graph_options.optimizer_options.opt_level
        return cls(
            inter_op_threads=max(0, message.inter_op_parallelism_threads),
            thread_pools=tuple(
                [ThreadPool(pool.num_threads, pool.global_name) for pool in message.session_inter_op_thread_pool]
            ),
            intra_op_threads=max(0, message.intra_op_parallelism_threads),
            operation_timeout=timeout / 1e3 if timeout > 0 else None,
            device_count=dict(message.device_count),
            device_filters=tuple(message.device_filters),
            memory_limits={"GPU": gpu_share} if gpu_share else {},
            allow_soft_placement=message.allow_soft_placement,
            place_pruned_graph=message.graph_options.place_pruned_graph,
            log_device_placement=message.log_device_placement,
            build_cost_model=max(0, message.graph_options.build_cost_model),
            build_cost_model_after=max(0, message.graph_options.build_cost_model_after),
            executor_type=message.experimental.executor_type,
            compress_transfers=message.graph_options.enable_bfloat16_sendrecv,
            schedule_receives=message.graph_options.enable_recv_scheduling,
            graph_passes=() if level == proto.OptimizerOptions.L0 else tuple(PASSES),
            delegates=() if level == proto.OptimizerOptions.L0 else "auto",
        )


def _check_timeout(name: str, seconds: float | None) -> None:
    # Not `seconds < 0`, so that NaN does not pass.
    if seconds is not None and not (isinstance(seconds, Real) and seconds >= 0):
        raise errors.InvalidArgumentError(f"{name} must be a number of seconds, not negative, got {seconds!r}")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Settings of one run.

    Attributes:
        timeout: seconds until the step is cancelled with DeadlineExceededError; None for the session's.
        trace: collect step statistics into the run's metadata.
        output_partition_graphs: return the executed graph of each device in the metadata.
        cost_graph: trace the step, add its measurements to the session's cost model, and return the model's costs of
            the executed graph in the metadata.
        report_tensor_allocations_upon_oom: list the nodes with most memory in the error of a step that runs out of
            memory.
        thread_pool: position of the session's thread pool for its heavy kernels; -1 is the first.
        prints: return what nodes print (Print, PrintV2) in the metadata, instead of printing it.
    """

    timeout: float | None = None
    trace: bool = False
    output_partition_graphs: bool = False
    cost_graph: bool = False
    report_tensor_allocations_upon_oom: bool = False
    thread_pool: int = 0
    prints: bool = False

    def __post_init__(self) -> None:
        _check_timeout("timeout", self.timeout)

    @property
    def is_traced(self) -> bool:
        """True if step statistics are collected."""
        return self.trace or self.cost_graph

    @property
    def may_run_at_once(self) -> bool:
        """True if they ask for no more than a timeout that has not passed yet, so that no `Step` is needed."""
        asks = self.is_traced or self.output_partition_graphs or self.report_tensor_allocations_upon_oom
        return not (asks or self.prints) and not self.thread_pool and (self.timeout is None or self.timeout > 0)

    @classmethod
    def of(cls, options: RunOptions | Message) -> RunOptions:
        """Convert options for a run, which may be a RunOptions message."""
        return options if isinstance(options, cls) else cls.from_proto(options)  # type: ignore[arg-type]

    @classmethod
    def joined(cls, several: Iterable[RunOptions]) -> RunOptions:
        """What any of several asks for, and the longest timeout."""
        given = list(several)
        return cls(
            timeout=max((options.timeout for options in given if options.timeout is not None), default=None),
            trace=any(options.trace for options in given),
            output_partition_graphs=any(options.output_partition_graphs for options in given),
            cost_graph=any(options.cost_graph for options in given),
            report_tensor_allocations_upon_oom=any(options.report_tensor_allocations_upon_oom for options in given),
            thread_pool=max((options.thread_pool for options in given), default=0),
            prints=any(options.prints for options in given),
        )

    @classmethod
    def from_proto(cls, message: proto.RunOptions | Message) -> RunOptions:
        """The settings of a RunOptions message.  Hints and errors as of `SessionConfig.from_proto`."""
        message = as_message(message, proto.RunOptions)
        check_options(message, RUN_HONOURED, RUN_HINTS)
        return cls(
            timeout=message.timeout_in_ms / 1e3 if message.timeout_in_ms > 0 else None,
            trace=message.trace_level != proto.RunOptions.NO_TRACE,
            output_partition_graphs=message.output_partition_graphs,
            report_tensor_allocations_upon_oom=message.report_tensor_allocations_upon_oom,
            thread_pool=message.inter_op_thread_pool,
        )

    def to_proto(self) -> proto.RunOptions:
        """The message, without what it has no field for: `cost_graph` is a trace, `prints` is left out."""
        return proto.RunOptions(
            timeout_in_ms=0 if self.timeout is None else max(1, round(self.timeout * 1e3)),
            trace_level=proto.RunOptions.FULL_TRACE if self.is_traced else proto.RunOptions.NO_TRACE,
            output_partition_graphs=self.output_partition_graphs,
            report_tensor_allocations_upon_oom=self.report_tensor_allocations_upon_oom,
            inter_op_thread_pool=self.thread_pool,
        )


def callable_arguments(message: proto.CallableOptions | Message) -> dict[str, Any]:
    """The arguments of `Session.make_callable` that a CallableOptions message stands for.

    Raises:
        UnimplementedError: a field is set that would be ignored, or `fetch_devices` without `fetch_skip_sync`.
    """
    message = as_message(message, proto.CallableOptions)
    if message.fetch_devices and not message.fetch_skip_sync:
        # As in TensorFlow: the caller could not know whether the values are computed when the call returns.
        raise errors.UnimplementedError(
            "CallableOptions.fetch_skip_sync = false is not implemented where fetch_devices are given: set it to true, "
            "and wait for the device before the host looks into what was fetched; or give fetch_devices to "
            "make_callable itself, whose calls wait"
        )
    return {
        "fetches": list(message.fetch),
        "feeds": list(message.feed),
        "targets": list(message.target),
        "options": RunOptions.from_proto(message.run_options) if message.HasField("run_options") else None,
        "feed_devices": dict(message.feed_devices),
        "fetch_devices": dict(message.fetch_devices),
        "fetch_skip_sync": message.fetch_skip_sync,
        "connections": [(pair.from_tensor, pair.to_tensor) for pair in message.tensor_connection],
    }


@dataclass(slots=True)
class RunMetadata:
    """The report of a run besides its results.

    Attributes:
        step_stats: per-node timings, if the run was traced.
        partition_graphs: the executed graph per device, if asked for.
        cost_graph: costs of the executed graph's nodes, if the run was measured for the session's cost model.
        peak_bytes: most bytes of the step's tensors at a time, if the run was traced, or memory is limited; else None.
        device_peak_bytes: name of a device with its own memory → most bytes of the step's tensors there at a time.
        prints: the first `MAX_PRINTS` characters that its nodes have printed; None if the options did not ask for them.
        prints_left_out: number of further characters.
    """

    step_stats: proto.StepStats | None = None
    partition_graphs: list[proto.GraphDef] = field(default_factory=list)
    cost_graph: proto.CostGraphDef | None = None
    peak_bytes: int | None = None
    device_peak_bytes: dict[str, int] = field(default_factory=dict)
    prints: str | None = None
    prints_left_out: int = 0

    def to_proto(self) -> proto.RunMetadata:
        message = proto.RunMetadata(partition_graphs=self.partition_graphs)
        if self.step_stats is not None:
            message.step_stats.CopyFrom(self.step_stats)
        if self.cost_graph is not None:
            message.cost_graph.CopyFrom(self.cost_graph)
        return message

    def profile(self, *, by: str = "op", order_by: str = "self") -> Profile:
        """Return the step statistics summed by op or node: calls, times, memory, and where they ran.

        Arguments and errors are those of `aexec.runtime.profiling.profile.profile_steps`, which sums several runs.

        Raises:
            FailedPreconditionError: the run was not traced.
        """
        from aexec.runtime.profiling.profile import profile_steps

        return profile_steps([self._traced()], by=by, order_by=order_by)

    def chrome_trace(self, *, show_memory: bool = False) -> dict[str, object]:
        """Return the step statistics as a Chrome trace (load it in chrome://tracing or Perfetto).

        Args:
            show_memory: include tensors, and the memory in use of each allocator.

        Raises:
            FailedPreconditionError: the run was not traced.
        """
        from aexec.runtime.profiling.chrome_trace import to_chrome_trace

        return to_chrome_trace(self._traced(), show_memory=show_memory)

    def timeline(self) -> str:
        """Return the step statistics as a drawing in SVG: a row for each thread or stream, a bar for each node run.

        Notebooks show it for the metadata of a traced run.

        Raises:
            FailedPreconditionError: the run was not traced.
        """
        from aexec.runtime.profiling.trace_drawing import timeline_svg

        return timeline_svg(self.chrome_trace())

    def _repr_html_(self) -> str:
        from aexec.framework.html_repr import block, facts_table

        facts = facts_table({"most bytes of tensors": self.peak_bytes, "prints": self.prints})
        drawing = [] if self.step_stats is None else [self.timeline()]
        return block("RunMetadata", "" if drawing else "of a run that was not traced", facts, *drawing)

    def _traced(self) -> proto.StepStats:
        if self.step_stats is None:
            raise errors.FailedPreconditionError("the run was not traced: pass RunOptions(trace=True)")
        return self.step_stats
