"""The ways to have a session of a graph, one for each class of session, behind one harness."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from aexec_server import ServerConfig
from aexec_server.core.server_state import Server

import aexec
import aexec.compat.v1 as tf
from aexec import proto
from aexec.distributed.memory_engine import MemoryCluster
from aexec.graph.meta_graph import MetaGraph
from aexec.runtime.session.session_protocol import NativeSessionProtocol, SessionProtocol
from aexec.saved_model import SavedModel
from tests.server.conftest import ops_of_tests
from tests.support.serving import serving_both

__all__ = ["NATIVE", "WAYS", "Asked", "Way"]

Way = Callable[[aexec.Graph, Path], AbstractAsyncContextManager["Asked"]]
_names = itertools.count()


class Asked:
    """A session, each of whose methods is awaited here: those that wait do so in a thread.

    Attributes:
        session: what is asked.
        native: the same, if it has aexec's own names.
    """

    def __init__(self, session: SessionProtocol, native: NativeSessionProtocol | None, *, waits: bool) -> None:
        self.session = session
        self.native = native
        self._waits = waits

    async def ask(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """What a method of the session, or a callable of it, gives in the end."""
        if self._waits:
            return await asyncio.to_thread(function, *arguments, **settings)
        given = function(*arguments, **settings)
        return await given if inspect.isawaitable(given) else given

    async def begin(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """A step, or what else is made at once."""
        return (
            await asyncio.to_thread(function, *arguments, **settings)
            if self._waits
            else function(*arguments, **settings)
        )

    async def result(self, step: Any) -> Any:
        """What a step gives in the end."""
        return await (asyncio.to_thread(step.result) if self._waits else step)

    async def run(self, fetches: Any, feeds: Any = None) -> Any:
        """What `run` gives."""
        return await self.ask(self.session.run, fetches, feeds)

    async def close(self) -> None:
        """Close it."""
        await self.ask(self.session.close)


@asynccontextmanager
async def _in_process(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    async with aexec.Session(graph) as session:
        yield Asked(session, session, waits=False)


@asynccontextmanager
async def _file(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    path = folder / f"{next(_names)}.pb"
    path.write_bytes(graph.to_bytes())
    session = aexec.Session(path)
    await session.__aenter__()
    try:
        yield Asked(session, session, waits=False)
    finally:
        await session.close()


def _written_model(graph: aexec.Graph, folder: Path) -> SavedModel:
    path = folder / f"model-{next(_names)}"
    path.mkdir()
    meta_graph = MetaGraph(graph, tags=frozenset({"serve"}))
    message = proto.SavedModel(saved_model_schema_version=1, meta_graphs=[meta_graph.to_proto()])
    (path / "saved_model.pb").write_bytes(message.SerializeToString())
    return aexec.saved_model.load_saved_model(path)


@asynccontextmanager
async def _model(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    async with aexec.Session(await asyncio.to_thread(_written_model, graph, folder)) as session:
        yield Asked(session, session, waits=False)


@asynccontextmanager
async def _on_cluster(graph: aexec.Graph, **settings: Any) -> AsyncIterator[Asked]:
    name = f"ways-{next(_names)}"
    async with (
        MemoryCluster(name, 2, lease=60.0),
        aexec.Session(graph, f"memory://{name}", aexec.SessionConfig(**settings)) as session,
    ):
        yield Asked(session, session, waits=False)


def _cluster(graph: aexec.Graph, folder: Path) -> AbstractAsyncContextManager[Asked]:
    return _on_cluster(graph)


def _replicated(graph: aexec.Graph, folder: Path) -> AbstractAsyncContextManager[Asked]:
    return _on_cluster(graph, replicated=True)


def _served() -> AbstractAsyncContextManager[tuple[Server, str, str]]:
    return serving_both(ServerConfig(allow_ops=ops_of_tests(), grpc_port=0))


@asynccontextmanager
async def _remote(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    async with _served() as (_, url, _), aexec.connect(url, graph) as session:
        yield Asked(session, session, waits=False)


@asynccontextmanager
async def _remote_by_grpc(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    async with _served() as (_, _, url), aexec.connect(url, graph) as session:
        yield Asked(session, session, waits=False)


@asynccontextmanager
async def _sync(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    session = await asyncio.to_thread(aexec.SyncSession, graph)
    try:
        yield Asked(session, session, waits=True)
    finally:
        await asyncio.to_thread(session.close)


@asynccontextmanager
async def _blocking(url: str, graph: aexec.Graph) -> AsyncIterator[Asked]:
    session = await asyncio.to_thread(aexec.blocking(aexec.connect(url, graph)).__enter__)
    try:
        yield Asked(session, session, waits=True)
    finally:
        await asyncio.to_thread(session.close)


@asynccontextmanager
async def _blocking_remote(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    async with _served() as (_, url, _), _blocking(url, graph) as asked:
        yield asked


@asynccontextmanager
async def _blocking_remote_by_grpc(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    async with _served() as (_, _, url), _blocking(url, graph) as asked:
        yield asked


@asynccontextmanager
async def _compat(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    session = await asyncio.to_thread(lambda: tf.Session(graph=graph))
    try:
        yield Asked(session, None, waits=True)
    finally:
        await asyncio.to_thread(session.close)


@asynccontextmanager
async def _compat_awaited(graph: aexec.Graph, folder: Path) -> AsyncIterator[Asked]:
    async with tf.AsyncSession(graph=graph) as session:
        yield Asked(session, None, waits=False)


NATIVE: dict[str, Way] = {
    "in process": _in_process,
    "of a file": _file,
    "of a model": _model,
    "cluster": _cluster,
    "replicated": _replicated,
    "remote": _remote,
    "remote by gRPC": _remote_by_grpc,
    "sync": _sync,
    "blocking remote": _blocking_remote,
    "blocking remote by gRPC": _blocking_remote_by_grpc,
}
WAYS: dict[str, Way] = {**NATIVE, "compat": _compat, "compat awaited": _compat_awaited}
