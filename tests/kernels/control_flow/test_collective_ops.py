"""Collectives among devices of a process: what each member gets, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32
KEYS = {"group_size": 3, "group_key": 1, "instance_key": 2}
DEVICES = {"CPU": ["CPU:0", "CPU:1", "CPU:2"], "SIM": ["CPU:0", "SIM:0", "SIM:1"]}
CONFIG = aexec.SessionConfig(device_count={"CPU": 3, "SIM": 2})


async def run(g: GraphBuilder, fetches: Sequence[str], feeds: Any = None) -> Any:
    async with aexec.Session(g.graph(), config=CONFIG) as session:
        return await session.run(list(fetches), feeds)


def members(op: str, values: Sequence[Any], devices: Sequence[str], **attrs: Any) -> GraphBuilder:
    """A member `m0`, `m1`, … on each device, with a value each."""
    g = GraphBuilder()
    for number, (value, device) in enumerate(zip(values, devices, strict=True)):
        array = np.asarray(value)
        g.const(f"v{number}", array)
        of_op = {"T": dtypes.from_numpy(array.dtype), **KEYS, **attrs}
        g(f"m{number}", op, f"v{number}", device=f"/device:{device}", **of_op)
    return g


@pytest.mark.parametrize("kind", DEVICES)
@pytest.mark.parametrize(
    ("merge_op", "final_op", "expected"),
    [
        (b"Add", b"Id", [6, 60]),
        (b"Add", b"Div", [2, 20]),
        (b"Mul", b"Id", [6, 6000]),
        (b"Min", b"Id", [1, 10]),
        (b"Max", b"Id", [3, 30]),
    ],
)
async def test_reduce(kind: str, merge_op: bytes, final_op: bytes, expected: list[float]) -> None:
    values = [np.array([1, 10], np.float32) * n for n in (1, 2, 3)]
    attrs = {"merge_op": merge_op, "final_op": final_op, "subdiv_offsets": [0]}
    g = members("CollectiveReduce", values, DEVICES[kind], **attrs)
    for got in await run(g, ["m0:0", "m1:0", "m2:0"]):
        np.testing.assert_array_equal(got, np.array(expected, np.float32))


async def test_means_of_integers_are_rounded_towards_zero() -> None:
    attrs = {"merge_op": b"Add", "final_op": b"Div", "subdiv_offsets": [0]}
    g = members("CollectiveReduce", [np.int32(-2), np.int32(-2), np.int32(-1)], DEVICES["CPU"], **attrs)
    assert await run(g, ["m0:0", "m1:0", "m2:0"]) == [-1, -1, -1]


async def test_gather_in_the_order_of_devices() -> None:
    values = [np.full((n, 2), n, np.int64) for n in (1, 2, 1)]
    g = members("CollectiveGather", values, ["CPU:2", "CPU:0", "CPU:1"], shape=PartialTensorShape([4, 2]))
    for got in await run(g, ["m0:0", "m1:0", "m2:0"]):
        np.testing.assert_array_equal(got[:, 0], [2, 2, 1, 1])


@pytest.mark.parametrize("kind", DEVICES)
async def test_broadcast(kind: str) -> None:
    g = GraphBuilder()
    g.placeholder("x")
    attrs = {"T": F, **KEYS, "shape": PartialTensorShape([2])}
    g("s", "CollectiveBcastSend", "x", device=f"/device:{DEVICES[kind][1]}", **attrs)
    for number in (0, 2):
        g(f"r{number}", "CollectiveBcastRecv", device=f"/device:{DEVICES[kind][number]}", **attrs)
    for got in await run(g, ["s:0", "r0:0", "r2:0"], {"x:0": [1.0, 2.0]}):
        np.testing.assert_array_equal(got, [1, 2])
    with pytest.raises(errors.InvalidArgumentError, match="does not match shape"):
        await run(g, ["s:0", "r0:0", "r2:0"], {"x:0": [1.0]})


async def test_vain_wait_ends_with_the_step_or_its_timeout() -> None:
    attrs = {"merge_op": b"Add", "final_op": b"Id", "subdiv_offsets": [0]}
    g = members("CollectiveReduce", [np.float32(1)] * 3, DEVICES["CPU"], timeout_seconds=0.01, **attrs)
    with pytest.raises(errors.DeadlineExceededError, match="Not all of the 3 nodes"):
        await run(g, ["m0:0", "m1:0"])
    g = members("CollectiveReduce", [np.float32(1)] * 3, DEVICES["CPU"], **attrs)
    async with aexec.Session(g.graph(), config=CONFIG) as session:
        with pytest.raises(errors.DeadlineExceededError):
            await session.run(["m0:0", "m1:0"], options=aexec.RunOptions(timeout=0.01))
        assert await session.run(["m0:0", "m1:0", "m2:0"]) == [3, 3, 3]


async def test_members_that_do_not_agree() -> None:
    attrs = {"merge_op": b"Add", "final_op": b"Id", "subdiv_offsets": [0]}
    on_one = members("CollectiveReduce", [np.float32(1)] * 3, ["CPU:0", "CPU:0", "CPU:1"], **attrs)
    with pytest.raises(errors.InvalidArgumentError, match="share a device: expected one collective"):
        await run(on_one, ["m0:0", "m1:0", "m2:0"])
    shapes = members("CollectiveReduce", [np.ones(n, np.float32) for n in (1, 2, 2)], DEVICES["CPU"], **attrs)
    with pytest.raises(errors.InvalidArgumentError, match="expected one shape"):
        await run(shapes, ["m0:0", "m1:0", "m2:0"])
    types = members("CollectiveReduce", [np.float32(1), np.float64(1), np.float32(1)], DEVICES["CPU"], **attrs)
    with pytest.raises(errors.InvalidArgumentError, match="differ in T"):
        await run(types, ["m0:0", "m1:0", "m2:0"])
