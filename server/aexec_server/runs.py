"""Runs over HTTP: start one and wait for it, look at those in flight, cancel one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from multidict import istr

import aexec
from aexec import errors, proto
from aexec.hosting import loop_budget, record_network_buffer, record_network_buffer_freed
from aexec_server import bodies, protobuf
from aexec_server.error_responses import error_response
from aexec_server.run_request import RunRequest, parse_header_length, read_json, read_ns
from aexec_server.run_response import Answer, answer_ns, check_answerable, list_answer, message_answer, people_answer
from aexec_server.run_table import Run, check_run_id
from aexec_server.served_call import ServedCall
from aexec_server.server_state import Server
from aexec_server.sessions import check_handle
from aexec_server.store import HostedSession
from aexec_server.tensors import size_of

__all__ = ["routes"]

_RUN_ID = istr("Aexec-Run-Id")
_JSON_LENGTH = istr("Inference-Header-Content-Length")
_CANCEL_FIELDS = frozenset({"reason"})
_BODY = "body of a run"  # in the memory log
_MAX_REASON = 500

Writer = Callable[[str, RunRequest, ServedCall, Sequence[Any], aexec.RunMetadata | None], Answer]


def routes(server: Server) -> list[web.RouteDef]:
    """Runs of a session."""
    handlers = _Handlers(server)
    one = "/v1/sessions/{session:[^/:]+}"
    return [
        web.post(f"{one}:run", handlers.run),
        web.get(f"{one}/runs", handlers.list),
        web.get(f"{one}/runs/{{run:[^/:]+}}", handlers.get),
        web.post(f"{one}/runs/{{run:[^/:]+}}:cancel", handlers.cancel),
    ]


class _Handlers:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.config = server.config
        self.sessions = server.sessions
        self.in_flight = 0

    async def run(self, request: web.Request) -> web.Response:
        """POST …/{session}:run"""
        arrival = time.monotonic()
        hosted = self._admit(request.match_info["session"])
        run = hosted.runs.add()
        buffer = 0
        try:
            bodies.check_headers(request)
            header_id = request.headers.get(_RUN_ID)
            if header_id is not None:  # so named, it can be cancelled while its body is still on the way
                hosted.runs.rename(run, check_run_id(header_id))
            body = await bodies.read_body(request, self.config)
            buffer = record_network_buffer(_BODY, body)
            if bodies.is_protobuf(bodies.media_type(request)):
                return await self._run_message(hosted, run, body, arrival)
            length = parse_header_length(request.headers.get(_JSON_LENGTH), body)
            asked = await bodies.beside(read_ns(body, length), lambda: read_json(body, length))
            if asked.run_id is not None:
                if header_id not in (None, asked.run_id):
                    raise errors.InvalidArgumentError(
                        f"\"run_id\" is '{asked.run_id}', but the header {_RUN_ID} is '{header_id}'"
                    )
                hosted.runs.rename(run, asked.run_id)
            write = list_answer if asked.as_list else people_answer
            answer, json_length = await self._execute(hosted, run, asked, len(body), arrival, write)
            if json_length is None:
                return web.Response(body=answer, content_type="application/json")
            headers = {_JSON_LENGTH: str(json_length)}
            return web.Response(body=answer, content_type="application/octet-stream", headers=headers)
        except errors.OpError as error:
            return error_response(request, error, f"/v1/sessions/{hosted.handle}/runs/{run.id}")
        finally:
            record_network_buffer_freed(_BODY, buffer)
            hosted.runs.remove(run)
            hosted.release()
            self.in_flight -= 1

    def _admit(self, handle: str) -> HostedSession:
        """The session, in use from now on.  Raises NotFoundError, UnavailableError or ResourceExhaustedError."""
        self.server.check_accepting()
        hosted = self.sessions.get(handle)
        if self.in_flight >= self.config.max_runs:
            raise errors.ResourceExhaustedError(
                f"{self.in_flight} runs are in flight, the most that this server takes: try again later"
            )
        self.in_flight += 1
        return hosted.acquire()

    async def _run_message(self, hosted: HostedSession, run: Run, body: bytes, arrival: float) -> web.Response:
        nanoseconds = len(body) * loop_budget.WIRE_NS
        message = await bodies.beside(nanoseconds, lambda: bodies.parse_message(proto.RunStepRequest, body))
        check_handle(message.session_handle, hosted)
        try:
            fill = self.config.max_body_bytes
            asked = await bodies.beside(nanoseconds, lambda: protobuf.read_run_step(message, fill))
            answer, _ = await self._execute(hosted, run, asked, len(body), arrival, message_answer)
            return web.Response(body=answer, content_type=bodies.PROTOBUF, headers={_RUN_ID: run.id})
        except errors.OpError as error:
            if not message.store_errors_in_response_body:
                raise
            return bodies.protobuf_response(protobuf.error_in_response(error))

    async def _execute(
        self, hosted: HostedSession, run: Run, asked: RunRequest, size: int, arrival: float, write: Writer
    ) -> Answer:
        """Run what came in `size` bytes, and write the answer.

        Whoever cancels this coroutine (a client that leaves) cancels the step.
        """
        run.check()
        served = hosted.served_call(tuple(asked.feeds), asked.fetches, asked.targets)
        if write is not message_answer:
            check_answerable(asked, served)
        dtypes = served.call.feed_dtypes
        fed = await bodies.beside(size * loop_budget.WIRE_NS, lambda: asked.values(dtypes))
        step = served.call.prepare(*fed, options=self._options(hosted.session, asked, arrival))
        run.begin(step)
        values = await step.run()
        size = 0
        for value in values:
            size += size_of(value)
        if size > self.config.max_answer_bytes:
            raise errors.ResourceExhaustedError(
                f"The fetched tensors have {size} bytes together; an answer may have {self.config.max_answer_bytes}"
            )
        nanoseconds = size * loop_budget.WIRE_NS if write is message_answer else answer_ns(asked, values)
        return await bodies.beside(nanoseconds, lambda: write(run.id, asked, served, values, step.metadata))

    def _options(self, session: aexec.Session, asked: RunRequest, arrival: float) -> aexec.RunOptions | None:
        """The deadline, from the request's arrival: the run's or else the session's, and at most the server's."""
        timeout = asked.timeout if asked.timeout is not None else session.config.operation_timeout
        most = self.config.max_timeout
        if most is not None:
            timeout = most if timeout is None else min(timeout, most)
        if timeout is None and not (asked.trace or asked.partition_graphs or asked.report_memory):
            return None
        if timeout is not None:
            timeout = max(0.0, arrival + timeout - time.monotonic())
        return aexec.RunOptions(
            timeout,
            asked.trace,
            asked.partition_graphs,
            report_tensor_allocations_upon_oom=asked.report_memory,
        )

    async def list(self, request: web.Request) -> web.Response:
        """GET …/runs: those in flight, oldest first."""
        with self.sessions.get(request.match_info["session"]).in_use() as hosted:
            return bodies.json_response({"runs": [self._describe(run) for run in hosted.runs.live.values()]})

    async def get(self, request: web.Request) -> web.Response:
        """GET …/runs/{run}: one in flight."""
        with self.sessions.get(request.match_info["session"]).in_use() as hosted:
            run_id = request.match_info["run"]
            run = hosted.runs.live.get(run_id)
            if run is None:
                raise errors.NotFoundError(f"Run '{run_id[:80]}' is not in flight")
            return bodies.json_response(self._describe(run))

    def _describe(self, run: Run) -> dict[str, Any]:
        step = run.step
        description: dict[str, Any] = {
            "run_id": run.id,
            "state": "pending" if step is None else step.state.value,
            "cancelled": run.cancelled,
            "seconds": round(self.config.clock() - run.began, 6),
        }
        if step is not None:
            statistics = step.statistics()
            description |= {
                "step_id": step.id,
                "nodes": statistics.nodes,
                "ready": statistics.ready,
                "running": statistics.running,
            }
            if statistics.live_bytes is not None:
                description |= {"live_bytes": statistics.live_bytes, "peak_bytes": statistics.peak_bytes}
        return description

    async def cancel(self, request: web.Request) -> web.Response:
        """POST …/runs/{run}:cancel"""
        with self.sessions.get(request.match_info["session"]).in_use() as hosted:
            run_id = check_run_id(request.match_info["run"])
            body = await bodies.read_body(request, self.config)
            reason = None
            if body.strip():
                fields = bodies.json_object(body)
                bodies.check_fields(fields, _CANCEL_FIELDS, "the request")
                reason = fields.get("reason")
                if reason is not None and type(reason) is not str:
                    raise bodies.expected('"reason" must be a string', reason)
            cancelled = hosted.runs.cancel(run_id, (reason or "by request")[:_MAX_REASON])
            return bodies.json_response({"cancelled": cancelled})
