"""Shape algebra, values that say shapes, and what errors tell of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.op_contract.op_def_builder import OpDefBuilder
from aexec.framework.shape import PartialTensorShape
from aexec.framework.shape_functions.shape_algebra import ShapeAlgebra
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape, ShapeAndType

OP_DEF = OpDefBuilder("Two").input("x: float").input("y: int32").output("z: float").finalize()
INT64_MAX = 2**63 - 1


def context(*shapes: Any, **more: Any) -> InferenceContext:
    shapes = shapes or ((), ())
    return InferenceContext(OP_DEF, {}, [Shape(s) for s in shapes], **more)


@pytest.fixture
def algebra() -> ShapeAlgebra:
    return ShapeAlgebra()


class TestSubshape:
    @pytest.mark.parametrize(
        ("start", "end", "stride", "want"),
        [
            (0, None, 1, (2, 3, 4, 5)),
            (1, None, 1, (3, 4, 5)),
            (-2, None, 1, (4, 5)),
            (0, -1, 1, (2, 3, 4)),
            (1, 9, 1, (3, 4, 5)),
            (9, None, 1, ()),
            (0, None, 2, (2, 4)),
            (-1, 0, -1, (5, 4, 3)),
        ],
    )
    def test_bounds(self, algebra: ShapeAlgebra, start: int, end: int | None, stride: int, want: tuple) -> None:
        assert algebra.subshape(Shape((2, 3, 4, 5)), start, end, stride).dims == want

    def test_whole_is_the_same_shape(self, algebra: ShapeAlgebra) -> None:
        for dims in ((2, None), None):
            shape = Shape(dims)
            assert algebra.subshape(shape, 0) is shape

    def test_subshape_of_unknown_rank(self, algebra: ShapeAlgebra) -> None:
        assert algebra.subshape(Shape(None), 1).dims is None

    @pytest.mark.parametrize(
        ("start", "end", "match"),
        [
            (-5, None, "Subshape start out of bounds: -5, for shape with rank 2"),
            (0, -3, "Subshape end out of bounds: -3, for shape with rank 2"),
            (2, 1, "Subshape must have computed start <= end, but is 2 and 1"),
        ],
    )
    def test_out_of_bounds(self, algebra: ShapeAlgebra, start: int, end: int | None, match: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=match):
            algebra.subshape(Shape((2, 3)), start, end)


class TestChecks:
    def test_rank(self, algebra: ShapeAlgebra) -> None:
        shape = Shape((2, None))
        assert algebra.with_rank(shape, 2) is shape
        assert algebra.with_rank_at_least(shape, 1) is algebra.with_rank_at_most(shape, 2) is shape
        assert algebra.with_rank(Shape(None), 3).dims == (None, None, None)
        for check, rank, words in (
            (algebra.with_rank, 3, "rank 3"),
            (algebra.with_rank_at_least, 3, "at least rank 3"),
            (algebra.with_rank_at_most, 1, "at most rank 1"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=f"^Shape must be {words} but is rank 2$"):
                check(shape, rank)

    def test_excessive_rank_is_unknown(self, algebra: ShapeAlgebra) -> None:
        assert algebra.with_rank(Shape(None), 10**12).dims is None
        assert algebra.unknown_shape_of_rank(-1).dims is None

    def test_value(self, algebra: ShapeAlgebra) -> None:
        assert algebra.with_value(algebra.unknown_dim(), 3).value == 3
        with pytest.raises(errors.InvalidArgumentError, match="Dimension must be 2 but is 3"):
            algebra.with_value(algebra.make_dim(3), 2)


class TestMerge:
    def test_one_that_knows_everything_is_returned(self, algebra: ShapeAlgebra) -> None:
        much, little, nothing = Shape((2, 3)), Shape((None, 3)), Shape(None)
        assert algebra.merge(much, little) is algebra.merge(little, much) is much
        assert algebra.merge(nothing, little) is algebra.merge(little, nothing) is little

    def test_ranks_must_be_equal(self, algebra: ShapeAlgebra) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="Shapes must be equal rank, but are 2 and 1"):
            algebra.merge(Shape((2, 3)), Shape((2,)))

    def test_prefix(self, algebra: ShapeAlgebra) -> None:
        shape, prefix = algebra.merge_prefix(Shape((None, 3, 4)), Shape((2, None)))
        assert shape.dims == (2, 3, 4)
        assert prefix.dims == (2, 3)
        unknown = Shape(None)
        assert algebra.merge_prefix(shape, unknown) == (shape, unknown)
        with pytest.raises(errors.InvalidArgumentError, match="at least rank 2 but is rank 1"):
            algebra.merge_prefix(Shape((2,)), Shape((2, 3)))

    def test_relax(self, algebra: ShapeAlgebra) -> None:
        old = Shape((2, None))
        assert algebra.relax(old, old) is old
        assert algebra.relax(Shape((2, 3)), Shape((2, 4))).dims == (2, None)
        assert algebra.relax(Shape((2,)), Shape((2, 3))).dims is None
        new = Shape((2, None))
        relaxed = algebra.relax(old, new)
        assert relaxed.handles[1] is new.handles[1]


class TestArithmetic:
    def test_zero_and_one_decide(self, algebra: ShapeAlgebra) -> None:
        unknown, zero = algebra.unknown_dim(), algebra.make_dim(0)
        assert algebra.add(zero, unknown) is unknown
        assert algebra.minimum(unknown, 0).value == 0
        assert algebra.maximum(unknown, 5).value is None
        assert algebra.num_elements(Shape((None, 0))).value == 0
        assert algebra.num_elements(Shape((None, 2))).value is None

    @pytest.mark.parametrize(
        ("compute", "match"),
        [
            (lambda a: a.add(a.make_dim(INT64_MAX), 1), "overflow from adding"),
            (lambda a: a.multiply(a.make_dim(INT64_MAX), 2), "overflow when multiplying"),
            (lambda a: a.divide(a.make_dim(6), 4, evenly=True), "must be evenly divisible by 4 but is 6"),
            (lambda a: a.divide(a.make_dim(6), -1, evenly=False), "Divisor must be positive but is -1"),
            (lambda a: a.replace_dim(Shape((1, 2)), 2, 3), "Out of range dim_index 2 for shape with 2 dimensions"),
        ],
    )
    def test_errors(self, algebra: ShapeAlgebra, compute: Callable[[ShapeAlgebra], Any], match: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=match):
            compute(algebra)

    def test_division_rounds_down(self, algebra: ShapeAlgebra) -> None:
        assert algebra.divide(algebra.make_dim(7), 2, evenly=False).value == 3


class TestShapeValues:
    @pytest.mark.parametrize(
        ("value", "want"),
        [([2, -1], (2, None)), ([], ()), (-1, None)],
    )
    def test_shape_of_a_value(self, value: Any, want: Any) -> None:
        array = np.int64(value) if isinstance(value, int) else np.array(value, np.int32)
        c = context((2,), None, input_tensors=[None, np.asarray(array)])
        assert c.make_shape_from_shape_tensor_treat_scalar_as_unknown_shape(1).dims == want

    @pytest.mark.parametrize(("given", "want"), [((3,), (None, None, None)), ((None,), None), ((10**9,), None)])
    def test_length_of_an_unknown_value_is_the_rank(self, given: Any, want: Any) -> None:
        assert context((2,), given).make_shape_from_shape_tensor(1).dims == want

    @pytest.mark.parametrize(
        ("value", "match"),
        [
            (np.int32([2, -2]), "Invalid value in tensor used for shape: -2"),
            (np.float32([2]), "Input tensor must be int32 or int64, but was float"),
            (np.asarray(np.int32(3)), "must be rank 1, or if its rank 0 it must have value -1"),
            (np.int32([[2]]), "Input tensor must be rank 1, but was rank 2"),
        ],
    )
    def test_invalid_shape_values_are_refused(self, value: Any, match: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=match):
            context().make_shape_from_tensor(value, Shape(value.shape))

    def test_dimensions_from_scalars(self) -> None:
        c = context((2,), (), input_tensors=[None, np.asarray(np.int32(-1))])
        assert c.make_dim_for_scalar_input_with_negative_indexing(1, 3).value == 2
        assert c.make_dim_for_scalar_input_with_negative_indexing(1, None).value is None
        with pytest.raises(errors.InvalidArgumentError, match="must be non-negative but is -1"):
            c.make_dim_for_scalar_input(1)
        with pytest.raises(errors.InvalidArgumentError, match=r"must be in range \[-0, 0\)"):
            c.make_dim_for_scalar_input_with_negative_indexing(1, 0)
        with pytest.raises(errors.InvalidArgumentError, match="Input must be scalar but has rank 1"):
            c.scalar_from_tensor(np.int32([1]))


class TestErrorText:
    def run(self, value: Any, use: Callable[[InferenceContext], Any]) -> str:
        def shape_fn(c: InferenceContext) -> None:
            use(c)
            c.with_rank(c.input(0), 7)

        c = context((2, None), None, input_tensors=[None, np.asarray(value)], node_text=lambda: "{{node n}}")
        c.set_input_tensor_as_shape(1, Shape((4, None)))
        with pytest.raises(errors.InvalidArgumentError) as caught:
            c.run(shape_fn)
        return str(caught.value)

    def test_values_are_shown_if_they_were_used(self) -> None:
        assert self.run([1], lambda c: None) == (
            "Shape must be rank 7 but is rank 2 for '{{node n}}' with input shapes: [2,?], ?."
        )
        text = self.run([1, 2], lambda c: c.input_tensor(1))
        assert text.endswith("input shapes: [2,?], ? and with computed input tensors: input[1] = <1 2>.")
        text = self.run([1, 2], lambda c: c.make_shape_from_shape_tensor(1))
        assert text.endswith("? and with input tensors computed as partial shapes: input[1] = [4,?].")

    @pytest.mark.parametrize(
        ("value", "want"),
        [
            (5, "<5>"),
            ([1.5, 2.0], "<1.5 2>"),
            ([True, False], "<1 0>"),
            ([[1, 2], [3, 4]], "<[1 2][3 4]>"),
            (np.array([b"a", b"b"], object), "<a b>"),
            (np.arange(300), "255...>"),
        ],
    )
    def test_value(self, value: Any, want: str) -> None:
        assert want in self.run(value, lambda c: c.input_tensor(1))


class TestHandleData:
    def test_merging(self) -> None:
        c = context()
        known = (ShapeAndType(Shape((2, None)), dtypes.float32),)
        more = (ShapeAndType(Shape((2, 3)), dtypes.float32),)
        merged = c.merge_handle_shapes_and_types(known, more)
        assert merged is not None
        assert merged[0].shape.dims == (2, 3)
        assert c.merge_handle_shapes_and_types(more, known) is None
        assert c.merge_handle_shapes_and_types(known, (ShapeAndType(Shape((2, 3)), dtypes.int32),)) is None
        assert c.merge_handle_shapes_and_types(known, ()) is None


def test_shape_of_inference_is_one_of_the_graph() -> None:
    shape = Shape((2, None))
    assert shape == PartialTensorShape([2, None])
    assert str(shape) == "[2,?]"
    assert str(Shape(None)) == "?"
    assert Shape.of(shape) is shape
    assert Shape.of(PartialTensorShape([3])).dims == (3,)
    assert pickle.loads(pickle.dumps(shape)) == shape
    assert not shape.is_fully_defined
