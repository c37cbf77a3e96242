"""What runs the models of `models.py`: aexec, plain NumPy, and of TensorFlow, onnxruntime and OpenVINO what is here.

A contender prepares a model once and is then called again and again by `model_benchmarks.py`.  All get the same number
of threads; otherwise their defaults, which are what users have.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from models import Model

import aexec

__all__ = ["CONTENDERS", "Contender", "Contenders", "UnsuitedError", "available", "versions"]


class UnsuitedError(Exception):
    """The contender cannot run this model, for a reason that the table does not mention."""


class Contender(Protocol):
    """One way to run a model."""

    async def prepare(self, model: Any, threads: int) -> None: ...
    async def run(self) -> list[Any]: ...
    async def close(self) -> None: ...


# name → (factory, packages that it needs)
Contenders = Mapping[str, tuple[Callable[[], Contender], tuple[str, ...]]]


class Aexec:
    """A callable of a session, with NumPy kernels only."""

    delegates: str | tuple[str, ...] = ()

    async def prepare(self, model: Model, threads: int) -> None:
        self._session = await self._open(model, threads).__aenter__()
        self._fetches = [f"{name}:0" for name in model.outputs]
        self._feeds = {f"{name}:0": value for name, value in model.feeds.items()}
        if model.initialize:
            await self._session.run([], targets=[model.initialize])
        self._call = self._session.make_callable(self._fetches, list(self._feeds), list(model.targets))
        self._values = tuple(self._feeds.values())

    def _open(self, model: Model, threads: int) -> Any:
        config = aexec.SessionConfig(intra_op_threads=threads, inter_op_threads=threads, delegates=self.delegates)
        return aexec.Session(aexec.Graph.from_bytes(model.graph_def), config=config)

    async def run(self) -> list[Any]:
        return await self._call(*self._values)

    async def close(self) -> None:
        await self._session.close()


class AexecRun(Aexec):
    """`session.run`, for models whose time is mostly that of the run itself."""

    async def prepare(self, model: Model, threads: int) -> None:
        if not model.brief:
            raise UnsuitedError
        await super().prepare(model, threads)

    async def run(self) -> list[Any]:
        return await self._session.run(self._fetches, self._feeds)


class AexecDelegate(Aexec):
    """As `Aexec`, with OpenVINO for the regions that the session chooses."""

    delegates = "auto"
    # Seconds to run a session until it has its regions: they are chosen by the cost of runs, and compiled in a thread.
    WARM_UP_SECONDS = 3.0

    async def prepare(self, model: Model, threads: int) -> None:
        await super().prepare(model, threads)
        end = time.perf_counter() + self.WARM_UP_SECONDS
        while time.perf_counter() < end:
            await self.run()
            await asyncio.sleep(0)


class NumPy:
    """The same computation in a plain Python function."""

    async def prepare(self, model: Model, threads: int) -> None:
        if model.numpy is None:
            raise UnsuitedError
        self._function, self._feeds = model.numpy, dict(model.feeds)

    async def run(self) -> list[Any]:
        return [self._function(**self._feeds)]

    async def close(self) -> None:
        del self._function


class OnnxRuntime:
    async def prepare(self, model: Model, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        self._session = onnxruntime.InferenceSession(model.onnx, options, providers=["CPUExecutionProvider"])
        self._outputs, self._feeds = list(model.outputs), dict(model.feeds)

    async def run(self) -> list[Any]:
        return list(self._session.run(self._outputs, self._feeds))

    async def close(self) -> None:
        del self._session


class TensorFlow:
    """A callable of a v1 session, with its default optimiser."""

    async def prepare(self, model: Model, threads: int) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow

        v1 = tensorflow.compat.v1
        graph_def = v1.GraphDef.FromString(model.graph_def)
        with v1.Graph().as_default() as graph:
            v1.import_graph_def(graph_def, name="")
        config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
        self._session = v1.Session(graph=graph, config=config)
        if model.initialize:
            self._session.run(model.initialize)
        # Targets return None, after the outputs.
        self._outputs = len(model.outputs)
        fetches = [*(f"{n}:0" for n in model.outputs), *model.targets]
        self._call = self._session.make_callable(fetches, [f"{n}:0" for n in model.feeds])
        self._values = tuple(model.feeds.values())

    async def run(self) -> list[Any]:
        return list(self._call(*self._values))[: self._outputs]

    async def close(self) -> None:
        self._session.close()


class OpenVino:
    """OpenVINO itself, from the GraphDef."""

    async def prepare(self, model: Model, threads: int) -> None:
        import openvino

        core = openvino.Core()
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
        }
        with tempfile.TemporaryDirectory() as folder:  # compilation still reads weights from the file
            path = Path(folder) / "model.pb"
            path.write_bytes(model.graph_def)
            self._request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
        self._outputs, self._feeds = model.outputs, {f"{n}:0": v for n, v in model.feeds.items()}

    async def run(self) -> list[Any]:
        answers = self._request.infer(self._feeds, share_inputs=True, share_outputs=True)
        return [answers[f"{name}:0"] for name in self._outputs]

    async def close(self) -> None:
        del self._request


CONTENDERS: Contenders = {
    "aexec": (Aexec, ()),
    "run": (AexecRun, ()),
    "delegate": (AexecDelegate, ("openvino",)),
    "numpy": (NumPy, ()),
    "onnxruntime": (OnnxRuntime, ("onnxruntime", "onnx")),
    "tensorflow": (TensorFlow, ("tensorflow",)),
    "openvino": (OpenVino, ("openvino",)),
}


def available(contenders: Contenders = CONTENDERS) -> list[str]:
    """Return the names of the contenders whose packages can be imported."""
    return [name for name, (_, needs) in contenders.items() if all(importlib.util.find_spec(n) for n in needs)]


def versions() -> dict[str, str]:
    """Return the versions of aexec and of the installed packages that it is compared with."""
    found = {"aexec": aexec.__version__, "NumPy": np.__version__}
    for package, distributions in (
        ("TensorFlow", ("tensorflow", "tensorflow-cpu", "tensorflow_cpu")),
        ("onnxruntime", ("onnxruntime",)),
        ("OpenVINO", ("openvino",)),
    ):
        for distribution in distributions:
            try:
                found[package] = importlib.metadata.version(distribution)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return found
