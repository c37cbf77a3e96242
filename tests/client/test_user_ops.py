"""Ops of one's own: what their functions may do with their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors


@aexec.op("UserOpsTestScribble(x: T, y: T) -> z: T", "T: type")
def scribble(x: Any, y: Any) -> Any:
    x += 1
    return x + y


@aexec.op("UserOpsTestScribbleLater(x: T) -> z: T", "T: type")
async def scribble_later(x: Any) -> Any:
    x[0] = 1
    return x


@aexec.op("UserOpsTestSame(x: T) -> z: T", "T: type")
def same(x: Any) -> Any:
    return x


class TestInputs:
    """They belong to others: the caller, a constant, another node."""

    async def test_they_cannot_be_written_to(self) -> None:
        fed = np.zeros(3, np.float32)
        words = fed.astype(object)
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", name="x")
            s = aexec.placeholder("string", name="s")
            shared = aexec.ops.square(x)
            nodes = [
                scribble(x, x, name="of_feed"),
                scribble(shared, x, name="of_node"),
                scribble(aexec.constant([1.0, 2.0, 3.0]), x, name="of_constant"),
                scribble_later(x, name="later"),
                scribble_later(s, name="of_strings"),
            ]
        words = np.array([b"a", b"b"], object)
        async with aexec.Session(graph) as session:
            for node in nodes:
                with pytest.raises(errors.UnknownError, match="read-only"):
                    await session.run(node, {x: fed, s: words})
            assert (await session.run(shared, {x: fed})).tolist() == [0, 0, 0]
        assert fed.tolist() == [0, 0, 0] and fed.flags.writeable
        assert words.tolist() == [b"a", b"b"]

    async def test_they_can_be_returned(self) -> None:
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", name="x")
            y = same(x)
            z = aexec.ops.add_v2(same(y), x)
        async with aexec.Session(graph) as session:
            assert (await session.run([y, z], {x: [1.0, 2.0]}))[1].tolist() == [2, 4]
            assert await session.run(z, {x: 3.0}) == 6
