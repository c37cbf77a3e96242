"""The pass that puts one node in place of a recurrent loop: which loops it knows, which it leaves alone, and that
results stay the same within their last digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, nn, ops
from aexec.graph.passes import PASSES
from tests.native.test_loops import needs_loops, without_loops

TIME, BATCH, INPUTS, CELLS = 6, 3, 5, 4
# float32 has 24 bits; sums are taken in another order, over a few steps.
NEAR = {"rtol": 1e-5, "atol": 1e-6}
X = np.random.default_rng(0).standard_normal((TIME, BATCH, INPUTS)).astype(np.float32)
BY_EXAMPLE = np.ascontiguousarray(X.swapaxes(0, 1))
FUSED = frozenset({"_LSTMLoop", "_GRULoop"})

Fetches = list[aexec.Tensor]


async def values(graph: aexec.Graph, fetches: Fetches, feeds: Any, **config: Any) -> tuple[list[Any], set[str]]:
    """What is fetched, and the ops that ran."""
    metadata, options = aexec.RunMetadata(), aexec.RunOptions(output_partition_graphs=True)
    async with aexec.Session(graph, config=aexec.SessionConfig(**config)) as session:
        if graph.find("init") is not None:
            await session.run([], targets=["init"])
        found = await session.run(fetches, feeds, options=options, metadata=metadata)
        for _ in range(4):  # the plan is compiled meanwhile
            again = await session.run(fetches, feeds)
    np.testing.assert_equal(found, again)
    return found, {node.op for part in metadata.partition_graphs for node in part.node}


async def both(build: Callable[[aexec.Tensor], Fetches], x: Any = X) -> set[str]:
    """The ops that ran with all passes, when the results are those without the pass."""
    with aexec.Graph() as graph:
        aexec.set_random_seed(3)
        given = aexec.placeholder("float32", [None, None, x.shape[2]], name="x")
        fetches = build(given)
        aexec.group(aexec.global_variables_initializer(), name="init")
    feeds = {given: x}
    want, plain = await values(graph, fetches, feeds, graph_passes=())
    got, ran = await values(graph, fetches, feeds, graph_passes=tuple(PASSES))
    exact, _ = await values(graph, fetches, feeds, graph_passes="exact")
    assert not FUSED & plain
    for one, other, third in zip(got, want, exact, strict=True):
        np.testing.assert_allclose(one, other, **NEAR)
        np.testing.assert_array_equal(third, other)
    return ran


def is_fused(ran: set[str]) -> bool:
    """True if a loop became a node, and nothing is left of it."""
    assert bool(FUSED & ran) is not ("Enter" in ran)
    return bool(FUSED & ran)


CELLS_OF_TENSORFLOW: dict[str, Callable[[], Any]] = {
    "basic LSTM": lambda: nn.BasicLSTMCell(CELLS),
    "LSTM": lambda: nn.LSTMCell(CELLS, forget_bias=0.5),
    "GRU": lambda: nn.GRUCell(CELLS),
}


def leaves(outputs: Any, state: Any) -> Fetches:
    return [outputs, *(state if isinstance(state, tuple) else [state])]


@needs_loops
@pytest.mark.parametrize("batch", [1, BATCH, 9])
@pytest.mark.parametrize("cell", CELLS_OF_TENSORFLOW.values(), ids=CELLS_OF_TENSORFLOW)
async def test_cells_of_tensorflow_are_known_in_a_loop(cell: Callable[[], Any], batch: int) -> None:
    x = np.random.default_rng(1).standard_normal((batch, TIME, INPUTS)).astype(np.float32)

    def build(given: aexec.Tensor) -> Fetches:
        return leaves(*nn.dynamic_rnn(cell(), given, dtype="float32"))

    assert is_fused(await both(build, x))
    with without_loops():
        assert not is_fused(await both(build, x))


@needs_loops
async def test_layers_of_cells_are_known_one_by_one() -> None:
    def build(given: aexec.Tensor) -> Fetches:
        outputs, first = nn.dynamic_rnn(nn.LSTMCell(CELLS), given, dtype="float32", scope="one")
        again, second = nn.dynamic_rnn(nn.GRUCell(CELLS), outputs, dtype="float32", scope="two")
        return [again, first.c, second]

    ran = await both(build, BY_EXAMPLE)
    assert ran >= FUSED and "Enter" not in ran


Near = Callable[[aexec.Tensor], tuple[Any, Any]]
NEAR_MISSES: dict[str, Near] = {
    "sequence lengths": lambda x: nn.dynamic_rnn(nn.LSTMCell(CELLS), x, np.int32([2, 6, 4]), dtype="float32"),
    "peepholes": lambda x: nn.dynamic_rnn(nn.LSTMCell(CELLS, use_peepholes=True), x, dtype="float32"),
    "clipped": lambda x: nn.dynamic_rnn(nn.LSTMCell(CELLS, cell_clip=0.1), x, dtype="float32"),
    "another activation": lambda x: nn.dynamic_rnn(nn.BasicLSTMCell(CELLS, activation=ops.relu), x, dtype="float32"),
    "a cell without gates": lambda x: nn.dynamic_rnn(nn.BasicRNNCell(CELLS), x, dtype="float32"),
    "a residual": lambda x: nn.dynamic_rnn(nn.ResidualWrapper(nn.GRUCell(INPUTS)), x, dtype="float32"),
}


@pytest.mark.parametrize("network", NEAR_MISSES.values(), ids=NEAR_MISSES)
async def test_loop_of_another_cell_stays(network: Near) -> None:
    assert not is_fused(await both(lambda x: leaves(*network(x)), BY_EXAMPLE))


async def test_loop_whose_gradient_is_taken_stays() -> None:
    def build(given: aexec.Tensor) -> Fetches:
        outputs, _ = nn.dynamic_rnn(nn.LSTMCell(CELLS), given, dtype="float32")
        return [outputs, *aexec.gradients(ops.sum(outputs, [0, 1, 2]), aexec.trainable_variables())]

    assert not is_fused(await both(build, BY_EXAMPLE))


class Loop:
    """An LSTM's loop as a program writes it; a test changes some of it."""

    start, stride, axis, order, parts = 0, 1, 1, (0, 1, 2, 3), 4
    limit: int | None = TIME
    most: int | None = None
    offset = 0

    def gate(self, value: aexec.Tensor) -> aexec.Tensor:
        return ops.sigmoid(value)

    def forget(self, value: aexec.Tensor) -> aexec.Tensor:
        return ops.sigmoid(value + 1.0)

    def next_c(self, c: aexec.Tensor, put: Any, new: Any, forget: Any) -> aexec.Tensor:
        return c * self.forget(forget) + self.gate(put) * ops.tanh(new)

    def next_h(self, c: aexec.Tensor, out: Any) -> aexec.Tensor:
        return ops.tanh(c) * self.gate(out)

    def row(self, inputs: aexec.TensorArray, i: aexec.Tensor) -> aexec.Tensor:
        return inputs.read(i + self.offset if self.offset else i)

    def kept(self, h: aexec.Tensor, gates: list[aexec.Tensor]) -> aexec.Tensor:
        return h

    def build(self, x: aexec.Tensor) -> Fetches:
        rng = np.random.default_rng(5)
        kernel = aexec.constant(rng.standard_normal((INPUTS + CELLS, 4 * CELLS)).astype(np.float32) / 2)
        bias = aexec.constant(rng.standard_normal(4 * CELLS).astype(np.float32))
        inputs = aexec.TensorArray(aexec.float32, TIME).unstack(aexec.ops.ensure_shape(x, shape=[TIME, BATCH, INPUTS]))
        zeros = ops.fill(np.int32([BATCH, CELLS]), np.float32(0.25))
        sink = aexec.TensorArray(aexec.float32, TIME, clear_after_read=False)

        def cell(i: Any, c: Any, h: Any, kept: Any) -> tuple[Any, Any, Any, Any]:
            whole = nn.bias_add(ops.concat_v2([self.row(inputs, i), h], 1) @ kernel, bias)
            gates = ops.split(aexec.constant(self.axis), whole, num_split=4)
            put, new, forget, out = (gates[at] for at in self.order)
            c = self.next_c(c, put, new, forget)
            h = self.next_h(c, out)
            return i + self.stride, c, h, kept.write(i, self.kept(h, list(gates)))

        limit = TIME if self.limit is None else self.limit
        i, c, h, kept = aexec.while_loop(
            lambda i, *_: i < limit,
            cell,
            (aexec.constant(self.start), zeros, zeros + 0.5, sink),
            maximum_iterations=self.most,
        )
        written = [kept.read(aexec.constant(at)) for at in range(self.start, self.steps, self.stride)]
        return [i, c, h, *written]

    @property
    def steps(self) -> int:
        limit = TIME if self.limit is None else self.limit
        return max(0, limit if self.most is None else min(limit, self.most))


