"""The cost of a call counts its outputs, too: large ones are made in threads, and small ones on the loop."""

from __future__ import annotations

from time import process_time
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.runtime.interpreter import node_runner

LARGE = 3000


@pytest.fixture(autouse=True)
def _nothing_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No correction by measurement: on a busy machine any call may look slow and send the next one to a thread."""
    monkeypatch.setattr(node_runner, "correct_estimate", lambda *_: None)


def outer(shape: Any) -> aexec.Graph:
    """z = x + y, broadcast, with placeholders of these shapes."""
    with aexec.Graph() as graph:
        x, y = (aexec.placeholder("float32", shape, name=name) for name in "xy")
        ops.add_v2(x, y, name="z")
    return graph


def column_and_row(size: int) -> dict[str, Any]:
    return {"x:0": np.ones((size, 1), np.float32), "y:0": np.ones((1, size), np.float32)}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [None, [None, None]])
async def test_small_inputs_that_make_a_large_output_are_added_in_a_thread(shape: Any, compiled: bool) -> None:
    config = aexec.SessionConfig(compile_plans=compiled, graph_passes=())
    async with aexec.Session(outer(shape), config=config) as session:
        for _ in range(6):
            assert (await session.run("z:0", column_and_row(3))).shape == (3, 3)
        assert session.statistics().pool.submitted == 0
        for times in range(1, 4):
            assert (await session.run("z:0", column_and_row(LARGE))).shape == (LARGE, LARGE)
            assert session.statistics().pool.submitted == times


@pytest.mark.parametrize("compiled", [False, True])
async def test_output_no_larger_than_an_input_is_not_asked_about(compiled: bool) -> None:
    config = aexec.SessionConfig(compile_plans=compiled, graph_passes=())
    async with aexec.Session(outer([None, 100]), config=config) as session:
        for _ in range(6):
            await session.run("z:0", {"x:0": np.ones((100, 100), np.float32), "y:0": np.ones((1, 100), np.float32)})
        assert session.statistics().pool.submitted == 0


MADE: dict[str, tuple[Any, dict[str, Any]]] = {
    "a fill": (lambda: ops.empty([LARGE, LARGE], dtype="float32"), {}),
    "bins": (lambda: ops.bincount([1], 10_000_000, np.zeros(0, np.int32)), {}),
    "a diagonal": (lambda: ops.diag(np.ones(LARGE, np.float32)), {}),
    "an outer product": (lambda: ops.einsum([np.ones((2, 300)), np.ones(300)], "ab,c->acb"), {}),
    "shuffled rows": (lambda: ops.random_shuffle(np.ones(200_000, np.float32)), {}),
}

# Few elements, with each of which the interpreter has to do.
ONE_BY_ONE: dict[str, Any] = {
    "images": lambda: ops.encode_png(np.zeros((1000, 1, 2, 1), np.uint8)),
    "ranges": lambda: ops.ragged_range(np.float32(0), np.ones(8000, np.float32), np.float32(1))[1],
    "ragged rows": lambda: ops.ragged_tensor_to_variant(
        [np.arange(8000)], np.ones(7999, np.float32), batched_input=True
    ),
    "banded systems": lambda: ops.banded_triangular_solve(np.ones((1, 3)), np.ones((2000, 3, 1))),
    "pieces of a string": lambda: ops.substr(b"abc", np.zeros(10_000, np.int32), np.ones(10_000, np.int32)),
    "tridiagonal systems": lambda: ops.tridiagonal_solve(
        np.ones((4, 3, 500)), np.ones((4, 500, 1)), partial_pivoting=True, perturb_singular=True
    ),
    "right-hand sides": lambda: ops.matrix_solve_ls(np.eye(5), np.ones((5, 20_000)), np.float64(0)),
}


@pytest.mark.parametrize("name", ONE_BY_ONE)
async def test_work_per_element_in_python_is_done_in_a_thread(name: str) -> None:
    with aexec.Graph() as graph:
        ops.identity(ONE_BY_ONE[name](), name="y")
    async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=())) as session:
        await session.run([], targets=["y"])
        assert session.statistics().pool.submitted == 1


@pytest.mark.parametrize("compiled", [False, True])
async def test_cost_of_ordinary_values_does_not_lower_that_of_others(compiled: bool) -> None:
    """An element takes 4 µs for 0.5, and 60 ns for large numbers."""
    with aexec.Graph() as graph:
        a, x = (aexec.placeholder("float32", [None], name=name) for name in "ax")
        ops.igammac(a, x, name="y")
    many, few = np.full(5000, 30.0, np.float32), np.full(400, 0.5, np.float32)
    async with aexec.Session(graph, config=aexec.SessionConfig(compile_plans=compiled)) as session:
        for times in range(1, 9):
            await session.run("y:0", {"a:0": many, "x:0": many})
            assert session.statistics().pool.submitted == times
        await session.run("y:0", {"a:0": few, "x:0": few})  # some 1.6 ms at most
        assert session.statistics().pool.submitted == 8


@pytest.mark.parametrize("compiled", [False, True])
async def test_large_outputs_of_varying_cost_are_asked_about(compiled: bool) -> None:
    with aexec.Graph() as graph:
        a, x = (aexec.placeholder("float32", [None, None], name=name) for name in "ax")
        ops.igammac(a, x, name="y")
    ordinary = np.full((1, 30), 30.0, np.float32)
    column, row = np.full((100, 1), 0.5, np.float32), np.full((1, 100), 0.5, np.float32)
    async with aexec.Session(graph, config=aexec.SessionConfig(compile_plans=compiled)) as session:
        for _ in range(6):
            await session.run("y:0", {"a:0": ordinary, "x:0": ordinary})
        assert session.statistics().pool.submitted == 0
        for times in range(1, 4):
            await session.run("y:0", {"a:0": column, "x:0": row})
            assert session.statistics().pool.submitted == times


async def test_slow_derivative_of_few_numbers_is_computed_in_a_thread() -> None:
    with aexec.Graph() as graph:
        a, x = (aexec.placeholder("float64", [None], name=name) for name in "ax")
        ops.igamma_grad_a(a, x, name="y")
    async with aexec.Session(graph) as session:
        for times in range(1, 9):
            await session.run("y:0", {"a:0": np.ones(3), "x:0": np.ones(3)})
            assert session.statistics().pool.submitted == times


@pytest.mark.parametrize(("transposed", "in_a_thread"), [("x", True), ("y", False)])
async def test_cost_of_a_product_depends_on_the_transposed_factor(transposed: str, in_a_thread: bool) -> None:
    """The product of two [3, 1000] matrices has nine elements or a million."""
    with aexec.Graph() as graph:
        x, y = (aexec.placeholder("int64", [1, 3, 1000], name=name) for name in "xy")
        ops.batch_mat_mul_v2(x, y, adj_x=transposed == "x", adj_y=transposed == "y", name="z")
    factor = np.ones((1, 3, 1000), np.int64)
    async with aexec.Session(graph) as session:
        for _ in range(2):
            await session.run("z:0", {"x:0": factor, "y:0": factor})
        assert session.statistics().pool.submitted == 2 * in_a_thread


@pytest.mark.parametrize("name", MADE)
async def test_large_output_given_by_values_is_made_in_a_thread(name: str) -> None:
    with aexec.Graph() as graph:
        ops.identity(MADE[name][0](), name="y")
    async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=())) as session:
        await session.run("y:0")
        assert session.statistics().pool.submitted == 1


ENDLESS: dict[str, Any] = {
    "a stateful shuffle": lambda: ops.random_shuffle(np.zeros(5_000_000, np.int8)),
    "the system's numbers": lambda: ops.non_deterministic_ints(np.int32([500_000_000]), dtype="int32"),
    "long strings": lambda: ops.add(b"a" * 10_000, ops.fill([1_000_000], b"b")),
    "empty strings": lambda: ops.unsorted_segment_join([b"a"], np.int32([0]), np.int32(100_000_000)),
    "samples": lambda: ops.log_uniform_candidate_sampler(
        np.int64([[1]]), num_true=1, num_sampled=100_000_000, unique=False, range_max=10
    )[0],
    "random numbers": lambda: ops.stateless_truncated_normal(np.int32([200_000_000]), np.int32([1, 2])),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_long_kernel_ends_with_its_step(name: str) -> None:
    with aexec.Graph() as graph:
        ops.identity(ENDLESS[name](), name="y")
    async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=())) as session:
        began = process_time()
        with pytest.raises(errors.DeadlineExceededError):
            await session.run("y:0", options=aexec.RunOptions(timeout=0.3))
        answered = process_time() - began
    assert answered < 1.5  # of one or two threads in 0.3 s: to their ends they take many seconds
    assert process_time() - began < 3


async def test_zeta_far_below_zero_is_computed_in_one_step() -> None:
    with aexec.Graph() as graph:
        ops.zeta(np.float64([3, 4, 171]), np.float64([-5000.5, -5000.25, -1e9 - 0.5]), name="y")
    async with aexec.Session(graph) as session:
        found = await session.run("y:0")
    for value, x, q in zip(found, (3, 4), (-5000.5, -5000.25), strict=False):
        assert value == pytest.approx(np.sum((np.arange(2_000_000) + q) ** float(-x)), rel=1e-9, abs=1e-9)
