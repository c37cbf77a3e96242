"""Sessions on Dask distributed, with workers in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import numpy as np
import pytest
import trustme

import aexec
from aexec import errors
from aexec.distributed.cluster_security import ClusterSecurity
from aexec.distributed.cluster_spec import task_name
from aexec.distributed.dask.dask_engine import AexecWorkerPlugin, DaskEngine
from aexec.distributed.opening_cluster_session import OpeningClusterSession
from tests.conformance import runner
from tests.conformance.cases import Case
from tests.conformance.test_passes import complete_cases
from tests.distributed.clusters import chain, on
from tests.distributed.test_dask_wire import listening
from tests.distributed.test_split_conformance import NOT_SPLIT, scatter
from tests.support.programs.graphs import GraphBuilder, counting_loop

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
ROOT = Path(__file__).parents[2]


def test_plugin_is_one_of_dasks() -> None:
    assert issubclass(AexecWorkerPlugin, distributed.WorkerPlugin)


async def on_three_processes() -> None:
    g = chain()
    loop_graph = counting_loop()
    for node in loop_graph.graph_def.node:
        node.device = on({"add": 1, "less": 2}.get(node.name, 0))
    g.graph_def.node.extend(loop_graph.graph_def.node)
    async with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, asynchronous=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        aexec.Session(g.graph(), cluster.scheduler_address.replace("tcp", "dask")) as session,
    ):
        assert isinstance(session.engine, DaskEngine)  # type: ignore[attr-defined]
        x = np.arange(1 << 20, dtype=np.float32)
        np.testing.assert_array_equal(await session.run("n2:0", {"x:0": x}), -x)
        assert await session.run("result:0", {"n:0": 5}) == 5
        address = session.tasks[task_name("worker", 2)].address  # type: ignore[attr-defined]
        (process,) = [w.process.pid for w in cluster.workers.values() if w.worker_address == address]
        began = time.perf_counter()
        os.kill(process, signal.SIGKILL)
        with pytest.raises(errors.UnavailableError, match="/task:2 is lost, which was to run n2"):
            await _run_on(session, x)
        assert time.perf_counter() - began < 1
        assert await session.run("n1:0", {"x:0": [1.0]}) == [1.0]


async def _run_on(session: aexec.Session, x: object) -> None:
    while True:
        await session.run("n2:0", {"x:0": x})


async def on_a_cluster_of_its_own() -> None:
    """`dask://` starts one, which ends with the session."""
    async with aexec.Session(chain(1).graph(), "dask://") as session:
        assert session.devices()
        assert await session.run("n0:0", {"x:0": [1.0]}) == [-1.0]
        (scheduler,) = distributed.Scheduler._instances
    assert scheduler.status.name == "closed"


async def fifty_cases() -> None:
    """Conformance cases of every family, their nodes scattered over three processes."""
    async with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, asynchronous=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        target = cluster.scheduler_address.replace("tcp", "dask")
        with pytest.MonkeyPatch.context() as patch:
            scatter(patch, lambda graph, config: OpeningClusterSession(graph, target, config))
            found = [case for case in complete_cases() if case[1] not in NOT_SPLIT]
            for family, name in found[:: len(found) // 50]:
                with tempfile.TemporaryDirectory() as folder:
                    await runner.run_case(Case.load(family, name), Path(folder))


def certified(folder: Path, authority: trustme.CA) -> dict[str, object]:
    """Settings of Dask's for mutual TLS, with a certificate of an authority for each role."""
    authority.cert_pem.write_to_path(folder / "ca.pem")
    settings: dict[str, object] = {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": str(folder / "ca.pem"),
    }
    for role in ("client", "scheduler", "worker"):
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_and_cert_chain_pem.write_to_path(folder / f"{role}.pem")
        settings |= {f"distributed.comm.tls.{role}.{part}": str(folder / f"{role}.pem") for part in ("cert", "key")}
    return settings


async def by_mutual_tls() -> None:
    """Messages of all kinds go by TLS; who has no certificate of the same authority is refused."""
    with (
        tempfile.TemporaryDirectory() as ours,
        tempfile.TemporaryDirectory() as others,
        dask.config.set(certified(Path(ours), trustme.CA())),
    ):
        async with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, asynchronous=True, dashboard_address=None, silence_logs=50
        ) as cluster:
            protocol, _, where = cluster.scheduler_address.partition("://")
            assert protocol == "tls"
            before = listening()
            async with aexec.Session(chain(2).graph(), f"dask://{where}") as session:
                addresses = [task.address for task in session.tasks.values()]  # type: ignore[attr-defined]
                assert all(address.startswith("tls://") for address in addresses)
                x = np.arange(1 << 20, dtype=np.float32)
                np.testing.assert_array_equal(await session.run("n1:0", {"x:0": x}), x)
                assert listening() == before, "a client listens nowhere"
            required = ClusterSecurity(required=True)
            async with OpeningClusterSession(chain(2).graph(), f"dask://{where}", None, required) as session:
                assert await session.run("n1:0", {"x:0": 3.0}) == 3
            with dask.config.set(certified(Path(others), trustme.CA())):
                await refused(f"dask://{where}")
            with dask.config.set({"distributed.comm.require-encryption": False}):
                await refused(f"dask://{where}")
                await refused(f"dask://{addresses[0].partition('://')[2]}")


async def served_by_tls() -> None:
    """`aexec serve --cluster` has a model on two workers, and listens for its clients alone."""
    with tempfile.TemporaryDirectory() as folder:
        settings = certified(Path(folder), trustme.CA())
        graph = Path(folder) / "graph.pb"
        g = GraphBuilder()
        g("n0", "Neg", g.placeholder("x"), T=aexec.float32)
        graph.write_bytes(g.graph_def.SerializeToString())
        with dask.config.set(settings):
            cluster = distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, asynchronous=True, dashboard_address=None, silence_logs=50
            )
            await cluster
        async with cluster:
            certificate = f"{folder}/client.pem"
            flags = ["--cluster-ca", f"{folder}/ca.pem", "--cluster-cert", certificate, "--cluster-key", certificate]
            target = f"dask://{cluster.scheduler_address.partition('://')[2]}"
            command = ["-m", "aexec.cli", "serve", "--port", "0", "--cluster", target, "--graph", f"g={graph}", *flags]
            server = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=subprocess.PIPE, cwd=ROOT)
            try:
                assert server.stdout is not None
                line = (await server.stdout.readline()).decode()
                assert f"; cluster {target}, by TLS;" in line
                port = int(line.partition("http://127.0.0.1:")[2].partition(";")[0])
                assert listening(server.pid) == {("127.0.0.1", port)}
                async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
                    fields = {"feeds": {"x": [1, 2]}, "fetches": ["n0"]}
                    async with client.post("/v1/sessions/g:run", json=fields) as response:
                        assert (await response.json())["outputs"] == {"n0": [-1, -2]}
                assert listening(server.pid) == {("127.0.0.1", port)}
            finally:
                server.terminate()
                await server.wait()


async def refused(target: str) -> None:
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}), pytest.raises(errors.UnavailableError):
        await aexec.Session(chain(2).graph(), target)


@pytest.mark.soak
@pytest.mark.parametrize(
    "what", ["on_three_processes", "on_a_cluster_of_its_own", "fifty_cases", "by_mutual_tls", "served_by_tls"]
)
def test_three_processes(what: str) -> None:
    # In a process of its own: Dask's start looks at files, which the watch over event loops would report.
    run = f"import asyncio; from tests.distributed import test_dask_engine as t; asyncio.run(t.{what}())"
    done = subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
