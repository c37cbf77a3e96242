"""`SessionRuns`: the part of `Session` that runs the graph.

Next to read: `session_callables.py` for what a request becomes, `session_steps.py` for how a step begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar, Unpack, overload

from google.protobuf.message import Message

from aexec.framework import errors
from aexec.framework.waiting.futures import running_loop
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.signature import named_inputs
from aexec.runtime.config import RunMetadata, RunOptions, callable_arguments
from aexec.runtime.feeding.fetches import FetchMapper, flat_feeds
from aexec.runtime.session.callable import SessionCallable
from aexec.runtime.session.partial_run import PartialRun, PartialRunTable
from aexec.runtime.session.run_types import Feeds, Fetched, RunSettings, T, TargetsLike
from aexec.runtime.session.session_callables import SessionCallables
from aexec.runtime.session.session_view import SessionView
from aexec.runtime.session.step import Step

__all__ = ["SessionRuns"]

K = TypeVar("K")

# Default of `warm_up`: after this many runs a plan is made and compiled (it is compiled at its third).
_WARM_UP_RUNS = 5


class SessionRuns(SessionView):
    """Runs the graph of a session: once, in parts, from other threads, and by callables."""

    _callables: SessionCallables
    _partial_runs: PartialRunTable

    # fmt: off
    @overload
    async def run(self, fetches: str | Tensor, feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> Fetched: ...  # noqa: E501
    @overload
    async def run(self, fetches: Node, feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> None: ...  # noqa: E501
    @overload
    async def run(self, fetches: list[T], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> list[Fetched]: ...  # noqa: E501
    @overload
    async def run(self, fetches: dict[K, T], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> dict[K, Fetched]: ...  # noqa: E501
    @overload
    async def run(self, fetches: tuple[str | Tensor, str | Tensor], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> tuple[Fetched, Fetched]: ...  # noqa: E501
    @overload
    async def run(self, fetches: tuple[str | Tensor, ...], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> tuple[Fetched, ...]: ...  # noqa: E501
    @overload
    async def run(self, fetches: list[Any], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> list[Any]: ...  # noqa: E501
    @overload
    async def run(self, fetches: dict[K, Any], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> dict[K, Any]: ...  # noqa: E501
    @overload
    async def run(self, fetches: Any, feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> Any: ...  # noqa: E501
    # fmt: on

    async def run(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: TargetsLike = (),
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        fetch_devices: Mapping[Any, str] | None = None,
    ) -> Any:
        """Run one step in the calling task.

        Args:
            fetches: a tensor, an operation, the name of one, or a nested structure of these.
            feeds: tensor (or its name) → value: an array, nested lists, or a value of a registered type
                (`aexec.register_feed_type`).  Any tensor of the graph can be fed.  A value in the memory of one of the
                session's devices (a CuPy array, or an object with `__dlpack__`) enters the graph on that device.
            targets: operations to run without fetching anything.
            options: deadline and tracing.
            metadata: filled with statistics if `options` asks for them.
            fetch_devices: fetched tensor (or its name) → name of the device whose memory is to hold its value, as an
                array of that device.

        Returns:
            Values in the structure of `fetches`: arrays, NumPy scalars, `bytes`; None for operations.

        Raises:
            InvalidArgumentError: bad feeds or fetches, or an error of a kernel.
            NotFoundError: a fetch, feed or target does not exist.
            DeadlineExceededError: the deadline passed.
            CancelledError: the step was cancelled, or the session closed.
            asyncio.CancelledError: the calling task was cancelled; the step has ended.
        """
        if type(fetches) is list and not fetches and not targets:
            self._check_usable()
            return []
        call, build, feeds = self._callables.find(fetches, feeds, targets)
        if fetch_devices:
            call = self._callables.on_devices(call, None, fetch_devices)
        values = tuple(feeds.values()) if feeds else ()
        result, _, rest = self._steps.begin(call, values, options, metadata, build)
        return result if rest is None else await rest

    async def call(
        self,
        signature: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        **named: Any,
    ) -> dict[str, Fetched]:
        """Run one step by a signature's own names: `await session.call("serving_default", x=x)`.

        Args:
            signature: as `Session.signature` takes its name.
            inputs: values by input name, for names that cannot be keywords.
            named: further values by input name.
            options, metadata: as for `run`.

        Returns:
            Output name → value.

        Raises:
            NotFoundError: there is no such signature.
            InvalidArgumentError: an input is missing, or an input has an unknown name.
            OpError, asyncio.CancelledError: as `run` does.
        """
        chosen = self.signature(signature)
        feeds = chosen.feeds(named_inputs(inputs, named))
        return await self.run(chosen.fetches(), feeds, options=options, metadata=metadata)

    def start(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        fetch_devices: Mapping[Any, str] | None = None,
    ) -> Step:
        """Start a step in a task of its own.  Arguments as for `run`; its errors are raised when it is awaited.

        An error of the request itself is raised at once, unless the graph is so large that it is planned in a thread.
        """
        call, build, feeds = self._callables.find(fetches, feeds, targets)
        if fetch_devices:
            call = self._callables.on_devices(call, None, fetch_devices)
        step = self._steps.new_step(call, tuple(feeds.values()) if feeds else (), options, metadata, build)
        step.launch()
        return step

    def make_callable(
        self,
        fetches: Any,
        feeds: Iterable[Any] = (),
        targets: Iterable[Any] = (),
        options: RunOptions | None = None,
        *,
        feed_devices: Mapping[Any, str] | None = None,
        fetch_devices: Mapping[Any, str] | None = None,
        fetch_skip_sync: bool = False,
        connections: Iterable[tuple[Any, Any]] = (),
    ) -> SessionCallable:
        """Resolve a request once, for many runs: `await call(x)` is cheaper than `run`.

        Args:
            fetches, targets: as for `run`; or `fetches` alone is a CallableOptions message with the whole request.
            feeds: tensors, or their names, in the order in which calls give their values.
            options: default options of a call.
            feed_devices: fed tensor (or its name) → name of the device whose memory must hold each of its values.
                Without it, each call looks where its values are.
            fetch_devices: as for `run`.
            fetch_skip_sync: calls do not wait until devices have computed the fetches.  Work on the stream that was
                current in the caller's thread runs after that.  A kernel that fails on the device after it was queued
                then fails no step.
            connections: pairs of tensors, or their names: in each call the first replaces the second, as if its value
                were fed there.

        The last four are those of TensorFlow's CallableOptions.  The plan is made by the first call.

        Raises:
            NotFoundError: a fetch, feed or target does not exist.
            InvalidArgumentError: a tensor is fed twice, is fed and fetched, or belongs to another graph; there is
                nothing to fetch or run; a device does not exist, or is given for a tensor that is not fed or fetched;
                connections have different types or would make a tensor depend on itself.
            UnimplementedError: a device cannot hold values of a tensor's type; a message has a field that is not
                supported.
        """
        if isinstance(fetches, Message):
            return self.make_callable(**callable_arguments(fetches))
        call = self._callables.make(fetches, feeds, targets, options, connections)
        if feed_devices or fetch_devices or fetch_skip_sync:
            return self._callables.on_devices(call, feed_devices, fetch_devices, skip_sync=fetch_skip_sync)
        return call

    async def warm_up(
        self,
        signature: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        runs: int = _WARM_UP_RUNS,
        options: RunOptions | Message | None = None,
        **named: Any,
    ) -> None:
        """Do in advance what the first request would wait for: `await session.warm_up("serving_default", x=x)`.

        With inputs, the signature is run often enough that its plan is made and compiled and its memory is allocated.
        Without inputs its plan is only made; without a name, those of all signatures are.

        Args:
            signature, inputs, named, options: as for `call`.
            runs: the number of runs.

        Raises:
            NotFoundError, InvalidArgumentError: as `call` does.
            OpError, asyncio.CancelledError: as `run` does.
        """
        if inputs or named:
            for _ in range(runs):
                await self.call(signature, inputs, options=options, **named)
            return
        names = [signature] if signature is not None or not self._signatures else list(self._signatures)
        for chosen in map(self.signature, names):
            call, _, _ = self._callables.find(chosen.fetches(), chosen.feeds(dict.fromkeys(chosen.inputs)), ())
            await self.make_plan(call)

    async def make_plan(self, call: SessionCallable) -> None:
        """Make the plan of a callable now instead of at its first run.

        Raises:
            InvalidArgumentError, NotFoundError: as a call would.
        """
        await self._plan_of(call)

    def stop_delegating(self) -> None:
        """Make no delegated plans from now on: the caller will add nodes that no delegate must see."""
        self._planner.stop_delegating()

    def run_threadsafe(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Future[Any]:
        """`run` for callers on other threads; returns at once, with a future of the results.

        Cancelling the future cancels the step.  Arguments and errors as for `run`.

        Raises:
            FailedPreconditionError: the session belongs to no loop yet (enter it, or run something first), its loop
                does not run, or this is the thread of the loop.
        """
        loop = self._life.loop
        if loop is None or not loop.is_running():
            raise errors.FailedPreconditionError(
                f"Session {self.id} belongs to no event loop that runs: enter it with 'async with' in one first"
            )
        if running_loop() is loop:
            raise errors.FailedPreconditionError(
                f"run_threadsafe is for other threads than that of {loop!r}: await Session.run here"
            )
        coroutine = self.run(fetches, feeds, targets, options=options, metadata=metadata)
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    async def partial_run_setup(
        self,
        fetches: Any,
        feeds: Iterable[Any] = (),
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | Message | None = None,
    ) -> PartialRun:
        """Start a step that is fed and fetched in several calls of `partial_run`.

        Args:
            fetches, targets: as for `run`: everything that will be fetched or run.
            feeds: tensors, or their names: everything that will be fed.
            options: of the step as a whole; its deadline covers all parts.

        The step ends when everything was fed and fetched, at its first error, when it is cancelled, or with the
        session.

        Raises:
            InvalidArgumentError, NotFoundError: as `run`.
            ResourceExhaustedError: too many partial runs of the session have not ended.
        """
        self._partial_runs.make_room()
        call = self.make_callable(fetches, feeds, targets)
        call.signature = replace(call.signature, in_parts=True)
        step = self._steps.new_step(call, (), options, None, kind=PartialRun)
        assert isinstance(step, PartialRun)
        await step.planned()
        step.begin(self.graph, call)
        self._partial_runs.add(step)
        return step

    async def partial_run(self, setup: PartialRun | str, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
        """Continue a partial run: feed some of its feeds, and wait for some of its fetches.

        Args:
            setup: the result of `partial_run_setup`, or its handle.

        Raises:
            InvalidArgumentError: the run has ended; a feed or fetch was not named at the set-up, or was given or taken
                before; a fetch needs feeds that have not been given.
            OpError: the step's error; the step has then ended.
        """
        self._check_usable()
        return await self._partial_runs.go_on(setup, FetchMapper(fetches), flat_feeds(feeds or {}))
