"""Updates of variables on a device: what the host's kernels give, from arrays that are not NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.ref_cell import RefCell
from aexec.kernels.state.variable_updates import SCATTERS
from tests.kernels.device_harness import device_compute
from tests.kernels.harness import build
from tests.support.stand_ins.strict_arrays import StrictArray

ROWS = [op for op in SCATTERS if "Nd" not in op]


def on_host(op: str, value: Any, *inputs: Any, **attrs: Any) -> Any:
    """The variable's value after the host's kernel."""
    cell = RefCell(dtypes.from_numpy(value.dtype), PartialTensorShape(value.shape), value)
    built, *_ = build(op, [value, *inputs], **attrs)
    built.compute(cell, *inputs)
    return cell.value


def on_device(op: str, value: Any, *inputs: Any, host: int = 0, **attrs: Any) -> Any:
    """The same on a device.  The first `host` inputs are in host memory."""
    compute = device_compute(op, T=dtypes.from_numpy(value.dtype), Tindices=dtypes.int32, Index=dtypes.int32, **attrs)
    before = StrictArray(value.copy())
    after = compute(before, *inputs[:host], *(StrictArray(x.copy()) for x in inputs[host:]))
    assert before.get().tolist() == value.tolist(), "the old value was written over"
    return after.get()


def test_adds_and_subtracts() -> None:
    value, delta = np.array([1.0, 2.0], np.float32), np.array([3.0, 5.0], np.float32)
    assert on_device("AssignAdd", value, delta).tolist() == [4, 7]
    assert on_device("AssignSub", value, delta).tolist() == [-2, -3]
    with pytest.raises(errors.InvalidArgumentError, match=r"must be the same size, got shapes \[2\] and \[1\]"):
        on_device("AssignAdd", value, delta[:1])


@pytest.mark.parametrize("op", ROWS)
@given(indices=st.lists(st.integers(0, 4), max_size=9), scalar=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_scatters_rows_as_the_host_does(op: str, indices: list[int], scalar: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    if op == "ScatterUpdate":
        indices = list(dict.fromkeys(indices))  # which of several is left is not said
    value, at = random.uniform(1, 2, (5, 2)), np.array(indices, np.int32)
    rows = random.uniform(1, 2, () if scalar else (len(indices), 2))
    np.testing.assert_allclose(on_device(op, value, at, np.array(rows)), on_host(op, value, at, np.array(rows)))


@pytest.mark.parametrize("op", [op for op in SCATTERS if "Nd" in op])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8], ids=lambda t: t.__name__)
def test_scatters_at_index_tuples_as_the_host_does(op: str, dtype: Any) -> None:
    value = np.arange(12, dtype=dtype).reshape(3, 4)
    at = np.array([[0, 1], [2, 3], [1, 1]] if op == "ScatterNdUpdate" else [[0, 1], [2, 3], [0, 1]], np.int32)
    rows = np.array([5, 7, 2], dtype)
    assert on_device(op, value, at, rows).tolist() == on_host(op, value, at, rows).tolist()


@pytest.mark.parametrize("op", ["ScatterAdd", "ScatterNdAdd"])
def test_index_outside_the_variable_is_refused(op: str) -> None:
    at = np.array([[1], [3]] if "Nd" in op else [1, 3], np.int32)
    with pytest.raises(errors.InvalidArgumentError, match=r"indices\[1\] = "):
        on_device(op, np.zeros((3, 2), np.float32), at, np.ones((2, 2), np.float32))


def test_slice_is_assigned() -> None:
    value, ends = np.zeros((3, 4), np.float32), [np.array(x, np.int32) for x in ([1, 0], [3, 4], [1, 2])]
    after = on_device("StridedSliceAssign", value, *ends, np.array(7, np.float32), host=3)
    assert after.tolist() == [[0] * 4, [7, 0, 7, 0], [7, 0, 7, 0]]
    with pytest.raises(errors.InvalidArgumentError, match="Cannot broadcast input shape"):
        on_device("StridedSliceAssign", value, *ends, np.zeros(3, np.float32), host=3)


def test_assigned_value_has_the_variables_shape() -> None:
    value, other = np.zeros(2, np.float32), np.zeros(3, np.float32)
    with pytest.raises(errors.InvalidArgumentError, match=r"lhs shape= \[2\] rhs shape= \[3\]"):
        on_device("Assign", value, other)
    assert on_device("Assign", value, other, validate_shape=False).shape == (3,)
    checked = device_compute("AssignVariableOp", dtype=dtypes.float32, validate_shape=True)
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected \[2\] got \[3\]"):
        checked(StrictArray(value), StrictArray(other))
    new = StrictArray(other)
    assert checked(None, new) is new


def test_rows_are_gathered() -> None:
    value = StrictArray(np.arange(6, dtype=np.float32).reshape(3, 2))
    gather = device_compute("ResourceGather", dtype=dtypes.float32, Tindices=dtypes.int32)
    assert gather(value, StrictArray(np.array([2, 0], np.int32))).get().tolist() == [[4, 5], [0, 1]]
    gather_nd = device_compute("ResourceGatherNd", dtype=dtypes.float32, Tindices=dtypes.int32)
    assert gather_nd(value, StrictArray(np.array([[2, 0]], np.int32))).get().tolist() == [4]


def test_shape_is_the_hosts() -> None:
    shape = device_compute("VariableShape", out_type=dtypes.int32)(StrictArray(np.zeros((3, 2), np.float32)))
    assert (type(shape), shape.dtype, shape.tolist()) == (np.ndarray, np.int32, [3, 2])
