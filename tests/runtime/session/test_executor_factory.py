"""Executors by type: a session runs its steps with the one that its config names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.device_contract.rendezvous import Rendezvous
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.runtime.interpreter import executor
from aexec.runtime.interpreter.execution import Execution
from tests.support.programs.graphs import chain, chain_over_devices
from tests.support.stand_ins.plain_executor import PlainExecution


class Counting(Execution):
    made = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        Counting.made += 1


async def test_session_uses_the_executor_of_its_config() -> None:
    executor.register_executor("COUNTING", Counting)
    with pytest.raises(errors.AlreadyExistsError):
        executor.register_executor("COUNTING", Counting)
    async with aexec.Session(chain(3).graph(), config=aexec.SessionConfig(executor_type="COUNTING")) as session:
        await session.run("last:0", {"x:0": [[0.0] * 4] * 4})
    assert Counting.made == 1


def test_unknown_executor_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(errors.NotFoundError, match="'DEFAULT'"):
        aexec.Session(chain(3).graph(), config=aexec.SessionConfig(executor_type="NOPE"))


def in_place_of_neg(c: OpKernelConstruction, registered: Any) -> BuiltKernel:
    """A kernel whose result shows that it ran in place of Neg."""
    kernel: BuiltKernel = registered(c)
    if c.op == "Neg":
        kernel.compute = lambda x: x + 100
    return kernel


async def test_executor_type_may_make_its_own_kernels() -> None:
    executor.register_executor("OWN_KERNELS", Execution, create_kernel=in_place_of_neg)
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")

        @aexec.function
        def inner(value: Any) -> Any:
            return aexec.ops.neg(value) * 2.0

        aexec.ops.add_v2(aexec.ops.neg(x), inner(x), name="y")
    for config, wanted in ((None, -3), (aexec.SessionConfig(executor_type="OWN_KERNELS"), 101 + 202)):
        async with aexec.Session(graph, config=config) as session:
            assert await session.run("y:0", {"x:0": 1.0}) == wanted


class Recording(Rendezvous):
    keys: list[str] = []  # noqa: RUF012  of all steps

    def send(self, key: str, value: Any, **rest: Any) -> None:
        Recording.keys.append(key)
        super().send(key, value, **rest)


async def test_executor_type_may_bring_its_rendezvous() -> None:
    steps: list[int] = []

    def create(step_id: int) -> Rendezvous:
        steps.append(step_id)
        return Recording()

    executor.register_executor("OWN_RENDEZVOUS", Execution, create_rendezvous=create)
    config = aexec.SessionConfig(executor_type="OWN_RENDEZVOUS", device_count={"CPU": 2})
    g = chain_over_devices(2)
    async with aexec.Session(g.graph(), config=config) as session:
        await session.run("last:0", {"x:0": 1.0})
    assert len(steps) == 1
    assert all(key.endswith(";0:0") for key in Recording.keys)
    assert Recording.keys


async def test_independent_executor_gives_the_same_results() -> None:
    executor.register_executor("PLAIN", PlainExecution)
    outs = []
    for executor_type in ("DEFAULT", "PLAIN"):
        config = aexec.SessionConfig(executor_type=executor_type)
        async with aexec.Session(chain(3).graph(), config=config) as session:
            outs.append(await session.run("last:0", {"x:0": np.ones((4, 4))}))
    assert outs[0].tolist() == outs[1].tolist()
