"""`SessionCallable`: one request signature of a session, resolved once and called many times.

A callable holds what a run of its signature needs: the structure of the result, the tensors and operations behind the
names, the conversion of each feed, and the plan once it is made.  `Session.run`, `Session.start`, partial runs and
servers all go through one; `Session.make_callable` returns one.  Next to read: `planning/planner.py` for the plan,
`step.py` for what a call creates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Protocol

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import DType
from aexec.framework.near_names import listed
from aexec.framework.shape import UNKNOWN_RANK
from aexec.framework.wire.node_def import parse_tensor_name
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Endpoint, Node, Tensor
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.prune import reachable
from aexec.graph.signature import graph_signature
from aexec.graph.tensor_connections import ConnectedTable, Connection
from aexec.graph.tensor_proxy import TensorProxy
from aexec.runtime.compiled.compiled_execution import line_of
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.feeding.device_ends import DeviceEnds, DeviceFeedSpec
from aexec.runtime.feeding.feeds import FeedSpec
from aexec.runtime.feeding.fetches import FetchMapper, feed_keys
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.planner import Planner
from aexec.runtime.plans.compilation_policy import CompiledForm
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.session.step import Prepared, Step
from aexec.runtime.session.watched_step import OnOutput, WatchedStep

__all__ = ["BegunRun", "CallableOwner", "Request", "SessionCallable", "canonical_name", "request_text"]


# Errors list the inputs or outputs of graphs with at most this many nodes.
_MOST_LISTED_NODES = 10_000

# A finished run: (result, None, None).  Another run: (None, its step, a coroutine that returns the result, once).
BegunRun = tuple[Any, None, None] | tuple[None, Step, Coroutine[Any, Any, Any]]


class CallableOwner(Protocol):
    """The part of a session that a callable uses."""

    @property
    def graph(self) -> Graph: ...

    async def execute(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | None,
        metadata: RunMetadata | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> Any:
        """Run a step of `call` in the calling task; return what `build` makes of the fetched values."""
        ...

    def begin(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | None,
        metadata: RunMetadata | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> BegunRun:
        """Like `execute`, up to the first wait."""
        ...

    def begin_at_once(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> BegunRun | None:
        """Like `begin`, for a compiled plan.  Returns None, with nothing begun, if the line cannot run now."""
        ...

    def new_step(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | None,
        metadata: RunMetadata | None,
        *,
        kind: type[Step] = ...,
    ) -> Step:
        """A step of `call` that has not begun."""
        ...


class Request:
    """The names of what a run fetches, feeds and runs.

    Attributes:
        fetches: unique names of tensors, in order of first appearance.
        feeds: names of tensors, in the order in which their values are given.
        targets: names of operations.

    Raises:
        InvalidArgumentError: a feed or target has a wrong type or belongs to another graph.
    """

    __slots__ = ("feeds", "fetches", "targets")

    def __init__(self, graph: Graph, mapper: FetchMapper, feeds: Iterable[Any], targets: Iterable[Any] | Node) -> None:
        for element in mapper.elements:
            graph.check_element(element)
        self.fetches = tuple(mapper.names)
        self.feeds = tuple([_feed_name(graph, feed) for feed in feed_keys(feeds)])
        given = (targets,) if isinstance(targets, str | Node) else targets
        self.targets = (*mapper.targets, *[_target_name(graph, target) for target in given])


class SessionCallable:
    """One signature of a session; `await call(x)` runs it with `x` fed for its first feed.

    Made by `Session.make_callable`.  A callable stays valid when the session's graph is extended.

    Attributes:
        fetches: names of the tensors that are fetched, each once.
        feeds: names of the tensors that are fed, in the order in which their values are given.
        targets: names of the operations that are run without being fetched.
        options: default options of a call.
    """

    __slots__ = (
        "__weakref__",
        "_fed_fetches",
        "_owner",
        "_plan",
        "_released",
        "_variants",
        "build",
        "ends",
        "feeds",
        "fetches",
        "on_devices",
        "options",
        "signature",
        "specs",
        "targets",
    )

    def __init__(
        self,
        owner: CallableOwner,
        mapper: FetchMapper,
        request: Request,
        options: RunOptions | None = None,
        *,
        check_shapes: bool = True,
        answer_fed: bool = False,
        connections: Iterable[tuple[Any, Any]] = (),
    ) -> None:
        self._owner = owner
        self.build = mapper.build
        self.fetches = request.fetches
        self.feeds = request.feeds
        self.targets = request.targets
        self.options = options
        # `ends`: the devices of fed and fetched values.  `on_devices`: whether any is not in the host's memory.
        # `_variants`: # this callable with its values on other devices.
        self.ends = DeviceEnds((None,) * len(self.feeds), (None,) * len(self.fetches))
        self.on_devices = False
        self._variants: dict[DeviceEnds, SessionCallable] = {}
        self._plan: CachedPlan | None = None
        self._released = False
        graph = owner.graph
        if not len(graph):
            raise errors.InvalidArgumentError(
                "The Session graph is empty. Add operations to the graph before calling run()."
            )
        if not self.fetches and not self.targets:
            raise errors.InvalidArgumentError("Must specify at least one target to fetch or execute.")
        fed = _feed_endpoints(graph, self.feeds)
        fetched = [_endpoint(graph, name, "FetchOutputs") for name in self.fetches]
        targets = tuple([_target(graph, name).id for name in self.targets])
        # Position of a fetch that is also fed → position of the feed.
        self._fed_fetches = {i: fed[endpoint] for i, endpoint in enumerate(fetched) if endpoint in fed}
        if self._fed_fetches and not answer_fed:
            names = ", ".join(self.fetches[i] for i in self._fed_fetches)
            raise errors.InvalidArgumentError(f"{names} is both fed and fetched.")
        connected = _connections(graph, connections, fed, fetched)
        fetches = tuple([e for e in fetched if e not in fed])
        self.signature = PlanKey(tuple(fed), fetches, targets, connections=connected)
        # One per feed, in order.
        self.specs = tuple([_feed_spec(graph, endpoint, i, check_shapes) for endpoint, i in fed.items()])

    # For callers

    async def __call__(
        self, *values: Any, options: RunOptions | None = None, metadata: RunMetadata | None = None
    ) -> Any:
        """Run one step in the calling task.

        Args:
            values: one for each feed, in order.
            options: replace the callable's own.
            metadata: filled with statistics if the options ask for them.

        Returns:
            Values in the structure of the fetches, as `Session.run` returns them.

        Raises:
            InvalidArgumentError: the number of values is not that of the feeds, a value is bad, the callable was
                released, or a kernel raised it.
            OpError, asyncio.CancelledError: as `Session.run` does.
        """
        if len(values) != len(self.feeds) or self._released:
            self._refuse(values)
        return await self._owner.execute(self, values, options or self.options, metadata, self.build)

    def begin(self, *values: Any, options: RunOptions | None = None) -> BegunRun:
        """Begin a step in the calling task: a short one ends before this returns; any other can be cancelled by its
        step.

        For servers: `__call__` costs as little, but does not give its caller the step.  Arguments and errors are those
        of a call.  A run that ended before this returned has no step.
        """
        if len(values) != len(self.feeds) or self._released:
            self._refuse(values)
        return self._owner.begin(self, values, options or self.options, None, self.build)

    def begin_at_once(self, *values: Any, options: RunOptions | None = None) -> BegunRun | None:
        """Like `begin`, for a step that is likely to end at once; returns None, with nothing begun, for any other."""
        if len(values) != len(self.feeds) or self._released:
            self._refuse(values)
        if self.line is None:
            return None
        return self._owner.begin_at_once(self, values, options or self.options, self.build)

    def start(self, *values: Any, options: RunOptions | None = None, metadata: RunMetadata | None = None) -> Step:
        """Start a step in a task of its own.  Arguments as for a call; errors are raised when the step is awaited."""
        step = self.prepare(*values, options=options, metadata=metadata)
        step.launch()
        return step

    def prepare(
        self,
        *values: Any,
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
        on_output: OnOutput | None = None,
    ) -> Step:
        """A step that begins when it is first awaited, in the task that awaits it.

        A call runs in the calling task as well, but does not give anyone its step to cancel; `start` does, but the task
        that it creates costs as much as a small step.  Arguments and errors are those of `start`.

        Args:
            on_output: called with the name and value of each fetched tensor as soon as it is computed, except of one
                that is fed.
        """
        if len(values) != len(self.feeds) or self._released:
            self._refuse(values)
        options = options or self.options
        if on_output is None:
            return self._owner.new_step(self, values, options, metadata)
        step = self._owner.new_step(self, values, options, metadata, kind=WatchedStep)
        assert isinstance(step, WatchedStep)
        step.watch([name for i, name in enumerate(self.fetches) if i not in self._fed_fetches], on_output)
        return step

    def release(self) -> None:
        """Drop the plan.  Steps in flight go on; later calls raise InvalidArgumentError."""
        self._released = True
        self._plan = None
        self._variants.clear()

    @property
    def feed_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the feeds, in order."""
        return tuple([spec.dtype for spec in self.specs])

    @property
    def fetch_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of `fetches`, in order."""
        nodes = self._owner.graph.nodes
        endpoints = iter(self.signature.fetches)
        dtypes = []
        for position in range(len(self.fetches)):
            if position in self._fed_fetches:
                dtypes.append(self.specs[self._fed_fetches[position]].dtype)
            else:
                node, slot = next(endpoints)
                dtypes.append(nodes[node].output_types[slot].base)
        return tuple(dtypes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The graph's nodes that a call needs, in no particular order."""
        signature = self.signature
        graph: NodeTable = self._owner.graph
        if signature.connections:
            graph = ConnectedTable(graph, signature.connections)
        roots = [*(node for node, _ in signature.fetches), *signature.targets]
        return tuple([graph.nodes[i] for i in reachable(graph, roots, frozenset(signature.feeds))])

    @property
    def plan(self) -> Plan | PartitionedPlan | None:
        """The plan; None before it is made."""
        return None if self._plan is None else self._plan.plan

    @property
    def num_plan_nodes(self) -> int:
        """The number of nodes of the plan, by which its memory is bounded; 0 before it is made."""
        own = 0 if self._plan is None else self._plan.plan.num_nodes
        return own + sum(variant.num_plan_nodes for variant in self._variants.values())

    def _refuse(self, values: Sequence[Any]) -> None:
        if self._released:
            raise errors.InvalidArgumentError(f"Attempted to run callable after handle was released: {self!r}")
        raise errors.InvalidArgumentError(
            f"Expected {len(self.feeds)} feed tensors, but got {len(values)}"
            + (f" (feeds: {', '.join(self.feeds)})" if self.feeds else "")
        )

    # For the session and its steps

    def with_ends(self, ends: DeviceEnds) -> SessionCallable:
        """This callable with its values on the devices of `ends`; made once for each."""
        found = self._variants.get(ends)
        if found is None:
            found = self._variants[ends] = copy(self)
            found._plan, found._variants, found.ends = None, {}, ends
            found.on_devices = any(ends.feeds) or any(ends.fetches)
            found.specs = tuple(
                [
                    spec if device is None else DeviceFeedSpec(spec.name, spec.dtype, spec.shape, spec.position)
                    for spec, device in zip(self.specs, ends.feeds, strict=True)
                ]
            )
            fetched = [device for i, device in enumerate(ends.fetches) if i not in self._fed_fetches]
            found.signature = replace(
                self.signature,
                feed_devices=_names(ends.feeds),
                fetch_devices=_names(fetched),
                skip_sync=ends.skip_sync,
            )
        return found

    def prepared(self, planner: Planner) -> Prepared:
        """The plan, or a future of it if a thread is making it.  Raises what planning raises."""
        if self._plan is not None:
            return self._plan
        found = planner.request(self.signature)
        if isinstance(found, CachedPlan):
            self._plan = found
        else:
            found.add_done_callback(self._planned)
        return found

    @property
    def line(self) -> CompiledForm | None:
        """The compiled plan; None if there is none."""
        return None if self._plan is None else line_of(self._plan.plan)

    def _planned(self, future: asyncio.Future[CachedPlan]) -> None:
        if not (future.cancelled() or self._released) and future.exception() is None:
            self._plan = future.result()

    @property
    def fetches_feeds(self) -> bool:
        """True if a fetched tensor is fed."""
        return bool(self._fed_fetches)

    def with_fed(self, results: Sequence[Any], fed: Sequence[Any]) -> list[Any]:
        """The values of `fetches`, put together from those that the plan fetched and those that were fed."""
        rest = iter(results)
        return [fed[self._fed_fetches[i]] if i in self._fed_fetches else next(rest) for i in range(len(self.fetches))]

    def where_made(self, position: int) -> Device | None:
        """The device whose memory holds the value of a fetch when the run has ended; None for the host."""
        fed = self._fed_fetches.get(position)
        return self.ends.fetches[position] if fed is None else self.ends.feeds[fed]

    def __repr__(self) -> str:
        state = " released" if self._released else ""
        return f"<SessionCallable {request_text(self.feeds, self.fetches, self.targets, partial=False)}{state}>"


