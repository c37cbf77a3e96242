"""Averages: TensorFlow's numbers and names, saved and restored in place of the variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec.framework import errors
from aexec.training import ExponentialMovingAverage, Saver


@pytest.mark.parametrize("use_resource", [False, True])
async def test_averages_are_tensorflows_and_serve_in_place_of_variables(tmp_path: Path, use_resource: bool) -> None:
    with aexec.Graph() as graph:
        w = aexec.Variable([1.0, 2.0], name="w", use_resource=use_resource)
        n = aexec.Variable(7, name="n", trainable=False)
        average = ExponentialMovingAverage(0.9)
        assert average.average(w) is None and average.average_name(w) == "w/ExponentialMovingAverage"
        apply = average.apply()
        made = average.average(w)
        assert made is not None and (apply.name, made.name) == (average.name, "w/ExponentialMovingAverage:0")
        assert aexec.moving_average_variables() == [w] and aexec.global_variables() == [w, n, made]
        assert average.variables_to_restore() == {"w/ExponentialMovingAverage": w, "n": n}
        add = w.assign_add([1.0, 1.0])
        init = aexec.global_variables_initializer()
        saver, restorer = Saver(aexec.global_variables()), Saver(average.variables_to_restore(), name="averages")
        with pytest.raises(errors.InvalidArgumentError, match="must be half, float, or double"):
            average.apply([n])
    async with aexec.Session(graph) as session:
        await session.run(init)
        found = []
        for _ in range(3):
            await session.run(add)
            await session.run(apply)
            found.append(await session.run(made.element))
        # What TensorFlow 2.21 gives.
        wanted = [[1.1, 2.1], [1.29, 2.29], [1.561, 2.561]]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        await restorer.restore(session, await saver.save(session, str(tmp_path / "model")))
        np.testing.assert_array_equal(await session.run(w.element), found[-1])


async def test_averages_move_faster_at_first() -> None:
    with aexec.Graph() as graph:
        w = aexec.Variable(1.0, name="w")
        average = ExponentialMovingAverage(0.9, num_updates=1)
        init, apply, add = w.initializer, average.apply([w]), w.assign_add(1.0)
        made = average.average(w)
        assert made is not None
        start = made.initializer
    async with aexec.Session(graph) as session:
        for target in (init, start, add, apply):
            await session.run([], targets=[target if isinstance(target, aexec.Node) else target.node])
        np.testing.assert_allclose(await session.run(made.element), 2 - 2 / 11, rtol=1e-6)
