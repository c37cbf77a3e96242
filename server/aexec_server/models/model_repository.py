"""`ModelRepository`: watches where models come from, and loads and unloads what has changed there.

It watches the models of the configuration, each with its versions, and the subfolders of `model_repository`. It polls,
because that works on every file system. A version that could not be loaded, for example because it was still being
copied, is tried again when its files have changed; if the cluster did not answer, at the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from aexec import errors
from aexec.hosting import OnCancel, run_in_thread
from aexec_server.handles import check_model_name
from aexec_server.models.models import ModelRegistry
from aexec_server.settings.model_source import ModelSource, find_versions, fingerprint
from aexec_server.settings.server_config import ServerConfig

__all__ = ["ModelRepository"]

logger = logging.getLogger(__name__)

# The wanted versions with the fingerprints of their files, or the error in finding them.
Fingerprint = tuple[tuple[int, tuple[int, int] | None], ...] | str


class ModelRepository:
    """Watches the files of models, and loads and unloads versions when they change.

    Args:
        config: the server's configuration.
        models: the registry to keep up to date.

    Attributes:
        looked: True once everything that existed at the start has been loaded or has failed.
    """

    def __init__(self, config: ServerConfig, models: ModelRegistry) -> None:
        self._config = config
        self._models = models
        self._seen: dict[str, Fingerprint] = {}
        self._asked = asyncio.Event()
        self.looked = not (config.models or config.model_repository)

    @property
    def ready(self) -> bool:
        """True once everything that existed at the start has been loaded, and every model of the configuration has a
        version that serves.
        """
        return self.looked and all((model := self._models.get(n)) and model.ready for n in self._config.models)

    async def watch(self) -> None:
        """Poll, and look when asked to, until cancelled."""
        while self._config.models or self._config.model_repository:
            await self.look()
            self.looked = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.repository_poll_seconds):
                    await self._asked.wait()
            self._asked.clear()

    def look_soon(self) -> None:
        """Let `watch` look at once."""
        self._asked.set()

    async def sources(self) -> dict[str, ModelSource]:
        """Return all models by name, served or not."""
        return await run_in_thread(self._sources, on_cancel=OnCancel.ABANDON)

    def _sources(self) -> dict[str, ModelSource]:
        sources = dict(self._config.models)
        if self._config.model_repository is not None:
            try:
                for folder in sorted(Path(self._config.model_repository).iterdir()):
                    if folder.is_dir() and not folder.name.startswith("."):
                        sources.setdefault(folder.name, ModelSource(folder))
            except OSError as error:
                logger.error("the model repository cannot be read: %s", error)
        return sources

    async def look(self) -> None:
        """Load what is new or has changed since the last look, and unload what has gone."""
        sources = await self.sources()
        prints = await run_in_thread(
            lambda: {name: _fingerprint(source) for name, source in sources.items()}, on_cancel=OnCancel.ABANDON
        )
        for name in self._seen.keys() - sources.keys():
            logger.info("model %s has gone from the repository", name)
            await self._models.unload(name)
        changed = [name for name, now in prints.items() if self._seen.get(name) != now]
        self._seen = prints
        for name in changed:
            try:
                check_model_name(name)
                await self._models.load(name, sources[name])
            except errors.OpError as error:
                logger.error("model %s: %s", name, error)
                # to be tried again without a change of files: the cluster did not answer
                if isinstance(error, errors.UnavailableError):
                    del self._seen[name]


def _fingerprint(source: ModelSource) -> Fingerprint:
    try:
        found = find_versions(source)
        return tuple((number, fingerprint(found[number])) for number in source.wanted(found))
    except (errors.OpError, OSError) as error:
        return str(error)
