"""`LiveStates`: what streams of events tell, described once for all clients that follow the same.

Descriptions are made on the event loop, one at a time and in pieces.  All of them together take at most a tenth of the
loop's time: if there is much to describe, everybody is told less often.  Next to read: `live_events.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

from aexec_server.http import bodies

__all__ = ["Followed", "LiveState", "LiveStates", "Look", "LookPace"]

T = TypeVar("T")

# States that are younger than this are not described again.
_FRESH_SECONDS = 0.4
# After a description the next one waits for this many times its time.
_REST = 9
_PIECE_SECONDS = 0.001


class LiveState:
    """The latest state of one kind.

    Attributes:
        kind: name of its events.
        mark: what has to change for another event; it lacks what changes by itself, such as ages.
    """

    __slots__ = ("_text", "_what", "kind", "mark")

    def __init__(self, kind: str, what: dict[str, Any], mark: Any) -> None:
        self.kind = kind
        self.mark = mark
        self._what = what
        self._text: str | None = None

    @property
    def text(self) -> str:
        """The event's object as JSON, which is made once."""
        if self._text is None:
            self._text = bodies.encode_json(self._what)
        return self._text


class LookPace:
    """Counts the time that a description takes of the event loop, and lets the loop go on in between.

    Attributes:
        seconds: the time so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = perf_counter()

    async def give_way(self) -> None:
        """Let the loop go on if the last piece has taken long enough."""
        if perf_counter() - self._began > _PIECE_SECONDS:
            await self.without(asyncio.sleep(0))

    async def without(self, waiting: Awaitable[T]) -> T:
        """Wait for something, which takes no time of the loop."""
        self.stop()
        try:
            return await waiting
        finally:
            self._began = perf_counter()

    def stop(self) -> None:
        """Count the time since the last piece began."""
        self.seconds += perf_counter() - self._began


# Describes the present states.
Look = Callable[[LookPace], AsyncIterator[LiveState]]


class Followed:
    """What some clients follow.

    Attributes:
        followers: their number.
    """

    def __init__(self, line: _Line, look: Look) -> None:
        self.followers = 0
        self._line = line
        self._look = look
        self._states: Sequence[LiveState] = ()
        self._seen_at = -_FRESH_SECONDS

    async def states(self) -> Sequence[LiveState]:
        """The states, described at most `_FRESH_SECONDS` ago."""
        if not self._is_fresh():
            async with self._line.turn:
                if not self._is_fresh():  # another follower has described them in the meantime
                    self._states = await self._line.describe(self._look)
                    self._seen_at = asyncio.get_running_loop().time()
        return self._states

    def _is_fresh(self) -> bool:
        return asyncio.get_running_loop().time() - self._seen_at < _FRESH_SECONDS


class _Line:
    """Gives turns to those that describe something: one at a time, with a rest after each."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._rests_until = 0.0

    async def describe(self, look: Look) -> Sequence[LiveState]:
        """Describe states in one's turn."""
        clock = asyncio.get_running_loop().time
        if self._rests_until > clock():
            await asyncio.sleep(self._rests_until - clock())
        pace = LookPace()
        try:
            return [state async for state in look(pace)]
        finally:
            pace.stop()
            self._rests_until = clock() + _REST * pace.seconds


class LiveStates:
    """What is followed, by key; described only while somebody follows it."""

    def __init__(self) -> None:
        self._line = _Line()
        self._followed: dict[Hashable, Followed] = {}

    def __len__(self) -> int:
        """The number of different things that are followed."""
        return len(self._followed)

    @contextmanager
    def following(self, key: Hashable, look: Look) -> Iterator[Followed]:
        """Context manager: follow something.

        Args:
            key: the same for clients that are told the same.
            look: describes it; that of the first follower is used for all.
        """
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = Followed(self._line, look)
        followed.followers += 1
        try:
            yield followed
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._followed[key]
