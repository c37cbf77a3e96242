"""Ops that change variables, each on a ref and on a handle: TensorFlow's results, its errors, nothing half done."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import dtypes, errors
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import ContainerInfo, ResourceHandle, ResourceManager, make_handle_tensor
from aexec.framework.state.resource_variable import ResourceVariable
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, strings
from tests.support.stand_ins import contexts

SCATTERS = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Update"]


class Variables:
    """A variable of each kind with one value, and the ops on them."""

    def __init__(self, value: Any = None, dtype: Any = None) -> None:
        array = None if value is None else np.asarray(value, dtypes.as_dtype(dtype).np if dtype else None)
        self.dtype = dtypes.as_dtype(dtype) if array is None else dtypes.from_numpy(array.dtype)
        self.context = contexts.context(ResourceManager("cpu:0"), step_id=7, frame_iter=(0, 2))
        self.ref = RefCell(self.dtype, UNKNOWN_RANK, array)
        info = ContainerInfo("localhost", "v")
        self.handle = make_handle_tensor(ResourceHandle.of_type(ResourceVariable, info, "cpu:0"))
        self.resource = ResourceVariable(self.dtype, array)
        if array is not None:
            self.context.resources.create("localhost", "v", self.resource)

    def run(self, op: str, *inputs: Any, **attrs: Any) -> Any:
        """Runs `op` on the ref variable, or if its name begins with Resource, on the other; what it returns."""
        first = self.handle if "Resource" in op or op.endswith("VariableOp") else np.empty(0, self.dtype.np)
        kernel, arrays, _ = build(op, [first, *inputs], **attrs)
        if first is not self.handle:
            arrays[0] = self.ref
        with np.errstate(all="ignore"):
            if kernel.takes_list:
                return kernel.compute(self.context, arrays)
            return kernel.compute(*([self.context] if kernel.wants_context else []), *arrays)

    def both(self, op: str, *inputs: Any, **attrs: Any) -> Any:
        """The value after `Resource<op>`, which must be what `op` makes."""
        assert self.run(op, *inputs, **attrs) is self.ref
        assert self.run(f"Resource{op}", *inputs, **attrs) is None
        np.testing.assert_array_equal(self.ref.value, self.resource.value)
        assert self.ref.value.dtype == self.dtype.np
        return self.ref.value

    def refused(self, op: str, *inputs: Any, match: str, **attrs: Any) -> None:
        """Both ops refuse, and change nothing."""
        before = self.ref.value.copy()
        for name in (op, f"Resource{op}"):
            with pytest.raises(errors.InvalidArgumentError, match=match):
                self.run(name, *inputs, **attrs)
        np.testing.assert_array_equal(self.ref.value, before)
        np.testing.assert_array_equal(self.resource.value, before)


def test_kernels_are_those_of_tensorflow() -> None:
    exceptions = {"StridedSliceAssign", "ResourceStridedSliceAssign"}  # constrained by Index too, which has no others
    for op in ops_of(
        "state.state_ops",
        "state.resource_variable_ops",
        "state.variable_updates",
        "state.mutex_ops",
    ):
        theirs = in_tensorflow(op)
        assert theirs is not None, op
        ours = {(d, label, h, frozenset(c for c in choice if op not in exceptions or c[0] != "Index"))
                for d, label, h, choice in registered(op)}  # fmt: skip
        assert ours <= theirs, (op, ours - theirs)
        # TensorFlow's own for handles of several variables on other devices is never placed here.
        assert op == "_VarHandlesOp" or ours == theirs, (op, theirs - ours)


class TestScatter:
    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            ("ScatterAdd", [[15, 16], [3, 4], [6, 7]]),
            ("ScatterSub", [[-13, -12], [3, 4], [4, 5]]),
            ("ScatterMul", [[20, 80], [3, 4], [5, 6]]),
            ("ScatterDiv", [[0.05, 0.05], [3, 4], [5, 6]]),
            ("ScatterMax", [[10, 10], [3, 4], [5, 6]]),
            ("ScatterMin", [[1, 2], [3, 4], [1, 1]]),
            ("ScatterUpdate", [[4, 4], [3, 4], [1, 1]]),
        ],
    )
    def test_rows(self, op: str, expected: Any) -> None:
        v = Variables(np.array([[1, 2], [3, 4], [5, 6]], np.float32))
        updates = {"ScatterMul": [[10, 10], [1, 1], [2, 4]], "ScatterDiv": [[10, 10], [1, 1], [2, 4]]}.get(
            op, [[10, 10], [1, 1], [4, 4]]
        )
        got = v.both(op, np.array([0, 2, 0], np.int32), np.array(updates, np.float32))
        np.testing.assert_allclose(got, expected, rtol=1e-6)

    def test_scalar_serves_all_rows(self) -> None:
        v = Variables(np.ones((3, 2), np.float32))
        assert v.both("ScatterAdd", np.array([[0, 1], [1, 1]]), np.float32(2)).tolist() == [[3, 3], [7, 7], [1, 1]]

    @given(
        st.sampled_from(SCATTERS),
        st.sampled_from([np.int8, np.int32, np.uint8, np.int64]),
        st.lists(st.integers(-100, 100), min_size=1, max_size=5),
        st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5)), max_size=8),
    )
    def test_integers_against_one_after_the_other(
        self, op: str, kind: Any, values: list[int], changes: list[tuple[int, int]]
    ) -> None:
        if op in ("Max", "Min"):
            kind = np.int32  # the op is defined for few types

        def wrapped(x: int) -> int:
            return int(np.array(x).astype(kind))

        start = [wrapped(x) for x in values]
        changes = [(i % len(start), wrapped(x)) for i, x in changes if op != "Div" or wrapped(x)]
        v = Variables(np.array(start, kind))
        for i, x in changes:
            a = start[i]
            start[i] = wrapped(
                {
                    "Add": a + x,
                    "Sub": a - x,
                    "Mul": a * x,
                    "Div": math.trunc(a / x) if x else 0,
                    "Max": max(a, x),
                    "Min": min(a, x),
                    "Update": x,
                }[op]
            )
        indices, updates = [i for i, _ in changes], [x for _, x in changes]
        got = v.both(f"Scatter{op}", np.array(indices, np.int32), np.array(updates, kind))
        assert got.tolist() == start

    def test_nan_in_max_and_min(self) -> None:
        nan = np.float32(np.nan)
        for op in ("ScatterMax", "ScatterMin"):
            v = Variables(np.array([1, nan, 3], np.float32))
            np.testing.assert_array_equal(v.both(op, [0, 1], np.array([nan, 2], np.float32)), [1, nan, 3])

    def test_strings(self) -> None:
        v = Variables(strings("a", "b"))
        assert v.both("ScatterUpdate", [1], strings("x")).tolist() == [b"a", b"x"]

    def test_empty_update_changes_nothing(self) -> None:
        v = Variables(np.ones((3, 2), np.float32))
        assert v.both("ScatterAdd", np.zeros(0, np.int32), np.zeros((0, 2), np.float32)).sum() == 6

    def test_refusals(self) -> None:
        v = Variables(np.ones((3, 2), np.float32))
        row = np.ones((1, 2), np.float32)
        v.refused("ScatterAdd", [3], row, match=r"indices\[0\] = 3 is not in \[0, 3\)")
        v.refused("ScatterUpdate", [[0, -1]], np.ones((1, 2, 2), np.float32), match=r"indices\[0,1\] = -1 is not in")
        v.refused(
            "ScatterUpdate",
            [0, 1],
            np.ones((2, 3), np.float32),
            match=r"Must have updates.shape = indices.shape \+ params.shape\[1:\] or updates.shape = \[\], "
            r"got updates.shape \[2,3\], indices.shape \[2\], params.shape \[3,2\]",
        )
        Variables(np.float32(1)).refused("ScatterAdd", [0], row, match="params must be at least 1-D, got shape ")
        Variables(np.ones(3, np.int32)).refused("ScatterDiv", [0, 1], np.array([1, 0], np.int32), match="by zero")


class TestScatterNd:
    @pytest.mark.parametrize(
        ("op", "expected"),
        [("Add", [2, 9, 3]), ("Sub", [0, -5, 3]), ("Max", [1, 4, 3]), ("Min", [1, 2, 3]), ("Update", [1, 4, 3])],
    )
    def test_elements(self, op: str, expected: list[float]) -> None:
        v = Variables(np.array([1, 2, 3], np.float32))
        got = v.both(f"ScatterNd{op}", np.array([[0], [1], [1]]), np.array([1, 3, 4], np.float32))
        assert got.tolist() == expected

    def test_slices_and_bools(self) -> None:
        v = Variables(np.zeros((2, 3), np.float32))
        assert v.both("ScatterNdUpdate", [[1]], np.array([[1, 2, 3]], np.float32)).tolist() == [[0, 0, 0], [1, 2, 3]]
        b = Variables(np.array([True, True]))
        b.run("ResourceScatterNdSub", [[0]], np.array([True]))
        assert b.resource.value.tolist() == [False, True]

    def test_bad_indices_can_be_ignored(self) -> None:
        v = Variables(np.ones(3, np.float32))
        got = v.both("ScatterNdAdd", [[0], [9]], np.ones(2, np.float32), bad_indices_policy=b"IGNORE")
        assert got.tolist() == [2, 1, 1]

    def test_refusals(self) -> None:
        v = Variables(np.ones((3, 2), np.float32))
        ones = np.ones(2, np.float32)
        v.refused(
            "ScatterNdAdd", [[0, 1], [3, 0]], ones, match=r"indices\[1\] = \[3, 0\] does not index into shape \[3,2\]"
        )
        v.refused(
            "ScatterNdAdd", [[0, 0, 0]] * 2, ones, match=r"Dimensions \[3,2\) of input\[shape=\[3,2\]\] must match"
        )
        v.refused("ScatterNdAdd", [[0, 0]], ones, match=r"Dimensions \[0,1\) of indices")
        v.refused("ScatterNdAdd", 0, np.float32(1), match="rank at least one")
        Variables(np.ones((0, 2), np.float32)).refused(
            "ScatterNdAdd", [[0]], np.ones((1, 2), np.float32), match="Indices and updates specified for empty output"
        )


class TestStridedSliceAssign:
    def test_slices(self) -> None:
        v = Variables(np.zeros((3, 2), np.float32))
        assert v.both("StridedSliceAssign", [0], [2], [1], np.float32(4)).tolist() == [[4, 4], [4, 4], [0, 0]]
        assert v.both("StridedSliceAssign", [-1], [9], [1], np.array([4, 5], np.float32))[2].tolist() == [4, 5]
        w = Variables(np.ones(3, np.float32))
        assert w.both("StridedSliceAssign", [1], [2], [1], np.float32(9), shrink_axis_mask=1).tolist() == [1, 9, 1]

    def test_refusals(self) -> None:
        v = Variables(np.zeros((3, 2), np.float32))
        five = np.ones(5, np.float32)
        v.refused("StridedSliceAssign", [0], [2], [1], five, match=r"input shape \[5\] into final shape \[2,2\]")
        v.refused("StridedSliceAssign", [0], [2], [0], five, match="must be non-zero")


class TestDense:
    def test_add_and_subtract(self) -> None:
        v = Variables(np.array([1, 2], np.int8))
        v.run("AssignAdd", np.array([127, 1], np.int8))
        v.run("AssignSub", np.array([1, 1], np.int8))
        v.run("AssignAddVariableOp", np.array([127, 1], np.int8))
        v.run("AssignSubVariableOp", np.array([1, 1], np.int8))
        assert v.ref.value.tolist() == v.resource.value.tolist() == [127, 2]

    def test_bfloat16(self) -> None:
        v = Variables([1.5], "bfloat16")
        v.run("AssignAdd", np.array([2], dtypes.bfloat16.np))
        assert (v.ref.value.dtype, v.ref.value.tolist()) == (dtypes.bfloat16.np, [3.5])

    def test_shapes_must_be_equal(self) -> None:
        v = Variables(np.ones((3, 2), np.float32))
        with pytest.raises(errors.InvalidArgumentError, match="Parameters and update must be the same size"):
            v.run("AssignAdd", np.ones(2, np.float32))
        with pytest.raises(
            errors.InvalidArgumentError,
            match=r"Cannot update variable with shape \[3,2\] using a Tensor with shape \[2\], shapes must be equal.",
        ):
            v.run("AssignAddVariableOp", np.ones(2, np.float32))

    def test_update_of_another_type_is_refused(self) -> None:
        v = Variables(np.ones(2, np.float32))
        for op, inputs, words in [
            ("AssignAddVariableOp", [np.ones(2, np.int32)], "DType of variable handle and value does not match."),
            (
                "ResourceScatterAdd",
                [[0], np.ones(1, np.int32)],
                "DType of scatter resource and updates does not match.",
            ),
            ("AssignVariableOp", [np.ones(2, np.int32)], "wrong dtype. Expected float got int32"),
        ]:
            with pytest.raises(errors.InvalidArgumentError, match=words):
                v.run(op, *inputs)

    def test_update_of_a_missing_variable_is_refused(self) -> None:
        v = Variables(dtype="float32")
        for op, inputs in [("AssignAddVariableOp", [1.0]), ("ResourceScatterAdd", [[0], [1.0]])]:
            with pytest.raises(errors.NotFoundError, match="Container localhost does not exist"):
                v.run(op, *(np.asarray(x, np.float32 if x == inputs[-1] else np.int32) for x in inputs))


class TestAssign:
    def test_shape_is_that_of_the_value_it_has(self) -> None:
        v = Variables(dtype="float32")
        v.ref.shape = PartialTensorShape([2])
        for given_shape, validate, fine in [(3, True, False), (2, True, True), (3, False, True), (2, True, False)]:
            value = np.ones(given_shape, np.float32)
            if fine:
                assert v.run("Assign", value, validate_shape=validate) is v.ref
                assert v.ref.value.shape == (given_shape,)
            else:
                with pytest.raises(
                    errors.InvalidArgumentError, match="Assign requires shapes of both tensors to match"
                ):
                    v.run("Assign", value, validate_shape=validate)

    def test_resource_variables_check_only_if_asked(self) -> None:
        v = Variables(dtype="float32")
        v.run("AssignVariableOp", np.ones(3, np.float32), validate_shape=True)
        v.run("AssignVariableOp", np.ones(2, np.float32))
        with pytest.raises(errors.InvalidArgumentError, match=r"wrong shape. Expected \[2\] got \[3\]"):
            v.run("AssignVariableOp", np.ones(3, np.float32), validate_shape=True)


class TestCountUpTo:
    @pytest.mark.parametrize("op", ["CountUpTo", "ResourceCountUpTo"])
    def test_counts(self, op: str) -> None:
        v = Variables(np.int32(0))
        assert [v.run(op, limit=2, T="int32") for _ in range(2)] == [0, 1]
        with pytest.raises(errors.OutOfRangeError, match="Reached limit of 2"):
            v.run(op, limit=2, T="int32")
        with pytest.raises(errors.InvalidArgumentError, match=r"input is not a scalar: \[2\]"):
            Variables(np.zeros(2, np.int32)).run(op, limit=2, T="int32")

    def test_count_of_another_type_is_refused(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="Data types do not match: int64 and int32"):
            Variables(np.int32(0)).run("ResourceCountUpTo", limit=2, T="int64")


class TestGather:
    def read(self, v: Variables, op: str, indices: Any, **attrs: Any) -> Any:
        return v.run(op, np.asarray(indices, np.int32), dtype=v.dtype, **attrs)

    def test_rows_and_elements(self) -> None:
        v = Variables(np.arange(6, dtype=np.float32).reshape(2, 3))
        assert self.read(v, "ResourceGather", [1, 0]).tolist() == [[3, 4, 5], [0, 1, 2]]
        assert self.read(v, "ResourceGather", [[0], [2]], batch_dims=1).tolist() == [[0], [5]]
        with pytest.raises(errors.InvalidArgumentError, match="at least rank 2147483649"):
            self.read(v, "ResourceGather", [[0], [2]], batch_dims=2**31)
        assert self.read(v, "ResourceGatherNd", [[1, 2], [0, 0]]).tolist() == [5, 0]

    def test_refusals(self) -> None:
        v = Variables(np.zeros(3, np.float32))
        for op, indices, words in [
            ("ResourceGather", [0, 9], r"indices\[1\] = 9 is not in \[0, 3\)"),
            ("ResourceGatherNd", [[0], [9]], r"indices\[1\] = \[9\] does not index into param shape \[3\]"),
        ]:
            with pytest.raises(errors.InvalidArgumentError, match=words):
                self.read(v, op, indices)
        with pytest.raises(errors.InvalidArgumentError, match="params must be at least 1 dimensional"):
            self.read(Variables(np.float32(1)), "ResourceGather", [0])
        with pytest.raises(errors.InvalidArgumentError, match=r"wrong dtype\. Expected int32 got float"):
            v.run("ResourceGather", np.zeros(1, np.int32), dtype=dtypes.int32)


def test_several_variables_are_read_at_once():
    first, second = Variables([1.0, 2.0]), Variables(3, "int32")
    second.context.resources.create("localhost", "w", first.resource)
    handle = make_handle_tensor(ResourceHandle.of_type(ResourceVariable, ContainerInfo("localhost", "w"), "cpu:0"))
    handles = [handle, second.handle]
    kernel, _, _ = build("_ReadVariablesOp", [handles], dtypes=[first.dtype, second.dtype])
    values = kernel.compute(second.context, *handles)
    assert [v.tolist() for v in values] == [[1.0, 2.0], 3]
    kernel, _, _ = build("_ReadVariablesOp", [handles], dtypes=[first.dtype, first.dtype])
    with pytest.raises(errors.InvalidArgumentError, match="type"):
        kernel.compute(second.context, *handles)
    with pytest.raises(errors.InvalidArgumentError, match="Expected types of 2 variables, got 1"):
        build("_ReadVariablesOp", [handles], dtypes=[first.dtype])
