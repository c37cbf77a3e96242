"""The models that the server serves: each has a name and versions, some of which are open at a time.

A version goes through the states START, LOADING, AVAILABLE, UNLOADING and END, as in TensorFlow Serving. A new version
is loaded while the old one still serves, and replaces it at once; requests end in the version in which they began, and
only then is an old version closed. The newest version is the session with the model's name; older ones are named
`name@version`. `settings/model_source.py` says where models come from, `sessions/store.py` holds their sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import aexec
from aexec import errors
from aexec.hosting import BatchedCallable, OnCancel, run_in_thread, session_on_cluster
from aexec.saved_model import ModelSession
from aexec_server.handles import check_model_name
from aexec_server.http import bodies
from aexec_server.models.model_statistics import ModelStatistics
from aexec_server.requests.run_request import read_json
from aexec_server.requests.run_table import RunTable
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.store import SessionStore
from aexec_server.settings.model_source import (
    Batching,
    GraphSource,
    LoadedModel,
    ModelSource,
    find_versions,
    fingerprint,
    load_version,
    warm_up_file,
)
from aexec_server.settings.server_config import ServerConfig

__all__ = ["Model", "ModelRegistry", "ModelVersion", "VersionState"]

logger = logging.getLogger(__name__)

_PROGRESS_SECONDS = 5.0
# Digits of a version in a path: versions are 64-bit numbers.
_MAX_DIGITS = 19


class VersionState(Enum):
    """State of a version."""

    START = "START"
    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    END = "END"


class ModelVersion:
    """One version of a model.

    Attributes:
        model: name of the model.
        number: number of the version.
        source: what it is read from.
        fingerprint: of its files, taken before they were read.
        origin: the source that it was loaded for.
        state: its state.
        error: why it ended, if loading failed or was stopped.
        statistics: of the requests that it has answered.
    """

    def __init__(self, model: str, number: int, source: GraphSource) -> None:
        self.model = model
        self.number = number
        self.source = source
        self.state = VersionState.START
        self.fingerprint: tuple[int, int] | None = None
        self.origin: ModelSource | None = None
        self.error: errors.OpError | None = None
        self.statistics = ModelStatistics()
        self._hosted: HostedSession | None = None

    @property
    def hosted(self) -> HostedSession:
        """Its session.  Raises UnavailableError while it is not available, NotFoundError once it has ended."""
        if self.state is VersionState.END:
            raise errors.NotFoundError(f"{self} is not served: {self.reason or 'it was unloaded'}")
        if self._hosted is None:
            raise errors.UnavailableError(f"{self} is {self.state.value.lower()}")
        return self._hosted

    def open(self, hosted: HostedSession) -> None:
        """Make the version available, with this session."""
        self._hosted = hosted
        self.state = VersionState.AVAILABLE

    def begin_unloading(self) -> HostedSession:
        """Stop taking requests; return the session, which the caller has to close."""
        hosted = self.hosted
        self._hosted = None
        self.state = VersionState.UNLOADING
        return hosted

    def is_of(self, source: ModelSource) -> bool:
        """True if it was loaded from the same place."""
        return self.origin is not None and self.origin.source == source.source

    def end(self, error: errors.OpError | None = None) -> None:
        self.state = VersionState.END
        self.error = error

    @property
    def reason(self) -> str:
        """Why it ended, in words for clients, without the path of its files; "" if there was no error."""
        if self.error is None:
            return ""
        if not isinstance(self.source, str | Path):
            return self.error.message
        return self.error.message.replace(f"{Path(self.source).parent}{os.sep}", "")

    def __str__(self) -> str:
        return f"Model '{self.model}' version {self.number}"


class Model:
    """A model and its versions.

    Attributes:
        name: its name.
        source: where its versions come from.
        runs: table of the runs of all versions, so that replacing a version hides none.
        versions: by number, ended ones included.
        changing: held while versions are loaded or retired.
    """

    def __init__(self, name: str, source: ModelSource, runs: RunTable) -> None:
        self.name = name
        self.source = source
        self.runs = runs
        self.versions: dict[int, ModelVersion] = {}
        self.changing = asyncio.Lock()

    @property
    def available(self) -> list[ModelVersion]:
        """The versions that take requests, the newest last."""
        found = [v for v in self.versions.values() if v.state is VersionState.AVAILABLE]
        return sorted(found, key=lambda version: version.number)

    @property
    def ready(self) -> bool:
        return any(v.state is VersionState.AVAILABLE for v in self.versions.values())

    def serves(self, number: int) -> bool:
        """True if the version with this number takes requests."""
        version = self.versions.get(number)
        return version is not None and version.state is VersionState.AVAILABLE

    def version_named(self, digits: str | None) -> ModelVersion:
        """Return the version by the digits in a path, None for the default one.  Raises as `version`."""
        if digits is not None and len(digits) > _MAX_DIGITS:
            raise errors.NotFoundError(f"Model '{self.name}' has no version of {len(digits)} digits")
        return self.version(None if digits is None else int(digits))

    def version(self, number: int | None = None) -> ModelVersion:
        """Return a version by number; by default the newest available one, or else the newest.

        Raises:
            NotFoundError: there is none.
        """
        if number is None:
            newest = max(
                self.versions.values(), key=lambda v: (v.state is VersionState.AVAILABLE, v.number), default=None
            )
            if newest is None:
                raise errors.NotFoundError(f"Model '{self.name}' has no versions")
            return newest
        found = self.versions.get(number)
        if found is None:
            known = ", ".join(map(str, sorted(self.versions))) or "none"
            raise errors.NotFoundError(f"Model '{self.name}' has no version {number}; there are {known}")
        return found

    def labelled(self, label: str) -> ModelVersion:
        """Return the version that a label stands for.  Raises NotFoundError."""
        number = self.source.labels.get(label)
        if number is None:
            raise errors.NotFoundError(f"Model '{self.name}' has no label '{label[:80]}'")
        return self.version(number)


class ModelRegistry:
    """The models that a server serves, by name.

    Args:
        config: the server's configuration.
        sessions: the store that holds the models' sessions.
        on_halved: called with the model's name when a batch has failed and is retried in halves.
        on_batch: called with the number of rows of each batch that was run.
    """

    def __init__(
        self,
        config: ServerConfig,
        sessions: SessionStore,
        on_halved: Callable[[str], object] = lambda model: None,
        on_batch: Callable[[int], object] = lambda rows: None,
    ) -> None:
        self._on_halved = on_halved
        self._on_batch = on_batch
        self._config = config
        self._sessions = sessions
        self._models: dict[str, Model] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Model]:
        return iter(list(self._models.values()))

    def find(self, name: str) -> Model:
        """Return a model.  Raises NotFoundError."""
        model = self._models.get(name)
        if model is None:
            raise errors.NotFoundError(f"Model '{name[:80]}' is not found")
        return model

    def get(self, name: str) -> Model | None:
        return self._models.get(name)

    # Loading

    async def load(self, name: str, source: ModelSource, *, again: bool = False) -> None:
        """Load the wanted versions of a model that are new, then retire those that are not wanted.

        Args:
            again: also reload versions that serve, because their files may have changed.

        Raises:
            InvalidArgumentError: the name cannot stand in a path.
            NotFoundError: there is no such model, or none of the wanted versions exists.
            OpError: a version could not be loaded; others may have been.
        """
        try:
            check_model_name(name)
            found = await run_in_thread(find_versions, source, on_cancel=OnCancel.ABANDON)
            if not source.wanted(found):
                raise errors.NotFoundError(f"Model '{name}' has none of the versions that are to be served")
            model = self._models.setdefault(name, Model(name, source, RunTable(self._config.clock)))
            async with model.changing:
                await self._bring_up_to_date(model, source, found, again)
        finally:
            await self._clean_up(name, source)

    async def _bring_up_to_date(
        self, model: Model, source: ModelSource, found: Mapping[int, GraphSource], again: bool
    ) -> None:
        """Load the wanted versions of a source, and retire the others.  Raises the first failure."""
        before, model.source = model.source, source
        failures = await self._load_wanted(model, found, again)
        served = source.wanted([n for n in found if model.serves(n)])
        if not any(model.versions[number].is_of(source) for number in served):
            model.source = before
        for version in model.available:
            if served and version.number not in served:
                self._retire(version)
        for failure in failures.values():
            raise failure

    async def _clean_up(self, name: str, source: ModelSource) -> None:
        """Delete the files of a temporary source, if no version of the model needs them."""
        if not source.temporary or not isinstance(source.source, Path):
            return
        model = self._models.get(name)
        versions = () if model is None else model.versions.values()
        if not any(v.is_of(source) and v.state is not VersionState.END for v in versions):
            await run_in_thread(partial(shutil.rmtree, source.source, ignore_errors=True), on_cancel=OnCancel.WAIT)

    async def _load_wanted(
        self, model: Model, found: Mapping[int, GraphSource], again: bool
    ) -> dict[int, errors.OpError]:
        """Load the wanted versions, older ones in place of those that fail; return number → error."""
        failures: dict[int, errors.OpError] = {}
        tried: set[int] = set()
        while wanted := set(model.source.wanted([n for n in found if n not in failures or model.serves(n)])) - tried:
            for number in sorted(wanted):
                tried.add(number)
                error = await self._load_version(model, number, found[number], again)
                if error is not None:
                    failures[number] = error
        return failures

    async def load_shielded(self, name: str, source: ModelSource, *, again: bool = True) -> None:
        """Like `load`; cancelled, it goes on."""
        task = asyncio.create_task(self.load(name, source, again=again), name=f"load model {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _load_version(self, model: Model, number: int, source: GraphSource, again: bool) -> errors.OpError | None:
        """Load a version, unless it serves and its files are unchanged; return the error, or None."""
        known = model.versions.get(number)
        serves = model.serves(number)
        version = ModelVersion(model.name, number, source)
        version.origin = model.source
        if known is not None and serves and not again and await _unchanged(known):
            return None
        if not serves:  # a version that serves goes on until its successor is ready
            model.versions[number] = version
        try:
            async with _progress(version):
                version.state = VersionState.LOADING
                hosted = await self._open(model, version)
        except errors.OpError as error:
            version.end(error)
            logger.error("%s cannot be loaded: %s", version, error)
            return error
        except BaseException:
            version.end(errors.CancelledError("Loading was stopped"))
            raise
        version.open(hosted)
        model.versions[number] = version
        self._name(model)
        if known is not None and serves:
            self._retire(known)
        return None

    async def _open(self, model: Model, version: ModelVersion) -> HostedSession:
        source = model.source
        version.fingerprint = await run_in_thread(fingerprint, version.source, on_cancel=OnCancel.ABANDON)
        loaded = await run_in_thread(load_version, source, version.source, on_cancel=OnCancel.WAIT)
        if not source.trusted:
            graph = loaded if isinstance(loaded, aexec.Graph) else loaded.graph
            await run_in_thread(self._check_graph, graph, on_cancel=OnCancel.ABANDON)
        session = await self._session_of(loaded, trusted=source.trusted)
        del loaded
        if isinstance(version.source, str | Path):  # otherwise the graph belongs to the program
            session.own_graph()
        try:
            if isinstance(session, ModelSession):
                await session.initialize()
            if not await _unchanged(version):
                raise errors.UnavailableError("Its files changed while they were read: not all of it was there")
            hosted = HostedSession(
                f"{model.name}@{version.number}",
                session,
                None,
                self._config.clock,
                rules=self._sessions.maker.rules_for_models(by_admin=False),
                rules_for_admins=self._sessions.maker.rules_for_models(by_admin=True),
                runs=model.runs,
            )
            hosted.listed = True
            hosted.model = model.name
            if model.source.batching is not None:
                on_halved = partial(self._on_halved, model.name)
                on_batch = partial(_count_batch, version.statistics, self._on_batch)
                hosted.batch = partial(_batched, model.source.batching, version.statistics, on_batch, on_halved)
            hosted.keeps_clients_nodes = self._config.delegates is None
            await _warm_up(hosted, version)
        except BaseException:
            await session.close()
            raise
        logger.info("%s is available: %d nodes", version, len(session.graph))
        return hosted

    async def _session_of(self, loaded: LoadedModel, *, trusted: bool) -> aexec.Session:
        cluster, delegates, pixels = self._config.cluster, self._config.delegates, self._config.max_image_pixels
        if cluster is not None:
            config = aexec.SessionConfig(
                check_feed_shapes=False, replicated=True, max_image_pixels=pixels, cache_files=self._config.trust_graphs
            )
            config = config if trusted else self._sessions.maker.limited(config)
            return await session_on_cluster(loaded, cluster, config, self._config.cluster_security)
        config = aexec.SessionConfig(
            check_feed_shapes=False,
            delegates="auto" if delegates is None else delegates,
            memory_account=self._sessions.memory,
            max_image_pixels=pixels,
            cache_files=self._config.trust_graphs,
            printed_bytes=self._config.print_rate,
        )
        if not trusted:
            config = self._sessions.maker.limited(config)
        return await run_in_thread(aexec.Session, loaded, "", config, on_cancel=OnCancel.WAIT)

    def _check_graph(self, graph: aexec.Graph) -> None:
        self._sessions.maker.check_graph(graph.to_graph_def())

    def _name(self, model: Model) -> None:
        """Give the newest version the model's name."""
        available = model.available
        for version in available:
            handle = model.name if version is available[-1] else f"{model.name}@{version.number}"
            self._sessions.put(handle, version.hosted)

    # Unloading

    def _retire(self, version: ModelVersion) -> asyncio.Task[None]:
        """Close a version once no request uses it."""
        hosted = version.begin_unloading()
        self._sessions.retire(hosted)
        task = asyncio.create_task(self._close_unused(version, hosted), name=f"unload {version}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close_unused(self, version: ModelVersion, hosted: HostedSession) -> None:
        try:
            await hosted.unused()
        finally:
            version.end()
            await self._sessions.close_retired(hosted)
            if version.origin is not None:
                await self._clean_up(version.model, version.origin)
            logger.info("%s is unloaded", version)

    async def unload(self, name: str) -> None:
        """Stop serving a model; requests that have begun end before it is closed.  Raises NotFoundError."""
        model = self.find(name)
        async with model.changing:
            for version in model.available:
                self._retire(version)

    async def delete(self, name: str) -> None:
        """Stop serving a model: cancel its runs, wait for them, and free what it holds.  Raises NotFoundError."""
        model = self.find(name)
        async with model.changing:
            closing = [self._retire(version) for version in model.available]
        model.runs.cancel_all("the model was deleted")
        if closing:
            await asyncio.wait(closing)

    async def close(self) -> None:
        """Cancel loading and unloading; the store closes the sessions."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _unchanged(version: ModelVersion) -> bool:
    """True if a version's files are those that it was read from."""
    return await run_in_thread(fingerprint, version.source, on_cancel=OnCancel.ABANDON) == version.fingerprint


def _count_batch(statistics: ModelStatistics, on_batch: Callable[[int], object], rows: int, ns: int) -> None:
    statistics.count_batch(rows, ns)
    on_batch(rows)


def _batched(
    batching: Batching,
    statistics: ModelStatistics,
    on_batch: Callable[[int, int], object],
    on_halved: Callable[[], object],
    call: aexec.SessionCallable,
    changes_state: bool,
) -> BatchedCallable:
    statistics.batched = True
    return BatchedCallable(
        call,
        batching.max_rows,
        batching.max_delay,
        max_running=batching.max_running,
        sizes=batching.sizes,
        on_batch=on_batch,
        retries=not changes_state,
        on_halved=on_halved,
    )


@contextlib.asynccontextmanager
async def _progress(version: ModelVersion) -> AsyncIterator[None]:
    """Context manager: log every few seconds that the version is still being loaded."""
    began = time.monotonic()
    where = version.source if isinstance(version.source, str | Path) else "memory"
    logger.info("%s is loaded from %s", version, where)

    async def report() -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            logger.info("%s is still being loaded, after %.0f s", version, time.monotonic() - began)

    task = asyncio.create_task(report(), name=f"report on {version}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _warm_up(hosted: HostedSession, version: ModelVersion) -> None:
    """Make the plans of the signatures and run the model's warm-up requests, before clients may use it.

    Raises:
        OpError: a warm-up request fails or is not valid.
    """
    session = hosted.session
    for name, signature in session.signatures.items():
        try:
            served = hosted.served_signature(name, frozenset(signature.inputs), None)
            await session.make_plan(served.call)
            if hosted.batch is not None and served.batched is None:
                logger.warning("%s: signature %s has tensors without rows, and is not batched", version, name)
        except errors.OpError as error:
            logger.warning("%s: signature %s cannot be run: %s", version, name, error)
    file = await run_in_thread(warm_up_file, version.source, on_cancel=OnCancel.ABANDON)
    if file is None:
        return
    for number, asked in enumerate(await run_in_thread(_read_warm_up, file, on_cancel=OnCancel.ABANDON)):
        logger.info("%s: warm-up request %d", version, number + 1)
        served = hosted.served(asked)
        await served.call(*asked.values(served.inputs, served.input_dtypes))


def _read_warm_up(file: Path) -> list[Any]:
    fields = bodies.json_object(file.read_bytes())
    bodies.check_fields(fields, frozenset({"requests"}), str(file))
    return [read_json(json.dumps(request).encode(), None) for request in fields.get("requests", ())]
