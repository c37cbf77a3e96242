"""The protocols of sessions: `SessionProtocol` for all, `NativeSessionProtocol` for those with aexec's own names.

A session runs a graph in this process, in a server or on a cluster.  The methods of a blocking session wait and return
the result; those of the others are coroutine functions, except where the docstring says "returns at once".  Hence
results are `Any` here: the value, or an awaitable of it.  A class has no method that it does not support: asking for
one raises AttributeError with the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from aexec import proto
from aexec.graph.graph import Graph
from aexec.graph.signature import Signature, TensorInfo

__all__ = ["NativeSessionProtocol", "SessionProtocol"]


class SessionProtocol(Protocol):
    """Implemented by `aexec.Session`, the sessions of `aexec.connect`, `aexec.SyncSession`, and those of
    `aexec.compat.v1`.
    """

    @property
    def graph(self) -> Graph:
        """The graph.  Nodes that are added to it later can be run, too."""
        ...

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph as a message."""
        ...

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        ...

    def run(self, fetches: Any, feeds: Any = ..., /) -> Any:
        """Run one step.

        Args:
            fetches: a tensor, an operation, the name of one, or a nested structure of these.
            feeds: tensor, or its name → value.

        Returns:
            Values in the structure of `fetches`; None for operations.

        Raises:
            NotFoundError: a name does not exist.
            InvalidArgumentError: a bad feed, or nothing to run; or an error of a kernel, with `node` and `op`.
            OpError: another error of a kernel; CancelledError if the session is closed, before or during the step.
        """
        ...

    def make_callable(self, fetches: Any, feeds: Any = ..., /) -> Any:
        """A function that runs one step; it takes the values of the feeds in their order.  Returns at once."""
        ...

    def partial_run_setup(self, fetches: Any, feeds: Any = ..., /) -> Any:
        """Begin a step that several calls of `partial_run` feed and fetch; return its handle."""
        ...

    def partial_run(self, setup: Any, fetches: Any, feeds: Any = ..., /) -> Any:
        """Feed some of the feeds of a partial run, and wait for some of its fetches."""
        ...

    def close(self) -> Any:
        """Cancel the steps in flight, wait for their end, and free what the session keeps.  Idempotent."""
        ...


class NativeSessionProtocol(SessionProtocol, Protocol):
    """Implemented by all sessions but those of `aexec.compat.v1`."""

    def run(
        self, fetches: Any, feeds: Any = ..., targets: Any = ..., *, options: Any = ..., metadata: Any = ...
    ) -> Any:
        """Run one step; `targets` are operations to run besides."""
        ...

    def start(
        self, fetches: Any, feeds: Any = ..., targets: Any = ..., *, options: Any = ..., metadata: Any = ...
    ) -> Any:
        """Begin a step and return it at once: its `cancel` cancels it, from any thread."""
        ...

    def call(
        self,
        signature: str | None = ...,
        inputs: Mapping[str, Any] | None = ...,
        /,
        *,
        options: Any = ...,
        metadata: Any = ...,
        **named: Any,
    ) -> Any:
        """Run one step by a signature's own names; return output name → value.

        Raises:
            NotFoundError: there is no such signature.
            InvalidArgumentError: an input is missing, or an input has an unknown name.
        """
        ...

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of the model: name → `Signature`.  Empty for a plain graph."""
        ...

    def signature(self, name: str | None = ...) -> Signature:
        """One of `signatures`, or the graph's own.  Returns at once."""
        ...

    @property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """The inputs of the default signature, which `call` takes."""
        ...

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """The outputs of the default signature, which `call` returns."""
        ...

    @property
    def steps(self) -> tuple[Any, ...]:
        """The steps in flight, oldest first."""
        ...

    @property
    def tensors(self) -> Any:
        """The tensors that the session keeps under handles."""
        ...

    def devices(self) -> Any:
        """The devices, those of the preferred type first."""
        ...

    def queue(self, name: str) -> Any:
        """A queue of the graph, to put and take elements.  Returns at once."""
        ...

    def queues(self) -> Any:
        """The existing queues, by name."""
        ...

    def warm_up(
        self, signature: str | None = ..., inputs: Mapping[str, Any] | None = ..., /, *, runs: int = ..., **named: Any
    ) -> Any:
        """Run a signature with inputs until its plan is made and compiled."""
        ...

    def extend(self, more: Any) -> Any:
        """Add nodes to the graph.  Raises InvalidArgumentError and leaves the graph unchanged if they do not fit."""
        ...

    def reset(self, containers: Any = ...) -> Any:
        """Cancel the steps in flight, and delete the resources of containers."""
        ...
