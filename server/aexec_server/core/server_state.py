"""`Server`: the state that all handlers share.  Each app has one, under the key `SERVER`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from aexec import errors
from aexec_server.clients.callers import CALLER, Caller
from aexec_server.core.access import AccessControl
from aexec_server.core.admission import Admission
from aexec_server.core.operations import OperationStore
from aexec_server.core.spans import Spans
from aexec_server.http.answer_door import AnswerDoor
from aexec_server.http.backlog import Backlog
from aexec_server.http.body_budget import BodyBudget
from aexec_server.http.idempotency import AnsweredOnce
from aexec_server.http.not_begun import ShuttingDownError
from aexec_server.models.model_repository import ModelRepository
from aexec_server.models.model_upload import ModelUploads
from aexec_server.models.models import ModelRegistry
from aexec_server.sessions.durable_sessions import DurableSessions
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.queue_sizes import QueueSizes
from aexec_server.sessions.store import SessionStore
from aexec_server.settings.server_config import ServerConfig
from aexec_server.watching.activity import Activity, OtherProcesses
from aexec_server.watching.figure_history import FigureHistory
from aexec_server.watching.metrics import CancelCause, Metrics, Snapshot

__all__ = ["SERVER", "Server"]

T = TypeVar("T")


class Server:
    """The state of a server.

    Attributes:
        config: the settings.
        access: decides who may ask for what.
        sessions: the hosted sessions.
        admission: decides which runs begin.
        door: sends large answers.
        models: the models that it serves.
        repository: watches the files of models.
        uploads: the models that clients have sent.
        body_budget: the bytes that request bodies may take.
        backlog: counts requests for runs that have not begun.
        operations: the runs that are answered later.
        answered_once: the stored answers to requests with an Idempotency-Key.
        durable: the durable sessions; None if there is no store.
        opened: True once the configured sessions are open.
        leaving: True once it was told to stop: clients should go elsewhere.
        draining: True after that, when nothing new begins.
        sessions_elsewhere: lists the caller's sessions in other processes; None if clients' sessions are here.
        ready_elsewhere: True if the models in another process are ready.
        metrics: the metrics of this process.
        spans: makes spans of requests and runs; None for no spans.
        all_metrics: adds the metrics of all processes to those of this one.
        queue_sizes: the numbers of elements of queues, for the metrics.
        history: the figures of all processes in the last hour; empty in a session host.
        activity: the errors that this process has answered with.
        began: when it began, by the configuration's clock.
        tensor_bytes_limit: the bytes that tensors may take in this process and those behind it; None for no limit, and
            in a session host, whose front reports the limit of all.
        others: the state of other processes.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.access = AccessControl(config)
        self.sessions = SessionStore(config)
        self.admission = Admission(config)
        self.door = AnswerDoor(config, self.sessions.memory)
        self.metrics = Metrics()
        self.queue_sizes = QueueSizes(self.sessions, self.in_background)
        self.models = ModelRegistry(
            config,
            self.sessions,
            lambda model: self.metrics.batch_halvings.add((model,)),
            self.metrics.batch_rows.observe,
        )
        self.uploads = ModelUploads()
        self.repository = ModelRepository(config, self.models)
        self.body_budget = BodyBudget(config)
        self.backlog = Backlog(on_refused=partial(self.metrics.cancellations.add, (CancelCause.OVERLOAD,)))
        self.opened = False
        self.leaving = False
        self.operations = OperationStore(config, self.sessions.handles)
        self.answered_once = AnsweredOnce(config, self.in_background)
        self.draining = False
        self.durable = DurableSessions.of(config, self.sessions, self.answered_once, self.in_background)
        self.operations.keeper = self.durable
        self._tasks: set[asyncio.Task[Any]] = set()
        self.sessions_elsewhere: Callable[[web.Request], Awaitable[list[dict[str, Any]]]] | None = None
        self.ready_elsewhere: Callable[[], bool] = lambda: True
        self.spans = Spans() if config.otel else None
        self.all_metrics: Callable[[Snapshot], Snapshot] = lambda own: own
        self.history = FigureHistory(lambda: self.all_metrics(self.snapshot()))
        for shares in (
            self.admission.shares,
            self.door.shares,
            self.sessions.shares,
            self.body_budget.shares,
            self.operations.shares,
            self.operations.results,
            self.answered_once.keys,
            self.answered_once.shares,
        ):
            self.metrics.add_shares(shares)
        self.metrics.gauge("aexec_sessions", lambda: {(): len(self.sessions)})
        self.metrics.gauge("aexec_tensor_store_bytes", lambda: {(): self.sessions.kept_bytes})
        self.tensor_bytes_limit = self.sessions.memory.limit
        self.metrics.gauge("aexec_memory_bytes", lambda: _memory(self))
        self.metrics.gauge("aexec_gpu_pool_bytes", lambda: _gpu_pools(self.sessions))
        self.metrics.gauge("aexec_queue_size", lambda: self.queue_sizes.latest)
        self.activity = Activity()
        self.began = config.clock()
        self.others: Callable[[], OtherProcesses] = OtherProcesses

    def snapshot(self) -> Snapshot:
        """Return the metrics of this process."""
        self.queue_sizes.look()
        return self.metrics.snapshot()

    @property
    def ready(self) -> bool:
        """True if clients should send requests here."""
        return self.opened and not (self.leaving or self.draining) and self.repository.ready and self.ready_elsewhere()

    def session_of(self, request: web.Request) -> HostedSession:
        """The session of a request's path.  Raises NotFoundError if there is none that its caller may use."""
        return self.sessions.get(request.match_info["session"], request[CALLER])

    def check_accepting(self) -> None:
        """Raise UnavailableError if nothing new may begin."""
        if self.draining:
            raise ShuttingDownError

    def request_ended(self, request: web.Request) -> None:
        """Clean up after a request whose handler has ended, in whatever way."""
        self.body_budget.give_back(request)
        self.backlog.begun(request.transport)

    def in_background(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start work that outlives the request that asked for it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def background_ended(self) -> None:
        """Wait for all background work.  All sessions must be closed."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def of_callers(self) -> dict[str, tuple[int, int]]:
        """(sessions, runs) of each caller with a token, by name; a front divides their quotas by it."""
        if not self.config.wants_tokens:
            return {}
        sessions, runs = self.sessions.shares.held, self.admission.shares.held
        return {name: (sessions.get(name, 0), runs.get(name, 0)) for name in sessions.keys() | runs.keys()}

    def may_change_models(self, caller: Caller) -> bool:
        """True if the caller may change the server's own models."""
        return caller.is_admin or self.config.allow_model_changes

    def changeable(self, hosted: HostedSession, caller: Caller) -> HostedSession:
        """The session, if the caller may change it.  Raises PermissionDeniedError for the server's own."""
        if hosted.listed and not self.may_change_models(caller):
            raise errors.PermissionDeniedError(
                f"Session '{hosted.handle}' is the server's own: clients may run it, but not change it"
            )
        return hosted


def _memory(server: Server) -> dict[tuple[str, ...], float]:
    """Bytes in use and allowed, for the metrics."""
    sizes: dict[tuple[str, ...], float] = {("in_use",): server.sessions.memory.in_use}
    if server.tensor_bytes_limit is not None:
        sizes["limit",] = server.tensor_bytes_limit
    return sizes


def _gpu_pools(sessions: SessionStore) -> dict[tuple[str, ...], float]:
    """Bytes in use, at most, and allowed, by device, for the metrics."""
    pools: dict[tuple[str, ...], float] = {}
    for device in {device for hosted in sessions for device in hosted.session.devices()}:
        if device.type == "GPU":
            stats = device.stats()
            kinds = {"in_use": stats.bytes_in_use, "peak": stats.peak_bytes_in_use, "limit": stats.bytes_limit}
            for kind, count in kinds.items():
                if count is not None:
                    pools[device.name, kind] = max(count, pools.get((device.name, kind), 0))
    return pools


SERVER: web.AppKey[Server] = web.AppKey("server", Server)
