"""What calls of sparse kernels need for themselves is reserved before they run."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

import aexec
from aexec.framework import dtypes
from aexec.runtime.interpreter.memory_accountant import EXACT_BELOW
from tests.support.programs.graphs import GraphBuilder

# Entries; and the bytes besides that NumPy and Python take.
N = 50_000
SMALL = 100_000
COLUMN = np.arange(N, dtype=np.int64)
INDICES = np.stack([COLUMN % 50, COLUMN], 1)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("SparseReshape", [INDICES, np.array([50, N]), np.array([-1])]),
        ("SparseReshape", [INDICES[:, 1:], np.array([N]), np.array([-1, 2])]),
        ("SparseDenseCwiseMul", [INDICES[:, 1:], np.ones(N, "f"), np.array([N]), np.ones(N, "f")]),
        ("SparseDenseCwiseAdd", [INDICES, np.ones(N, "f"), np.array([50, N]), np.ones((50, N), "f")]),
    ],
    ids=["to a vector", "to a matrix", "with a vector", "with a matrix"],
)
async def test_scratch_memory_of_call_is_counted(op: str, inputs: list[np.ndarray]) -> None:
    g = GraphBuilder()
    names = [g.placeholder(f"x{i}", dtypes.from_numpy(x.dtype), None) for i, x in enumerate(inputs)]
    g("y", op, *names, **({"T": dtypes.float32} if "Cwise" in op else {}))
    feeds = {f"x{i}:0": x for i, x in enumerate(inputs)}
    config = aexec.SessionConfig(graph_passes=(), delegates=(), step_bytes=EXACT_BELOW - 1)
    metadata = aexec.RunMetadata()
    async with aexec.Session(g.graph(), config=config) as session:
        await session.run("y:0", feeds)  # what it imports is not the call's
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        await session.run("y:0", feeds, options=aexec.RunOptions(), metadata=metadata)
        _, peak = tracemalloc.get_traced_memory()
    assert metadata.peak_bytes is not None
    assert peak - before <= metadata.peak_bytes + SMALL
