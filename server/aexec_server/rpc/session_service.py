"""`aexec.SessionService`: what `aexec.connect("grpc://host:port")` calls.

It has the calls of the HTTP API below `/v1/sessions`, with their errors, scopes and limits.  Runs and graphs are
TensorFlow's messages, as in `tensorflow.MasterService`; what HTTP answers in JSON is that JSON here, too.  Two settings
of a call are metadata, as they are headers in HTTP: `aexec-run-id`, and `aexec-timeout-ms` of a partial run.  What a
session keeps is in `session_contents.py`.
"""

from __future__ import annotations

import asyncio
from functools import partial

from aexec import errors, proto
from aexec.hosting import GraphForm, graph_pieces, loop_budget
from aexec.proto import rpc
from aexec_server.clients.callers import Scope
from aexec_server.core.server_state import Server
from aexec_server.handlers.partial_runs import asked_by_setup
from aexec_server.handlers.runs import RunHandlers
from aexec_server.handlers.runs_in_flight import cancel_run
from aexec_server.handlers.session_calls import session_pieces
from aexec_server.handles import check_name
from aexec_server.http import bodies
from aexec_server.http.request_preferences import read_timeout_header
from aexec_server.requests.run_table import check_run_id
from aexec_server.rpc.durable_by_rpc import refuse_durable
from aexec_server.rpc.first_text import first_text
from aexec_server.rpc.method import Call, Method
from aexec_server.rpc.rpc_run_steps import RpcRunSteps
from aexec_server.rpc.session_contents import SessionContents, json_answer
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.session_maker import NewSession
from aexec_server.sessions.signatures import signatures_ns

__all__ = ["RUN_ID", "SERVICE", "TIMEOUT", "session_methods"]

SERVICE = "aexec.SessionService"
RUN_ID, TIMEOUT = "aexec-run-id", "aexec-timeout-ms"


def session_methods(server: Server, runs: RunHandlers) -> list[Method]:
    """The rows of the service."""
    one = _Sessions(server, runs)
    kept = SessionContents(server)
    of = f"/{SERVICE}/"
    run = partial(Method, scope=Scope.RUN, details=True)
    manage = partial(Method, scope=Scope.MANAGE, details=True)
    create = manage(f"{of}CreateSession", rpc.NewSessionRequest, proto.CreateSessionResponse, one.create, encoded=True)
    extend = manage(
        f"{of}ExtendSession", proto.ExtendSessionRequest, proto.ExtendSessionResponse, one.extend, encoded=True
    )
    return [
        run(f"{of}RunStep", proto.RunStepRequest, proto.RunStepResponse, one.run_step, encoded=True),
        run(f"{of}PartialRunSetup", proto.PartialRunSetupRequest, proto.PartialRunSetupResponse, one.set_up),
        run(f"{of}ListRuns", rpc.SessionRequest, rpc.JsonAnswer, one.list_runs),
        run(f"{of}CancelRun", rpc.CancelRunRequest, rpc.CancelRunResponse, one.cancel_run),
        create,
        extend,
        manage(f"{of}CloseSession", proto.CloseSessionRequest, proto.CloseSessionResponse, one.close),
        manage(f"{of}ResetSession", rpc.ResetSessionRequest, proto.ResetResponse, one.reset),
        run(f"{of}DescribeSession", rpc.SessionRequest, rpc.JsonAnswer, one.describe),
        run(f"{of}GetGraph", rpc.SessionRequest, proto.GraphDef, one.graph),
        run(f"{of}ListDevices", proto.ListDevicesRequest, proto.ListDevicesResponse, one.list_devices),
        run(f"{of}ListQueues", rpc.SessionRequest, rpc.JsonAnswer, kept.list_queues),
        run(f"{of}Enqueue", rpc.EnqueueRequest, rpc.QueueResponse, kept.enqueue),
        run(f"{of}Dequeue", rpc.DequeueRequest, proto.RunStepResponse, kept.dequeue),
        run(f"{of}CloseQueue", rpc.CloseQueueRequest, rpc.QueueResponse, kept.close_queue),
        run(f"{of}ListTensors", rpc.SessionRequest, rpc.JsonAnswer, kept.list_tensors),
        run(f"{of}KeepTensor", rpc.KeepTensorRequest, rpc.KeepTensorResponse, kept.keep_tensor),
        run(f"{of}GetTensor", rpc.KeptTensorRequest, proto.TensorProto, kept.get_tensor),
        run(f"{of}ForgetTensor", rpc.KeptTensorRequest, rpc.ForgetTensorResponse, kept.forget_tensor),
    ]


