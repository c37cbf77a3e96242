"""Partial runs: one step that is fed and fetched in several calls.

`Session.partial_run_setup` names all feeds, fetches and targets and starts the step without feeds.  Each
`Session.partial_run` feeds some and fetches some.  The step goes on between the calls.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.near_names import listed, near_names
from aexec.framework.waiting.futures import until_done
from aexec.framework.waiting.inline_call import NeedsThreadError, check_inline
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Endpoint
from aexec.graph.nodes.prune import late_nodes
from aexec.runtime.feeding.fetches import FetchMapper, to_values
from aexec.runtime.plans.absent_values import NO_VALUE, UNFED, OnResult
from aexec.runtime.session.callable import SessionCallable, canonical_name, request_text
from aexec.runtime.session.step import Step
from aexec.runtime.session.step_view import StepState

__all__ = ["PartialRun", "PartialRunTable"]

# The most that a session keeps.  Ended ones are kept too, so that their next call gets the right error.
_MAX_KEPT = 1000
# Estimate per node of the graph for the search for fetches that wait for a feed.
_LOOK_NS = 2_000.0

_counter = itertools.count()


class PartialRun(Step):
    """A step in parts.  Cancel it as any step; awaiting it gives all fetches of the set-up.

    Attributes:
        handle: the name of the run as TensorFlow writes it: the request and a number.
    """

    __slots__ = ("_arrivals", "_early", "_endpoints", "_fed", "_graph", "_positions", "_specs", "_taken", "handle")

    def begin(self, graph: Graph, call: SessionCallable) -> None:
        """Start the step, with nothing fed.

        Args:
            graph: the graph of `call`.
        """
        self._graph = graph
        feeds, fetches = [[canonical_name(name) for name in names] for names in (call.feeds, call.fetches)]
        self._specs = dict(zip(feeds, call.specs, strict=True))
        self._fed = dict.fromkeys(feeds, False)
        self._positions = {name: position for position, name in enumerate(fetches)}
        signature = call.signature
        self._endpoints = dict(zip((*feeds, *fetches), (*signature.feeds, *signature.fetches), strict=True))
        self._taken: set[str] = set()
        self._early: dict[int, Any] = {}
        self._arrivals: list[asyncio.Future[Any]] = [self.environment.loop.create_future() for _ in fetches]
        self.handle = f"{request_text(feeds, fetches, call.targets, partial=True)};{next(_counter)}"
        self.launch()

    @property
    def exhausted(self) -> bool:
        """True if everything was fed and fetched."""
        return all(self._fed.values()) and len(self._taken) == len(self._positions)

    async def part(self, mapper: FetchMapper, feeds: Mapping[Any, Any]) -> Any:
        """Feed some, fetch some.  Arguments and errors as those of `Session.partial_run`."""
        given = {canonical_name(key): value for key, value in feeds.items()}
        wanted = list(map(canonical_name, mapper.names))
        if mapper.targets:
            raise errors.InvalidArgumentError("partial_run() requires empty target_list.")
        if len(given) != len(feeds):
            names = list(map(canonical_name, feeds))
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise errors.InvalidArgumentError(f'Endpoint "{twice}" fed more than once.')
        specs = self._specs

        def convert() -> dict[int, Any]:
            self._check(given, wanted)
            feed, memory = self.owner.tensors.feed, self.environment.memory
            return {specs[name].position: feed(specs[name], value, memory) for name, value in given.items()}

        try:
            values = convert()
        except NeedsThreadError:
            values = await self._in_thread(convert)
            self._check_new(given, wanted)  # again: another call may have come between
        for name in given:
            self._fed[name] = True
        self._taken.update(wanted)
        self._feed(values)
        results = [await self._arrival(self._positions[name]) for name in wanted]
        if self.environment.memory is not None:
            self.environment.memory.hand_over(results)
        if self.exhausted:
            await self
        return mapper.build(to_values(results))

    def _check(self, given: Mapping[str, Any], wanted: Sequence[str]) -> None:
        """Check that the fetches can be computed with these feeds.  Raises as `part`, and NeedsThreadError as
        `_waiting`.
        """
        self._check_new(given, wanted)
        pending = {self._endpoints[name] for name, fed in self._fed.items() if not fed and name not in given}
        waiting = self._waiting(pending, [self._endpoints[name] for name in wanted])
        for name in wanted:
            if self._endpoints[name] in waiting:
                raise errors.InvalidArgumentError(
                    f"Fetch {name} can't be computed from the feeds that have been fed so far."
                )

    def _check_new(self, given: Iterable[str], wanted: Iterable[str]) -> None:
        """Check that these feeds and fetches were set up, and that none was fed or fetched before."""
        for name in given:
            if name not in self._fed:
                raise _not_set_up("feed", name, self._fed)
            if self._fed[name]:
                raise errors.InvalidArgumentError(f"The feed {name} has already been fed.")
        for name in wanted:
            if name not in self._positions:
                raise _not_set_up("fetch", name, self._positions)
            if name in self._taken:
                raise errors.InvalidArgumentError(f"The fetch {name} has already been fetched.")

    def _waiting(self, pending: set[Endpoint], fetches: Iterable[Endpoint]) -> set[Endpoint]:
        """Return the fetches that depend on a pending feed.

        Raises:
            NeedsThreadError: called on the event loop, and the graph is so large that the search would block it.
        """
        if not pending:
            return set()
        fed = frozenset([self._endpoints[name] for name in self._fed])
        asked = {fetch for fetch in fetches if fetch not in fed}
        found = pending.intersection(fetches)
        if not asked:
            return found
        check_inline(_LOOK_NS * len(self._graph))
        late = late_nodes(self._graph, [node_id for node_id, _ in asked], fed, pending)
        return found.union(fetch for fetch in asked if fetch[0] in late)

    async def _arrival(self, position: int) -> Any:
        """The value of a fetch, when it is computed; raises the step's error if the step ends before."""
        arrival = self._arrivals[position]
        assert self._task is not None
        if not arrival.done():
            try:
                await asyncio.wait([arrival, self._task], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self.cancel("the task that awaits a part of it was cancelled")
                await until_done(self._task)
                raise
        if not arrival.done():
            await self
        value = arrival.result()
        if value is NO_VALUE:
            error = errors.InvalidArgumentError(f"Retval[{position}] does not have value")
            self._cancel_with(error.fresh())
            raise error
        return value

    # The executor's side

    def _feed(self, values: Mapping[int, Any]) -> None:
        if self._execution is None:  # the step has not had its first turn
            self._early.update(values)
            return
        for position, value in values.items():
            self._execution.feed(position, value)

    def _fed_values(self) -> list[Any]:
        early, self._early = self._early, {}
        return [early.get(position, UNFED) for position in range(len(self._fed))]

    @property
    def _on_result(self) -> OnResult:
        return self._arrived

    def _arrived(self, position: int, value: Any) -> None:
        self._arrivals[position].set_result(value)


def _not_set_up(what: str, name: str, names: Collection[str]) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"The {what} {name} was not specified in partial_run_setup: there are {listed(names)}{near_names(name, names)}"
    )


