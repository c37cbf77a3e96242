"""`tensorflow.MasterService`: what `tf.compat.v1.Session("grpc://host:port")` calls.

A session that TensorFlow's client makes here is like one made by `POST /v1/sessions`: it has an owner, limits, and the
same op policy.  For a session that does not exist this server answers ABORTED, as TensorFlow's own server does; the
clients then make a new one.  Callables are in `rpc_callables.py`.

Of `tensorflow.WorkerService` only GetStatus is here, by which clients ask whether a server is there.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn
from weakref import WeakSet

import aexec
from aexec import errors, proto
from aexec.hosting import loop_budget
from aexec_server.clients.callers import Scope
from aexec_server.core.server_state import Server
from aexec_server.handlers.partial_runs import asked_by_setup
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.rpc.durable_by_rpc import refuse_durable
from aexec_server.rpc.method import Call, Method
from aexec_server.rpc.rpc_callables import RpcCallables
from aexec_server.rpc.rpc_run_steps import RpcRunSteps
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.session_maker import NewSession

__all__ = ["master_methods"]

_RESTARTED = " Possibly, this master has restarted."


def master_methods(server: Server, runs: RunHandlers) -> list[Method]:
    """The rows of the service."""
    master = _Master(server, runs)
    calls = master.callables
    of = "/tensorflow.MasterService/"
    manage, run = Scope.MANAGE, Scope.RUN
    return [
        Method(f"{of}RunStep", proto.RunStepRequest, proto.RunStepResponse, master.run_step, run, encoded=True),
        Method(f"{of}RunCallable", proto.RunCallableRequest, proto.RunCallableResponse, calls.run, run, encoded=True),
        Method(f"{of}MakeCallable", proto.MakeCallableRequest, proto.MakeCallableResponse, calls.make, run),
        Method(f"{of}ReleaseCallable", proto.ReleaseCallableRequest, proto.ReleaseCallableResponse, calls.release, run),
        Method(f"{of}PartialRunSetup", proto.PartialRunSetupRequest, proto.PartialRunSetupResponse, master.set_up, run),
        Method(
            f"{of}CreateSession",
            proto.CreateSessionRequest,
            proto.CreateSessionResponse,
            master.create,
            manage,
            encoded=True,
        ),
        Method(
            f"{of}ExtendSession",
            proto.ExtendSessionRequest,
            proto.ExtendSessionResponse,
            master.extend,
            manage,
            encoded=True,
        ),
        Method(f"{of}CloseSession", proto.CloseSessionRequest, proto.CloseSessionResponse, master.close, manage),
        Method(f"{of}ListDevices", proto.ListDevicesRequest, proto.ListDevicesResponse, master.list_devices, run),
        Method(f"{of}Reset", proto.ResetRequest, proto.ResetResponse, master.reset, manage),
        Method(
            "/tensorflow.WorkerService/GetStatus", proto.GetStatusRequest, proto.GetStatusResponse, master.status, run
        ),
    ]


class _Master:
    """The coroutines of the service.

    Attributes:
        callables: callables of the sessions.
    """

    def __init__(self, server: Server, runs: RunHandlers) -> None:
        self._server = server
        self._sessions = server.sessions
        self._limits = server.config.message_limits
        self._runs = runs
        self._steps = RpcRunSteps(server, runs, self._session)
        self._made: WeakSet[HostedSession] = WeakSet()
        self.callables = RpcCallables(server, runs.served, self._session)

    def _session(self, handle: str, call: Call) -> HostedSession:
        """Return a session of the caller.  Raises AbortedError if it does not exist."""
        try:
            return refuse_durable(self._sessions.get(handle, call.caller))
        except errors.NotFoundError as error:
            _abort(error.message)

    def _changeable(self, handle: str, call: Call) -> HostedSession:
        return self._server.changeable(self._session(handle, call), call.caller)

    # Sessions

    async def create(self, call: Call, data: bytes) -> proto.CreateSessionResponse:
        """CreateSession: makes a session with a graph, which may be empty."""

        def decode() -> NewSession:
            message, graph_def = bodies.parse_with_graph(proto.CreateSessionRequest, data, self._limits)
            return NewSession(graph_def, message.config, None)

        with self._sessions.asked_for(None):
            hosted = await self._sessions.create(decode, len(data), call.caller)
        self._made.add(hosted)
        return proto.CreateSessionResponse(session_handle=hosted.handle, graph_version=hosted.graph_version)

    async def extend(self, call: Call, data: bytes) -> proto.ExtendSessionResponse:
        """ExtendSession: adds nodes, if the client knows the present version of the graph."""
        message, graph_def = await bodies.beside(
            0, bodies.parse_with_graph, proto.ExtendSessionRequest, data, self._limits
        )
        with self._changeable(message.session_handle, call).in_use() as hosted:
            nanoseconds = len(data) / loop_budget.NODE_BYTES * loop_budget.IMPORT_NODE_NS
            await bodies.beside(nanoseconds, self._sessions.maker.check_graph, graph_def)
            try:
                version = await hosted.extend(graph_def, message.current_graph_version)
            except errors.FailedPreconditionError as error:
                _abort(error.message)
        return proto.ExtendSessionResponse(new_graph_version=version)

    async def close(self, call: Call, request: proto.CloseSessionRequest) -> proto.CloseSessionResponse:
        """CloseSession: cancels all runs, and returns when they have ended."""
        try:
            hosted = self._changeable(request.session_handle, call)
        except errors.AbortedError as error:
            _abort(error.message + _RESTARTED)
        await self._sessions.delete(hosted)
        return proto.CloseSessionResponse()

    async def reset(self, call: Call, request: proto.ResetRequest) -> proto.ResetResponse:
        """Reset: closes the sessions that the caller has made by gRPC, with the contents of their containers.

        Without a token, all clients at the same address are one caller.
        """
        if request.device_filters:
            raise errors.UnimplementedError("device_filters of a reset are not supported: leave them out")
        own = [hosted for hosted in self._made if hosted.client == call.caller.client]
        await asyncio.gather(*map(self._sessions.delete, own))
        return proto.ResetResponse()

    async def list_devices(self, call: Call, request: proto.ListDevicesRequest) -> proto.ListDevicesResponse:
        """ListDevices: lists the devices of a session, or of a session with default settings."""
        if request.session_handle:
            try:
                session = self._session(request.session_handle, call).session
            except errors.AbortedError as error:
                _abort(error.message + _RESTARTED)
            return proto.ListDevicesResponse(local_device=[device.to_proto() for device in session.devices()])
        return proto.ListDevicesResponse(local_device=await _default_devices())

    async def status(self, call: Call, request: proto.GetStatusRequest) -> proto.GetStatusResponse:
        """GetStatus: lists the devices of a session with default settings."""
        return proto.GetStatusResponse(device_attributes=await _default_devices())

    # Runs

    async def run_step(self, call: Call, data: bytes) -> bytes:
        """RunStep: a run, or a part of a partial run; errors are in the response for who asks for that."""
        return await self._steps.answer(call, data)

    async def set_up(self, call: Call, request: proto.PartialRunSetupRequest) -> proto.PartialRunSetupResponse:
        """PartialRunSetup: starts a step that is fed and fetched by several calls of RunStep."""
        with self._session(request.session_handle, call).in_use() as hosted:
            handle = await self._runs.partial_runs.begin(hosted, call.caller, asked_by_setup(request), by_rpc=True)
        return proto.PartialRunSetupResponse(partial_run_handle=handle)


async def _default_devices() -> list[proto.DeviceAttributes]:
    """The devices of a session with default settings."""
    async with aexec.Session(aexec.Graph()) as session:
        return [device.to_proto() for device in session.devices()]


def _abort(message: str) -> NoReturn:
    raise errors.AbortedError(message) from None
