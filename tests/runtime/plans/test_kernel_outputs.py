"""Outputs of kernels are compared with the declaration of the op; the error names expected and actual output."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from tests.support.programs.graphs import GraphBuilder

pytestmark = pytest.mark.both_executors

F = dtypes.float32
_to_return: list[Any] = []

register_op("OutputsOne(x: float) -> y: float", stateful=True)
register_op("OutputsTwo(x: float) -> (y: float, z: int32)", stateful=True)
register_op("OutputsAwaited(x: float) -> y: float", stateful=True)
register_op("OutputsText(x: float) -> y: string", stateful=True)


@kernel("OutputsOne", "OutputsTwo", "OutputsText", cost=0)
def _one(c: Any) -> Any:
    return lambda x: _to_return.pop(0)


@kernel("OutputsAwaited", cost=0)
def _awaited(c: Any) -> Any:
    async def compute(x: Any) -> Any:
        return _to_return.pop(0)

    return compute


def _graph(op: str) -> aexec.Graph:
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g("node", op, "x")
    g("after", "Identity", "node:0", T=dtypes.string if op == "OutputsText" else F)
    return g.graph()


ONE = np.float32(1)
WRONG = {
    "a Python number": ("OutputsOne", 1.0, "Output 0 of type builtins.float (no array) does not match .* type float"),
    "a list": ("OutputsOne", [1.0], "Output 0 of type builtins.list (no array)"),
    "another dtype": (
        "OutputsOne",
        np.float64(1),
        "Output 0 of type double does not match declared output type float ",
    ),
    "of an array": ("OutputsOne", np.ones(2, np.int32), "Output 0 of type int32 does not match"),
    "another byte order": ("OutputsOne", np.ones(2, ">f4"), "Output 0 of type >f4 does not match"),
    "nothing": ("OutputsOne", None, "Missing 0-th output from {{node node}}"),
    "too many": ("OutputsOne", (ONE, ONE), "returned 2 outputs, expected 1"),
    "too few": ("OutputsTwo", (ONE,), "returned 1 outputs, expected 2"),
    "one of two": ("OutputsTwo", ONE, "returned 1 outputs, expected 2"),
    "a hole": ("OutputsTwo", (ONE, None), "Missing 1-th output from {{node node}}"),
    "the second's dtype": (
        "OutputsTwo",
        (ONE, ONE),
        "Output 1 of type float does not match declared output type int32",
    ),
    "awaited": ("OutputsAwaited", 1.0, "Output 0 of type builtins.float"),
    "awaited dtype": ("OutputsAwaited", np.float16(1), "Output 0 of type half"),
    "bytes": ("OutputsText", b"a", "Output 0 of type builtins.bytes"),
    "fixed-width text": ("OutputsText", np.array([b"a"]), "Output 0 of type [|]S1 does not match declared"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_outputs_that_the_op_does_not_declare_are_errors(case: str) -> None:
    op, out, words = WRONG[case]
    async with aexec.Session(_graph(op)) as session:
        _to_return[:] = [out]
        pattern = words.replace("(", r"\(").replace(")", r"\)").replace("{", r"\{").replace("}", r"\}")
        with pytest.raises(errors.InternalError, match=pattern) as caught:
            await session.run("after:0", {"x": 1})
        assert (caught.value.node, caught.value.op) == ("node", op)


@pytest.mark.parametrize("runs", [1, 4])
@pytest.mark.parametrize(
    "case", ["a Python number", "nothing", "too many", "too few", "one of two", "a hole", "awaited", "bytes"]
)
async def test_output_that_is_no_array_is_an_error_at_any_time(case: str, runs: int) -> None:
    """Of a node that once gave what it should, dtypes are not compared any more: these show without.

    After some runs a plan is compiled, which makes no difference.
    """
    op, out, words = WRONG[case]
    good: dict[str, Any] = {"OutputsTwo": (ONE, np.int32(1)), "OutputsText": np.array(b"a", object)}
    async with aexec.Session(_graph(op)) as session:
        _to_return[:] = [*[good.get(op, ONE)] * runs, out]
        for _ in range(runs):
            await session.run("after:0", {"x": 1})
        with pytest.raises(errors.InternalError, match=words.partition(" (")[0].replace("{", r"\{")):
            await session.run("after:0", {"x": 1})


def test_outputs_are_compared_in_every_run_with_aexec_debug() -> None:
    script = textwrap.dedent("""
        import asyncio, numpy as np, aexec
        from aexec.framework.kernel_contract.kernel_registry import kernel
        from aexec.framework.op_contract.op_registry import register_op

        register_op("Fickle(x: float) -> y: float", stateful=True)
        results = [np.float32(1), np.float64(2)]

        @kernel("Fickle", cost=0)
        def fickle(c):
            return lambda x: results.pop(0)

        with aexec.Graph() as graph:
            aexec.ops.fickle(aexec.constant(1.0), name="y")

        async def main():
            async with aexec.Session(graph) as session:
                print(await session.run("y:0"))
                try:
                    print(await session.run("y:0"))
                except aexec.errors.InternalError as error:
                    print(error.message)

        asyncio.run(main())
    """)

    def lines(level: str) -> list[str]:
        environment = {**os.environ, "AEXEC_DEBUG": level}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
        )
        return done.stdout.splitlines()

    assert lines("") == ["1.0", "2.0"]
    first, second = lines("1")
    assert first == "1.0"
    assert second == "Output 0 of type double does not match declared output type float for node {{node y}} (Fickle)"
