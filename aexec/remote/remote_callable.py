"""`RemoteCallable`: a request signature of a remote session, for many runs."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from aexec.framework import errors
from aexec.remote.remote_runs import RemoteRuns
from aexec.remote.remote_step import RemoteStep
from aexec.remote.run_messages import both_fed_and_fetched, fed_once
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.feeding.fetches import FetchMapper
from aexec.runtime.session.callable import Request, request_text

__all__ = ["RemoteCallable"]


class RemoteCallable:
    """`await call(x)` runs a step in the server with `x` fed for its first feed.

    Made by `RemoteSession.make_callable`.

    Attributes:
        fetches: names of the tensors that are fetched, each once.
        feeds: names of the tensors that are fed, in the order in which their values are given.
        targets: names of the operations that are run without being fetched.
        options: default options of a call.
    """

    def __init__(
        self,
        runs: RemoteRuns,
        mapper: FetchMapper,
        request: Request,
        options: RunOptions | Message | None = None,
        *,
        answer_fed: bool = False,
    ) -> None:
        self._runs = runs
        self._build = mapper.build
        self._released = False
        self.fetches = request.fetches
        self.feeds = request.feeds
        self.targets = request.targets
        self.options = options
        if not self.fetches and not self.targets:
            raise errors.InvalidArgumentError("Must specify at least one target to fetch or execute.")
        if not answer_fed and (both := both_fed_and_fetched(self.feeds, self.fetches)):
            raise errors.InvalidArgumentError(f"{', '.join(both)} is both fed and fetched.")

    async def __call__(
        self,
        *values: Any,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
    ) -> Any:
        """Run one step.  Arguments, results and errors as of `aexec.SessionCallable`."""
        return await self.start(*values, options=options, metadata=metadata)

    def start(
        self,
        *values: Any,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        run_id: str | None = None,
    ) -> RemoteStep:
        """Start a step; its errors are raised when it is awaited."""
        if self._released:
            raise errors.InvalidArgumentError(f"Attempted to run callable after handle was released: {self!r}")
        if len(values) != len(self.feeds):
            raise errors.InvalidArgumentError(
                f"Expected {len(self.feeds)} feed tensors, but got {len(values)}"
                + (f" (feeds: {', '.join(self.feeds)})" if self.feeds else "")
            )
        feeds = fed_once(self.feeds, values)
        given = options if options is not None else self.options
        return self._runs.start(self.fetches, feeds, self.targets, self._build, given, metadata, run_id)

    def release(self) -> None:
        """Refuse later calls with InvalidArgumentError.  Steps in flight go on."""
        self._released = True

    def __repr__(self) -> str:
        state = " released" if self._released else ""
        return f"<RemoteCallable {request_text(self.feeds, self.fetches, self.targets, partial=False)}{state}>"
