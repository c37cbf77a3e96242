"""What a shape function works with: handles with identity, values on request, handle data, merges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import dtypes, errors
from aexec.framework.op_contract.op_def_builder import OpDefBuilder
from aexec.framework.shape_functions.shape_handles import (
    Dimension,
    DimensionHandle,
    Shape,
    ShapeAndType,
    ShapeHandle,
    ShapeManager,
    as_dimension,
)
from aexec.framework.shape_functions.shape_inference import InferenceContext
from aexec.graph.nodes.node import Node

OP_DEF = (
    OpDefBuilder("Join")
    .attr("N: int >= 1")
    .input("first: float")
    .input("rest: N * float")
    .output("joined: float")
    .output("others: N * float")
    .finalize()
)


def context(*shapes: Any, **more: Any) -> InferenceContext:
    inputs = [s if isinstance(s, Shape) else Shape(s) for s in shapes]
    return InferenceContext(OP_DEF, {"N": len(inputs) - 1}, inputs, **more)


class TestHandles:
    def test_two_unknowns_are_the_same_only_if_they_are_one(self) -> None:
        c = context((None, None), (2,))
        first, second = c.input(0).handles
        assert first.value is second.value is None
        assert first is not second
        assert c.dim(c.input(0), 0) is first
        assert DimensionHandle is Dimension
        assert ShapeHandle is Shape

    def test_dimension_or_a_constant(self) -> None:
        some = Dimension(7)
        assert as_dimension(some) is some
        assert as_dimension(3).value == 3
        assert as_dimension(-1).value is as_dimension(None).value is None
        assert as_dimension(-1) is not as_dimension(-1)

    def test_shapes_belong_to_the_manager_of_the_inference(self) -> None:
        manager = ShapeManager()
        one, two = context((2,), (2,), manager=manager), context((2,), (2,), manager=manager)
        assert one.manager is two.manager is manager
        assert manager.known((2, 3)) is manager.known((2, 3))
        assert manager.unknown_shape() is not manager.unknown_shape()

    def test_arithmetic_keeps_identity_where_it_can(self) -> None:
        c = context((None,), (2,))
        unknown = c.input(0).handles[0]
        assert c.add(unknown, 0) is c.multiply(unknown, 1) is c.divide(unknown, 1, evenly=True) is unknown
        assert c.multiply(unknown, 0).value == 0
        with pytest.raises(errors.InvalidArgumentError, match="Negative dimension size caused by subtracting 3 from 2"):
            c.subtract(c.make_dim(2), 3)


class TestMerges:
    def test_equivalences_are_recorded(self) -> None:
        c = context((None, 3), (2, None))
        merged = c.merge(c.input(0), c.input(1))
        assert merged.dims == (2, 3)
        assert (c.input(0), c.input(1)) in c.merged_shapes
        assert {(a.value, b.value) for a, b in c.merged_dims} == {(None, 2), (3, None)}

    def test_merges_are_forgotten_on_relax(self) -> None:
        c = context((None, 3), (2, None))
        c.merge(c.input(0), c.input(1))
        assert c.relax(Shape((2, 3)), Shape((4, 3))).dims == (None, 3)
        assert c.merged_shapes == c.merged_dims == []

    def test_merges_are_forgotten_when_the_shape_function_fails(self) -> None:
        def fails(c: InferenceContext) -> None:
            c.merge(c.input(0), c.input(1))
            c.with_rank(c.input(0), 5)

        c = context((None, 3), (2, None))
        with pytest.raises(errors.InvalidArgumentError, match=r"must be rank 5 but is rank 2 for .*\[\?,3\], \[2,"):
            c.run(fails)
        assert c.merged_shapes == c.merged_dims == []

    def test_contradicting_shapes_are_refused(self) -> None:
        c = context((2, 3), (2, 4))
        with pytest.raises(errors.InvalidArgumentError, match="Dimension 1 in both shapes must be equal, but"):
            c.merge(c.input(0), c.input(1))


class TestArguments:
    def test_inputs_and_outputs_by_name(self) -> None:
        c = context((1,), (2,), (3,))
        assert [s.dims for s in c.input_named("rest")] == [(2,), (3,)]
        c.set_output_named("others", [c.input(2), c.input(1)])
        c.set_output(0, c.scalar())
        assert [s.dims for s in c.outputs] == [(), (3,), (2,)]
        with pytest.raises(errors.InvalidArgumentError, match="Unknown input name: nothing"):
            c.input_named("nothing")
        with pytest.raises(errors.InvalidArgumentError, match="Must have exactly 2 shapes"):
            c.set_output_named("others", [c.scalar()])

    def test_another_number_of_inputs_is_an_error_of_construction(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="Wrong number of inputs passed: 2 while 4 expected"):
            InferenceContext(OP_DEF, {"N": 3}, [Shape(()), Shape(())])

    def test_graph_version_and_attrs(self) -> None:
        c = context((1,), (2,), graph_version=21)
        assert c.graph_version == 21
        assert c.attr("N") == 1
        with pytest.raises(errors.InvalidArgumentError, match="No attr named 'M' in NodeDef"):
            c.attr("M")


class TestValues:
    def test_values_are_evaluated_on_request(self) -> None:
        asked: list[int] = []

        def evaluate(index: int) -> Any:
            asked.append(index)
            return np.int32([4, -1])

        c = context((2,), (2,), evaluate=evaluate)
        assert not c.requested_input_tensor(1)
        assert c.make_shape_from_shape_tensor(1).dims == (4, None)
        assert asked == [1]
        assert c.requested_input_tensor(1)
        assert c.requested_input_tensor_as_partial_shape(1)
        assert not c.requested_input_tensor(0)

    def test_parts_of_a_shape_may_be_known(self) -> None:
        """reshape to stack([shape(x)[0], -1]), where x is [3, ?]."""
        with aexec.Graph():
            x = aexec.placeholder("float32", [3, None])
            rows = aexec.ops.strided_slice(aexec.ops.shape(x), [0], [1], [1], shrink_axis_mask=1)
            y = aexec.ops.reshape(x, aexec.ops.pack([rows, aexec.constant(-1)]))
        assert y.shape.dims == (3, None)


def test_handle_data_flows_along_edges() -> None:
    with aexec.Graph() as graph:
        handle = aexec.ops.var_handle_op(dtype="float32", shape=[2, None])
        value = aexec.ops.read_variable_op(aexec.ops.identity(handle), dtype="float32")
        with pytest.raises(errors.InvalidArgumentError):
            aexec.ops.assign_variable_op(handle, aexec.constant([[1.0], [2.0], [3.0]]))
    node: Node = graph.nodes[0]
    (known,) = node.handle_data[0]
    assert known == ShapeAndType(known.shape, dtypes.float32)
    assert value.shape.dims == (2, None)


@pytest.mark.parametrize(
    ("padding", "stride", "size", "want"),
    [("VALID", 1, 5, 3), ("SAME", 1, 5, 5), ("SAME", 2, 5, 3), ("VALID", 2, 6, 2), ("VALID", 1, None, None)],
)
def test_output_size_of_a_convolution(padding: str, stride: int, size: int | None, want: int | None) -> None:
    with aexec.Graph():
        x = aexec.placeholder("float32", [None, size, size, 2])
        window = aexec.placeholder("float32", [3, 3, 2, 7])
        y = aexec.ops.conv2d(x, window, strides=[1, stride, stride, 1], padding=padding)
    assert y.shape.dims == (None, want, want, 7)


def test_image_is_rows_columns_channels() -> None:
    """Shapes are row-major: [4, 6, 3] is four rows of six pixels of three channels."""
    image = np.arange(4 * 6 * 3).reshape(4, 6, 3)
    with aexec.Graph():
        x = aexec.constant(image)
        assert x.shape.dims == (4, 6, 3)
        assert aexec.ops.strided_slice(x, [0], [1], [1], shrink_axis_mask=1).shape.dims == (6, 3)
    assert image.ravel()[1 * 6 * 3 + 2 * 3 + 1] == image[1, 2, 1]