def request_text(feeds: Iterable[str], fetches: Iterable[str], targets: Iterable[str], *, partial: bool) -> str:
    """The request as one string: `x:0->y:0//0/`."""
    return f"{','.join(feeds)}->{','.join(fetches)}/{','.join(targets)}/{int(partial)}/"


def _names(devices: Sequence[Device | None]) -> tuple[str, ...]:
    """The names of the devices, as `PlanKey` takes them; () if all are the host."""
    return tuple(["" if device is None else device.name for device in devices]) if any(devices) else ()


def canonical_name(tensor: Any) -> str:
    """The name of a tensor with its output number: `y` becomes `y:0`."""
    if isinstance(tensor, TensorProxy):
        tensor = tensor.element
    if isinstance(tensor, Tensor):
        return tensor.name
    if not isinstance(tensor, str):
        raise errors.InvalidArgumentError(f"Expected a tensor or its name, got {tensor!r}")
    node, slot = parse_tensor_name(tensor)
    return f"{node}:{slot}" if slot >= 0 else f"{tensor}:0"  # not a tensor: the lookup reports it


def _feed_name(graph: Graph, feed: Any) -> str:
    if isinstance(feed, TensorProxy):
        feed = feed.element
    if isinstance(feed, Tensor):
        graph.check_element(feed)
        return feed.name
    if not isinstance(feed, str):
        raise errors.InvalidArgumentError(
            f"A feed's key must be a tensor or its name, got {feed!r} of type {type(feed).__name__}"
        )
    return feed