def loop(**attributes: Any) -> Loop:
    return type("Changed", (Loop,), attributes)()


@needs_loops
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"order": (0, 2, 1, 3)},
        {"order": (3, 1, 0, 2)},
        {"axis": -1},
        {"limit": 2},
        {"limit": 0},
        {"limit": -3},
        {"most": 4},
        {"most": 40},
        {"forget": lambda self, value: ops.sigmoid(value)},
        {"forget": lambda self, value: ops.sigmoid(aexec.constant(0.25) + value)},
        {"next_c": lambda self, c, i, j, f: ops.tanh(j) * ops.sigmoid(i) + ops.sigmoid(f) * c},
        {"next_h": lambda self, c, out: ops.sigmoid(out) * ops.tanh(c)},
    ],
)
async def test_loop_as_programs_write_it_is_known(changed: dict[str, Any]) -> None:
    assert is_fused(await both(loop(**changed).build))


@pytest.mark.parametrize(
    "changed",
    [
        {"start": 1},
        {"stride": 2},
        {"offset": 1, "limit": TIME - 1},
        {"order": (0, 1, 2, 0)},
        {"gate": lambda self, value: ops.tanh(value)},
        {"gate": lambda self, value: ops.sigmoid(ops.neg(value))},
        {"forget": lambda self, value: ops.sigmoid(value * 2.0)},
        {"forget": lambda self, value: ops.sigmoid(value + aexec.constant(np.ones(CELLS, np.float32)))},
        {"next_c": lambda self, c, i, j, f: ops.sigmoid(f) * c - ops.sigmoid(i) * ops.tanh(j)},
        {"next_h": lambda self, c, out: ops.tanh(ops.neg(c)) * ops.sigmoid(out)},
        {"kept": lambda self, h, gates: gates[1]},
        {"kept": lambda self, h, gates: ops.neg(h)},
    ],
)
async def test_loop_that_differs_by_one_node_stays(changed: dict[str, Any]) -> None:
    assert not is_fused(await both(loop(**changed).build))


