"""Models served by the workers of a cluster: several front ends, hot swap, workers that die and come."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from aexec_server.settings.model_source import ModelSource

from aexec.distributed.memory_engine import MemoryCluster
from tests.server.conftest import Api, Start, small_graph
from tests.server.models.test_models import add_version, ask, loaded, times
from tests.support.waiting import until

CLUSTER = "memory://serving"


def sessions(cluster: MemoryCluster) -> list[int]:
    """How many are open at each worker."""
    return [len(worker.sessions) for worker in cluster.workers.values()]


async def test_front_ends_serve_from_one_cluster_and_swap_versions(start: Start, tmp_path: Path) -> None:
    add_version(tmp_path / "m", 1)
    async with MemoryCluster("serving", 2, lease=60) as cluster:
        settings = {
            "cluster": CLUSTER,
            "models": {"m": ModelSource(tmp_path / "m")},
            "graphs": {"g": _file(tmp_path)},
            "repository_poll_seconds": 0.05,
        }
        apis = [await start(**settings) for _ in range(2)]
        for api in apis:
            await loaded(api)
        assert sessions(cluster) == [4, 4]
        assert (await apis[0].raw("GET", "/metrics"))[0].status == 200
        assert [await ask(api) for api in apis] == [(200, 1)] * 2
        assert [await ask(api, "g") for api in apis] == [(200, 7)] * 2
        asking = [asyncio.create_task(_ask_until(api, 2)) for api in apis]
        add_version(tmp_path / "m", 2)
        assert [set(await answers) for answers in asking] == [{(200, 1), (200, 2)}] * 2, "none failed"
        await until(lambda: sessions(cluster) == [4, 4])
        # A client's own session is not on the cluster.
        await apis[0].create(small_graph())
        assert sessions(cluster) == [4, 4]
        cluster.kill("worker-0")
        assert [await ask(api) for api in apis * 3] == [(200, 2)] * 6
        for api in apis:
            await api.client.close()
        assert sessions(cluster) == [0]


async def _ask_until(api: Api, wanted: int) -> list[tuple[int, Any]]:
    answers = [await ask(api)]
    while answers[-1][1] != wanted:
        answers.append(await ask(api))
    return answers


def _file(folder: Path) -> Path:
    file = folder / "graph.pb"
    file.write_bytes(times(7))
    return file


async def test_cluster_whose_workers_come_later(start: Start, tmp_path: Path) -> None:
    add_version(tmp_path, 1)
    async with MemoryCluster("serving", 0, lease=60) as cluster:
        api = await start(cluster=CLUSTER, models={"m": ModelSource(tmp_path)}, repository_poll_seconds=0.05)
        await until(lambda: api.server.repository.looked)
        assert not api.server.ready and (await ask(api))[0] == 404
        cluster.add_worker()
        await loaded(api)
        assert await ask(api) == (200, 1)
        await api.client.close()
