"""Two figures of `scripts/bench models` that are not of one call after another.

* cold start: processes that load MobileNetV2, run it once and write the answer, from the shell to their end;
* concurrency: a hundred steps of a chain of a thousand nodes at once, against the same one after another.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from models import Model

import aexec

__all__ = ["Concurrency", "cold_start", "concurrency"]

_ORT = """
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = {threads}
session = onnxruntime.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
numpy.save("onnxruntime.npy", session.run(["y"], {{"x": numpy.load("x.npy")}})[0])
"""
_TENSORFLOW = """
import numpy, tensorflow
v1 = tensorflow.compat.v1
with open("model.pb", "rb") as file, v1.Graph().as_default() as graph:
    v1.import_graph_def(v1.GraphDef.FromString(file.read()), name="")
config = v1.ConfigProto(intra_op_parallelism_threads={threads}, inter_op_parallelism_threads={threads})
with v1.Session(graph=graph, config=config) as session:
    numpy.save("tensorflow.npy", session.run("y:0", {{"x:0": numpy.load("x.npy")}}))
"""
_AEXEC = "-m aexec run model.pb --feed x:0=x.npy --fetch y:0 --out aexec.npy"


def cold_start(model: Model, names: Sequence[str], *, threads: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each process, for the `names` that have a command; they take turns.

    Args:
        model: with one input `x` and one output `y`.

    Raises:
        CalledProcessError: a process failed.
    """
    commands = {
        "aexec": _AEXEC.split(),
        "onnxruntime": ["-c", _ORT.format(threads=threads)],
        "tensorflow": ["-c", _TENSORFLOW.format(threads=threads)],
    }
    taken: dict[str, list[float]] = {name: [] for name in names if name in commands}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.pb").write_bytes(model.graph_def)
        if "onnxruntime" in taken:
            Path(folder, "model.onnx").write_bytes(model.onnx)
        np.save(Path(folder, "x.npy"), model.feeds["x"])
        for _ in range(repeats):
            for name, times in taken.items():
                began = time.perf_counter()
                _run(commands[name], folder)
                times.append(time.perf_counter() - began)
        answers = [np.load(Path(folder, f"{name}.npy")) for name in taken]
        for answer in answers[1:]:
            np.testing.assert_allclose(answer, answers[0], rtol=1e-3, atol=1e-5)
    return taken


def _run(arguments: list[str], folder: str) -> None:
    path = str(Path(aexec.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


class Concurrency(NamedTuple):
    """Steps at once compared with steps one after another: relative throughput, and latencies of those at once in
    seconds.
    """

    steps: int
    throughput: float
    median: float
    percentile_99: float

    def __str__(self) -> str:
        return (
            f"{self.steps} at once: {self.throughput:.2f} × the throughput of one after another; "
            f"latency p50 {self.median * 1e3:.1f} ms, p99 {self.percentile_99 * 1e3:.1f} ms"
        )


async def concurrency(model: Model, *, steps: int = 100, repeats: int = 7) -> Concurrency:
    """Run `model` `steps` times at once and `steps` times one after another, by turns; return medians."""
    shares, medians, tails = [], [], []
    async with aexec.Session(aexec.Graph.from_bytes(model.graph_def)) as session:
        call = session.make_callable([f"{n}:0" for n in model.outputs], [f"{n}:0" for n in model.feeds])
        values = tuple(model.feeds.values())
        for _ in range(20):  # until the plan is compiled
            await call(*values)
            await asyncio.sleep(0.001)
        for _ in range(repeats):
            began = time.perf_counter()
            for _ in range(steps):
                await call(*values)
            in_turn = time.perf_counter() - began
            latencies = await _at_once(call, values, steps)
            shares.append(in_turn / max(latencies))
            medians.append(statistics.median(latencies))
            tails.append(float(np.percentile(latencies, 99)))
    return Concurrency(steps, statistics.median(shares), statistics.median(medians), statistics.median(tails))


async def _at_once(call: Any, values: tuple[Any, ...], steps: int) -> list[float]:
    """Return the latency of each step."""
    began = time.perf_counter()

    async def one() -> float:
        await call(*values)
        return time.perf_counter() - began

    return list(await asyncio.gather(*(one() for _ in range(steps))))
