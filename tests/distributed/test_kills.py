"""Kill -9 of Dask workers at random moments: errors come within a second, the living keep nothing, sessions recover.

Meanwhile steps cross tasks, large values travel, elements go through a queue, and a training session steps and saves.
`AEXEC_KILLS=count` says how many, 200 if nothing does; a soak, as processes take seconds to start.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import aexec
from aexec import errors, ops
from aexec.distributed.cluster_messages import Message
from aexec.distributed.cluster_session import ClusterSession
from aexec.distributed.cluster_spec import task_name
from aexec.distributed.opening_cluster_session import OpeningClusterSession
from tests.distributed.test_fault_schedules import graph

distributed = pytest.importorskip("distributed")
ROOT = Path(__file__).parents[2]
WORKERS, SPARE = 3, 2
# Steps that are in flight are to fail so fast.
SECONDS = 1.0
MAX_GROWTH = 100 << 20


class Workers:
    """Processes of Dask workers, which may be killed at any time; others are started for them.

    Dask's own nannies would start them, but not always, if they die as often as here.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def target(self) -> str:
        """Of sessions."""
        return str(self._scheduler.address).replace("tcp", "dask")

    async def start(self, count: int) -> None:
        """Start some, and wait for them."""
        for _ in range(count):
            self.start_one()
        async with asyncio.timeout(60):
            while len(self._scheduler.workers) < count:
                await asyncio.sleep(0.05)

    def start_one(self) -> None:
        """Start one, without waiting for it."""
        name = f"w{len(self._processes)}"
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self._scheduler.address, "--name", name]
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1", "--death-timeout", "60"]
        self._processes[name] = subprocess.Popen(
            [*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self, address: str) -> bool:
        """Kill -9; False if it is not there any more."""
        state = self._scheduler.workers.get(address)
        if state is None:
            return False
        self._processes[state.name].send_signal(signal.SIGKILL)
        return True

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


# Which tasks the steps of each kind need.
NEEDS = {"chain": {0, 1, 2}, "loop": {0, 1, 2}, "put": {0, 1}, "get": {1, 2}}


class Traffic:
    """Steps of all kinds, each again and again, until one fails because a task is lost."""

    def __init__(self, session: ClusterSession) -> None:
        self._session = session
        self._messages: list[str] = []
        self._put = self._taken = 0
        self._again = {kind: asyncio.create_task(self._repeat(getattr(self, kind))) for kind in NEEDS}

    async def failed(self, task: int) -> float:
        """When the last of those failed that need a task, by `perf_counter`; the others are stopped."""
        times = [await running for kind, running in self._again.items() if task in NEEDS[kind]]
        for running in self._again.values():
            running.cancel()
        await asyncio.wait(self._again.values())
        assert all(f"/task:{task} is lost" in message for message in self._messages), self._messages
        return max(times)

    async def _repeat(self, once: Callable[[], Awaitable[None]]) -> float:
        while True:
            try:
                await once()
            except errors.UnavailableError as error:
                self._messages.append(str(error))
                return time.perf_counter()

    async def chain(self) -> None:
        x = np.arange(1 << 18, dtype=np.float32)
        np.testing.assert_array_equal(await self._session.run("n2:0", {"x:0": x}), -x)

    async def loop(self) -> None:
        assert await self._session.run("result:0", {"n:0": 4}) == 4

    async def put(self) -> None:
        await self._session.run([], {"element:0": self._put}, ["put"])
        self._put += 1

    async def get(self) -> None:
        assert int(await self._session.run("taken:0")) == self._taken
        self._taken += 1


async def kill_during_steps(workers: Workers, draw: random.Random, kills: int) -> list[float]:
    """At random moments of a session's traffic; it recovers each time.  Returns the seconds until the errors."""
    seconds = []
    config = aexec.SessionConfig(cluster={"worker": WORKERS}, graph_passes=())
    async with aexec.Session(graph(), workers.target, config) as session:
        assert isinstance(session, ClusterSession)
        for _ in range(kills):
            traffic = Traffic(session)
            await asyncio.sleep(draw.random() * 0.3)
            number = draw.randrange(WORKERS)
            task = session.tasks[task_name("worker", number)]
            assert workers.kill(task.address)
            killed = time.perf_counter()
            async with asyncio.timeout(20):
                seconds.append(await traffic.failed(number) - killed)
            workers.start_one()
            await check_living(session)
            async with asyncio.timeout(60):
                assert await session.recover(60) == [task.name]
            await session.reset()
    return sorted(seconds)


async def kill_during_training(workers: Workers, draw: random.Random, kills: int) -> None:
    """At random moments of steps and checkpoints; the losses are those of training that nobody disturbed."""
    cluster_of = {"ps": 1, "worker": 2}
    rate = 0.001
    with aexec.Graph() as trained, aexec.device(aexec.training.replica_device_setter(cluster=cluster_of)):
        x = aexec.placeholder("float32", [2], name="x")
        w = aexec.get_variable("w", [2], use_resource=True, initializer=aexec.initializers.Zeros())
        with aexec.device("/task:1"):
            loss = ops.sum(ops.square(w - x), [0])
        step = aexec.training.get_or_create_global_step()
        train = aexec.training.GradientDescentOptimizer(rate).minimize(loss, global_step=step)
    config = aexec.SessionConfig(cluster=cluster_of)

    def new_session(graph: aexec.Graph) -> OpeningClusterSession:
        return OpeningClusterSession(graph, workers.target, config)

    with tempfile.TemporaryDirectory() as folder:
        training = aexec.training.TrainingSession(
            trained,
            checkpoint_dir=folder,
            save_checkpoint_steps=5,
            make_session=new_session,
            recovery_seconds=60,
            handle_signals=False,
        )
        async with training:

            async def kill() -> None:
                left = kills
                while left:
                    await asyncio.sleep(draw.random() * 0.5)
                    session: Any = training.session
                    address = draw.choice(list(session.tasks.values())).address
                    if workers.kill(address):
                        left -= 1
                        workers.start_one()
                    while training.session is session:
                        await asyncio.sleep(0.02)

            killing = asyncio.create_task(kill())
            while not killing.done():
                async with asyncio.timeout(90):
                    value, _ = await training.run([loss, train], {"x:0": [1.0, 2.0]})
                done = await training.global_step()
                assert done is not None
                np.testing.assert_allclose(value, 5 * (1 - 2 * rate) ** (2 * (done - 1)), rtol=1e-3)
            await killing


async def check_living(session: ClusterSession) -> None:
    """Workers that live come to keep nothing of any step."""
    async with asyncio.timeout(20):
        for task in session.tasks.values():
            while not task.lost:
                answer = await session.engine.call(task.address, "describe", Message())
                kept = answer.fields["sessions"][session.handle]
                if not (kept["steps"] or kept["rendezvous"] or kept["awaited"]):
                    break
                await asyncio.sleep(0.02)


async def many_kills() -> None:
    """Half of them during steps, half during training."""
    kills, draw = int(os.environ.get("AEXEC_KILLS", "200")), random.Random(0)
    async with distributed.LocalCluster(
        n_workers=0, asynchronous=True, dashboard_address=None, silence_logs=50
    ) as local:
        workers = Workers(local.scheduler)
        try:
            await workers.start(WORKERS + SPARE)
            await kill_during_steps(workers, draw, 1)
            memory = psutil.Process().memory_info().rss
            seconds = await kill_during_steps(workers, draw, (kills + 1) // 2)
            await kill_during_training(workers, draw, kills // 2)
            await asyncio.sleep(0.2)
            left = [task for task in asyncio.all_tasks() if "/aexec/" in task.get_coro().cr_code.co_filename]  # type: ignore
            grown = psutil.Process().memory_info().rss - memory
        finally:
            workers.stop()
    median, slowest = seconds[len(seconds) // 2] * 1e3, seconds[-1] * 1e3
    print(f"{kills} kills; errors after {median:.0f} ms, {slowest:.0f} at most; memory grew by {grown >> 20} MiB")
    assert seconds[-1] < SECONDS, seconds
    assert not left and grown < MAX_GROWTH, (left, grown)


@pytest.mark.soak
def test_kills() -> None:
    # In a process of its own, as those of `test_dask_engine.py`.
    run = "import asyncio; from tests.distributed import test_kills as t; asyncio.run(t.many_kills())"
    done = subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
