"""Stacks: where a pushed tensor is kept while memory is short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec.kernels.data_flow.stack_ops import Stack


@pytest.mark.parametrize("swap", [False, True])
async def test_pushes_that_may_be_swapped_go_through_the_hook(swap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped: list[Any] = []

    def keep(self: Stack, value: Any) -> Any:
        swapped.append(value)
        return value.copy()

    monkeypatch.setattr(Stack, "swapped", keep)
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [2], name="x")
        stack = aexec.ops.stack_v2(aexec.constant(10), "float32")
        pushed = aexec.ops.stack_push_v2(stack, x, swap_memory=swap)
        with aexec.control_dependencies([pushed.op]):
            aexec.ops.stack_pop_v2(stack, "float32", name="popped")
    async with aexec.Session(graph) as session:
        out = await session.run("popped:0", {"x:0": np.float32([1, 2])})
    assert out.tolist() == [1, 2]
    assert len(swapped) == int(swap)
