"""`Server`: what all handlers share.  Each app has one, under the key `SERVER`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from aexec import errors
from aexec_server.clients.callers import Caller
from aexec_server.core.access import AccessControl
from aexec_server.core.admission import Admission
from aexec_server.core.operations import OperationStore
from aexec_server.core.spans import Spans
from aexec_server.http.answer_door import AnswerDoor
from aexec_server.http.backlog import Backlog
from aexec_server.http.body_budget import BodyBudget
from aexec_server.http.idempotency import AnsweredOnce
from aexec_server.models.model_repository import ModelRepository
from aexec_server.models.model_upload import ModelUploads
from aexec_server.models.models import ModelRegistry
from aexec_server.sessions.store import HostedSession, SessionStore
from aexec_server.settings.server_config import ServerConfig
from aexec_server.watching.activity import Activity, OtherProcesses
from aexec_server.watching.metrics import CancelCause, Metrics, Snapshot

__all__ = ["SERVER", "Server"]

T = TypeVar("T")

_MAX_QUEUES = 100  # that are told apart


class Server:
    """The state of a server.

    Attributes:
        config: its settings.
        access: who may ask for what.
        sessions: what it holds.
        admission: of runs.
        door: through which answers leave.
        models: those of the sessions that it serves itself.
        repository: where models come from.
        uploads: models that clients have sent.
        body_budget: of all requests.
        backlog: requests for runs that have not begun.
        operations: runs that are answered later.
        answered_once: answers to requests that may be sent again.
        opened: the configured sessions are open.
        leaving: it was told to stop, and whoever can should go elsewhere.
        draining: after that: nothing new begins.
        sessions_elsewhere: the sessions that other processes list for who asks; None where clients make theirs here.
        ready_elsewhere: are the models that are in another process ready?
        metrics: what is counted in this process.
        spans: makes spans of requests and runs; None for not.
        all_metrics: what all processes count, from what is counted in this one.
        activity: what was done in this process.
        began: when, by the configuration's clock.
        tensor_bytes_limit: what tensors may take, in this process and those behind it together; None for no limit, and
            in a session host, whose front reports the limit of all.
        others: how other processes are.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.access = AccessControl(config)
        self.sessions = SessionStore(config)
        self.admission = Admission(config)
        self.door = AnswerDoor(config, self.sessions.memory)
        self.metrics = Metrics()
        self.models = ModelRegistry(config, self.sessions, lambda model: self.metrics.batch_halvings.add((model,)))
        self.uploads = ModelUploads()
        self.repository = ModelRepository(config, self.models)
        self.body_budget = BodyBudget(config)
        self.backlog = Backlog(on_refused=partial(self.metrics.cancellations.add, (CancelCause.OVERLOAD,)))
        self.opened = False
        self.leaving = False
        self.operations = OperationStore(config, self.sessions.handles)
        self.answered_once = AnsweredOnce(config, self.in_background)
        self.draining = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.sessions_elsewhere: Callable[[web.Request], Awaitable[list[dict[str, Any]]]] | None = None
        self.ready_elsewhere: Callable[[], bool] = lambda: True
        self.spans = Spans() if config.otel else None
        self.all_metrics: Callable[[Snapshot], Snapshot] = lambda own: own
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
        self.metrics.gauge("aexec_queue_size", lambda: _queue_sizes(self.sessions))
        self.activity = Activity()
        self.began = config.clock()
        self.others: Callable[[], OtherProcesses] = OtherProcesses

    @property
    def ready(self) -> bool:
        """Should clients send requests here?"""
        return self.opened and not (self.leaving or self.draining) and self.repository.ready and self.ready_elsewhere()

    def check_accepting(self) -> None:
        """Raise UnavailableError if nothing new may begin."""
        if self.draining:
            raise errors.UnavailableError("The server is shutting down")

    def request_ended(self, request: web.Request) -> None:
        """The handler of a request has ended, however it did."""
        self.body_budget.give_back(request)
        self.backlog.begun(request.transport)

    def in_background(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin work that goes on when the request that asked for it has ended."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def background_ended(self) -> None:
        """Wait for that.  All sessions must be closed."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def of_callers(self) -> dict[str, tuple[int, int]]:
        """Sessions and runs of callers who have a token, by name: a front divides their quotas."""
        if not self.config.wants_tokens:
            return {}
        sessions, runs = self.sessions.shares.held, self.admission.shares.held
        return {name: (sessions.get(name, 0), runs.get(name, 0)) for name in sessions.keys() | runs.keys()}

    def may_change_models(self, caller: Caller) -> bool:
        """The server's own, that is."""
        return caller.is_admin or self.config.allow_model_changes

    def changeable(self, hosted: HostedSession, caller: Caller) -> HostedSession:
        """The session, if the caller may change it.  Raises PermissionDeniedError for one that is the server's own."""
        if hosted.listed and not self.may_change_models(caller):
            raise errors.PermissionDeniedError(
                f"Session '{hosted.handle}' is the server's own: clients may run it, but not change it"
            )
        return hosted


def _memory(server: Server) -> dict[tuple[str, ...], float]:
    """Bytes in use, and allowed."""
    sizes: dict[tuple[str, ...], float] = {("in_use",): server.sessions.memory.in_use}
    if server.tensor_bytes_limit is not None:
        sizes["limit",] = server.tensor_bytes_limit
    return sizes


def _gpu_pools(sessions: SessionStore) -> dict[tuple[str, ...], float]:
    """Bytes in use, at most, and allowed, by device."""
    pools: dict[tuple[str, ...], float] = {}
    for device in {device for hosted in sessions for device in hosted.session.devices()}:
        if device.type == "GPU":
            stats = device.stats()
            kinds = {"in_use": stats.bytes_in_use, "peak": stats.peak_bytes_in_use, "limit": stats.bytes_limit}
            for kind, count in kinds.items():
                if count is not None:
                    pools[device.name, kind] = max(count, pools.get((device.name, kind), 0))
    return pools


def _queue_sizes(sessions: SessionStore) -> dict[tuple[str, ...], float]:
    """Elements of each model's queues, and those of all clients' queues together, whose names are anything."""
    sizes: dict[tuple[str, ...], float] = {}
    for hosted in sessions:
        for name, queue in hosted.session.queues().items():
            label = f"{hosted.model}/{name}" if hosted.model and len(sizes) < _MAX_QUEUES else ""
            sizes[label,] = sizes.get((label,), 0) + len(queue)
    return sizes


SERVER: web.AppKey[Server] = web.AppKey("server", Server)
