"""Benchmarks of the HTTP service, for `benchmarks.py`; the server has a process and a core of its own.

* rates of a one-op graph, by a run of a session and by binary inference, against a handler that echoes the same body;
* how long 8 MB take, there and back in binary form, against an echo of these bytes;
* how long a tensor of 1 MB takes in JSON, against `json.loads` and `numpy.asarray`;
* the slowest hundredth of the answers to 32 clients, against the median;
* the rate of one tritonclient, against what it gets of mlserver, if that is installed where `--mlserver` says: the
  folder of a virtual environment with the packages `mlserver` and `tritonclient[http]`; and what processor time the
  servers, and the client itself, take for a request: where the client takes most, it bounds the rates.

    python scripts/http_benchmarks.py serve                     # a server, and one that echoes; prints their ports
    python scripts/http_benchmarks.py load PORT FILE N SECONDS  # N clients that send this request; prints JSON
    python scripts/http_benchmarks.py triton PORT SECONDS       # one tritonclient; prints a rate, and its own seconds
"""

from __future__ import annotations

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
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from benchmark_figure import Figure

SECONDS = 1.0
CLIENTS = 8
_LARGE = 2 * 2**20  # float32 values
_MIDDLE = 2**18

_MODEL = """
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Square(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        x = NumpyCodec.decode_input(payload.inputs[0])
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", np.square(x))])
"""


def measure(repeats: int, mlserver: Path | None = None) -> list[Figure]:
    """Return all figures: medians of ratios measured by turns."""
    with tempfile.TemporaryDirectory() as name, _process(sys.executable, __file__, "serve") as server:
        assert server.stdout is not None
        port, echo_port = map(int, server.stdout.readline().split())
        folder = Path(name)
        figures = [
            *_rates(port, echo_port, folder, repeats),
            *_tensors(port, echo_port, repeats),
            _latency(port, folder, repeats),
        ]
        if mlserver is not None:
            figures += _beside_mlserver((port, server.pid), folder, repeats, mlserver)
    return figures


# Processes


