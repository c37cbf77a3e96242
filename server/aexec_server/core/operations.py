"""Operations: runs that are answered later.  `Prefer: respond-async` makes one; clients then ask it for the result.

Its document follows google.longrunning and AIP-151: `{"name", "metadata", "done"}`, and `response` or `error` once it
is done.  The run goes on if nobody asks.  Results are kept for at least ten minutes.  Those of durable sessions are in
the store, too, and found there when this process does not know them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from aiohttp import web

from aexec import errors
from aexec.errors import Code
from aexec_server.clients.callers import CALLER, Caller, Scope
from aexec_server.clients.client_shares import ClientShares
from aexec_server.core.routes import Route
from aexec_server.handles import Handles, is_made
from aexec_server.http import bodies
from aexec_server.http.answer_parts import AnswerParts
from aexec_server.http.body_budget import BodyBudget
from aexec_server.http.error_responses import error_body, status_of
from aexec_server.http.idempotency import ForgottenError, UnfinishedRequestError
from aexec_server.http.keyed_answer import KeyedAnswer
from aexec_server.http.lost_handles import lost_by_restart
from aexec_server.http.stored_answer import StoredAnswer
from aexec_server.requests.run_table import RUN_ID, Run
from aexec_server.settings.server_config import ServerConfig

__all__ = ["OperationStore", "RunOperation", "operation_response", "routes"]

_INTERRUPTED = UnfinishedRequestError(
    "The run of this operation was in flight when the server ended. It may have been carried out in part: look at the "
    "session's state"
)
_FORGOTTEN = ForgottenError("The run of this operation has ended, and its result is not kept")

KEEP_SECONDS = 600.0
_MAX_OPERATIONS = 10_000
# The room has this many parts, one of which is always free for the result of a client that keeps nothing else.
_PARTS = 8
_HINT = "delete those whose results are known, or try again later"
_MAX_WAIT = 600.0
_WAIT = ("wait_s",)
_CANCEL_FIELDS = frozenset({"reason"})
_MAX_REASON = 500


class RunOperation:
    """A run that is answered later.

    Attributes:
        id: its id, which nobody can guess.
        caller: the caller that asked for it.
        run: the run, once it exists.
        answer: the run's answer; None until it has ended.
        ended_at: when it ended, by the server's clock.
    """

    def __init__(self, operation_id: str, caller: Caller) -> None:
        self.id = operation_id
        self.caller = caller
        self.run: Run | None = None
        self.answer: StoredAnswer | None = None
        self.ended_at = 0.0
        self._ended = asyncio.Event()
        self._reason: str | None = None

    @classmethod
    def stored(cls, operation_id: str, kept: KeyedAnswer, path: str) -> RunOperation:
        """One that a store has kept.

        Args:
            kept: what it has kept.
            path: of the request for it, for errors.
        """
        operation = cls(operation_id, Caller(kept.fingerprint.decode(), frozenset()))
        answer = kept.answer
        if answer is None:
            error = _FORGOTTEN if kept.ended else _INTERRUPTED
            body = bodies.encode_json(error_body(error, path)).encode()
            answer = StoredAnswer(status_of(error), {"Content-Type": "application/json"}, body)
        operation.end(answer, 0.0)
        return operation

    def attach(self, run: Run) -> None:
        """Set its run."""
        self.run = run
        if self._reason is not None:
            run.cancel(self._reason)

    def cancel(self, reason: str) -> None:
        """Cancel the run, now or as soon as it exists."""
        self._reason = self._reason or reason
        if self.run is not None and self.answer is None:
            self.run.cancel(reason)

    def end(self, answer: StoredAnswer, now: float) -> None:
        self.answer, self.ended_at = answer, now
        self._ended.set()

    async def wait(self, seconds: float) -> None:
        """Wait for its end, for `seconds` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def text(self) -> bytes | AnswerParts:
        """The document; it refers to a large answer without a copy."""
        run_id = self.run.id if self.run is not None else self.answer and self.answer.headers.get(RUN_ID)
        metadata: dict[str, Any] = {} if run_id is None else {"run_id": run_id}
        head = f'{{"name":"operations/{self.id}","metadata":{bodies.encode_json(metadata)}'
        answer = self.answer
        if answer is None:
            return f'{head},"done":false}}'.encode()
        head += ',"done":true'
        if answer.status >= 400:
            body = json.loads(answer.body)
            error = {"code": Code[body["code"]].value, "message": body["error"], "details": [body]}
            return f'{head},"error":{bodies.encode_json(error)}}}'.encode()
        if answer.media_type == "application/json":
            return AnswerParts([f'{head},"response":'.encode(), answer.body, b"}"])
        where = {"content_type": answer.media_type, "location": f"/v1/operations/{self.id}/response"}
        return f'{head},"response":{bodies.encode_json(where)}}}'.encode()


class OperationKeeper(Protocol):
    """Keeps operations of durable sessions, as `sessions/durable_sessions.py` does, where its methods are described."""

    async def operation(self, operation_id: str) -> KeyedAnswer | None: ...

    async def forget_operation(self, operation_id: str, caller: Caller) -> None: ...


