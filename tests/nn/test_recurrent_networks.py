"""Recurrent networks: TensorFlow's values, gradients and names of variables, sharing, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import nn, ops
from aexec.control_flow.structure import leaves_of
from aexec.framework import errors
from aexec.framework.shape import PartialTensorShape
from tests.nn.rnn_cases import CASES, X, weights

# Of TensorFlow 2.21, in graph mode: variables, outputs and states, and what stands for each gradient.
RECORDED = json.loads((Path(__file__).parent / "data" / "recurrent.json").read_text())


def test_every_recorded_case_is_compared() -> None:
    assert CASES.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", CASES)
async def test_values_gradients_and_names_are_those_of_tensorflow(name: str) -> None:
    recorded = RECORDED[name]
    with aexec.Graph() as graph:
        aexec.set_random_seed(5)
        leaves = leaves_of(CASES[name](nn, nn, aexec.constant(X)))
        losses = [ops.sum(ops.sin(leaf), list(range(leaf.shape.rank))) for leaf in leaves]
        variables = aexec.trainable_variables()
        slopes = aexec.gradients(ops.add_n(losses), variables)
        sets = [variable.assign(weights(index, tuple(variable.shape))).op for index, variable in enumerate(variables)]
    assert {variable.name: list(variable.shape) for variable in variables} == recorded["variables"]
    assert [list(leaf.shape) for leaf in leaves] == recorded["shapes"]
    async with aexec.Session(graph) as session:
        await session.run([], targets=sets)
        values, gradients = await session.run([leaves, slopes])
    for value, expected in zip(values, recorded["values"], strict=True):
        np.testing.assert_allclose(value.ravel(), expected, rtol=1e-5, atol=1e-6)
    sums = [np.sum(np.cos(np.arange(slope.size)) * slope.ravel()) for slope in gradients]
    np.testing.assert_allclose(sums, recorded["gradients"], rtol=1e-4, atol=1e-5)


async def test_both_sizes_of_a_batch_may_be_unknown() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, None, 2])
        outputs, state = nn.dynamic_rnn(nn.BasicLSTMCell(3), x, dtype="float32")
        assert str(outputs.shape) == "[?,?,3]"
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        for shape in ((3, 4, 2), (1, 6, 2)):
            found, last = await session.run([outputs, state], {x: np.ones(shape, np.float32)})
            assert found.shape == (*shape[:2], 3)
            np.testing.assert_array_equal(found[:, -1], last.h)


class Sums(nn.RNNCell):
    """Of all that came, without weights: outputs are of another size than the state."""

    state_size, output_size = 2, 4

    def __call__(self, inputs: Any, state: Any, scope: str | None = None) -> tuple[aexec.Tensor, Any]:
        total = state + inputs
        return ops.concat_v2([total, -total], 1), total


async def test_cell_of_ones_own_goes_through_the_loop() -> None:
    with aexec.Graph() as graph:
        made = nn.dynamic_rnn(Sums(), X, dtype="float32")
        more = nn.dynamic_rnn(nn.ResidualWrapper(nn.MultiRNNCell([Sums(), nn.BasicRNNCell(2)])), X, dtype="float32")
        with pytest.raises(errors.InvalidArgumentError):
            nn.dynamic_rnn(nn.ResidualWrapper(Sums()), X, dtype="float32")  # of size 2 and 4
        init = aexec.global_variables_initializer()
    sums = np.cumsum(X, 1)
    async with aexec.Session(graph) as session:
        await session.run(init)
        (outputs, last), (_, (of_sums, _)) = await session.run([made, more])
    np.testing.assert_allclose(outputs, np.concatenate([sums, -sums], 2), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(last, of_sums)


async def test_lstm_goes_on_from_the_state_that_it_gave() -> None:
    with aexec.Graph() as graph:
        cell = nn.LSTMCell(2)
        whole, end = nn.dynamic_rnn(cell, X, dtype="float32")
        _, middle = nn.dynamic_rnn(cell, X[:, :2], dtype="float32")
        assert isinstance(middle, nn.LSTMStateTuple)
        again = nn.LSTMStateTuple(c=ops.identity(middle.c), h=ops.identity(middle.h))
        rest, also_end = nn.dynamic_rnn(cell, X[:, 2:], initial_state=again)
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        outputs, tail, ends = await session.run([whole, rest, [end, also_end]])
    np.testing.assert_array_equal(outputs[:, 2:], tail)
    np.testing.assert_array_equal(*ends)


async def test_cell_that_is_called_again_shares_its_weights() -> None:
    with aexec.Graph() as graph:
        cell = nn.GRUCell(3, kernel_initializer=aexec.initializers.glorot_uniform(seed=2))
        assert cell.variables == []
        first = cell.zero_state(3, "float32")
        once, state = nn.static_rnn(cell, [X[:, 0], X[:, 1]], first)
        twice, _ = nn.static_rnn(cell, [X[:, 2]], state)
        whole, _ = nn.static_rnn(cell, list(np.moveaxis(X[:, :3], 1, 0)), first)
        assert cell.variables == aexec.global_variables()
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        parts, together = await session.run([once + twice, whole])
    np.testing.assert_array_equal(parts, together)


async def test_scopes_share_weights_of_two_cells() -> None:
    def network(length: int) -> Any:
        return nn.dynamic_rnn(nn.BasicRNNCell(2), X[:, :length], dtype="float32")[1]

    with aexec.Graph() as graph:
        with aexec.variable_scope("model", initializer=aexec.initializers.Constant(0.3)):
            one = network(4)
        with aexec.variable_scope("model", reuse=True):
            same = network(4)
        assert [variable.name for variable in aexec.global_variables()] == [
            "model/rnn/basic_rnn_cell/kernel:0",
            "model/rnn/basic_rnn_cell/bias:0",
        ]
        with pytest.raises(errors.InvalidArgumentError, match="already exists"), aexec.variable_scope("model"):
            network(4)
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        np.testing.assert_array_equal(*await session.run([one, same]))


async def test_dropout_differs_in_each_run_and_is_off_by_default() -> None:
    with aexec.Graph() as graph:
        inner = nn.LSTMCell(50, initializer=aexec.initializers.Ones())
        plain, _ = nn.static_rnn(nn.DropoutWrapper(inner), [X[:, 0]], dtype="float32")
        dropped, _ = nn.static_rnn(nn.DropoutWrapper(inner, output_keep_prob=0.5), [X[:, 0]], dtype="float32")
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        (full,), (some,), (others,) = [await session.run(made) for made in (plain, dropped, dropped)]
    assert (some != others).any()
    np.testing.assert_allclose(some[some != 0], 2 * full[some != 0], rtol=1e-6)


def test_invalid_arguments_are_refused() -> None:
    cell = nn.GRUCell(2)
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("you must give a dtype", lambda: nn.dynamic_rnn(cell, X)),
        (r"must be \[batch, time, \.\.\.\], got", lambda: nn.dynamic_rnn(cell, X[0], dtype="float32")),
        ("inputs must not be empty", lambda: nn.static_rnn(cell, [], dtype="float32")),
        ("vector of length batch_size", lambda: nn.dynamic_rnn(cell, X, [[1, 2, 3]], dtype="float32")),
        ("at least one cell", lambda: nn.MultiRNNCell([])),
        ("share weights", lambda: nn.MultiRNNCell([cell, cell])),
        ("same structure", lambda: nn.BasicLSTMCell(2)(X[:, 0], X[:, 0])),
        ("to be known", lambda: nn.GRUCell(2)(aexec.placeholder("float32", [3, None]), np.zeros((3, 2), np.float32))),
    ]
    for message, build in refused:
        with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match=message):
            build()


class Accumulating(nn.RNNCell):
    """A cell with a matrix for each example, to which it adds its inputs, and a number."""

    state_size = (PartialTensorShape([2, 3]), 1)
    output_size = 2

    def __call__(self, inputs: Any, state: Any, scope: str | None = None) -> tuple[Any, Any]:
        matrix, count = state
        matrix = ops.add(matrix, ops.expand_dims(inputs, -1))
        return ops.sum(matrix, [2]), (matrix, ops.add(count, 1.0))


async def test_state_may_have_any_rank() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, None, 2])
        cell = Accumulating()
        states = [cell.zero_state(batch, "float32") for batch in (4, ops.gather(ops.shape(x), 0))]
        assert [[str(leaf.shape) for leaf in state] for state in states] == [["[4,2,3]", "[4,1]"], ["[?,2,3]", "[?,1]"]]
        outputs, last = nn.dynamic_rnn(cell, x, initial_state=states[1])
    async with aexec.Session(graph) as session:
        found, (matrix, count) = await session.run([outputs, last], {x: np.ones((4, 5, 2), np.float32)})
    np.testing.assert_array_equal(matrix, np.full((4, 2, 3), 5.0))
    np.testing.assert_array_equal(count, np.full((4, 1), 5.0))
    np.testing.assert_array_equal(found[:, :, 0], np.tile(3.0 * np.arange(1, 6), (4, 1)))