@contextlib.contextmanager
def _process(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Context manager: a process that is ended at the end, pinned to a core of its own if there are two."""
    pinned = ["taskset", "-c", "0"] if (os.cpu_count() or 1) > 1 and Path("/usr/bin/taskset").exists() else []
    options.setdefault("stdout", subprocess.PIPE)
    with subprocess.Popen([*pinned, *map(str, command)], text=True, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


def _said(*command: str | Path) -> str:
    """Return the output of a process that runs on another core than the server."""
    pinned = ["taskset", "-c", "1"] if (os.cpu_count() or 1) > 1 and Path("/usr/bin/taskset").exists() else []
    return subprocess.run([*pinned, *map(str, command)], stdout=subprocess.PIPE, text=True, check=True).stdout


# Requests


def _request(path: str, body: bytes, json_length: int | None = None) -> bytes:
    more = "" if json_length is None else f"Inference-Header-Content-Length: {json_length}\r\n"
    start = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{start}{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _infer(model: str, values: np.ndarray) -> bytes:
    tensor = {"name": "x", "shape": list(values.shape), "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": values.nbytes}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return _request(f"/v2/models/{model}/infer", head + values.tobytes(), len(head))


def _loaded(port: int, folder: Path, request: bytes, clients: int) -> dict[str, float]:
    file = folder / "request"
    file.write_bytes(request)
    return dict(json.loads(_said(sys.executable, __file__, "load", str(port), file, str(clients), str(SECONDS))))


def _rates(port: int, echo_port: int, folder: Path, repeats: int) -> Iterator[Figure]:
    run = json.dumps({"feeds": {"x:0": [1.0, 2.0, 3.0]}, "fetches": ["y:0"]}).encode()
    infer = _infer("square", np.ones(3, np.float32))
    requests = {
        "run": (_request("/v1/sessions/square:run", run), _request("/echo", run)),
        "binary inference": (infer, _request("/echo", infer.partition(b"\r\n\r\n")[2])),
    }
    for what, (asked, echo) in requests.items():
        pairs = [
            (_loaded(port, folder, asked, CLIENTS)["rate"], _loaded(echo_port, folder, echo, CLIENTS)["rate"])
            for _ in range(repeats)
        ]
        rate, base = (statistics.median(one) for one in zip(*pairs, strict=True))
        yield Figure(f"{what} of a one-op graph", rate, "requests/s", base)
        share = 100 * statistics.median(a / b for a, b in pairs)
        yield Figure(f"{what} as share of the echo", share, "%", None, ">= 60", share >= 60)


def _latency(port: int, folder: Path, repeats: int) -> Figure:
    request = _infer("square", np.ones(3, np.float32))
    loads = [_loaded(port, folder, request, 32) for _ in range(repeats)]
    ratio = statistics.median(load["p99"] / load["p50"] for load in loads)
    p50, p99 = (1e3 * statistics.median(load[p] for load in loads) for p in ("p50", "p99"))
    return Figure("99th percentile of 32 clients", p99, "ms", p50, f"<= 4: {ratio:.2f}", ratio <= 4)


def _seconds(connection: socket.socket, request: bytes, buffer: bytearray) -> float:
    began = time.perf_counter()
    connection.sendall(request)
    view, end, have = memoryview(buffer), None, 0
    while end is None or have < end:
        got = connection.recv_into(view[have:])
        if not got:
            raise AssertionError(f"the server closed the connection after {bytes(buffer[:have])[:300]!r}")
        have += got
        if end is None:
            head, found, _ = bytes(buffer[: min(have, 4096)]).partition(b"\r\n\r\n")
            if found:
                if b" 200 " not in head[:20]:
                    raise AssertionError(bytes(buffer[:have]).decode(errors="replace")[:500])
                length = head.lower().partition(b"\ncontent-length:")[2].partition(b"\r")[0]
                end = len(head) + 4 + int(length)
    return time.perf_counter() - began


def _tensors(port: int, echo_port: int, repeats: int) -> Iterator[Figure]:
    large = _infer("same", np.random.default_rng(0).random(_LARGE, np.float32))
    echo = _request("/echo", large.partition(b"\r\n\r\n")[2])
    values = np.random.default_rng(0).random(_MIDDLE, np.float32)
    tensor = {"name": "x", "shape": [_MIDDLE], "datatype": "FP32", "data": values.tolist()}
    text = json.dumps({"inputs": [tensor]}).encode()
    as_json = _request("/v2/models/sum/infer", text)
    buffer = bytearray(len(large) + 4096)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
        socket.create_connection(("127.0.0.1", echo_port), timeout=60) as echoing,
    ):
        pairs, others = [], []
        for number in range(3 * repeats + 3):
            pair = _seconds(connection, large, buffer), _seconds(echoing, echo, buffer)
            asked = _seconds(connection, as_json, buffer)
            began = time.perf_counter()
            np.asarray(json.loads(text)["inputs"][0]["data"], np.float32)
            if number >= 3:  # the first runs are not warm
                pairs.append(pair)
                others.append((asked, time.perf_counter() - began))
    for name, found, most in (("8 MB there and back", pairs, 1.3), ("1 MB in JSON", others, 1.5)):
        ratio = statistics.median(a / b for a, b in found)
        seconds, base = (1e3 * statistics.median(one) for one in zip(*found, strict=True))
        yield Figure(name, seconds, "ms", base, f"<= {most}: {ratio:.2f}", ratio <= most)


# Beside mlserver


@contextlib.contextmanager
def _mlserver(environment: Path, folder: Path) -> Iterator[tuple[int, int]]:
    """Context manager: start mlserver; gives its port and process id."""
    ports = _free_ports(3)
    settings = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
    (folder / "square_runtime.py").write_text(_MODEL)
    (folder / "settings.json").write_text(json.dumps(settings | {"host": "127.0.0.1", "parallel_workers": 0}))
    (folder / "model-settings.json").write_text(
        json.dumps({"name": "square", "implementation": "square_runtime.Square"})
    )
    variables = os.environ | {"PYTHONPATH": str(folder)}
    with (
        (folder / "log").open("w") as log,
        _process(environment / "bin" / "mlserver", "start", folder, env=variables, stdout=log, stderr=log) as process,
    ):
        for _ in range(600):
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/v2/models/square/ready", timeout=5).close()
                break
            if process.poll() is not None:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.1)
        yield ports[0], process.pid


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def _beside_mlserver(ours: tuple[int, int], folder: Path, repeats: int, environment: Path) -> Iterator[Figure]:
    """Compare rates, and processor seconds of the servers, which the client's load does not affect.

    Args:
        ours: port and process id of our server.
    """
    python = environment / "bin" / "python"

    def asked(port: int, pid: int) -> tuple[float, float, float]:
        """Return requests per second, and the processor seconds per request of the server and of the client."""
        before = processor_seconds(pid)
        rate, client, count = map(float, _said(python, __file__, "triton", str(port), str(SECONDS)).split())
        return rate, (processor_seconds(pid) - before) / count, client / count

    with _mlserver(environment, folder) as theirs:
        pairs = [(asked(*ours), asked(*theirs)) for _ in range(repeats)]
    (rate, seconds, client), (their_rate, their_seconds, _) = (
        [statistics.median(values) for values in zip(*one, strict=True)] for one in zip(*pairs, strict=True)
    )
    ratio = statistics.median(a[0] / b[0] for a, b in pairs)
    yield Figure("tritonclient, beside mlserver", rate, "requests/s", their_rate, f">= 3: {ratio:.2f}", ratio >= 3)
    yield Figure("time of the server for its request", 1e6 * seconds, "us", 1e6 * their_seconds)
    yield Figure("time of the client for it", 1e6 * client, "us", None)


def processor_seconds(pid: int) -> float:
    """Return the processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# The other processes


def _serve() -> None:
    import uvloop
    from aexec_server import ServerConfig, run_server
    from aiohttp import web

    import aexec

    def graph(op: Any) -> Any:
        with aexec.Graph() as made:
            op(aexec.placeholder("float32", [None], name="x"), name="y")
        return made

    graphs = {
        "square": graph(aexec.ops.square),
        "same": graph(aexec.ops.identity),
        "sum": graph(lambda x, name: aexec.ops.sum(x, [0], name=name)),
    }

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")

    async def serve() -> None:
        plain = web.Application(client_max_size=2**30)
        plain.router.add_post("/echo", echo)
        runner = web.AppRunner(plain, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        echo_port = runner.addresses[0][1]

        def say(address: str) -> None:
            print(address.rpartition(":")[2], echo_port, flush=True)

        await run_server(ServerConfig(graphs=graphs, port=0), on_ready=say)

    uvloop.run(serve())


class _Client(asyncio.Protocol):
    """A client that sends its next request as soon as it is answered."""

    def __init__(self, request: bytes, end: float, seconds: list[float], ended: asyncio.Event) -> None:
        self._request, self._end, self._seconds, self._ended = request, end, seconds, ended
        self._data = b""
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._data = b""
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"\ncontent-length:")[2].partition(b"\r")[0]):
            return
        if head[9:12] != b"200":
            raise AssertionError(self._data.decode(errors="replace")[:500])
        now = time.perf_counter()
        self._seconds.append(now - self._began)
        if now < self._end:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()


