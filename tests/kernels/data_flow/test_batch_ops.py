"""BatchFunction in sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.dtypes import float32
from aexec.framework.wire.attr_value import NameAttrList
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder

SCALE = function_def(
    "Scale(x: float, factor: float) -> y: float",
    body=[("m", "Mul", ["x", "factor"], {"T": float32})],
    ret={"y": "m:z:0"},
)


def _graph(**attrs: Any) -> aexec.Graph:
    g = GraphBuilder()
    g.graph_def.library.function.append(SCALE)
    g.placeholder("x", float32)
    g.placeholder("factor", float32)
    defaults: dict[str, Any] = {
        "f": NameAttrList("Scale"),
        "num_batch_threads": 1,
        "max_batch_size": 4,
        "batch_timeout_micros": 3_600_000_000,
        "Tin": [float32],
        "Tcaptured": [float32],
        "Tout": [float32],
    }
    g("y", "BatchFunction", "x", "factor", **{**defaults, **attrs})
    return g.graph()


def _feeds(*rows: float, factor: float = 3) -> dict[str, Any]:
    return {"x": np.array(rows, np.float32), "factor": np.float32(factor)}


async def test_steps_share_a_batch() -> None:
    """Two half batches from two steps make one, run with the captured tensors of the first."""
    async with aexec.Session(_graph()) as session:
        first, second = await asyncio.gather(
            session.run("y:0", _feeds(1, 2)), session.run("y:0", _feeds(3, 4, factor=100))
        )
        assert first.tolist() == [3, 6]
        assert second.tolist() == [9, 12]


async def test_cancelled_step_leaves_the_others() -> None:
    async with aexec.Session(_graph()) as session:
        first = asyncio.ensure_future(session.run("y:0", _feeds(1, 2)))
        for _ in range(20):
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await session.run("y:0", _feeds(1, 1, 1, 1))).tolist() == [3, 3, 3, 3]


async def test_large_batches_are_split() -> None:
    """Only if so wanted; otherwise they are refused."""
    async with aexec.Session(_graph(enable_large_batch_splitting=True)) as session:
        assert (await session.run("y:0", _feeds(*range(8)))).tolist() == [3 * n for n in range(8)]
    async with aexec.Session(_graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match=r"Batch size \(8\) exceeds maximum batch size \(4\)"):
            await session.run("y:0", _feeds(*range(8)))


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"allowed_batch_sizes": [2, 1, 4]}, "must be monotonically increasing"),
        ({"allowed_batch_sizes": [1, 2]}, "final entry in allowed_batch_sizes must equal max_batch_size"),
        ({"num_batch_threads": 0}, "must be positive"),
        ({"Tcaptured": [float32, float32]}, "does not take what y is given"),
    ],
)
async def test_attrs_that_make_no_sense(attrs: dict[str, Any], words: str) -> None:
    g = _graph(**attrs) if "Tcaptured" not in attrs else _two_captured()
    async with aexec.Session(g) as session:
        with pytest.raises(errors.InvalidArgumentError, match=words):
            await session.run("y:0", _feeds(1))


def _two_captured() -> aexec.Graph:
    g = GraphBuilder()
    g.graph_def.library.function.append(SCALE)
    g.placeholder("x", float32)
    g.placeholder("factor", float32)
    g(
        "y", "BatchFunction", "x", "factor", "factor", f=NameAttrList("Scale"), num_batch_threads=1, max_batch_size=4,
        batch_timeout_micros=0, Tin=[float32], Tcaptured=[float32] * 2, Tout=[float32],
    )  # fmt: skip
    return g.graph()
