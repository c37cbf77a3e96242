"""`scripts/cluster-demo`: data-parallel training on a Dask cluster of six processes, one of which is killed on the way.

A network is trained by four replicas in rounds (`SyncReplicasOptimizer`), each with a quarter of the examples; its
variables are on two parameter servers.  In the middle a worker is killed with signal 9: the steps in flight fail, Dask
starts the process anew, and the training session goes on from its last checkpoint.  At the end the losses of all rounds
are compared with those of one process that has all examples.

The parts are functions: a test runs them with a cluster in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import aexec
from aexec import layers, ops, training
from aexec.distributed.cluster_spec import task_name

PARAMETER_SERVERS, REPLICAS = 2, 4
CLUSTER = {"ps": PARAMETER_SERVERS, "worker": REPLICAS}
FEATURES, HIDDEN = 8, 16
CHECKPOINT_STEPS = 10
# Kinds of Dask's processes.
ROLES = ("client", "scheduler", "worker")
# Relative tolerance of a loss, for the order in which gradients are added.
TOLERANCE = 1e-3

Say = Callable[[str], None]


def examples(rows: int) -> tuple[Any, Any]:
    """Return x [rows, 8] and y [rows, 1], float32, which the network is to learn."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((rows, FEATURES)).astype(np.float32)
    return x, np.sin(x @ draw.standard_normal((FEATURES, 1)).astype(np.float32) / 2)


def loss_of(x: Any, y: Any) -> Any:
    """Return the loss of the network, whose variables are created or reused."""
    with aexec.variable_scope("network", reuse=aexec.AUTO_REUSE):
        hidden = layers.dense(x, HIDDEN, activation=ops.tanh, name="hidden")
        made = layers.dense(hidden, 1, name="made")
    return ops.mean(ops.square(made - y), [0, 1])


def fed(name: str) -> tuple[Any, Any]:
    """Return the placeholders of a batch."""
    return (
        aexec.placeholder("float32", [None, FEATURES], name=f"x{name}"),
        aexec.placeholder("float32", [None, 1], name=f"y{name}"),
    )


def optimizer() -> training.Optimizer:
    return training.MomentumOptimizer(0.1, 0.9)


async def losses_of_one_process(steps: int, rows: int) -> list[float]:
    """Return the loss before each step when training on all examples in this process."""
    x, y = examples(rows)
    with aexec.Graph() as graph:
        aexec.set_random_seed(1)
        placeholders = fed("")
        loss = loss_of(*placeholders)
        step = optimizer().minimize(loss)
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        feeds = dict(zip(placeholders, (x, y), strict=True))
        return [float((await session.run([loss, step], feeds))[0]) for _ in range(steps)]


