"""Outputs are as large as an op's shape function says, and calls cost what that takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework.kernel_contract.output_sizes import (
    Broadcast,
    broadcast_elements,
    expected_ns,
    is_as_large_as_an_input,
    outgrow,
    rows_of,
)
from aexec.framework.waiting.loop_budget import DEFAULT
from tests.kernels.harness import build


@given(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0, max_side=4))
def test_elements_of_arrays_that_broadcast(shapes: Any) -> None:
    """Where the result has no elements, those of the largest array count: a kernel may convert it."""
    arrays = [np.empty(shape) for shape in shapes.input_shapes]
    made = np.prod(shapes.result_shape, dtype=int)
    assert broadcast_elements(arrays) in (made, 0 if made else max(array.size for array in arrays))
    assert broadcast_elements([np.empty((0, 1)), np.empty(50)]) == 50


@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=4), st.integers(0, 100))
def test_arrays_that_outgrow_a_number_of_elements(shapes: Any, most: int) -> None:
    first, second = (np.empty(shape) for shape in shapes.input_shapes)
    assert outgrow(first, second, most) == (np.prod(shapes.result_shape, dtype=int) > most)


@pytest.mark.parametrize(
    ("shapes", "answer"),
    [
        ([(None, 128), (128,)], True),
        ([(None,), (None,)], True),
        ([(None, 128), (None, 128)], True),
        ([(3, None), (1,)], True),
        ([(2, 3), ()], True),
        ([(None, 1), (1, None)], False),
        ([(3, 1), (1, 3)], False),
        ([(None, None), (None, None)], False),
        ([(None, 128), None], False),
        ([(128, None), (None,)], False),
        ([(1, None), (128, None)], False),
    ],
)
def test_known_shapes_may_bound_the_output(shapes: Any, answer: bool) -> None:
    assert is_as_large_as_an_input(shapes) is answer


@given(st.data())
def test_bounded_output_is_no_larger_than_an_input(data: st.DataObject) -> None:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=1, max_side=3))
    known = [tuple(size if data.draw(st.booleans()) else None for size in dims) for dims in shapes.input_shapes]
    if is_as_large_as_an_input(known):
        largest = max(np.prod(dims, dtype=int) for dims in shapes.input_shapes)
        assert np.prod(shapes.result_shape, dtype=int) == largest


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "least"),
    [
        ("AddV2", [np.ones((10_000, 1)), np.ones((1, 10_000))], {}, 1e7),
        ("Atan2", [np.ones((10_000, 1)), np.ones((1, 10_000))], {}, 1e8),
        ("Bincount", [np.array([1]), 10**8, np.array([], np.int32)], {}, 1e8),
        ("DenseBincount", [np.array([1]), np.int32(10**8), np.array([], np.int32)], {}, 1e8),
        ("SparseToDense", [np.int32([[0]]), np.int32([10**8]), np.int32([1]), 0], {}, 1e8),
        ("RandomGamma", [np.int32([1000]), np.ones(10_000)], {}, 1e8),
        ("UnsortedSegmentSum", [np.ones((1, 10)), np.int32([0]), np.int32(10**7)], {}, 1e8),
        ("SegmentSum", [np.ones((1, 10)), np.int32([10**7])], {}, 1e8),
        ("IFFTND", [np.ones((2, 2), complex), np.int32([10_000, 10_000]), np.int32([0, 1])], {}, 1e8),
        ("Split", [0, np.ones(10_000)], {"num_split": 10_000}, 1e6),
        ("Svd", [np.ones((100_000, 1, 1))], {}, 1e7),
        (
            "NonMaxSuppressionV4",
            [np.float32([[0, 0, 1, 1]]), np.float32([1]), 10**9, np.float32(0.5), np.float32(0.5)],
            {"pad_to_max_output_size": True},
            5e8,
        ),
    ],
)
def test_costs_are_of_the_outputs_too(op: str, inputs: Any, attrs: Any, least: float) -> None:
    built, arrays, _ = build(op, inputs, **attrs)
    assert callable(built.cost)
    assert least <= built.cost(*arrays) <= 1000 * least


def test_op_that_broadcasts_needs_not_say_so() -> None:
    built, arrays, _ = build("Mul", [np.ones((3, 1)), np.ones((1, 4))])
    assert isinstance(built.cost, Broadcast)
    assert built.cost(*arrays) == 12 * built.cost.element_ns


def test_rows_without_elements_count() -> None:
    assert rows_of([3, 0, 5]) == 15
    assert rows_of([]) == 1


@pytest.mark.parametrize("cost", [0.4, lambda *inputs: 0.0, Broadcast(1.0)])
@pytest.mark.parametrize("shape", [(0, 100_000), (100_000, 0), (300, 0, 400)])
def test_rows_without_elements_are_expected_to_take_long(cost: Any, shape: tuple[int, ...]) -> None:
    assert not DEFAULT.allows(expected_ns(cost, [np.ones(2), np.empty(shape)]))


def test_cost_function_does_not_get_very_many_rows_without_elements() -> None:
    def cost(value: Any) -> float:
        raise AssertionError(value.tolist())

    assert expected_ns(cost, [np.empty((10**8, 0))]) > 0


def test_costs_of_ordinary_inputs_are_what_kernels_say() -> None:
    assert expected_ns(0, [np.empty((10**8, 0))]) == 0
    assert expected_ns(2.0, [np.ones(3), np.empty(0)]) == 8.0
    assert expected_ns(lambda x: 5.0 * x.size, [np.ones(3)]) == 15.0
