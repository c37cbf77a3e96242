"""The example model that `aexec serve --example` loads, and the requests it prints.

`y` is a small classifier over `x`; `waited` returns `seconds` after that many seconds, so that a run can be cancelled.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aexec
from aexec.hosting import MetaGraph, Signature

__all__ = ["example_graph", "example_requests"]


@aexec.op("ExampleWait(seconds: float) -> seconds_waited: float")
async def example_wait(seconds: Any) -> Any:
    """Wait for `seconds` without a thread, and return them."""
    await asyncio.sleep(float(seconds))
    return seconds


def example_graph() -> MetaGraph:
    """Return the example model, with a signature for each of its two parts."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 3], name="x")
        weights = aexec.constant([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], name="weights")
        y = aexec.ops.softmax(aexec.ops.bias_add(x @ weights, [0.1, -0.1]), name="y")
        seconds = aexec.placeholder("float32", [], name="seconds")
        waited = aexec.ops.identity(example_wait(seconds), name="waited")
    signatures = {
        "serving_default": Signature.of({"x": x}, {"y": y}),
        "wait": Signature.of({"seconds": seconds}, {"waited": waited}),
    }
    return MetaGraph(graph, signatures=signatures)


def example_requests(address: str) -> list[str]:
    """Return three commands to paste: a run, a run that is cancelled, and a description of the session.

    Args:
        address: `http://127.0.0.1:8500`.
    """
    session = f"{address}/v1/sessions/example"
    slow = '{"run_id": "r1", "feeds": {"seconds:0": 60}, "fetches": ["waited:0"]}'
    return [
        f"""curl -s {session}:run -d '{{"feeds": {{"x:0": [[1, 2, 3]]}}, "fetches": ["y:0"]}}'""",
        f"""curl -s {session}:run -d '{slow}' & sleep 1; """
        f"""curl -s -X POST {session}/runs/r1:cancel -d '{{"reason": "changed my mind"}}'""",
        f"curl -s {session}",
    ]