class ClusterTraining(training.SessionRunHook):
    """Trains on the tasks of a cluster.

    Args:
        target: of the cluster.
        steps: number of rounds.
        rows: number of examples, of which each replica has a quarter.
        kill: kills the worker at an address.
        kill_at: the round in which it is called.
        say: called with progress messages.

    Attributes:
        losses: loss before each round, by replica.
        sessions: number of sessions so far.
    """

    def __init__(
        self, target: str, steps: int, rows: int, kill: Callable[[str], object], kill_at: int, say: Say
    ) -> None:
        self._target, self._steps = target, steps
        self._kill, self._kill_at, self._say = kill, kill_at, say
        self._killed: float | None = None
        self.losses = np.full((steps, REPLICAS), np.nan)
        self.sessions = 0
        self._graph = aexec.Graph()
        self._replicas: list[tuple[list[Any], dict[Any, Any]]] = []
        self._sync = training.SyncReplicasOptimizer(optimizer(), REPLICAS)
        x, y = examples(rows)
        with self._graph:
            aexec.set_random_seed(1)
            count = training.get_or_create_global_step()
            for number in range(REPLICAS):
                setter = training.replica_device_setter(cluster=CLUSTER, worker_device=f"/job:worker/task:{number}")
                with aexec.device(setter):
                    self._replicas.append(self._replica(number, count, x[number::REPLICAS], y[number::REPLICAS]))

    def _replica(self, number: int, count: aexec.Variable, x: Any, y: Any) -> tuple[list[Any], dict[Any, Any]]:
        """Return the fetches of a replica in each step (round, loss, step), and its feeds."""
        placeholders = fed(f"_{number}")
        turn = count.read_value()
        with aexec.control_dependencies([turn]):
            given = ops.identity(placeholders[0])
        loss = loss_of(given, placeholders[1])
        step = self._sync.minimize(loss, global_step=count)
        return [turn, loss, step], dict(zip(placeholders, (x, y), strict=True))

    async def run(self, folder: str) -> None:
        """Train, with checkpoints in `folder`."""
        hook = self._sync.make_session_run_hook()
        async with training.TrainingSession(
            self._graph,
            hooks=[training.StopAtStepHook(last_step=self._steps), hook, self],
            checkpoint_dir=folder,
            save_checkpoint_steps=CHECKPOINT_STEPS,
            make_session=lambda graph: aexec.Session(graph, self._target, aexec.SessionConfig(cluster=CLUSTER)),
            recovery_seconds=60,
            handle_signals=False,
        ) as session:

            def after(number: int, result: Sequence[Any]) -> None:
                turn, loss, _ = result
                if turn < self._steps:
                    self.losses[turn, number] = loss
                if number == 0 and turn % CHECKPOINT_STEPS == 0:
                    self._say(f"round {turn}: loss of replica 0 is {loss:.4f}")
                if turn >= self._kill_at and self._killed is None:
                    self._kill_a_worker(session.session, turn)

            await asyncio.gather(
                *(
                    hook.run_replica(session, fetches, lambda feeds=feeds: feeds, partial(after, number))  # type: ignore[misc]
                    for number, (fetches, feeds) in enumerate(self._replicas)
                )
            )

    def _kill_a_worker(self, session: Any, turn: int) -> None:
        task = session.tasks[task_name("worker", REPLICAS - 1)]
        self._killed = time.perf_counter()
        self._kill(task.address)
        self._say(f"round {turn}: {task.name} at {task.address} was killed")

    async def after_create_session(self, session: training.TrainingSession, coordinator: Any) -> None:  # type: ignore[override]
        """Report which task is where, and how long recovery took."""
        self.sessions += 1
        if self._killed is not None:
            after, turn = f"{time.perf_counter() - self._killed:.1f} s later", await session.global_step()
            self._say(f"a new session goes on from the checkpoint of round {turn}, {after}")
        else:
            tasks: dict[str, Any] = session.session.tasks  # type: ignore[attr-defined]
            self._say("\n".join(f"{name} is {task.address}" for name, task in tasks.items()))

    def compared(self, expected: Sequence[float]) -> float:
        """Return the largest relative difference from the expected losses; the last round, which not all replicas
        report, is left out.
        """
        found = self.losses.mean(1)[:-1]
        return float(np.max(np.abs(found / np.asarray(expected[:-1]) - 1)))


def tls_settings(ca: str, cert: str, key: str) -> dict[str, Any]:
    """Return Dask's settings for mutual TLS, with one certificate for all processes."""
    files = {f"{role}.{part}": file for role in ROLES for part, file in (("cert", cert), ("key", key))}
    tls = {f"distributed.comm.tls.{name}": file for name, file in {"ca-file": ca, **files}.items()}
    return {"distributed.comm.require-encryption": True, **tls}


async def demo(steps: int, rows: int, say: Say) -> bool:
    """Train on a Dask cluster of this machine; return True if the losses agree with those of one process."""
    import distributed

    expected = await losses_of_one_process(steps, rows)
    say(f"{PARAMETER_SERVERS + REPLICAS} processes are started")
    async with distributed.LocalCluster(
        n_workers=PARAMETER_SERVERS + REPLICAS,
        threads_per_worker=1,
        asynchronous=True,
        memory_limit=0,
        silence_logs=logging.CRITICAL,
    ) as cluster:
        say(f"Dask's scheduler is {cluster.scheduler_address}, its dashboard {cluster.dashboard_link}")

        def kill(address: str) -> None:
            (process,) = [each.process.pid for each in cluster.workers.values() if each.worker_address == address]
            os.kill(process, signal.SIGKILL)

        target = f"dask://{cluster.scheduler_address.partition('://')[2]}"
        trained = ClusterTraining(target, steps, rows, kill, steps // 2 + CHECKPOINT_STEPS // 2, say)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            await trained.run(folder)
        seconds = time.perf_counter() - began
    difference = trained.compared(expected)
    say(f"{steps} rounds in {seconds:.1f} s by {trained.sessions} sessions")
    say(f"the loss went from {expected[0]:.4f} to {expected[-1]:.4f}")
    say(f"of one process the losses are the same but for {difference:.1e} of themselves")
    return trained.sessions > 1 and difference < TOLERANCE


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="scripts/cluster-demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100, help="rounds of training")
    parser.add_argument("--examples", type=int, default=512, help="which the replicas share")
    for part in ("ca", "cert", "key"):
        parser.add_argument(f"--{part}", metavar="FILE", help="PEM file; with all three the processes use TLS")
    arguments = parser.parse_args()
    files = (arguments.ca, arguments.cert, arguments.key)
    if any(files) and not all(files):
        parser.error("--ca, --cert and --key go together")
    import dask

    with dask.config.set(tls_settings(*files) if all(files) else {}):
        return not asyncio.run(demo(arguments.steps, arguments.examples, lambda text: print(text, flush=True)))


if __name__ == "__main__":
    sys.exit(main())