def _target_name(graph: Graph, target: Any) -> str:
    if isinstance(target, str):
        return target
    if not isinstance(target, Node):
        raise errors.InvalidArgumentError(f"A target must be an operation or its name, got {target!r}")
    graph.check_element(target)
    return target.name


def _feed_endpoints(graph: Graph, names: Iterable[str]) -> Mapping[Endpoint, int]:
    """Endpoint → position among the feeds."""
    endpoints: dict[Endpoint, int] = {}
    for position, name in enumerate(names):
        endpoint = _endpoint(graph, name, "FeedInputs")
        if endpoints.setdefault(endpoint, position) != position:
            raise errors.InvalidArgumentError(f'Endpoint "{name}" fed more than once.')
    return endpoints


def _connections(
    graph: Graph, names: Iterable[tuple[Any, Any]], fed: Container[Endpoint], fetched: Container[Endpoint]
) -> tuple[Connection, ...]:
    """The pairs (endpoint, the endpoint whose place it takes).

    Raises:
        InvalidArgumentError: a name does not exist; a replaced tensor is also fed or fetched, or is replaced twice; or
            an error of `ConnectedTable`.
    """
    found: dict[Endpoint, Endpoint] = {}
    for source, replaced in names:
        taken = _endpoint(graph, _feed_name(graph, replaced), "FeedInputs")
        if taken in fed or taken in found:
            raise errors.InvalidArgumentError(f'Endpoint "{replaced}" fed more than once.')
        if taken in fetched:
            raise errors.InvalidArgumentError(f"{replaced} is both fed and fetched.")
        found[taken] = _connected_from(graph, _feed_name(graph, source))
    connections = tuple([(source, taken) for taken, source in found.items()])
    if connections:
        ConnectedTable(graph, connections)  # raises now, not at the first call
    return connections


