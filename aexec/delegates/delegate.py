"""What a delegate is: who runs a whole region of a plan, and what the runtime asks of one.

The interface is small, so that it fits a library that compiles regions, a captured graph of a GPU, or another
machine: which nodes, compile, start, done, cancel, memory.  A run of a region always can be done by its nodes
instead: a delegate may refuse a region, a call, or fail in the middle of one, and the step goes the
ordinary way, which has the right answer and the right words for what is wrong.
Next to read: `delegate_registry.py`, where they are by name, and `aexec/runtime/planning/delegated.py` for who calls
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
    """A delegate cannot do it; the message says why, and names the op if it is one.  Its nodes do it instead."""


class Inference(Protocol):
    """One call of a region that has been started.  It keeps what it was called with until it is done."""

    def wait(self) -> Sequence[Any]:
        """Block until it is done: the outputs, which belong to the caller.  Called once, in a thread.

        Raises:
            Exception: it failed, or was cancelled.
        """
        ...

    def cancel(self) -> None:
        """Let it end soon; `wait` then raises.  Does not block; called on the event loop, and perhaps too late."""
        ...


class CompiledRegion(Protocol):
    """A region that can be called."""

    @property
    def memory(self) -> int:
        """Bytes that it holds between calls, about."""
        ...

    def start(self, inputs: Sequence[Any]) -> Inference:
        """Start a call on C-contiguous arrays, which it only reads.  Does not block; called on the event loop.

        Raises:
            RefusedError: not with inputs of such shapes.
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

        Asked only of nodes without state whose inputs and outputs are numbers.  It must say no to a node that may
        fail by its inputs' values, unless the call fails with it.
        """
        ...

    def compile_seconds(self, region: Region) -> float:
        """How long compiling a region will take, about."""
        ...

    def compile(self, region: Region, threads: int) -> CompiledRegion:
        """A region that may be called from now on, on so many threads.  Called in a thread.

        Raises:
            RefusedError: it cannot run it after all.
        """
        ...
