"""Memory of fed values: converted arrays count in the step, and are refused before they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.runtime.feeding.feeds import FeedSpec
from aexec.runtime.session import session_memory
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

MB = 1 << 20
COUNT = 50_000


@pytest.fixture(params=["exact", "rough"], autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The accounting of the steps' calls."""
    if request.param == "rough":
        monkeypatch.setattr(session_memory, "EXACT_BELOW", 0)
    return str(request.param)


def waiting(gate: gates.Gate, dtype: DType = dtypes.float32) -> aexec.Graph:
    """`waits` is `x` when the gate is open; `big` and `n` need no gate."""
    g = GraphBuilder()
    g.placeholder("x", dtype)
    g("waits", "TestGate", "x", key=gate.key, T=dtype)
    g("size", "Size", "waits", T=dtype, out_type=dtypes.int64)
    return g.graph()


def limited(graph: aexec.Graph, limit: int = 100 * MB) -> aexec.Session:
    return aexec.Session(graph, config=aexec.SessionConfig(session_bytes=limit))


BYTES, TEXT = [b"12345"] * COUNT, [f"{n:05}" for n in range(COUNT)]


@pytest.mark.parametrize(
    ("dtype", "value", "num_bytes"),
    [
        (dtypes.float32, [1.0] * COUNT, 4 * COUNT),
        (dtypes.float32, [[1.0, 2.0]] * COUNT, 8 * COUNT),
        (dtypes.float32, (1,) * COUNT, 4 * COUNT),
        (dtypes.float32, np.ones(COUNT), 4 * COUNT),
        (dtypes.int64, [1] * COUNT, 8 * COUNT),
        (dtypes.string, TEXT, (8 + 5 + STRING_BYTES) * COUNT),
        (dtypes.string, np.array(TEXT), (8 + 5 + STRING_BYTES) * COUNT),
        # The memory of these is the caller's.
        (dtypes.string, BYTES, 8 * COUNT),
        (dtypes.string, np.array(BYTES, object), 0),
        (dtypes.float32, np.ones(COUNT, np.float32), 0),
        (dtypes.float32, np.ones(2 * COUNT, np.float32)[::2], 0),
    ],
)
async def test_converted_value_counts_while_a_step_uses_it(dtype: DType, value: Any, num_bytes: int) -> None:
    gate = gates.Gate()
    async with limited(waiting(gate, dtype)) as session:
        step = session.start("size:0", {"x:0": value})
        await gate.entered.wait()
        assert session.statistics().bytes_in_use == num_bytes
        gate.open.set()
        assert await step == np.size(value)
        del step
        await until(lambda: session.statistics().bytes_in_use == 0)


@pytest.mark.parametrize(
    "value",
    [[1.0] * (2 * MB), [[1.0] * 1024] * 2048, np.ones(MB), [1 + 0j] * (2 * MB)],
    ids=["list", "lists", "cast", "complex"],
)
async def test_value_too_large_to_convert_is_refused_first(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    to_array = FeedSpec._to_array
    monkeypatch.setattr(FeedSpec, "_to_array", lambda self, value: (made.append(self.name), to_array(self, value))[1])
    gate = gates.Gate()
    async with limited(waiting(gate), 2 * MB) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="when making feed x:0") as refused:
            await session.run("size:0", {"x:0": value})
        assert "SessionConfig.session_bytes" in refused.value.message
        assert not made and session.statistics().bytes_in_use == 0
        # Smaller ones go on.
        gate.open.set()
        assert await session.run("size:0", {"x:0": [1.0] * 1000}) == 1000


async def test_strings_found_to_be_long_are_refused_once_made() -> None:
    gate = gates.Gate()
    async with limited(waiting(gate, dtypes.string), 2 * MB) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="when making feed x:0"):
            await session.run("size:0", {"x:0": ["x" * 4 * MB]})
        assert session.statistics().bytes_in_use == 0


async def test_value_fed_in_a_part_counts(mode: str) -> None:
    g = GraphBuilder()
    for name in "ab":
        g.placeholder(name, dtypes.float32)
        g(f"{name}_size", "Size", name, T=dtypes.float32, out_type=dtypes.int64)
    async with limited(g.graph(), 2 * MB) as session:
        handle = await session.partial_run_setup(["a_size:0", "b_size:0"], ["a:0", "b:0"])
        with pytest.raises(errors.ResourceExhaustedError, match="when making feed b:0"):
            await session.partial_run(handle, "b_size:0", {"b:0": [1.0] * MB})
        assert await session.partial_run(handle, ["a_size:0", "b_size:0"], {"a:0": [1.0], "b:0": [1.0]}) == [1, 1]