def _load(port: int, request: bytes, clients: int, seconds: float) -> None:
    import uvloop

    async def load() -> list[float]:
        took: list[float] = []
        end = time.perf_counter() + seconds
        ended = [asyncio.Event() for _ in range(clients)]
        loop = asyncio.get_running_loop()
        for event in ended:
            await loop.create_connection(lambda e=event: _Client(request, end, took, e), "127.0.0.1", port)  # type: ignore[misc]
        await asyncio.gather(*(event.wait() for event in ended))
        return took

    began = time.perf_counter()
    took = uvloop.run(load())
    rate = len(took) / (time.perf_counter() - began)
    p50, p99 = np.percentile(took, [50, 99])
    print(json.dumps({"rate": rate, "p50": p50, "p99": p99}))


def _triton(port: int, seconds: float) -> None:
    import tritonclient.http.aio as triton

    values = np.ones(3, np.float32)
    headers = {"Content-Type": "application/json"}

    async def ask(client: triton.InferenceServerClient) -> None:
        tensor = triton.InferInput("x", [3], "FP32")
        # In JSON, with the type given: mlserver cannot read binary tensors without one, as this client sends them.
        tensor.set_data_from_numpy(values, binary_data=False)
        wanted = triton.InferRequestedOutput("y", binary_data=False)
        answer = await client.infer("square", [tensor], outputs=[wanted], headers=headers)
        assert answer.as_numpy("y").ravel().tolist() == [1, 1, 1]

    async def ask_all() -> tuple[float, float, int]:
        async with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
            await ask(client)
            began, own = time.perf_counter(), time.process_time()
            count = 0

            async def ask_on() -> None:
                nonlocal count
                while time.perf_counter() < began + seconds:
                    await ask(client)
                    count += 1

            await asyncio.gather(*(ask_on() for _ in range(CLIENTS)))
            return count / (time.perf_counter() - began), time.process_time() - own, count

    print(*asyncio.run(ask_all()))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            _serve()
        case ["load", port, file, clients, seconds]:
            _load(int(port), Path(file).read_bytes(), int(clients), float(seconds))
        case ["triton", port, seconds]:
            _triton(int(port), float(seconds))
        case _:
            print(__doc__, file=sys.stderr)
            sys.exit(2)
