"""`ModelRepository`: watches where models come from, and loads and unloads what has changed there.

Those are the models of the configuration, each with its versions, and the subfolders of `model_repository`.  It looks
again and again, for that works on every file system; a version that could not be loaded, because it was still being
copied for example, is tried again when its files have changed; if the cluster did not answer, at the next look.
"""

from __future__ import annotations

import asyncio
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

# Each version that is wanted with the fingerprint of its files, or what is wrong with the model.
Fingerprint = tuple[tuple[int, tuple[int, int] | None], ...] | str


class ModelRepository:
    """Watches the files of models, and loads and unloads versions as these change.

    Args:
        config: of the server.
        models: to keep up to date.

    Attributes:
        looked: everything that was there at first has been loaded, or has failed.
    """

    def __init__(self, config: ServerConfig, models: ModelRegistry) -> None:
        self._config = config
        self._models = models
        self._seen: dict[str, Fingerprint] = {}
        self.looked = not (config.models or config.model_repository)

    @property
    def ready(self) -> bool:
        """Has what was there at first been loaded?  A model of the configuration must have a version that serves."""
        return self.looked and all((model := self._models.get(n)) and model.ready for n in self._config.models)

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while self._config.models or self._config.model_repository:
            await self.look()
            self.looked = True
            await asyncio.sleep(self._config.repository_poll_seconds)

    async def sources(self) -> dict[str, ModelSource]:
        """All models that there are, by name, whether they are served or not."""
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
        """Load what is new or has changed since the last look, and unload what is gone."""
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
                if isinstance(error, errors.UnavailableError):  # its files need not change: the cluster has to answer
                    del self._seen[name]


def _fingerprint(source: ModelSource) -> Fingerprint:
    try:
        found = find_versions(source)
        return tuple((number, fingerprint(found[number])) for number in source.wanted(found))
    except (errors.OpError, OSError) as error:
        return str(error)
