"""Shape functions that ops share, called directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.op_contract.op_def_builder import OpDefBuilder
from aexec.framework.shape_functions import common_shape_fns
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape, ShapeAndType, ShapeFn
from aexec.ops.nn import window_shapes

Q = None


def infer(
    shape_fn: ShapeFn, *shapes: Any, values: Any = (), outputs: int = 1, version: int = 2000, **attrs: Any
) -> Any:
    """Output shapes of a shape function; `values` are those of the inputs."""
    builder = OpDefBuilder("Any").attr("N: int")
    op_def = builder.input("x: N * float").output("y: float").finalize()
    c = InferenceContext(
        op_def,
        attrs,
        [Shape(s) for s in shapes],
        num_outputs=outputs,
        graph_version=version,
        input_tensors=[None if v is None else np.asarray(v) for v in values],
    )
    shape_fn(c)
    return [s.dims for s in c.outputs] if outputs > 1 else c.output(0).dims


@pytest.mark.parametrize(
    ("x", "y", "want"),
    [
        ((2, 3), (2, 3), (2, 3)),
        ((2, 3), (3,), (2, 3)),
        ((2, 1), (1, 3), (2, 3)),
        ((), (4,), (4,)),
        ((Q,), (4,), (4,)),
        ((Q,), (1,), (Q,)),
        ((Q,), (0,), (Q,)),
        ((2, Q), (1, Q), (2, Q)),
        (Q, (2,), Q),
    ],
)
def test_broadcasting(x: Any, y: Any, want: Any) -> None:
    assert infer(common_shape_fns.broadcast_binary, x, y) == want
    assert infer(common_shape_fns.broadcast_binary, y, x) == want


def test_incompatible_shapes_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Dimensions must be equal, but are 2 and 3"):
        infer(common_shape_fns.broadcast_binary, (2,), (3,))
    lenient = {"incompatible_shape_error": False}
    assert infer(common_shape_fns.broadcast_binary, (2,), (3,), **lenient) == ()
    assert infer(common_shape_fns.broadcast_binary, (2,), (Q,), **lenient) is None


def test_same_unknown_stays_itself() -> None:
    shape = Shape((Q, 2))
    c = InferenceContext(OpDefBuilder("Any").output("y: float").finalize(), {}, [shape, shape], num_outputs=1)
    common_shape_fns.broadcast_binary(c)
    assert c.output(0).handles[0] is shape.handles[0]


@pytest.mark.parametrize(
    ("shape", "axes", "keep", "want"),
    [
        ((2, 3, 4), [1], False, (2, 4)),
        ((2, 3, 4), [0, -1], True, (1, 3, 1)),
        ((2, 3, 4), [1, -2] * 10_000, False, (2, 4)),
        ((2, 3, 4), 2, False, (2, 3)),
        ((2, 3, 4), None, True, (Q, Q, Q)),
        ((2, 3, 4), None, False, Q),
        (Q, [0], True, Q),
    ],
)
def test_reduction(shape: Any, axes: Any, keep: bool, want: Any) -> None:
    axes_shape = None if axes is None else np.shape(axes)
    assert infer(common_shape_fns.reduction, shape, axes_shape, values=[None, axes], keep_dims=keep) == want


def test_reduction_axes_have_to_exist() -> None:
    message = "Invalid reduction dimension 5 for input with 2 dimensions."
    with pytest.raises(errors.InvalidArgumentError, match=message):
        infer(common_shape_fns.reduction, (2, 3), (), values=[None, 5], keep_dims=False)


def test_old_graphs_may_give_axes_as_a_matrix() -> None:
    arguments: Any = ((2, 3), (1, 1))
    assert infer(common_shape_fns.reduction, *arguments, values=[None, [[1]]], version=20, keep_dims=False) == (2,)
    with pytest.raises(errors.InvalidArgumentError, match="at most rank 1"):
        infer(common_shape_fns.reduction, *arguments, values=[None, [[1]]], version=21, keep_dims=False)


@pytest.mark.parametrize(
    ("shapes", "axis", "want"),
    [
        ([(2, 3), (4, 3)], 0, (6, 3)),
        ([(2, 3), (2, Q)], -1, (2, Q)),
        ([Q, (2, Q), (Q, 3)], 1, (2, Q)),
        ([(2, Q), Q], None, (Q, Q)),
        ([Q, Q], None, Q),
    ],
)
def test_concat(shapes: Any, axis: int | None, want: Any) -> None:
    count = len(shapes)
    assert infer(common_shape_fns.concat_v2, *shapes, (), values=[None] * count + [axis]) == want
    assert infer(common_shape_fns.concat, (), *shapes, values=[axis]) == want


@pytest.mark.parametrize(
    ("begin", "size", "want"),
    [([1, 0], [1, -1], (1, 4)), ([0, 1], [-1, 2], (3, 2)), (None, [1, 2], (1, 2)), (None, None, (Q, Q))],
)
def test_slice(begin: Any, size: Any, want: Any) -> None:
    assert infer(common_shape_fns.slice_shape, (3, 4), (2,), (2,), values=[None, _int32(begin), _int32(size)]) == want


def _int32(value: Any) -> Any:
    return None if value is None else np.array(value, np.int32)


def test_sparse_tensors() -> None:
    c = InferenceContext(OpDefBuilder("Any").output("y: float").finalize(), {}, [], num_outputs=0)
    common_shape_fns.validate_sparse_tensor(c, Shape((Q, 2)), Shape((5,)), Shape((2,)))
    for shapes, match in (
        (((4, 2), (5,), (2,)), r"Number of elements in index \(4\) and values \(5\) do not match."),
        (((5, 3), (5,), (2,)), r"Index rank \(3\) and shape rank \(2\) do not match."),
        (((5,), (5,), (2,)), "Shape must be rank 2 but is rank 1"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=match):
            common_shape_fns.validate_sparse_tensor(c, *[Shape(s) for s in shapes])


def test_variables_have_a_type() -> None:
    data = (ShapeAndType(Shape((2,)), dtypes.float32),)
    op_def = OpDefBuilder("Any").output("y: float").finalize()
    c = InferenceContext(op_def, {"dtype": dtypes.int32}, [Shape(())], num_outputs=0, input_handle_data=[data])
    with pytest.raises(errors.InvalidArgumentError, match=r"wrong dtype\. Expected float got int32"):
        common_shape_fns.variable_handle_data(c)


class TestWindows:
    def size(self, size: int | None, window: int, stride: int, padding: str, dilation: int = 1, **more: Any) -> Any:
        c = InferenceContext(OpDefBuilder("Any").output("y: float").finalize(), {}, [], num_outputs=0)
        return window_shapes.windowed_size(c, c.make_dim(size), window, stride, padding, dilation, **more).value

    @pytest.mark.parametrize(
        ("size", "window", "stride", "padding", "dilation", "want"),
        [
            (7, 3, 2, "VALID", 1, 3),
            (7, 3, 2, "SAME", 1, 4),
            (7, 3, 1, "VALID", 2, 3),
            (0, 3, 1, "SAME", 1, 0),
            (None, 3, 2, "SAME", 1, None),
        ],
    )
    def test_sizes(self, size: Any, window: int, stride: int, padding: str, dilation: int, want: Any) -> None:
        assert self.size(size, window, stride, padding, dilation) == want

    def test_explicit_padding(self) -> None:
        assert self.size(7, 3, 2, "EXPLICIT", explicit=(1, 2)) == 4

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ((2, 4, 1, "VALID"), "Negative dimension size caused by subtracting 4 from 2"),
            ((2, 1, 0, "SAME"), "Stride must be > 0, but got 0"),
            ((2, 1, 1, "SAME", 0), "Dilation rate must be >= 1, but got 0"),
        ],
    )
    def test_errors(self, arguments: Any, match: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=match):
            self.size(*arguments)

    @pytest.mark.parametrize(
        ("name", "shape", "want"),
        [
            (b"NHWC", (5, 8, 6, 4), (5, 4, 3, 9)),
            (b"NCHW", (5, 4, 8, 6), (5, 9, 4, 3)),
            (b"NCHW_VECT_C", (5, 1, 8, 6, 4), (5, 2, 4, 3, 4)),
        ],
    )
    def test_data_formats(self, name: bytes, shape: Any, want: Any) -> None:
        vect = name == b"NCHW_VECT_C"
        weights: Any = (3, 3, 4, 8 if vect else 9)
        spatial = name.decode().replace("_VECT_C", "")
        strides = [2 if letter in "HW" else 1 for letter in spatial]
        attrs: dict[str, Any] = {"data_format": name, "strides": strides, "dilations": [1] * 4, "padding": b"SAME"}
        if vect:
            attrs["filter_format"] = b"OIHW_VECT_I"
            weights = (8, 1, 3, 3, 4)
        assert infer(window_shapes.conv_2d, shape, weights, **attrs) == want

    def test_groups(self) -> None:
        attrs = {"strides": [1] * 4, "dilations": [1] * 4, "padding": b"SAME"}
        assert infer(window_shapes.conv_2d, (1, 4, 4, 6), (3, 3, 2, 9), **attrs) == (1, 4, 4, 9)
        with pytest.raises(errors.InvalidArgumentError, match=r"Depth of input \(3\) is not a multiple of .* \(4\)"):
            infer(window_shapes.conv_2d, (1, 4, 4, 3), (3, 3, 4, 9), **attrs)
        with pytest.raises(errors.InvalidArgumentError, match=r"Depth of output \(8\) is not a multiple .* groups \(3"):
            infer(window_shapes.conv_2d, (1, 4, 4, 6), (3, 3, 2, 8), **attrs)

    def test_batch_normalisation(self) -> None:
        attrs = {"data_format": b"NHWC", "is_training": True}
        vectors: Any = [(Q,), (3,), (0,), (0,)]
        found = infer(window_shapes.fused_batch_norm, (2, 4, 4, Q), *vectors, outputs=6, **attrs)
        assert found == [(2, 4, 4, 3), (3,), (3,), (3,), (3,), None]
        with pytest.raises(errors.InvalidArgumentError, match="Dimensions must be equal, but are 3 and 0"):
            infer(window_shapes.fused_batch_norm, (2, 4, 4, 3), *vectors, outputs=6, **{**attrs, "is_training": False})
