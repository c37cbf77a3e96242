"""The interface of a delegate, which runs whole regions of a plan.

The interface is small, so that it fits a library that compiles regions, a captured graph of a GPU, or another machine:
refuse nodes, compile, start, wait, cancel, report memory.  A region can always be run by its nodes instead.  So a
delegate may refuse a region or a call, or fail during one, and the step runs the nodes, which give the right result or
the right error.
Next to read: `delegate_registry.py`, which keeps them by name, and `aexec/runtime/planning/delegated.py`, which calls
them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.regions import Region
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["CompiledRegion", "Delegate", "Inference", "RefusedError"]


class RefusedError(Exception):
    """A delegate cannot do it; the message says why, and names the op if it is one.  The nodes run instead."""


class Inference(Protocol):
    """A call of a region that was started.  It keeps its inputs until it is done."""

    def wait(self) -> Sequence[Any]:
        """Block until it is done; return the outputs, which belong to the caller.  Called once, in a thread.

        Raises:
            Exception: it failed, or was cancelled.
        """
        ...

    def cancel(self) -> None:
        """Make it end soon; `wait` then raises.  Does not block; called on the event loop, perhaps too late."""
        ...


class CompiledRegion(Protocol):
    """A region that can be called."""

    @property
    def memory(self) -> int:
        """The approximate bytes that it holds between calls."""
        ...

    def start(self, inputs: Sequence[Any]) -> Inference:
        """Start a call on C-contiguous arrays, which it only reads.  Does not block; called on the event loop.

        Raises:
            RefusedError: it cannot take inputs of these shapes.
        """
        ...


class Delegate(Protocol):
    """Runs regions.

    Attributes:
        name: as `SessionConfig(delegates=...)` names it.
        device_type: of the devices whose nodes it can run.
    """

    name: str
    device_type: str

    def refusal(self, graph: WorkingGraph, node: Node, used: Collection[int]) -> str:
        """Why it cannot run a node, of which the outputs `used` are used, in a few words; "" if it can.

        Called only for nodes without state whose inputs and outputs are numbers.  It must refuse a node that may fail
        depending on its inputs' values, unless the call fails with it.
        """
        ...

    def compile_seconds(self, region: Region) -> float:
        """The estimated seconds that compiling a region takes."""
        ...

    def compile(self, region: Region, threads: int) -> CompiledRegion:
        """A region that can be called, with this many threads.  Called in a thread.

        Raises:
            RefusedError: it cannot run the region after all.
        """
        ...
