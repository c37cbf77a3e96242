"""Executors by type: a session runs its steps with the one that its config names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.runtime import executor
from aexec.runtime.execution import Execution
from tests.support.graphs import chain
from tests.support.plain_executor import PlainExecution


class Counting(Execution):
    made = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        Counting.made += 1


async def test_a_session_uses_the_executor_of_its_config() -> None:
    executor.register_executor("COUNTING", Counting)
    with pytest.raises(errors.AlreadyExistsError):
        executor.register_executor("COUNTING", Counting)
    async with aexec.Session(chain(3).graph(), config=aexec.SessionConfig(executor_type="COUNTING")) as session:
        await session.run("last:0", {"x:0": [[0.0] * 4] * 4})
    assert Counting.made == 1


def test_an_unknown_type_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(errors.NotFoundError, match="'DEFAULT'"):
        aexec.Session(chain(3).graph(), config=aexec.SessionConfig(executor_type="NOPE"))


async def test_an_executor_that_shares_nothing_with_the_default() -> None:
    executor.register_executor("PLAIN", PlainExecution)
    outs = []
    for executor_type in ("DEFAULT", "PLAIN"):
        config = aexec.SessionConfig(executor_type=executor_type)
        async with aexec.Session(chain(3).graph(), config=config) as session:
            outs.append(await session.run("last:0", {"x:0": np.ones((4, 4))}))
    assert outs[0].tolist() == outs[1].tolist()
