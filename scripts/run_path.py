"""Which files of this project one warm run goes through, and how often it goes from one to another.

These are the files that a reader of a run has to open, and the pages to turn. Calls of Python functions in the thread
of the event loop are counted with `sys.setprofile`: by the function's file, and by whether the previous call was in
another file. The shortest of several runs counts, because others may have been delayed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType

import aiohttp
from aexec_server import ServerConfig, make_app
from aexec_server.connections.listening import serve_app

import aexec

ROOT = Path(__file__).parent.parent
_WARM = 30  # runs before those that are counted: by then the plan is compiled
_COUNTED = 15


class RunPath:
    """Counts calls by the file of the function.

    Attributes:
        calls: file → number of calls.
        changes: number of calls whose file differs from that of the previous call.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.changes = 0
        self._last = ""

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Profile function, as `sys.setprofile` takes it."""
        if event != "call":
            return
        file = frame.f_code.co_filename
        if file.startswith(str(ROOT)) and "site-packages" not in file and file != __file__:
            self.calls[file] += 1
            self.changes += file != self._last
            self._last = file

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Context manager: count the calls inside."""
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)


def _graph() -> aexec.Graph:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        aexec.ops.add_v2(aexec.ops.mul(x, 2.0), 1.0, name="y")
    return graph


async def _followed(run: Callable[[], Awaitable[object]]) -> RunPath:
    for _ in range(_WARM):
        await run()
    paths = [RunPath() for _ in range(_COUNTED)]
    for path in paths:
        with path.followed():
            await run()
    return min(paths, key=lambda path: path.calls.total())


async def embedded() -> RunPath:
    """Follow `await session.run("y:0", {"x:0": ...})`."""
    async with aexec.Session(_graph()) as session:
        return await _followed(lambda: session.run("y:0", {"x:0": [1.0, 2.0]}))


async def post(*, direct: bool) -> RunPath:
    """Follow a POST to `/v1/sessions/{handle}:run`, answered where it is read, or by aiohttp."""
    # A header that direct runs do not accept makes the request an ordinary one.
    headers = {} if direct else {"x-ordinary": "yes"}
    body = {"feeds": {"x:0": [1.0, 2.0]}, "fetches": ["y:0"]}
    async with _server() as address, aiohttp.ClientSession(address) as client:
        graph, kind = _graph().to_bytes(), {"content-type": "application/octet-stream"}
        async with client.post("/v1/sessions", data=graph, headers=kind) as made:
            handle = (await made.json())["session_handle"]

        async def run() -> None:
            async with client.post(f"/v1/sessions/{handle}:run", json=body, headers=headers) as answer:
                answer.raise_for_status()
                await answer.read()

        return await _followed(run)


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    """Context manager: a server in this process; gives its address."""
    stop: asyncio.Queue[int] = asyncio.Queue()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_app(make_app(ServerConfig(port=0)), stop, listening.set_result))
    try:
        yield await listening
    finally:
        stop.put_nowait(0)
        await serving


WAYS: dict[str, Callable[[], Awaitable[RunPath]]] = {
    "embedded": embedded,
    "POST, direct": lambda: post(direct=True),
    "POST, ordinary": lambda: post(direct=False),
}


async def _all() -> dict[str, RunPath]:
    return {name: await way() for name, way in WAYS.items()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/run-path", description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files, with the calls made in each")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    arguments = parser.parse_args(argv)
    found = asyncio.run(_all())
    if arguments.json:
        print(json.dumps({name: {"files": len(p.calls), "changes": p.changes} for name, p in found.items()}))
        return
    print(f"{'':16}{'files':>6}{'changes':>9}{'calls':>7}")
    for name, path in found.items():
        print(f"{name:16}{len(path.calls):6}{path.changes:9}{path.calls.total():7}")
        for file, calls in path.calls.items() if arguments.files else ():
            print(f"{calls:8} {Path(file).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