class _Sessions:
    """The coroutines for sessions and their runs."""

    def __init__(self, server: Server, runs: RunHandlers) -> None:
        self._server = server
        self._sessions = server.sessions
        self._limits = server.config.message_limits
        self._runs = runs
        self._steps = RpcRunSteps(server, runs, self._session)

    def _session(self, handle: str, call: Call) -> HostedSession:
        """A session that the caller may use.  Raises NotFoundError if there is none."""
        return refuse_durable(self._sessions.get(handle, call.caller))

    def _changeable(self, handle: str, call: Call) -> HostedSession:
        return self._server.changeable(self._session(handle, call), call.caller)

    # Sessions

    async def create(self, call: Call, data: bytes) -> proto.CreateSessionResponse:
        """CreateSession: a session with a graph, which may be empty."""
        name = first_text(data) or None

        def decode() -> NewSession:
            message, graph_def = bodies.parse_with_graph(rpc.NewSessionRequest, data, self._limits)
            if (check_name(message.name) if message.HasField("name") else None) != name:
                raise errors.InvalidArgumentError("The name of a session has to be the first field of its request")
            ttl = message.ttl_seconds if message.HasField("ttl_seconds") else None
            return NewSession(graph_def, message.config, ttl, name)

        with self._sessions.asked_for(name):
            hosted = await self._sessions.create(decode, len(data), call.caller)
        return proto.CreateSessionResponse(session_handle=hosted.handle, graph_version=hosted.graph_version)

    async def extend(self, call: Call, data: bytes) -> proto.ExtendSessionResponse:
        """ExtendSession: more nodes, for the version of the graph that the client knows."""
        message, graph_def = await bodies.beside(
            0, bodies.parse_with_graph, proto.ExtendSessionRequest, data, self._limits
        )
        with self._changeable(message.session_handle, call).in_use() as hosted:
            nanoseconds = len(data) / loop_budget.NODE_BYTES * loop_budget.IMPORT_NODE_NS
            await bodies.beside(nanoseconds, self._sessions.maker.check_graph, graph_def)
            version = await hosted.extend(graph_def, message.current_graph_version)
        return proto.ExtendSessionResponse(new_graph_version=version)

    async def close(self, call: Call, request: proto.CloseSessionRequest) -> proto.CloseSessionResponse:
        """CloseSession: cancels what runs, and returns when that has ended."""
        hosted = self._changeable(request.session_handle, call)
        if hosted.listed:
            await self._server.models.delete(hosted.handle.partition("@")[0])
        else:
            await self._sessions.delete(hosted)
        return proto.CloseSessionResponse()

    async def reset(self, call: Call, request: rpc.ResetSessionRequest) -> proto.ResetResponse:
        """ResetSession: cancels the session's runs, and drops containers of its resources."""
        with self._changeable(request.session_handle, call).in_use() as hosted:
            resetting = hosted.session.reset(tuple(request.container))
            # Shielded: once begun, the reset goes on even if the client leaves.
            await asyncio.shield(self._server.in_background(resetting, f"reset {hosted.session!r}"))
        return proto.ResetResponse()

    async def describe(self, call: Call, request: rpc.SessionRequest) -> bytes:
        """DescribeSession: its state, and its signatures."""
        hosted = self._session(request.session_handle, call)
        parts = session_pieces(hosted, call.caller)  # before it is in use, and no longer idle
        with hosted.in_use():
            in_thread = not loop_budget.DEFAULT.allows(signatures_ns(hosted.session))
            return await json_answer(self._server, call, parts, in_thread=in_thread)

    async def graph(self, call: Call, request: rpc.SessionRequest) -> bytes:
        """GetGraph: the graph with all extensions."""
        with self._session(request.session_handle, call).in_use() as hosted:
            door = self._server.door
            parts = graph_pieces(hosted.session.graph, GraphForm.BYTES, door.holding)
            data, counted = await door.whole(parts, client=call.caller.client)
        call.keep_until_sent(counted)
        return data

    async def list_devices(self, call: Call, request: proto.ListDevicesRequest) -> proto.ListDevicesResponse:
        """ListDevices: the devices that the session runs on."""
        devices = self._session(request.session_handle, call).session.devices()
        return proto.ListDevicesResponse(local_device=[device.to_proto() for device in devices])

    # Runs

    async def run_step(self, call: Call, data: bytes) -> bytes:
        """RunStep: a run, or a part of a partial run."""
        given = call.metadata.get(RUN_ID)
        return await self._steps.answer(call, data, None if given is None else check_run_id(given, RUN_ID))

    async def set_up(self, call: Call, request: proto.PartialRunSetupRequest) -> proto.PartialRunSetupResponse:
        """PartialRunSetup: starts a step that is fed and fetched by several calls of RunStep."""
        asked = asked_by_setup(request)
        asked.timeout = read_timeout_header(str(call.metadata.get(TIMEOUT, "0")))
        with self._session(request.session_handle, call).in_use() as hosted:
            handle = await self._runs.partial_runs.begin(hosted, call.caller, asked, by_rpc=True)
        return proto.PartialRunSetupResponse(partial_run_handle=handle)

    async def list_runs(self, call: Call, request: rpc.SessionRequest) -> bytes:
        """ListRuns: the runs in flight, oldest first."""
        with self._session(request.session_handle, call).in_use() as hosted:
            pieces = self._runs.in_flight.pieces(hosted, call.caller)
            return await json_answer(self._server, call, pieces, in_thread=False)

    async def cancel_run(self, call: Call, request: rpc.CancelRunRequest) -> rpc.CancelRunResponse:
        """CancelRun: cancels a run by its name."""
        with self._session(request.session_handle, call).in_use() as hosted:
            cancelled = cancel_run(hosted, call.caller, request.run_id, request.reason)
        return rpc.CancelRunResponse(cancelled=cancelled)
