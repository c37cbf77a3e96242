"""Gradients through conditionals that use variables inside their branches, against difference quotients.

Random programs nest `cond`, `case` and `while_loop`, read variables by handle and by reference, dense and by gather,
in one branch or in several, and have branches that are constants.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.autodiff.aggregation import as_dense
from tests.support.programs.seeds import Seeds

PREDICATES = ("p0:0", "p1:0", "p2:0")
START = np.array([0.5, -1.2, 0.8])


class Program:
    """A random scalar expression of variables `v`, `w` (of three elements) and predicates.

    Args:
        seed: of its choices.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._functional = self.random.random() < 0.4
        self.graph = aexec.Graph()
        with self.graph:
            self._predicates = [aexec.placeholder("bool", [], name=name[:-2]) for name in PREDICATES]
            self.variables = [aexec.Variable(START, use_resource=self.random.random() < 0.7) for _ in range(2)]
            self.init = aexec.global_variables_initializer()
            self.y = self._expression(3, [ops.const(0.3, dtype="float64")]) * 1.0
            grads = aexec.gradients(self.y, self.variables, unconnected="zero")
            self.grads = [ops.identity(as_dense(grad)) for grad in grads]
            self.value = aexec.placeholder("float64", [3])
            self.assign = [variable.assign(self.value) for variable in self.variables]

    def _leaf(self, known: list[Any]) -> Any:
        v = self.random.choice(self.variables)
        return self.random.choice(
            [
                lambda: ops.sum(v * v, [0]),
                lambda: ops.sum(aexec.nn.embedding_lookup(v, [0, 2, 2]), [0]),
                lambda: aexec.constant(self.random.uniform(-1.0, 1.0), "float64"),
                lambda: self.random.choice(known),
            ]
        )()

    def _expression(self, depth: int, known: list[Any]) -> Any:
        if depth == 0:
            return self._leaf(known)
        make: Callable[[int, list[Any]], Any] = self.random.choice(
            [
                self._sum,
                self._product,
                self._cond,
                self._cond,
                self._case,
                self._loop,
                lambda _, known: self._leaf(known),
            ]
        )
        return make(depth - 1, known)

    def _sum(self, depth: int, known: list[Any]) -> Any:
        return self._expression(depth, known) + self._expression(depth, known)

    def _product(self, depth: int, known: list[Any]) -> Any:
        return ops.sin(self._expression(depth, known)) * ops.cos(self._expression(depth, known))

    def _cond(self, depth: int, known: list[Any]) -> Any:
        branches = [lambda: self._expression(depth, known)] * 2
        return aexec.cond(self.random.choice(self._predicates), *branches, functional=self._functional)

    def _case(self, depth: int, known: list[Any]) -> Any:
        def branch() -> Any:
            return self._expression(depth, known)

        pairs = [(predicate, branch) for predicate in self.random.sample(self._predicates, 2)]
        return aexec.case(pairs, branch, functional=self._functional)

    def _loop(self, depth: int, known: list[Any]) -> Any:
        def body(i: Any, total: Any) -> Any:
            return i + 1, ops.sin(total) + self._expression(depth, [*known, total])

        start = (0, self._expression(depth, known))
        count = self.random.randrange(3)
        return aexec.while_loop(lambda i, _: ops.less(i, count), body, start, functional=self._functional)[1]


async def check(program: Program) -> None:
    feeds = {name: bool(program.random.getrandbits(1)) for name in PREDICATES}
    async with aexec.Session(program.graph) as session:
        await session.run(program.init)
        found = await session.run(program.grads, feeds)
        for assign, grad in zip(program.assign, found, strict=True):
            direction = np.array([1.0, -0.6, 0.3])
            ends = []
            for step in (1e-6, -1e-6):
                await session.run(assign, {program.value: START + step * direction})
                ends.append(await session.run(program.y, feeds))
            await session.run(assign, {program.value: START})
            assert grad @ direction == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("block", range(5))
