"""The group `ways`: what each way of running a node gains, on models that people run.

docs/how-a-node-runs.md lists the ways.  One that gains a tenth on no model does not pay for its code.  Each row runs
one model with the way and without it, by turns in one process, and gives medians of the ratios of neighbouring turns:

* in a thread: a compiled plan that continues in a thread, against the interpreter, which runs the plan without it, and
  which a session returns to after a trial where it is faster: here no trial is lost;
* at once: a run of a short line without a `Step`, against the same line in a step;
* direct: a POST that is answered where its bytes are read, against aiohttp's handler, in processor time of the server;
* relay: the front of two session hosts, against a proxy made of aiohttp's server and client before one process, in
  processor time of all processes of the server and the proxy.

Captured regions need a GPU: `scripts/gpu-check` has their rows.

    python scripts/way_benchmarks.py            prints the table as Markdown, from three independent rounds
    python scripts/way_benchmarks.py proxy URL  a proxy; prints its port
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest import mock

import aiohttp
import uvloop
from aiohttp import web
from benchmark_figure import Figure
from model_benchmarks import facts
from models import Model, zoo
from training_models import TrainedModel, training_zoo

import aexec
from aexec.runtime.plans.trial import Trial
from aexec.runtime.session.session_steps import SessionSteps

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support.server_process import ServerProcess
from tests.support.watcher import process_tree

__all__ = ["Gain", "figures", "measure"]

# The gain from which a way is worth its code.
LEAST_GAIN = 0.1
# The most runs before those that are measured; and after how many runs the session's choice counts as settled, if none
# has changed it: by then a trial has ended.
_WARM_UP = 130
_SETTLED = 12
_TURN_SECONDS = 0.01
_REQUESTS = 300

AnyModel = Model | TrainedModel
# Returns (seconds, processor seconds) of one run.
Turn = Callable[[], Awaitable[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Gain:
    """What a way gains on one model.

    Attributes:
        way: its name.
        model: the title of the model.
        seconds: of a run with the way, the median; None where only processor time counts.
        wall: seconds without the way ÷ seconds with it, the median of pairs; None as above.
        best: the same of the fastest turns, which other processes have held up least; None as above.
        processor: the same of processor seconds, the median of pairs.
    """

    way: str
    model: str
    seconds: float | None
    wall: float | None
    best: float | None
    processor: float

    @property
    def factor(self) -> float:
        """The ratio that counts: of seconds, or else of processor seconds."""
        return self.processor if self.wall is None else self.wall


async def measure(pairs: int, *, small: bool = False, ways: Iterable[str] = ()) -> list[Gain]:
    """Return the gains of one round.

    Args:
        pairs: how many pairs of turns each ratio is the median of.
        small: whether tiny models are enough, to see that it runs.
        ways: names of ways; all by default.
    """
    found: list[Gain] = []
    wanted = set(ways) or set(WAYS)
    for name, way in WAYS.items():
        if name in wanted:
            found += [gain async for gain in way(pairs, small)]
    return found


async def figures(pairs: int, *, small: bool) -> list[Figure]:
    """Return the gains as figures of `scripts/bench`: times as fast as without the way."""
    return [
        Figure(f"{gain.way}: {gain.model}", gain.factor, "x without it", 1.0, f">= {1 + LEAST_GAIN:g} somewhere")
        for gain in await measure(pairs, small=small)
    ]


class _Compared(NamedTuple):
    """The measured part of a `Gain`."""

    seconds: float
    wall: float
    best: float
    processor: float


async def _compared(first: Turn, second: Turn, pairs: int) -> _Compared:
    """Compare `second`, which lacks the way, with `first`, which has it; the order changes from pair to pair."""
    with_it, without = [], []
    for number in range(pairs):
        if number % 2:
            without.append(await second())
            with_it.append(await first())
        else:
            with_it.append(await first())
            without.append(await second())
    wall, processor = (
        statistics.median(after[i] / before[i] for before, after in zip(with_it, without, strict=True)) for i in (0, 1)
    )
    best = min(seconds for seconds, _ in without) / min(seconds for seconds, _ in with_it)
    return _Compared(statistics.median(seconds for seconds, _ in with_it), wall, best, processor)


def _turn(run: Callable[[], Awaitable[object]], number: int) -> Turn:
    async def turn() -> tuple[float, float]:
        began, worked = time.perf_counter(), time.process_time()
        for _ in range(number):
            await run()
        return (time.perf_counter() - began) / number, (time.process_time() - worked) / number

    return turn


# In this process


@contextlib.asynccontextmanager
async def _called(model: AnyModel, **config: Any) -> AsyncIterator[tuple[Callable[[], Awaitable[object]], str]]:
    """Context manager: a warm call of the model, and how it is executed."""
    settings = aexec.SessionConfig(delegates=(), **config)
    async with aexec.Session(aexec.Graph.from_bytes(model.graph_def), config=settings) as session:
        if model.initialize:
            await session.run([], targets=[model.initialize])
        feeds = [f"{name}:0" for name in model.feeds]
        call = session.make_callable([f"{name}:0" for name in model.outputs], feeds, list(model.targets))
        values = tuple(model.feeds.values())
        unchanged = 0
        for number in range(_WARM_UP):
            before = str(session.explain(call))
            await call(*values)
            await asyncio.sleep(0.001)  # plans are compiled meanwhile
            unchanged = unchanged + 1 if str(session.explain(call)) == before else 0
            if number > 2 * _SETTLED and unchanged >= _SETTLED:
                break
        yield lambda: call(*values), str(session.explain(call))


async def _number(run: Callable[[], Awaitable[object]]) -> int:
    return max(1, round(_TURN_SECONDS / (await _turn(run, 3)())[0]))


async def _in_thread(pairs: int, small: bool) -> AsyncIterator[Gain]:
    for model in cast("list[AnyModel]", [*zoo(small=small), *training_zoo(small=small)]):
        with mock.patch.object(Trial, "is_lost", new=False):
            async with _called(model) as (run, how):
                if "in a thread" not in how:
                    continue
                async with _called(model, compile_plans=False) as (interpret, _):
                    number = await _number(run)
                    compared = await _compared(_turn(run, number), _turn(interpret, number), pairs)
                yield Gain("in a thread", _title(model), *compared)


async def _at_once(pairs: int, small: bool) -> AsyncIterator[Gain]:
    for model in zoo(small=small):
        async with _called(model) as (run, how):
            if "at once" not in how.partition(":")[0]:
                continue
            number = await _number(run)
            ordinary = _turn(run, number)

            async def in_a_step(ordinary: Turn = ordinary) -> tuple[float, float]:
                # A mock with a return value would take longer than a step.
                with mock.patch.object(SessionSteps, "_begin_line", lambda *_: None):  # noqa: PT008
                    return await ordinary()

            yield Gain("at once", _title(model), *await _compared(ordinary, in_a_step, pairs))


def _title(model: AnyModel) -> str:
    return f"{model.title}, a step of training" if isinstance(model, TrainedModel) else model.title


# Over HTTP


@contextlib.contextmanager
def _server(**options: object) -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), watch=False, **options)
        try:
            yield server
        finally:
            server.stop()


def _processor_seconds(pids: Iterable[int]) -> float:
    """Return the processor seconds of all threads of these processes and their children, in nanoseconds' steps."""
    total = 0
    for root in pids:
        for pid in process_tree(root):
            for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):
                    total += int(file.read_text().split()[0])
    return total / 1e9


