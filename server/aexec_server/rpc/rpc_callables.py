"""`RpcCallables`: implements MakeCallable, RunCallable and ReleaseCallable of TensorFlow's master service.

A callable is a number that stands for feeds, fetches, targets and options, which RunCallable then need not repeat.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import aexec
from aexec import errors, proto
from aexec.hosting import loop_budget, tensor_from_proto
from aexec_server.core.server_state import Server
from aexec_server.handlers.served_runs import ServedRuns
from aexec_server.http import bodies
from aexec_server.requests.protobuf import tensor_message
from aexec_server.requests.run_request import MAX_NAMES, RunRequest
from aexec_server.requests.run_response import Answer
from aexec_server.requests.run_table import Run
from aexec_server.requests.served_call import AnswerForm
from aexec_server.rpc.method import Call
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["RpcCallables"]

# Most callables of a session, and most bytes of their options, which are kept until they are released.
_MAX_CALLABLES = 1000
_MAX_BYTES = 4 << 20


class RpcCallables:
    """The callables of sessions, by number.

    Args:
        server: the server.
        served: takes runs from their request to their end.
        session: returns the session of a handle; raises AbortedError if the caller has none of that handle.
    """

    def __init__(self, server: Server, served: ServedRuns, session: Callable[[str, Call], HostedSession]) -> None:
        self._limits = server.config.message_limits
        self._served = served
        self._session = session
        self._numbers = itertools.count()
        self._made: WeakKeyDictionary[HostedSession, dict[int, proto.CallableOptions]] = WeakKeyDictionary()

    async def make(self, call: Call, request: proto.MakeCallableRequest) -> proto.MakeCallableResponse:
        """MakeCallable: a number for these options, if a run by them is possible."""
        hosted = self._session(request.session_handle, call)
        made, options = self._made.setdefault(hosted, {}), request.options
        if len(made) >= _MAX_CALLABLES:
            raise errors.ResourceExhaustedError(
                f"The session has {len(made)} callables, as many as it may have: release some"
            )
        options.DiscardUnknownFields()
        if sum(map(proto.CallableOptions.ByteSize, (options, *made.values()))) > _MAX_BYTES:
            raise errors.ResourceExhaustedError(
                f"The options of a session's callables may have {_MAX_BYTES} bytes together: release some"
            )
        _check(options)
        _asked(options).set_options(options.run_options)
        hosted.served_call(
            frozenset(options.feed), tuple(options.fetch), tuple(options.target), by_admin=call.caller.is_admin
        )
        number = next(self._numbers)
        made[number] = options
        return proto.MakeCallableResponse(handle=number)

    async def release(self, call: Call, request: proto.ReleaseCallableRequest) -> proto.ReleaseCallableResponse:
        """ReleaseCallable: forgets a callable, if it is there."""
        self._made.get(self._session(request.session_handle, call), {}).pop(request.handle, None)
        return proto.ReleaseCallableResponse()

    async def run(self, call: Call, data: bytes) -> bytes:
        """RunCallable: values for the feeds of a callable, in their order."""
        message = await bodies.read_message(proto.RunCallableRequest, data, self._limits)
        hosted = self._session(message.session_handle, call)
        options = self._made.get(hosted, {}).get(message.handle)
        if options is None:
            raise errors.InvalidArgumentError(f"No such callable handle: {message.handle}")

        async def work(run: Run) -> bytes:
            call.run_id = run.id
            asked = await bodies.beside(len(data) * loop_budget.WIRE_NS, _asked_with, options, message)
            answer, _ = await self._served.execution.execute(hosted, run, asked, len(data), call.arrival, _write)
            call.keep_until_sent(run.held)
            return bytes(answer)

        return await self._served.serve(hosted, call.caller, call.arrival, call.timeout, work, call.trace_id)


def _check(options: proto.CallableOptions) -> None:
    """Raise OpError for options that would be ignored, though the run depends on them."""
    if max(len(options.feed), len(options.fetch), len(options.target)) > MAX_NAMES:
        raise errors.InvalidArgumentError(f"A callable may have at most {MAX_NAMES} feeds, fetches and targets each")
    if len(set(options.feed)) != len(options.feed):
        raise errors.InvalidArgumentError("A callable feeds an endpoint more than once.")
    for name in ("tensor_connection", "feed_devices", "fetch_devices"):
        if getattr(options, name):
            raise errors.UnimplementedError(f"CallableOptions.{name} is not supported by a server: leave it out")


def _asked(options: proto.CallableOptions) -> RunRequest:
    return RunRequest(fetches=tuple(options.fetch), targets=tuple(options.target), as_message=True)


def _asked_with(options: proto.CallableOptions, message: proto.RunCallableRequest) -> RunRequest:
    """The run of a callable with these values."""
    if len(message.feed) != len(options.feed):
        raise errors.InvalidArgumentError(
            f"Expected {len(options.feed)} feed tensors for the callable {message.handle}, got {len(message.feed)}"
        )
    asked = _asked(options)
    asked.feeds = dict(zip(options.feed, map(tensor_from_proto, message.feed), strict=True))
    asked.set_options(_copied(options.run_options))
    return asked


def _copied(options: proto.RunOptions) -> proto.RunOptions:
    copy = proto.RunOptions()  # `set_options` changes what it reads
    copy.CopyFrom(options)
    return copy


def _write(
    run_id: str, asked: RunRequest, form: AnswerForm, values: Sequence[Any], metadata: aexec.RunMetadata | None
) -> Answer:
    """A RunCallableResponse."""
    message = proto.RunCallableResponse(metadata=proto.RunMetadata() if metadata is None else metadata.to_proto())
    message.fetch.extend(tensor_message(value, dtype) for value, dtype in zip(values, form.dtypes, strict=True))
    return message.SerializeToString(), None
