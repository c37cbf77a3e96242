"""`StoreOpening`: opens a store at once, or as soon as the server that uses it has given it up.

A server that takes a port over (`reuse_port`) listens before the old one has ended.  Until it has the store, it looks
sessions up in the database, which it only reads, and lets requests for them wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from aexec import errors
from aexec_server.durable.folder_lock import SuccessorLock, has_successor
from aexec_server.durable.state_database import DATABASE
from aexec_server.durable.state_errors import StoreInUseError
from aexec_server.durable.state_store import StateStore, read_facts, read_facts_of_operation
from aexec_server.durable.stored_session import SessionFacts
from aexec_server.http.not_begun import HandedOverError

__all__ = ["StoreOpening", "give_up_when_wanted"]

logger = logging.getLogger(__name__)

Ask = Callable[..., sqlite3.Cursor]

_POLL_SECONDS = 0.02
# How long a request waits for the store.
_MOST_SECONDS = 30.0


class StoreOpening:
    """Opens a store, and tells when it is open.

    Args:
        store: the store.
        then: called once it is open, before anybody is told.
        waits: True to wait for it while another server uses it.

    Attributes:
        done: True once it is open.
    """

    def __init__(self, store: StateStore, then: Callable[[], Awaitable[None]], *, waits: bool) -> None:
        self.done = False
        self._store = store
        self._then = then
        self._waits = waits
        self._ended = asyncio.Event()
        self._error: errors.OpError | None = None
        self._waiting: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Open the store, or begin to wait for it.  Raises StateStoreError."""
        try:
            await self._open()
        except StoreInUseError:
            if not self._waits:
                raise
            lock = SuccessorLock(self._store.folder)
            logger.info("durable sessions wait until the server that has the store %s is stopped", self._store.folder)
            self._waiting = asyncio.create_task(self._open_later(lock), name="take the store over")

    async def _open(self) -> None:
        await self._store.open()
        await self._then()
        self.done = True
        self._ended.set()

    async def _open_later(self, lock: SuccessorLock) -> None:
        try:
            while not self.done:
                try:
                    await self._open()
                except StoreInUseError:
                    await asyncio.sleep(_POLL_SECONDS)
            logger.info("the store %s is open", self._store.folder)
        except errors.OpError as error:
            logger.error("the store is not opened: %s", error.message)
            self._error = error
            self._ended.set()
        finally:
            lock.release()

    async def wait(self) -> None:
        """Return when the store is open.

        Raises:
            HandedOverError: it is not within half a minute.
            StateStoreError: it cannot be opened.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOST_SECONDS):
                await self._ended.wait()
        if self._error is not None:
            raise self._error
        if not self.done:
            raise HandedOverError

    async def find(self, handle: str) -> SessionFacts | None:
        """The facts of a session of the store, which another server may use; None if there is none."""
        return await asyncio.to_thread(self._read, lambda ask: read_facts(ask, handle))

    async def find_of_operation(self, operation_id: str) -> SessionFacts | None:
        """The facts of the session of an operation that the store keeps, as `find`."""
        return await asyncio.to_thread(self._read, lambda ask: read_facts_of_operation(ask, operation_id))

    def _read(self, read: Callable[[Ask], SessionFacts | None]) -> SessionFacts | None:
        path = quote(str((self._store.folder / DATABASE).absolute()))
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                return read(database.execute)
        except sqlite3.Error as error:
            logger.debug("a session cannot be looked up: %s", error)
            return None

    async def close(self) -> None:
        """Wait no more."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])


async def give_up_when_wanted(
    store: StateStore, give_up: Callable[[], Awaitable[None]], is_over: Callable[[], bool]
) -> None:
    """Call `give_up` when another server waits for a store; never if `is_over` is True first."""
    while not has_successor(store.folder):
        if is_over():
            return
        await asyncio.sleep(_POLL_SECONDS)
    await give_up()