def _request(path: str, feeds: dict[str, Any], more: str = "") -> bytes:
    body = json.dumps({"feeds": feeds, "fetches": ["y:0"]}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _asked(port: int, request: bytes, pids: Iterable[int], number: int = _REQUESTS) -> Turn:
    """Return a turn that sends the request so many times over one connection."""

    def ask() -> tuple[float, float]:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, connection.makefile("rb") as file:
            _ask(connection, file, request)  # opens what is opened at the first one
            began, worked = time.perf_counter(), _processor_seconds(pids)
            for _ in range(number):
                _ask(connection, file, request)
            return (time.perf_counter() - began) / number, (_processor_seconds(pids) - worked) / number

    async def turn() -> tuple[float, float]:
        return ask()

    return turn


def _ask(connection: socket.socket, file: Any, request: bytes) -> None:
    connection.sendall(request)
    status, length = file.readline(), 0
    while (line := file.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    body = file.read(length)
    if b" 200 " not in status:
        raise RuntimeError(f"{status!r} {body[:300]!r}")


def _square() -> bytes:
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [None], name="x"), name="y")
    return graph.to_bytes()


def _served(small: bool) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Yield title, graph and feeds of what is served."""
    yield "one op", _square(), {"x:0": [1.0, 2.0, 3.0]}
    model = next(model for model in zoo(small=small) if model.name == "transformer")
    yield model.title, model.graph_def, {f"{name}:0": value.tolist() for name, value in model.feeds.items()}


async def _direct(pairs: int, small: bool) -> AsyncIterator[Gain]:
    with _server() as server:
        path = f"/v1/sessions/{server.create(_square())}:run"
        # A header that direct runs do not accept makes the request an ordinary one.
        turns = [
            _asked(server.port, _request(path, {"x:0": [1.0, 2.0, 3.0]}, more), [server.pid])
            for more in ("", "X-Ordinary: yes\r\n")
        ]
        for turn in turns:
            await turn()
        compared = await _compared(turns[0], turns[1], pairs)
        yield Gain("direct", "POST of one op", None, None, None, compared.processor)


async def _relay(pairs: int, small: bool) -> AsyncIterator[Gain]:
    with _server(hosts=2) as hosted, _server() as alone, _proxy(alone.port) as (proxy, port):
        for title, graph, feeds in _served(small):
            number = _REQUESTS if title == "one op" else 5
            turns = [
                _asked(at, _request(f"/v1/sessions/{server.create(graph)}:run", feeds), pids, number)
                for server, at, pids in (
                    (hosted, hosted.port, [hosted.pid]),
                    (alone, port, [alone.pid, proxy]),
                )
            ]
            for turn in turns * (1 if number == _REQUESTS else 5):
                await turn()
            compared = await _compared(turns[0], turns[1], pairs)
            yield Gain("relay", f"POST of {title}", None, None, None, compared.processor)


@contextlib.contextmanager
def _proxy(port: int) -> Iterator[tuple[int, int]]:
    """Context manager: a proxy before a server; its process id and port."""
    command = [sys.executable, __file__, "proxy", f"http://127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


async def _serve_proxy(url: str) -> None:
    """Pass requests on to `url`, and their answers back, until the process is ended."""
    async with aiohttp.ClientSession(auto_decompress=False) as client:

        async def pass_on(request: web.Request) -> web.Response:
            body = await request.read()
            async with client.request(
                request.method, url + request.raw_path, data=body, headers=request.headers
            ) as answer:
                kept = {name: text for name, text in answer.headers.items() if name.lower() != "content-length"}
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)

        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


WAYS: dict[str, Callable[[int, bool], AsyncIterator[Gain]]] = {
    "in a thread": _in_thread,
    "at once": _at_once,
    "direct": _direct,
    "relay": _relay,
}


# The table


def _markdown(rounds: list[list[Gain]]) -> str:
    lines = [
        "| way | model | ms with it | times as long without it | the fastest turns | in processor time |",
        "|---|---|---|---|---|---|",
    ]
    by_row: dict[tuple[str, str], list[Gain]] = {}
    for gains in rounds:
        for gain in gains:
            by_row.setdefault((gain.way, gain.model), []).append(gain)
    for (way, model), gains in by_row.items():
        seconds = [gain.seconds for gain in gains if gain.seconds is not None]
        taken = f"{1e3 * statistics.median(seconds):.3g}" if seconds else ""
        ratios = ([gain.wall for gain in gains], [gain.best for gain in gains], [gain.processor for gain in gains])
        lines.append(f"| {way} | {model} | {taken} | {' | '.join(map(_all_rounds, ratios))} |")
    return "\n".join(lines)


def _all_rounds(ratios: Iterable[float | None]) -> str:
    return " / ".join(f"{ratio:.2f}" for ratio in ratios if ratio is not None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", help=f"any of {', '.join(WAYS)}; default all")
    parser.add_argument("--rounds", type=int, default=3, help="independent rounds (default %(default)s)")
    parser.add_argument("--pairs", type=int, default=21, help="pairs of turns in a round (default %(default)s)")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that all of it runs")
    arguments = parser.parse_args()
    rounds = []
    for _ in range(arguments.rounds):
        rounds.append(uvloop.run(measure(arguments.pairs, small=arguments.small, ways=arguments.ways)))
        print(_markdown(rounds), file=sys.stderr, flush=True)
    for name, text in facts(os.cpu_count() or 1, "uvloop").items():
        print(f"- {name}: {text}")
    print()
    print(_markdown(rounds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["proxy"]:
        uvloop.run(_serve_proxy(sys.argv[2]))
    else:
        main()
