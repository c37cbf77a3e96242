"""Tensors that requests bring in JSON count for the server's memory; those that lie in the body do not."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from aexec_server.requests.tensors import arrays_of_their_own

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from tests.server.conftest import Api, Start
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

COUNT = 50_000


def waiting(gate: gates.Gate, dtype: DType = dtypes.float32) -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", dtype)
    g("waits", "TestGate", "x", key=gate.key, T=dtype)
    g("n", "Size", "waits", T=dtype)
    return g


@pytest.mark.parametrize(
    ("feeds", "dtype", "num_bytes"),
    [
        ({"x": [1.5] * COUNT}, dtypes.float32, 4 * COUNT),
        ([{"name": "x", "shape": [COUNT], "datatype": "FP32", "data": [1.5] * COUNT}], dtypes.float32, 4 * COUNT),
        ({"x": ["abc"] * COUNT}, dtypes.string, 56 * COUNT),
    ],
    ids=["people", "list", "strings"],
)
async def test_tensors_of_json_count_while_a_run_uses_them(api: Api, feeds: Any, dtype: DType, num_bytes: int) -> None:
    gate = gates.Gate()
    handle = await api.create(waiting(gate, dtype))
    running = asyncio.create_task(api.run(handle, feeds=feeds, fetches=["n"]))
    await gate.entered.wait()
    memory = api.server.sessions.memory
    assert memory.in_use == num_bytes
    gate.open.set()
    assert (await running)[0] == 200
    await until(lambda: memory.in_use == 0)


async def test_tensors_of_json_beyond_the_limit_are_refused(start: Start) -> None:
    gate = gates.Gate()
    api = await start(max_memory_bytes=1_000_000, max_session_bytes=1_000_000)
    handle = await api.create(waiting(gate))
    status, answer = await api.run(handle, feeds={"x": [1.5] * 300_000}, fetches=["n"])
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED") and not gate.count
    assert api.server.sessions.memory.in_use == 0


def test_tensors_that_lie_in_the_body_are_not_their_own() -> None:
    body = memoryview(bytes(80))
    inside, made = np.frombuffer(body, np.float32), np.ones(4, np.float32)
    values = {"a": inside, "b": inside.reshape(4, 5), "c": made, "d": made.reshape(2, 2), "e": 1.0}
    own, sizes = arrays_of_their_own(list(values), list(values.values()))
    assert list(own) == ["feed c", "feed d"] and own["feed d"] is made and not sizes
