"""What RaggedTensorToTensor reserves for one level, it uses for the next as well."""

from __future__ import annotations

from typing import Any

import numpy as np

import aexec
from aexec.framework import dtypes
from aexec.runtime.interpreter.memory_accountant import EXACT_BELOW
from tests.support.programs.graphs import GraphBuilder

N = 20_000


async def counted(levels: int) -> int:
    """The bytes that are counted of a call with so many levels of rows of one value."""
    g = GraphBuilder()
    feeds: dict[str, Any] = {"shape:0": np.array(-1), "values:0": np.ones(N, "f"), "default:0": np.float32(0)}
    names = [f"splits{i}" for i in range(levels)]
    feeds.update({f"{name}:0": np.arange(N + 1) for name in names})
    for name, value in feeds.items():
        g.placeholder(name.removesuffix(":0"), dtypes.from_numpy(value.dtype), None)
    types = [b"ROW_SPLITS"] * levels
    attrs = {"T": dtypes.float32, "Tindex": dtypes.int64, "Tshape": dtypes.int64}
    inputs = ["shape", "values", "default", *names]
    g("y", "RaggedTensorToTensor", *inputs, num_row_partition_tensors=levels, row_partition_types=types, **attrs)
    config = aexec.SessionConfig(graph_passes=(), delegates=(), step_bytes=EXACT_BELOW - 1)
    metadata = aexec.RunMetadata()
    async with aexec.Session(g.graph(), config=config) as session:
        await session.run("y:0", feeds, options=aexec.RunOptions(), metadata=metadata)
    assert metadata.peak_bytes is not None
    return metadata.peak_bytes


async def test_memory_of_levels_is_not_added_up() -> None:
    """A level takes some 88 bytes a value, of which it keeps at most 16."""
    one, eight = await counted(1), await counted(8)
    assert eight - one < 7 * 24 * N
