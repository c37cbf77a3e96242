"""Running one conformance case in a session, step by step, and saying what was wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

import aexec
from aexec.framework import errors
from aexec.hosting import canonical_name
from tests.conformance.cases import Case, decode, mismatches

# The answers were recorded at the level of TensorFlow's C API, which takes any shape for a feed.  Only this case makes
# use of it; in the others, plans may count on the shapes that placeholders declare.
ANY_SHAPE = "errors.feed_shape_is_not_checked"


class MismatchError(AssertionError):
    """The case did not go as TensorFlow's run of it did."""


async def run_case(case: Case, folder: Path) -> None:
    """Run a case; raises MismatchError with what differed, or whatever unexpected error came."""
    case.extract_files(folder)
    wanted = case.description.get("create_error")
    try:
        graph = aexec.Graph.from_bytes(case.read(case.description.get("graph", "graph.pb")))
        config = aexec.SessionConfig(check_feed_shapes=case.folder != ANY_SHAPE)
        session = await aexec.Session(graph, config=config)
    except errors.OpError as error:
        first = case.steps[0].get("error") if case.steps else None
        _check_error(error, wanted or first)
        if not wanted and any("error" not in step for step in case.steps):
            raise MismatchError(f"the graph was refused, though one of its steps succeeds: {error.message}") from error
        return
    try:
        if wanted:
            raise MismatchError(f"the session was made, expected {wanted['code']}: {wanted['message'][:200]}")
        await _Run(case, session, folder).steps()
    finally:
        await session.close()


class _Run:
    def __init__(self, case: Case, session: aexec.Session, folder: Path) -> None:
        self.case = case
        self.session = session
        self.folder = folder
        self.fetched: dict[int, list[Any]] = {}
        self.background: dict[int, asyncio.Task[None]] = {}
        self.partial: dict[str, Any] = {}
        self.groups: dict[str, list[tuple[dict[str, Any], Any]]] = {}

    async def steps(self) -> None:
        for number, step in enumerate(self.case.steps):
            if step.get("background"):
                self.background[number] = asyncio.create_task(self._step(number, step))
                for _ in range(10):  # let it get as far as it can before the next step
                    await asyncio.sleep(0)
            else:
                await self._step(number, step)
            for joined in step.get("join", ()):
                await asyncio.wait_for(self.background.pop(joined), 20)
        for task in self.background.values():
            task.cancel()
            await asyncio.wait([task])
        self._check_multisets()

    async def _step(self, number: int, step: dict[str, Any]) -> None:
        wanted = step.get("error")
        try:
            values = await self._run(step)
        except errors.OpError as error:
            _check_error(error, wanted, f"step {number}: ")
            return
        if wanted and "OK" not in wanted.get("accept", ()):
            raise MismatchError(f"step {number} succeeded, expected {wanted['code']}: {wanted['message'][:200]}")
        self.fetched[number] = values
        if wanted:
            return
        problems = list(mismatches(self.case, step["expected"], values))
        if problems:
            raise MismatchError(f"step {number}: " + "; ".join(problems))
        for entry, value in zip(step["expected"], values, strict=True):
            if entry["compare"] == "multiset":
                # Without a group an entry is one of its own.
                self.groups.setdefault(entry.get("group", entry["key"]), []).append((entry, value))

    async def _run(self, step: dict[str, Any]) -> list[Any]:
        if "extend" in step:
            await self.session.extend(self.case.read(step["extend"]))
        if "partial_setup" in step:
            setup = step["partial_setup"]
            self.partial[setup["handle"]] = await self.session.partial_run_setup(
                setup["fetches"], setup["feeds"], setup.get("targets", ())
            )
            return []
        feeds = self._feeds(step)
        fetches = step.get("fetches", [])
        if "partial" in step:
            return await self.session.partial_run(self.partial[step["partial"]], fetches, feeds)
        timeout = step.get("timeout_ms")
        options = aexec.RunOptions(timeout=timeout / 1000) if timeout else None
        if not fetches and not step.get("targets") and "extend" in step and not step.get("expected"):
            return []
        # Requests name outputs only; a name that is no output must be refused as TensorFlow refuses it.
        tensors = [canonical_name(name) for name in fetches]
        call = self.session.make_callable(tensors, feeds, step.get("targets", ()), options)
        return await call(*feeds.values())

    def _feeds(self, step: dict[str, Any]) -> dict[str, Any]:
        feeds: dict[str, Any] = {}
        for feed in step.get("feeds", ()):
            name = feed["name"]
            if name in feeds:
                name = name.removesuffix(":0")  # fed twice on purpose, under both its names
            feeds[name] = self._value(feed)
        return feeds

    def _value(self, feed: dict[str, Any]) -> Any:
        if "from" in feed:
            value = self.fetched[feed["from"]["step"]][feed["from"]["fetch"]]
            return value
        if "file" in feed:
            return str(self.folder / feed["file"]).encode()
        if "tmp" in feed:
            return str(self.folder / "tmp" / feed["tmp"]).encode()
        return decode(self.case.feeds, feed["key"], feed["dtype"])

    def _check_multisets(self) -> None:
        for group, members in self.groups.items():
            got: list[Any] = []
            want: list[Any] = []
            for entry, value in members:
                expected = decode(self.case.expected, entry["key"], entry["dtype"])
                got.extend(_rows(np.asarray(value), entry["rows"]))
                want.extend(_rows(expected, entry["rows"]))
            if sorted(got) != sorted(want):
                raise MismatchError(f"group {group}: rows {sorted(got)[:5]}, expected {sorted(want)[:5]}")


def _rows(array: Any, kind: str) -> list[Any]:
    rows = array.ravel() if kind == "element" else array
    return [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]


def _check_error(error: errors.OpError, wanted: dict[str, Any] | None, where: str = "") -> None:
    if wanted is None:
        raise MismatchError(f"{where}unexpected {error.code.name}: {error}") from error
    accepted = wanted.get("accept") or [wanted["code"]]
    if error.code.name not in accepted:
        raise MismatchError(
            f"{where}{error.code.name}: {error.message}, expected {' or '.join(accepted)}: {wanted['message'][:200]}"
        ) from error
