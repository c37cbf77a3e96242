"""The global step: made once, named and collected as TensorFlow's."""

from __future__ import annotations

import pytest

import aexec
from aexec.framework import errors
from aexec.training import create_global_step, get_global_step, get_or_create_global_step, global_step


async def test_graph_has_one_global_step() -> None:
    with aexec.Graph() as graph:
        assert get_global_step() is None
        made = create_global_step()
        assert get_or_create_global_step() is made is get_global_step()
        assert (made.op.name, made.dtype, made.trainable) == ("global_step", aexec.int64, False)
        with pytest.raises(errors.InvalidArgumentError, match='"global_step" already exists'):
            create_global_step()
        init = aexec.global_variables_initializer()
        add = made.assign_add(2)
    async with aexec.Session(graph) as session:
        await session.run(init)
        await session.run(add)
        assert await global_step(session, made) == 2


async def test_global_step_may_be_in_resource_form() -> None:
    with aexec.Graph() as graph:
        step = aexec.Variable(5, trainable=False, name="global_step", use_resource=True)
        init = step.initializer
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert await global_step(session, step) == 5
