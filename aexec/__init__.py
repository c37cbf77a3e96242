"""aexec: TensorFlow-style dataflow graphs, executed inside an asyncio event loop.

::

    graph = aexec.load_graph("model.pb")
    async with aexec.Session(graph) as session:
        y = await session.run("y:0", {"x:0": x})

The way of a run, in the order to read it: `graph/node.py`, `graph/graph.py`, `runtime/session.py`,
`runtime/plan.py`, `runtime/propagator_state.py`, `runtime/executor.py`, and any module of
`kernels/`.  docs/tour.md walks it from HTTP bytes to a kernel and back.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Before whatever imports NumPy.
from aexec.blas import tune_blas

# isort: split
from aexec import errors, ops
from aexec.client import operators as _operators  # noqa: F401  gives tensors their operators
from aexec.client.building import (
    colocate_with,
    constant,
    control_dependencies,
    device,
    group,
    name_scope,
    placeholder,
)
from aexec.client.user_ops import op
from aexec.framework import kernel_registry
from aexec.framework.load_library import load_library
from aexec.graph.graph import Graph
from aexec.graph.node import Node, Tensor
from aexec.runtime.config import RunMetadata, RunOptions, SessionConfig
from aexec.runtime.reset import reset
from aexec.runtime.session import Session
from aexec.runtime.step import Step

if TYPE_CHECKING:
    from aexec.queues.coordinator import Coordinator
    from aexec.queues.prefetch import prefetch
    from aexec.queues.queue_runner import QueueRunner, start_queue_runners
    from aexec.saved_model import load_saved_model

__version__ = "0.1.0"

__all__ = [
    "Coordinator",
    "Graph",
    "Node",
    "QueueRunner",
    "RunMetadata",
    "RunOptions",
    "Session",
    "SessionConfig",
    "Step",
    "Tensor",
    "colocate_with",
    "constant",
    "control_dependencies",
    "device",
    "errors",
    "group",
    "load_graph",
    "load_library",
    "load_saved_model",
    "name_scope",
    "op",
    "ops",
    "placeholder",
    "prefetch",
    "reset",
    "start_queue_runners",
    "tune_blas",
]

kernel_registry.global_registry.load_on_first_use("aexec.kernels")

load_graph = Graph.load

# What not every program uses is imported when it is first asked for.
_LAZY = {
    "Coordinator": "aexec.queues.coordinator",
    "QueueRunner": "aexec.queues.queue_runner",
    "load_saved_model": "aexec.saved_model",
    "prefetch": "aexec.queues.prefetch",
    "start_queue_runners": "aexec.queues.queue_runner",
    "training": "aexec.training",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'aexec' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    return module if _LAZY[name] == f"aexec.{name}" else getattr(module, name)