async def test_loop_that_is_longer_than_its_sequence_fails_in_the_same_way() -> None:
    with aexec.Graph() as graph:
        given = aexec.placeholder("float32", [None, None, INPUTS], name="x")
        fetches = loop(limit=TIME + 1).build(given)[:3]
    said = []
    for passes in ((), tuple(PASSES)):
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await values(graph, fetches, {given: X}, graph_passes=passes)
        said.append(str(caught.value))
    assert all(f"Tried to read from index {TIME} but array size is: {TIME}" in message for message in said)


async def test_value_within_the_loop_can_be_targeted() -> None:
    """A loop of which a node is a target stays."""
    with aexec.Graph() as graph:
        given = aexec.placeholder("float32", [None, None, INPUTS], name="x")
        fetches = Loop().build(given)
    inner = next(node.name for node in graph.nodes if node.op == "Split")
    async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=tuple(PASSES))) as session:
        call = session.make_callable(fetches, [given], targets=[inner])
        got = await call(X)
        assert not FUSED & {node.op for node in call.plan.nodes}
    want, _ = await values(graph, fetches, {given: X}, graph_passes=())
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, **NEAR)


class ListLoop:
    """An LSTM's loop as Keras writes it: with lists in place of TensorArrays, and two products; a test changes some."""

    functional, resized, room, limit = True, False, TIME, TIME

    def product(self, row: Any, h: Any, w: Any, u: Any, b: Any) -> aexec.Tensor:
        return nn.bias_add(row @ w + h @ u, b)

    def row(self, rows: Any, i: Any) -> aexec.Tensor:
        return ops.tensor_list_get_item(rows, i, np.int32([-1, INPUTS]), element_dtype=aexec.float32)

    def index(self, i: Any) -> Any:
        return i

    def build(self, x: aexec.Tensor) -> Fetches:
        rng = np.random.default_rng(5)
        w, u, b = (
            aexec.constant(rng.standard_normal(shape).astype(np.float32) / 2)
            for shape in ((INPUTS, 4 * CELLS), (CELLS, 4 * CELLS), (4 * CELLS,))
        )
        given = ops.ensure_shape(x, shape=[TIME, BATCH, INPUTS])
        rows = ops.tensor_list_from_tensor(given, np.int32([-1, INPUTS]))
        sink = ops.tensor_list_reserve(np.int32([-1, CELLS]), np.int32(self.room), element_dtype=aexec.float32)
        zeros = aexec.constant(np.full((BATCH, CELLS), 0.25, np.float32))

        def cell(i: Any, kept: Any, h: Any, c: Any, rows: Any) -> tuple[Any, ...]:
            gates = ops.split(aexec.constant(1), self.product(self.row(rows, i), h, w, u, b), num_split=4)
            put, forget, new, out = gates
            c = ops.sigmoid(forget) * c + ops.sigmoid(put) * ops.tanh(new)
            h = ops.sigmoid(out) * ops.tanh(c)
            kept = ops.tensor_list_set_item(kept, self.index(i), h, resize_if_index_out_of_bounds=self.resized)
            return i + 1, kept, h, c, rows

        i, kept, h, c, same = aexec.while_loop(
            lambda i, *_: i < self.limit,
            cell,
            (aexec.constant(0), sink, zeros, zeros + 0.5, rows),
            maximum_iterations=TIME,
            functional=self.functional,
        )
        shape = np.int32([BATCH, CELLS])
        return [i, h, c, *(ops.tensor_list_length(which) for which in (kept, same)),
                ops.tensor_list_stack(kept, shape, element_dtype=aexec.float32)]  # fmt: skip


