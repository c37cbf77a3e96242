"""New versions of a model under load: no request fails, and memory does not grow."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest

import aexec
from tests.support.server_process import ServerProcess

SIZE = 3000  # 36 MB of weights
REQUEST = json.dumps({"instances": [1, 2]})
CLIENTS = 32


def add_version(folder: Path, number: int, size: int = SIZE) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("int32", [None], name="x")
        weights = np.random.default_rng(number).random((size * size // 4, 4), np.float32)
        aexec.ops.gather(aexec.constant(weights), x, name="y")
    part = folder / f"part{number}"
    part.mkdir(parents=True)
    (part / "model.graphdef").write_bytes(graph.to_bytes())
    (folder / "m").mkdir(exist_ok=True)
    part.rename(folder / "m" / str(number))


class Clients:
    """Threads that ask for predictions until they are told to stop.

    Attributes:
        answers: how many there were of each status.
    """

    def __init__(self, server: ServerProcess, count: int) -> None:
        self.answers: dict[int, int] = {}
        self._server = server
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=100)
        while not self._stopped.is_set():
            connection.request("POST", "/v1/models/m:predict", REQUEST)
            response = connection.getresponse()
            response.read()
            with self._lock:
                self.answers[response.status] = self.answers.get(response.status, 0) + 1
            if response.status == 429:  # a busy machine: loading has held the event loop, which takes no more then
                self._stopped.wait(float(response.headers["Retry-After"]))
        connection.close()


@pytest.fixture(params=[0, 2], ids=["no hosts", "two hosts"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    models = tmp_path / "models"
    add_version(models, 1)
    options = {"model": f"m={models}/m", "repository_poll": "200ms", "queue_timeout": "60s"}
    server = ServerProcess(tmp_path, watch=False, hosts=request.param, **options)
    yield server, models
    server.stop()


def serves(server: ServerProcess, number: int) -> bool:
    return server.call("GET", f"/v2/models/m/versions/{number}/ready").status == 200


@pytest.mark.soak
def test_reloads_under_load_lose_no_request_and_no_memory(serving: tuple[ServerProcess, Path]) -> None:
    server, models = serving
    resident = []
    server.until(lambda: serves(server, 1))
    with Clients(server, CLIENTS) as clients:
        for number in range(2, 62):
            add_version(models, number)
            server.until(lambda number=number: serves(server, number))  # type: ignore[misc]
            server.until(lambda number=number: not serves(server, number - 1))  # type: ignore[misc]
            resident.append(server.resident)
    print({"answers": clients.answers, "MB": [size >> 20 for size in resident]})
    assert clients.answers.keys() <= {200, 429}
    # The last version that was replaced may still be closing.
    server.until(lambda: server.resident <= 1.3 * min(resident[:3]), 10)