class OperationStore:
    """The operations of a server, by id.

    Args:
        config: the server's settings.
        handles: makes ids.

    Attributes:
        keeper: keeps those of durable sessions; None if there are none.
        shares: the clients' shares of the operations.
        results: their shares of the bytes of results; a result that is too much is replaced by an error.
    """

    def __init__(self, config: ServerConfig, handles: Handles) -> None:
        self._clock = config.clock
        self._handles = handles
        self._operations: OrderedDict[str, RunOperation] = OrderedDict()
        self.keeper: OperationKeeper | None = None
        most = config.max_stored_bytes
        self.shares = ClientShares("operations", "operations", _MAX_OPERATIONS, hint=_HINT)
        self.results = ClientShares(
            "result_bytes",
            "bytes of operations' results",
            most,
            config.max_client_stored_bytes,
            unit=most // _PARTS,
            hint=_HINT,
        )

    def __len__(self) -> int:
        self._forget_old()
        return len(self._operations)

    def begin(self, caller: Caller) -> RunOperation:
        """Return a new operation.

        Raises:
            ResourceExhaustedError: the caller, or all callers together, have too many operations or too large results.
        """
        self._forget_old()
        self.results.check(caller)
        self.shares.take(caller)
        operation = RunOperation(self._handles.new(), caller)
        self._operations[operation.id] = operation
        return operation

    def end(self, operation: RunOperation, answer: StoredAnswer, too_large: Callable[[str], web.Response]) -> None:
        """End an operation with an answer.

        Args:
            too_large: makes the error of a result that is not kept.
        """
        if operation.id in self._operations:
            self._forget_old()
            refusal = self.results.refusal(operation.caller, answer.size)
            if refusal is not None:
                answer = StoredAnswer.of(
                    too_large(
                        f"The run has ended, but its result of {answer.size} bytes is not kept. {refusal.message}"
                    )
                )
            self.results.hold(operation.caller, answer.size)
        operation.end(answer, self._clock())

    def __contains__(self, operation: RunOperation) -> bool:
        return operation.id in self._operations

    async def find(self, operation_id: str, caller: Caller, path: str) -> RunOperation:
        """The operation with this id.

        Args:
            path: of the request, for errors.

        Raises:
            NotFoundError: it never was, is forgotten, or is another caller's.
            OpError: the store cannot tell.
        """
        operation = self._operations.get(operation_id)
        if operation is None and self.keeper is not None and is_made(operation_id):
            kept = await self.keeper.operation(operation_id)
            operation = None if kept is None else RunOperation.stored(operation_id, kept, path)
        if operation is None or not caller.sees(operation.caller.name):
            raise lost_by_restart(self._handles, "Operation", operation_id) or errors.NotFoundError(
                f"Operation '{operation_id[:80]}' is not found: it never was, or is forgotten"
            )
        return operation

    async def forget(self, operation: RunOperation, caller: Caller) -> None:
        """Forget an operation, also if a store keeps it; its run goes on.  Raises OpError."""
        self.delete(operation)
        if self.keeper is not None:
            await self.keeper.forget_operation(operation.id, caller)

    def delete(self, operation: RunOperation) -> None:
        """Forget an operation; its run goes on."""
        if self._operations.pop(operation.id, None) is None:
            return
        self.shares.give_back(operation.caller.client)
        if operation.answer is not None:
            self.results.give_back(operation.caller.client, operation.answer.size)

    def _forget_old(self) -> None:
        now = self._clock()
        for operation in list(self._operations.values()):
            if operation.answer is not None and now - operation.ended_at > KEEP_SECONDS:
                self.delete(operation)


def routes(store: OperationStore, config: ServerConfig, budget: BodyBudget) -> list[Route]:
    """The routes under /v1/operations."""
    handlers = _Handlers(store, config, budget)
    one = "/v1/operations/{operation}"
    call = partial(Route, scope=Scope.RUN)
    return [
        call("GET", one, handlers.get, "The state and the result of an operation", None, "Operation", 200, _WAIT),
        call(
            "GET",
            f"{one}/response",
            handlers.response,
            "The answer of an operation, as the run would have answered",
            None,
            "RunResponse",
        ),
        call("POST", f"{one}:cancel", handlers.cancel, "Cancel an operation", "CancelRequest", "Operation"),
        call("DELETE", one, handlers.delete, "Forget an operation and its result", status=204),
    ]


class _Handlers:
    def __init__(self, store: OperationStore, config: ServerConfig, budget: BodyBudget) -> None:
        self.store = store
        self._config = config
        self._budget = budget

    async def _operation(self, request: web.Request) -> RunOperation:
        return await self.store.find(request.match_info["operation"], request[CALLER], request.path)

    async def get(self, request: web.Request) -> web.Response:
        """GET /v1/operations/{operation}"""
        operation = await self._operation(request)
        wait = _seconds(request.query.get("wait_s", "0"))
        if wait and operation.answer is None:
            await operation.wait(min(wait, _MAX_WAIT))
        return operation_response(operation)

    async def response(self, request: web.Request) -> web.Response:
        """GET /v1/operations/{operation}/response"""
        operation = await self._operation(request)
        if operation.answer is None:
            raise errors.FailedPreconditionError(f"Operation '{operation.id}' has not ended")
        return operation.answer.response()

    async def cancel(self, request: web.Request) -> web.Response:
        """POST /v1/operations/{operation}:cancel"""
        operation = await self._operation(request)
        body = await bodies.read_body(request, self._config, self._budget)
        fields = bodies.json_object(body) if body.strip() else {}
        bodies.check_fields(fields, _CANCEL_FIELDS, "the request")
        reason = fields.get("reason")
        if reason is not None and type(reason) is not str:
            raise bodies.expected('"reason" must be a string', reason)
        operation.cancel((reason or "by request")[:_MAX_REASON])
        return operation_response(operation)

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/operations/{operation}"""
        await self.store.forget(await self._operation(request), request[CALLER])
        return web.Response(status=204)


def operation_response(
    operation: RunOperation, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """An answer with the operation's document."""
    return web.Response(body=operation.text(), status=status, content_type="application/json", headers=headers)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    raise errors.InvalidArgumentError(f'"wait_s" must be a number of seconds, not negative, got {text[:40]!r}')