class PartialRunTable:
    """The partial runs of a session, by their handles."""

    def __init__(self) -> None:
        self._runs: dict[str, PartialRun] = {}

    def make_room(self) -> None:
        """Make room for one more run: if the table is full, forget the oldest run that has ended.

        Raises:
            ResourceExhaustedError: the table is full, and no run has ended.
        """
        runs = self._runs
        if len(runs) < _MAX_KEPT:
            return
        ended = next((handle for handle, run in runs.items() if run.done), None)
        if ended is None:
            raise errors.ResourceExhaustedError(
                f"{len(runs)} partial runs have not ended, the most that a session may have: "
                "feed and fetch all that they were set up for, or cancel them"
            )
        del runs[ended]

    def add(self, run: PartialRun) -> None:
        self._runs[run.handle] = run

    async def go_on(self, setup: PartialRun | str, mapper: FetchMapper, feeds: Mapping[Any, Any]) -> Any:
        """Run the next part of a partial run, and forget the run after its last.  As `Session.partial_run`."""
        handle = setup if isinstance(setup, str) else setup.handle
        run = self._runs.get(handle)
        if run is None:
            raise errors.InvalidArgumentError("Must run 'setup' before performing partial runs!")
        try:
            return await run.part(mapper, feeds)
        finally:
            if run.exhausted or (run.done and run.state is not StepState.SUCCEEDED):
                self._runs.pop(handle, None)

    def clear(self) -> None:
        self._runs.clear()
