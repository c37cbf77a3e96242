"""Gradients through conditionals and loops, of graphs that TensorFlow's `cond`, `while_loop`, `map_fn`, `scan` made.

`data/control_flow.zip` has of each the forward graph, from placeholders `x0`, `x1` to `y`, what is fed, and the
gradients that TensorFlow 2.21 computes (none where y does not depend on it).
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops

ARCHIVE = zipfile.ZipFile(Path(__file__).parent / "data" / "control_flow.zip")
NAMES = sorted({name.partition("/")[0] for name in ARCHIVE.namelist()})


def _read(name: str) -> tuple[aexec.Graph, dict[str, np.ndarray], list[np.ndarray]]:
    """A graph, its feeds, and the gradients by each."""
    with np.load(io.BytesIO(ARCHIVE.read(f"{name}/arrays.npz")), allow_pickle=False) as stored:
        arrays = dict(stored)
    xs = [arrays[f"x{i}"] for i in range(2)]
    grads = [arrays.get(f"grad{i}", np.zeros_like(x)) for i, x in enumerate(xs)]
    return aexec.Graph.from_bytes(ARCHIVE.read(f"{name}/graph.pb")), {f"x{i}:0": x for i, x in enumerate(xs)}, grads


def _total(tensor: Any) -> Any:
    return ops.sum(tensor, ops.range(0, ops.rank(tensor), 1))


@pytest.mark.parametrize("name", NAMES)
async def test_first_and_second_derivatives(name: str) -> None:
    graph, feeds, expected = _read(name)
    with graph:
        xs = [graph.tensor(feed) for feed in feeds]
        first = aexec.gradients(graph.tensor("y:0"), xs, unconnected="zero")
        total = sum((_total(grad) for grad in first[1:]), _total(first[0]))
        second = aexec.gradients(total, xs, unconnected="zero")
    async with aexec.Session(graph) as session:
        for found, answer in zip(await session.run(first, feeds), expected, strict=True):
            np.testing.assert_allclose(found, answer, rtol=1e-9, atol=1e-12)
        found = await session.run(second, feeds)
        call = session.make_callable(total, list(feeds))
        random = np.random.default_rng(5)
        directions = [random.normal(size=x.shape) for x in feeds.values()]
        there, back = [
            await call(*(x + step * d for x, d in zip(feeds.values(), directions, strict=True)))
            for step in (1e-6, -1e-6)
        ]
    along = sum(float(np.vdot(grad, d)) for grad, d in zip(found, directions, strict=True))
    assert along == pytest.approx((there - back) / 2e-6, rel=1e-5, abs=1e-6)


def test_tensors_inside_a_loop_are_refused() -> None:
    graph, _, _ = _read("simple")
    inside = next(node for node in graph if node.op == "Tanh")
    with graph, pytest.raises(aexec.errors.InvalidArgumentError, match=r"'while/Tanh' is inside the while loop"):
        aexec.gradients(inside.output(0), graph.tensor("x0:0"))
    with graph, pytest.raises(aexec.errors.InvalidArgumentError, match=r"'while/Tanh' is inside the while loop"):
        aexec.gradients(graph.tensor("y:0"), inside.output(0))