async def test_variables_in_branches(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        await check(Program(seed))


@pytest.mark.soak
@pytest.mark.time_limit(4 * 3600)
async def test_random_conditionals_have_the_numeric_gradient() -> None:
    seeds = Seeds(10_000)
    for seed in seeds:
        with seeds.trying(seed):
            await check(Program(seed))
    seeds.check()


@pytest.mark.parametrize("resource", [True, False])
async def test_rows_gathered_in_a_branch_stay_rows(resource: bool) -> None:
    """If the branch is not taken, all rows are there, with zeros, as in TensorFlow 2.21."""
    with aexec.Graph() as graph:
        table = aexec.Variable([[1.0, 2.0], [3.0, 4.0]], use_resource=resource)
        chosen = aexec.placeholder("bool", [])
        rows = lambda: ops.sum(aexec.nn.embedding_lookup(table, [1]), [0, 1])  # noqa: E731
        (grad,) = aexec.gradients(aexec.cond(chosen, rows, lambda: aexec.constant(3.0)), table)
        init = aexec.global_variables_initializer()
    assert isinstance(grad, aexec.IndexedSlices)
    async with aexec.Session(graph) as session:
        await session.run(init)
        for taken, values, indices in ((True, [[1.0, 1.0]], [1]), (False, [[0.0, 0.0], [0.0, 0.0]], [0, 1])):
            found = await session.run(list(grad), {chosen: taken})
            for one, expected in zip(found, (values, indices, [2, 2]), strict=True):
                np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize("resource", [True, False])
async def test_rows_gathered_in_a_branch_of_a_loop_keep_their_number(resource: bool) -> None:
    """The indices, constants of the branch, are made anew in each step of the gradient's loop."""
    with aexec.Graph() as graph:
        table = aexec.Variable([1.0, 2.0, 3.0], use_resource=resource)
        chosen = aexec.placeholder("bool", [])

        def body(i: Any, total: Any) -> Any:
            rows = lambda: ops.sum(aexec.nn.embedding_lookup(table, [1, 2, 2, 2]), [0])  # noqa: E731
            return i + 1, total + aexec.cond(chosen, rows, lambda: aexec.constant(3.0))

        total = aexec.while_loop(lambda i, _: ops.less(i, 2), body, (0, 0.0), functional=False)[1]
        grad = ops.identity(as_dense(aexec.gradients(total, table)[0]))
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        for taken, expected in ((True, [0, 2, 6]), (False, [0, 0, 0])):
            np.testing.assert_array_equal(await session.run(grad, {chosen: taken}), expected)


async def test_rows_gathered_behind_a_conditional_go_back_into_it() -> None:
    with aexec.Graph() as graph:
        table = aexec.Variable([[1.0, 2.0], [3.0, 4.0]], use_resource=True)
        chosen = aexec.placeholder("bool", [])
        value = aexec.cond(chosen, lambda: table * 2.0, lambda: table + 1.0)
        (grad,) = aexec.gradients(ops.gather_v2(value, [1], 0), table)
        grad = ops.identity(as_dense(grad))
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        for taken, expected in ((True, [[0, 0], [2, 2]]), (False, [[0, 0], [1, 1]])):
            np.testing.assert_array_equal(await session.run(grad, {chosen: taken}), expected)


async def test_variable_chooses_between_its_gradient_and_that_of_a_constant() -> None:
    with aexec.Graph() as graph:
        flag, v = aexec.Variable(True, use_resource=False), aexec.Variable(3.0, use_resource=True)
        (grad,) = aexec.gradients(aexec.cond(flag, lambda: v * v, lambda: aexec.constant(0.0)), v)
        grad, init, turn = ops.identity(grad), aexec.global_variables_initializer(), flag.assign(False)
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert await session.run(grad) == 6.0
        await session.run(turn)
        assert await session.run(grad) == 0.0


def test_merge_without_a_conditional_is_refused() -> None:
    with aexec.Graph() as graph:
        x = aexec.constant(1.0)
        y = ops.merge([x * 2.0, x * 3.0])[0]
        with pytest.raises(errors.UnimplementedError, match="does not merge the two branches of one conditional"):
            aexec.gradients(y, x)
    assert graph