def list_loop(**attributes: Any) -> ListLoop:
    return type("Changed", (ListLoop,), attributes)()


@needs_loops
@pytest.mark.parametrize("functional", [True, False])
@pytest.mark.parametrize("limit", [TIME, 2, 0])
async def test_loop_of_lists_is_known(functional: bool, limit: int) -> None:
    ran = await both(list_loop(functional=functional, limit=limit).build)
    assert "_LSTMLoop" in ran and not {"Enter", "While", "StatelessWhile"} & ran


@pytest.mark.parametrize("functional", [True, False])
@pytest.mark.parametrize(
    "changed",
    [
        {"resized": True},
        {"room": TIME + 3},
        {"index": lambda self, i: i + 0 * i},
        {"product": lambda self, row, h, w, u, b: nn.bias_add(row @ w - h @ u, b)},
        {"product": lambda self, row, h, w, u, b: nn.bias_add(ops.tanh(row) @ w + h @ u, b)},
        {"product": lambda self, row, h, w, u, b: nn.bias_add(row @ w + h @ u, ops.neg(b))},
    ],
)
async def test_loop_of_lists_that_differs_by_one_node_stays(functional: bool, changed: dict[str, Any]) -> None:
    assert not FUSED & await both(list_loop(functional=functional, **changed).build)


async def test_functional_loop_of_tensor_arrays_stays_or_gives_the_same() -> None:
    def build(given: aexec.Tensor) -> Fetches:
        i, h = aexec.while_loop(
            lambda i, h: i < 3, lambda i, h: (i + 1, ops.tanh(h + given)), (aexec.constant(0), given), functional=True
        )
        return [i, h]

    assert not FUSED & await both(build)