def _connected_from(graph: Graph, name: str) -> Endpoint:
    node_name, slot = parse_tensor_name(name)
    node = graph.find(node_name)
    if node is None:
        raise errors.InvalidArgumentError(
            f'Requested tensor connection from unknown node: "{name}".{graph.suggest(node_name)}'
        )
    if slot >= node.num_outputs:
        raise errors.InvalidArgumentError(
            f'Requested tensor connection from unknown edge: "{name}" (actual number of outputs = {node.num_outputs}).'
        )
    return (node.id, slot)


def _endpoint(graph: Graph, name: str, role: str) -> Endpoint:
    """The endpoint that a feed or fetch names.  `role` is the word for it in errors."""
    node_name, slot = parse_tensor_name(name)
    node = None if name.startswith("^") else graph.find(node_name)
    if node is None:
        raise errors.NotFoundError(
            f"{role} node {name}: not found{graph.suggest(node_name)}{_what_there_is(graph, role)}"
        )
    if slot >= node.num_outputs:
        raise errors.InvalidArgumentError(
            f"{role} {name}: output index too large, must be < {node.num_outputs}", node=node.name, op=node.op
        )
    return (node.id, slot)


def _what_there_is(graph: Graph, role: str) -> str:
    """The graph's own inputs or outputs, for the error about an unknown tensor; "" for a large graph."""
    if len(graph) > _MOST_LISTED_NODES:
        return ""
    signature = graph_signature(graph)
    kind, infos = ("inputs", signature.inputs) if role == "FeedInputs" else ("outputs", signature.outputs)
    return f" (the graph's {kind}: {listed([info.name for info in infos.values()])})"


def _target(graph: Graph, name: str) -> Node:
    node = graph.find(name)
    if node is None:
        raise errors.NotFoundError(f"PruneForTargets: Some target nodes not found: {name} {graph.suggest(name)}")
    return node


def _feed_spec(graph: Graph, endpoint: Endpoint, position: int, check_shape: bool) -> FeedSpec:
    tensor = graph.nodes[endpoint[0]].output(endpoint[1])
    return FeedSpec(tensor.name, tensor.dtype, tensor.shape if check_shape else UNKNOWN_RANK, position)
