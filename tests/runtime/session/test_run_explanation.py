"""`Session.explain`: how the next run of a callable will be executed, and why."""

from __future__ import annotations

import numpy as np
import pytest

import aexec
from aexec.runtime.plans.compilation_policy import COMPILE_AT
from aexec.runtime.session import run_explanation

X = np.ones(3, np.float32)
pytestmark = pytest.mark.usefixtures("plans_compile")


def negated() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.neg(aexec.placeholder("float32", None, name="x"), name="y")
    return graph


async def explained(session: aexec.Session, runs: int = COMPILE_AT) -> str:
    call = session.make_callable("y:0", ["x:0"])
    for _ in range(runs):
        await call(X)
    return str(session.explain(call))


async def test_explanation_follows_the_runs_of_a_plan() -> None:
    async with aexec.Session(negated()) as session:
        assert await explained(session, 0) == "interpreted: it has not been run yet: its first run makes the plan"
        assert await explained(session, 1) == "interpreted: the plan is compiled at run 3; this is run 2"
        assert await explained(session) == "compiled, at once: nothing speaks against it"


async def test_explanation_names_why_a_plan_is_refused() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", None, name="x")
        with aexec.device("/cpu:1"):
            aexec.ops.neg(aexec.ops.exp(x, name="there"), name="y")
        with aexec.device("/cpu:0"):
            aexec.ops.exp(x, name="here")
    config = aexec.SessionConfig(device_count={"CPU": 2}, compress_transfers=True)
    async with aexec.Session(graph, config=config) as session:
        call = session.make_callable(["y:0", "here:0"], ["x:0"])
        await call(X)
        found = session.explain(call)
        assert found.way == "interpreted, device by device"
        assert "compress" in found.reason


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"compile_plans": False}, "interpreted: the session has compile_plans=False"),
        ({"executor_type": "DEFAULT"}, "interpreted: the session's executor_type is 'DEFAULT'"),
        ({"max_steps": 2}, "compiled, as a line: each run is a step of its own, because max_steps counts steps"),
    ],
)
async def test_explanation_names_the_setting(config: dict[str, object], wanted: str) -> None:
    async with aexec.Session(negated(), config=aexec.SessionConfig(**config)) as session:  # type: ignore[arg-type]
        assert await explained(session) == wanted


@pytest.mark.parametrize(
    ("debug", "shuffle", "wanted"),
    [(1, "", "AEXEC_DEBUG is set, and nodes are seen one by one"), (0, "1", "AEXEC_SHUFFLE is set")],
)
async def test_explanation_names_the_variable_of_the_environment(
    debug: int, shuffle: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_explanation, "DEBUG", debug)
    monkeypatch.setenv("AEXEC_SHUFFLE", shuffle)
    async with aexec.Session(negated()) as session:
        assert await explained(session) == f"interpreted: {wanted}"
