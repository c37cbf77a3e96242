"""aexec: TensorFlow-style dataflow graphs, executed inside an asyncio event loop.

::

    graph = aexec.load_graph("model.pb")
    async with aexec.Session(graph) as session:
        y = await session.run("y:0", {"x:0": x})

The way of a run, in the order to read it: `graph/nodes/node.py`, `graph/graph.py`, `runtime/session/session.py`,
`runtime/plans/plan.py`, `runtime/interpreter/propagator_state.py`, `runtime/interpreter/execution.py`, and any module
of `kernels/`.  docs/tour.md walks it from HTTP bytes to a kernel and back.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from aexec.framework.memory.garbage_collector import collector_paused

# Nothing that an import makes is garbage, and the collector would look through it again and again.
with collector_paused():
    # Before whatever imports NumPy.
    from aexec.blas import tune_blas

    # isort: split
    from aexec import errors, kernels, ops  # noqa: F401  kernels are found through their registry
    from aexec.client import operators as _operators  # noqa: F401  gives tensors their operators
    from aexec.client.building import (
        add_to_collection,
        attr_scope,
        colocate_with,
        constant,
        container,
        control_dependencies,
        device,
        get_collection,
        get_collection_ref,
        gradient_override_map,
        group,
        identity,
        name_scope,
        ones,
        placeholder,
        tuple_,
        zeros,
    )
    from aexec.client.user_ops import op
    from aexec.framework.deprecation import Renamed, warn_deprecated
    from aexec.framework.dtypes import (
        DType,
        as_dtype,
        bfloat16,
        bool_,
        complex64,
        complex128,
        float4_e2m1fn,
        float8_e4m3b11fnuz,
        float8_e4m3fn,
        float8_e4m3fnuz,
        float8_e5m2,
        float8_e5m2fnuz,
        float16,
        float32,
        float64,
        int2,
        int4,
        int8,
        int16,
        int32,
        int64,
        qint8,
        qint16,
        qint32,
        quint8,
        quint16,
        resource,
        string,
        uint2,
        uint4,
        uint8,
        uint16,
        uint32,
        uint64,
        variant,
    )
    from aexec.framework.kernel_contract.load_library import load_library
    from aexec.graph.gradient_maker import set_gradient_maker
    from aexec.graph.graph import Graph
    from aexec.graph.nodes.node import Node, Tensor
    from aexec.runtime.config import RunMetadata, RunOptions, SessionConfig
    from aexec.runtime.feeding.feeds import register_feed_type
    from aexec.runtime.feeding.fetches import register_fetch_type
    from aexec.runtime.session.callable import SessionCallable
    from aexec.runtime.session.reset import reset
    from aexec.runtime.session.session import Session
    from aexec.runtime.session.session_classes import register_session_class, set_opening_class
    from aexec.runtime.session.step import Step
    from aexec.sources import OpeningSession, load

if TYPE_CHECKING:
    from aexec import compat, data, embedding, layers, losses, metrics, nn, summary, training
    from aexec.autodiff import gradient, no_gradient
    from aexec.autodiff.custom_gradient import custom_gradient
    from aexec.autodiff.gradients import gradients
    from aexec.autodiff.jacobian import hessians, jacobian
    from aexec.autodiff.recompute_grad import recompute_grad
    from aexec.client.clipping import (
        clip_by_average_norm,
        clip_by_global_norm,
        clip_by_norm,
        clip_by_value,
        global_norm,
    )
    from aexec.client.importing import import_graph_def
    from aexec.client.progress_bars import progress_bars
    from aexec.client.random_ops import random_gamma, random_normal, random_shuffle, random_uniform, truncated_normal
    from aexec.client.random_seed import set_random_seed
    from aexec.control_flow.cond import case, cond
    from aexec.control_flow.function import TensorSpec, function
    from aexec.control_flow.map_fn import foldl, foldr, map_fn, scan
    from aexec.control_flow.tensor_array import TensorArray
    from aexec.control_flow.while_loop import while_loop
    from aexec.framework.indexed_slices import IndexedSlices
    from aexec.framework.sparse_tensor import SparseTensor
    from aexec.framework.wire.attr_value import NameAttrList
    from aexec.graph.collections import GraphKeys
    from aexec.graph.nodes.function_library import FunctionLibrary
    from aexec.proto import VersionDef
    from aexec.queues.coordinator import Coordinator
    from aexec.queues.prefetch import prefetch
    from aexec.queues.queue_runner import QueueRunner, start_queue_runners
    from aexec.remote.blocking import BlockingSession, SyncSession, blocking
    from aexec.remote.remote_session import RemoteSession, connect
    from aexec.runtime.profiling.cost_model import CostModel
    from aexec.saved_model import load_saved_model, load_saved_model_async
    from aexec.saved_model.graph_collections import export_meta_graph, import_meta_graph
    from aexec.variables import initializers, regularizers
    from aexec.variables.initialization import (
        assert_variables_initialized,
        global_variables,
        global_variables_initializer,
        is_variable_initialized,
        local_variables,
        local_variables_initializer,
        model_variables,
        moving_average_variables,
        report_uninitialized_variables,
        trainable_variables,
        variables_initializer,
    )
    from aexec.variables.partitioned_variable import PartitionedVariable
    from aexec.variables.partitioners import (
        fixed_size_partitioner,
        min_max_variable_partitioner,
        variable_axis_size_partitioner,
    )
    from aexec.variables.variable import Variable
    from aexec.variables.variable_scope import VariableScope, get_variable, get_variable_scope, variable_scope
    from aexec.variables.variable_store import AUTO_REUSE

__version__ = "0.1.0"

__all__ = [
    "AUTO_REUSE",
    "BlockingSession",
    "Coordinator",
    "CostModel",
    "DType",
    "Graph",
    "GraphKeys",
    "IndexedSlices",
    "Node",
    "PartitionedVariable",
    "QueueRunner",
    "RemoteSession",
    "RunMetadata",
    "RunOptions",
    "Session",
    "SessionCallable",
    "SessionConfig",
    "SparseTensor",
    "Step",
    "SyncSession",
    "Tensor",
    "TensorArray",
    "TensorSpec",
    "Variable",
    "VariableScope",
    "__version__",
    "add_to_collection",
    "as_dtype",
    "assert_variables_initialized",
    "attr_scope",
    "bfloat16",
    "blocking",
    "bool_",
    "case",
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "colocate_with",
    "compat",
    "complex64",
    "complex128",
    "cond",
    "connect",
    "constant",
    "container",
    "control_dependencies",
    "custom_gradient",
    "data",
    "device",
    "double",
    "embedding",
    "errors",
    "export_meta_graph",
    "fixed_size_partitioner",
    "float4_e2m1fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float16",
    "float32",
    "float64",
    "foldl",
    "foldr",
    "function",
    "get_collection",
    "get_collection_ref",
    "get_variable",
    "get_variable_scope",
    "global_norm",
    "global_variables",
    "global_variables_initializer",
    "gradient",
    "gradient_override_map",
    "gradients",
    "group",
    "half",
    "hessians",
    "identity",
    "import_graph_def",
    "import_meta_graph",
    "initializers",
    "int2",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_variable_initialized",
    "jacobian",
    "layers",
    "load",
    "load_graph",
    "load_library",
    "load_saved_model",
    "load_saved_model_async",
    "local_variables",
    "local_variables_initializer",
    "losses",
    "map_fn",
    "metrics",
    "min_max_variable_partitioner",
    "model_variables",
    "moving_average_variables",
    "name_scope",
    "nn",
    "no_gradient",
    "ones",
    "op",
    "ops",
    "placeholder",
    "prefetch",
    "progress_bars",
    "qint8",
    "qint16",
    "qint32",
    "quint8",
    "quint16",
    "random_gamma",
    "random_normal",
    "random_shuffle",
    "random_uniform",
    "recompute_grad",
    "register_feed_type",
    "register_fetch_type",
    "regularizers",
    "report_uninitialized_variables",
    "reset",
    "resource",
    "scan",
    "set_random_seed",
    "start_queue_runners",
    "string",
    "summary",
    "trainable_variables",
    "training",
    "truncated_normal",
    "tune_blas",
    "uint2",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variable_axis_size_partitioner",
    "variable_scope",
    "variables_initializer",
    "variant",
    "while_loop",
    "zeros",
]

set_opening_class(OpeningSession)


def _made_gradient(library: FunctionLibrary, versions: VersionDef, function: NameAttrList) -> NameAttrList:
    from aexec.autodiff.symbolic_gradient import made_gradient

    return made_gradient(library, versions, function)


set_gradient_maker(_made_gradient)
for scheme in ("dask", "memory"):
    register_session_class(scheme, "aexec.distributed.opening_cluster_session:OpeningClusterSession")
del scheme

load_graph = Graph.load

# TensorFlow's other names; `bool` and `tuple` are left out of `__all__`, where they would hide Python's.
double, half, bool, tuple = float64, float16, bool_, tuple_

if not TYPE_CHECKING:
    # Names that not every program uses are imported at their first use.  Type checkers see the imports above, and
    # so report names that do not exist.
    _LAZY = {
        "CostModel": "aexec.runtime.profiling.cost_model",
        "Coordinator": "aexec.queues.coordinator",
        "QueueRunner": "aexec.queues.queue_runner",
        "export_meta_graph": "aexec.saved_model.graph_collections",
        "import_meta_graph": "aexec.saved_model.graph_collections",
        "load_saved_model": "aexec.saved_model",
        "load_saved_model_async": "aexec.saved_model",
        "BlockingSession": "aexec.remote.blocking",
        "IndexedSlices": "aexec.framework.indexed_slices",
        "SparseTensor": "aexec.framework.sparse_tensor",
        "RemoteSession": "aexec.remote.remote_session",
        "SyncSession": "aexec.remote.blocking",
        "blocking": "aexec.remote.blocking",
        "connect": "aexec.remote.remote_session",
        "gradient": "aexec.autodiff",
        "custom_gradient": "aexec.autodiff.custom_gradient",
        "gradients": "aexec.autodiff.gradients",
        "recompute_grad": "aexec.autodiff.recompute_grad",
        "hessians": "aexec.autodiff.jacobian",
        "jacobian": "aexec.autodiff.jacobian",
        "TensorSpec": "aexec.control_flow.function",
        "function": "aexec.control_flow.function",
        "no_gradient": "aexec.autodiff",
        "prefetch": "aexec.queues.prefetch",
        "progress_bars": "aexec.client.progress_bars",
        "start_queue_runners": "aexec.queues.queue_runner",
        "GraphKeys": "aexec.graph.collections",
        "PartitionedVariable": "aexec.variables.partitioned_variable",
        "fixed_size_partitioner": "aexec.variables.partitioners",
        "min_max_variable_partitioner": "aexec.variables.partitioners",
        "variable_axis_size_partitioner": "aexec.variables.partitioners",
        "Variable": "aexec.variables.variable",
        "assert_variables_initialized": "aexec.variables.initialization",
        "global_variables": "aexec.variables.initialization",
        "global_variables_initializer": "aexec.variables.initialization",
        "is_variable_initialized": "aexec.variables.initialization",
        "local_variables": "aexec.variables.initialization",
        "local_variables_initializer": "aexec.variables.initialization",
        "model_variables": "aexec.variables.initialization",
        "moving_average_variables": "aexec.variables.initialization",
        "report_uninitialized_variables": "aexec.variables.initialization",
        "trainable_variables": "aexec.variables.initialization",
        "variables_initializer": "aexec.variables.initialization",
        "VariableScope": "aexec.variables.variable_scope",
        "get_variable": "aexec.variables.variable_scope",
        "get_variable_scope": "aexec.variables.variable_scope",
        "variable_scope": "aexec.variables.variable_scope",
        "AUTO_REUSE": "aexec.variables.variable_store",
        "case": "aexec.control_flow.cond",
        "cond": "aexec.control_flow.cond",
        "while_loop": "aexec.control_flow.while_loop",
        "TensorArray": "aexec.control_flow.tensor_array",
        "foldl": "aexec.control_flow.map_fn",
        "foldr": "aexec.control_flow.map_fn",
        "map_fn": "aexec.control_flow.map_fn",
        "scan": "aexec.control_flow.map_fn",
        "clip_by_average_norm": "aexec.client.clipping",
        "clip_by_global_norm": "aexec.client.clipping",
        "clip_by_norm": "aexec.client.clipping",
        "clip_by_value": "aexec.client.clipping",
        "global_norm": "aexec.client.clipping",
        "import_graph_def": "aexec.client.importing",
        "set_random_seed": "aexec.client.random_seed",
        "random_gamma": "aexec.client.random_ops",
        "random_normal": "aexec.client.random_ops",
        "random_shuffle": "aexec.client.random_ops",
        "random_uniform": "aexec.client.random_ops",
        "truncated_normal": "aexec.client.random_ops",
    }
    _LAZY_MODULES = {
        "compat": "aexec.compat",
        "data": "aexec.data",
        "embedding": "aexec.embedding",
        "initializers": "aexec.variables.initializers",
        "layers": "aexec.layers",
        "losses": "aexec.losses",
        "metrics": "aexec.metrics",
        "nn": "aexec.nn",
        "regularizers": "aexec.variables.regularizers",
        "summary": "aexec.summary",
        "training": "aexec.training",
    }

    # Deprecated names.
    _RENAMED = {"Callable": Renamed("SessionCallable", removed_in="0.2")}

    def __getattr__(name):
        if name in _LAZY_MODULES:
            return importlib.import_module(_LAZY_MODULES[name])
        if name in _RENAMED:
            new = _RENAMED[name]
            warn_deprecated(f"aexec.{name}", f"aexec.{new.name}", new.removed_in)
            return getattr(sys.modules[__name__], new.name)
        if name not in _LAZY:
            raise AttributeError(f"module 'aexec' has no attribute {name!r}{_suggestion(name)}", name=name)
        return getattr(importlib.import_module(_LAZY[name]), name)

    def __dir__():
        return sorted({*globals(), *_LAZY, *_LAZY_MODULES})


def _suggestion(name: str) -> str:
    if name.startswith("_"):  # tools ask every module for names like `__wrapped__`
        return ""
    import difflib

    near = difflib.get_close_matches(name, __all__, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
