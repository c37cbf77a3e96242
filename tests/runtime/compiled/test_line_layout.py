"""The layout of a compiled plan: names, last uses, and the values that a line's variables hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aexec
from aexec.runtime.compiled.line_layout import GONE, LineLayout
from aexec.runtime.plans.plan import Plan, PlanNode


@asynccontextmanager
async def layout() -> AsyncIterator[tuple[LineLayout, dict[str, PlanNode]]]:
    """Of `y = softmax(x * 2) - x`."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [4], name="x")
        aexec.ops.sub(aexec.ops.softmax(aexec.ops.mul(x, 2.0, name="twice"), name="soft"), x, name="y")
    async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=())) as session:
        call = session.make_callable("y:0", ["x:0"])
        await call([1.0, 2.0, 3.0, 4.0])
        assert isinstance(call.plan, Plan)
        found = LineLayout(call.plan)
        yield found, {node.name: node for node in found.ids}


async def test_every_value_has_a_name() -> None:
    async with layout() as (found, nodes):
        assert found.inputs(nodes["twice"]) == ["f0", "k0"]
        assert [found.name((nodes[name], 0)) for name in ("twice", "soft", "y")] == ["v0", "v1", "v2"]
        assert found.constants["k0"] == 2


async def test_last_use_is_the_position_of_the_last_reader() -> None:
    async with layout() as (found, _):
        assert found.last_use == {"f0": 2, "k0": 0, "v0": 1, "v1": 2, "v2": 4}
        assert found.uses == {"f0": 2, "k0": 1, "v0": 1, "v1": 1, "v2": 1}


async def test_value_that_no_variable_holds_is_gone() -> None:
    async with layout() as (found, nodes):
        variables = {"v1": "held"}
        assert found.value((nodes["twice"], 0), variables) is GONE
        assert found.value((nodes["soft"], 0), variables) == "held"
        assert found.look_up(nodes["twice"].frame, nodes["twice"].first + 1, variables) == 2
