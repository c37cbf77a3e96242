"""The fields of ConfigProto and RunOptions that are honoured, that are hints, and that are refused.

A field that is set is one of three: `from_proto` (`config.py`) honours it; it is a hint, which changes neither results
nor what a caller relies on, and is logged and ignored; or it is refused by name, as every other field is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from aexec.framework import errors

__all__ = ["CONFIG_HINTS", "CONFIG_HONOURED", "RUN_HINTS", "RUN_HONOURED", "check_options"]

_log = logging.getLogger(__name__)

# Paths of fields; the path of a message includes all fields in it.
CONFIG_HONOURED = frozenset(
    {
        "allow_soft_placement",
        "device_count",
        "device_filters",
        "experimental.executor_type",
        "gpu_options.per_process_gpu_memory_fraction",
        "graph_options.build_cost_model",
        "graph_options.build_cost_model_after",
        "graph_options.enable_bfloat16_sendrecv",
        "graph_options.enable_recv_scheduling",
        "graph_options.optimizer_options.opt_level",
        "graph_options.place_pruned_graph",
        "inter_op_parallelism_threads",
        "intra_op_parallelism_threads",
        "log_device_placement",
        "operation_timeout_in_ms",
        "session_inter_op_thread_pool",
    }
)
_OWN_THREADS = "each session has one pool of threads of its own"
_NO_CLUSTER = "there are no other tasks"
_NO_XLA = "compilation changes no result"
_PASSES = "SessionConfig.graph_passes says which passes run"
CONFIG_HINTS = {
    "experimental.collective_deterministic_sequential_execution": _NO_CLUSTER,
    "experimental.collective_nccl": _NO_CLUSTER,
    "experimental.disable_eager_executor_streaming_enqueue": "nothing is executed eagerly",
    "experimental.disable_functional_ops_lowering": "functional ops are not lowered",
    "experimental.disable_optimize_for_static_graph": "a graph that is never extended costs no more",
    "experimental.disable_thread_spinning": "threads that wait do not spin",
    "experimental.enable_mlir_bridge": _NO_XLA,
    "experimental.enable_mlir_graph_optimization": _PASSES,
    "experimental.mlir_bridge_rollout": _NO_XLA,
    "experimental.optimize_for_static_graph": "a graph that is never extended costs no more",
    "experimental.recv_buf_max_chunk": _NO_CLUSTER,
    "experimental.share_cluster_devices_in_session": _NO_CLUSTER,
    "experimental.share_session_state_in_clusterspec_propagation": _NO_CLUSTER,
    "experimental.use_numa_affinity": "where memory lies changes no result",
    "experimental.use_tfrt": "which runtime executes a graph changes no result",
    "experimental.xla_fusion_autotuner_thresh": _NO_XLA,
    "experimental.xla_prefer_single_graph_cluster": _NO_XLA,
    "gpu_options.allocator_type": "devices have allocators of their own",
    "gpu_options.allow_growth": "memory is taken as it is needed",
    "gpu_options.deferred_deletion_bytes": "memory is given back at once",
    "gpu_options.force_gpu_compatible": "which host memory is pinned changes no result",
    "gpu_options.polling_active_delay_usecs": "events are awaited, not polled",
    "gpu_options.polling_inactive_delay_msecs": "events are awaited, not polled",
    "graph_options.infer_shapes": "shapes are always inferred",
    "graph_options.optimizer_options.cpu_global_jit": _NO_XLA,
    "graph_options.optimizer_options.do_common_subexpression_elimination": _PASSES,
    "graph_options.optimizer_options.do_constant_folding": _PASSES,
    "graph_options.optimizer_options.do_function_inlining": _PASSES,
    "graph_options.optimizer_options.global_jit_level": _NO_XLA,
    "graph_options.optimizer_options.max_folded_constant_in_bytes": _PASSES,
    "graph_options.rewrite_options": _PASSES,
    "graph_options.timeline_step": "TensorFlow does not use it either",
    "isolate_session_state": "a session's state is its own, but for the containers of SessionConfig.share",
    "placement_period": "nodes stay where they were placed",
    "pluggable_device_options.allow_growth": "memory is taken as it is needed",
    "rpc_options": _NO_CLUSTER,
    "share_cluster_devices_in_session": _NO_CLUSTER,
    "use_per_session_threads": _OWN_THREADS,
}
# Refused within hints: these change results, or ask for something that is not implemented.
CONFIG_REFUSED_WITHIN_HINTS = frozenset(
    {
        "graph_options.rewrite_options.auto_mixed_precision",
        "graph_options.rewrite_options.auto_mixed_precision_cpu",
        "graph_options.rewrite_options.auto_mixed_precision_mkl",
        "graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16",
        "graph_options.rewrite_options.custom_optimizers",
    }
)

RUN_HONOURED = frozenset(
    {
        "inter_op_thread_pool",
        "output_partition_graphs",
        "report_tensor_allocations_upon_oom",
        "timeout_in_ms",
        "trace_level",
    }
)
RUN_HINTS = {
    "experimental.use_run_handler_pool": _OWN_THREADS,
}


def check_options(message: Any, honoured: frozenset[str], hints: Mapping[str, str]) -> None:
    """Log the hints that are set, and refuse fields that would be ignored.

    Raises:
        UnimplementedError: a field that is neither honoured nor a hint has another value than its default.
    """
    for path in _set_fields(message, ""):
        if path in honoured:
            continue
        parts = path.split(".")
        above = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
        reason = None
        if not CONFIG_REFUSED_WITHIN_HINTS.intersection(above):
            reason = next((hints[name] for name in above if name in hints), None)
        name = message.DESCRIPTOR.name
        if reason is None:
            raise errors.UnimplementedError(f"{name}.{path} is not supported: leave it unset")
        _log.info("%s.%s has no effect: %s", name, path, reason)


def _set_fields(message: Any, prefix: str) -> Iterator[str]:
    """Yield the paths of scalar, repeated and map fields whose values are not the defaults."""
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.message_type is not None and hasattr(value, "ListFields"):
            yield from _set_fields(value, f"{path}.")
        elif hasattr(value, "__len__") or value != field.default_value:  # proto2's presence does not count
            yield path
