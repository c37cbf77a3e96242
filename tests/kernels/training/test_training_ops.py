"""Optimisers' updates: TensorFlow's answers, sparse against dense, sharing of values, and errors."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.op_contract import op_registry
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import ResourceHandle, make_handle_tensor
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.framework.waiting.abandoned_calls import AbandonedError, CallInThread
from tests.kernels.harness import build, in_tensorflow, ops_of, registered
from tests.support.stand_ins import contexts

# What TensorFlow 2.21 makes of variables, per op: attrs, inputs, values before and after.
ANSWERS: list[dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parent / "data" / "training_answers.json.gz").read_bytes())
)
# The ops on references; each has one on handles too, whose answers these are.
BY_REFERENCE = frozenset(
    """
    ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam ApplyAddSign ApplyCenteredRMSProp
    ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyMomentum ApplyPowerSign ApplyProximalAdagrad
    ApplyProximalGradientDescent ApplyRMSProp SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA
    SparseApplyAdagradV2 SparseApplyCenteredRMSProp SparseApplyFtrl SparseApplyFtrlV2 SparseApplyMomentum
    SparseApplyProximalAdagrad SparseApplyProximalGradientDescent SparseApplyRMSProp
    """.split()
)
CASES = [
    (answer, by_ref)
    for answer in ANSWERS
    for by_ref in (False, True)
    if not by_ref or answer["op"].removeprefix("Resource") in BY_REFERENCE
]


def _name(value: Any) -> str:
    if isinstance(value, bool):
        return "ref" if value else "handle"
    answer: dict[str, Any] = value
    return str(answer["op"]) + "".join(f"-{name}" for name, value in answer["attrs"].items() if value)


def _inputs(answer: dict[str, Any], dtype: dtypes.DType) -> dict[str, Any]:
    kinds = {"indices": np.int32, "global_step": np.int64}
    return {name: np.array(value, kinds.get(name, dtype.np)) for name, value in answer["inputs"].items()}


def _order(op: str) -> list[str]:
    return [arg.name for arg in op_registry.global_registry.lookup(op).op_def.inputs]


class Variables:
    """Variables by name, and the calls of kernels on them."""

    def __init__(self, values: dict[str, Any], dtype: dtypes.DType = dtypes.float32, *, by_ref: bool = False) -> None:
        self.context = contexts.context()
        self.dtype, self.by_ref = dtype, by_ref
        self.cells: dict[str, Any] = {}
        for name, value in values.items():
            array = None if value is None else np.array(value, dtype.np)
            if by_ref:
                self.cells[name] = RefCell(dtype, PartialTensorShape(np.shape(value)), array)
            else:
                self.cells[name] = ResourceVariable(dtype, array)
                self.context.resources.create("c", name, self.cells[name])

    def apply(self, op: str, **inputs: Any) -> Any:
        op = op if self.by_ref else f"Resource{op.removeprefix('Resource')}"
        attrs = {name: inputs.pop(name) for name in list(inputs) if isinstance(inputs[name], bool)}
        arguments, stand_ins = [], []
        for name in _order(op):
            if name in inputs:
                arguments.append(inputs[name])
                stand_ins.append(np.asarray(inputs[name]))
            elif self.by_ref:
                arguments.append(self.cells[name])
                stand_ins.append(np.zeros((), self.dtype.np))
            else:
                arguments.append(make_handle_tensor(ResourceHandle(container="c", name=name)))
                stand_ins.append(np.array(None, object))
        built, *_ = build(op, stand_ins, T=self.dtype, **attrs)
        with np.errstate(all="ignore"):
            return built.compute(self.context, *arguments)

    def __getitem__(self, name: str) -> Any:
        return self.cells[name].value


def test_every_op_has_a_recorded_answer():
    tested = {answer["op"].removeprefix("Resource") if by_ref else answer["op"] for answer, by_ref in CASES}
    assert tested == set(ops_of("training.training_ops"))


@pytest.mark.parametrize(("answer", "by_ref"), CASES, ids=_name)
def test_gives_tensorflows_answer(answer: dict[str, Any], by_ref: bool) -> None:
    """One update of a variable and its slots, as TensorFlow made it."""
    variables = Variables(answer["start"], by_ref=by_ref)
    op = answer["op"].removeprefix("Resource")
    out = variables.apply(op, **_inputs(answer, dtypes.float32), **answer["attrs"])
    assert out is (variables.cells["var"] if by_ref else None)
    for name, value in answer["end"].items():
        np.testing.assert_allclose(variables[name], value, rtol=2e-6, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.complex64], ids=str)
def test_updates_stay_in_the_type_of_the_variable(dtype: dtypes.DType) -> None:
    """All arithmetic stays in the variable's type."""
    answer = next(a for a in ANSWERS if a["op"] == "ResourceApplyAdadelta")
    variables = Variables(answer["start"], dtype)
    variables.apply("ApplyAdadelta", **_inputs(answer, dtype))
    assert variables["var"].dtype == dtype.np
    rough = {dtypes.float16: 1e-2, dtypes.bfloat16: 8e-2}.get(dtype, 1e-5)
    np.testing.assert_allclose(variables["var"].astype(complex), answer["end"]["var"], rtol=rough, atol=rough)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 2**32 - 1))
def test_repeated_indices_are_applied_one_after_the_other(indices: list[int], seed: int) -> None:
    """A sparse update equals dense updates of one row after the other."""
    random = np.random.default_rng(seed)
    values = {name: random.uniform(0.1, 1, (5, 2)) for name in ("var", "accum")}
    grad = random.normal(size=(len(indices), 2))
    scalars = {"lr": np.float64(0.1), "momentum": np.float64(0.9)}
    at_once = Variables(values, dtypes.float64)
    at_once.apply("SparseApplyMomentum", grad=grad, indices=np.array(indices, np.int64), **scalars)
    for row, index in enumerate(indices):
        one = Variables({name: value[index] for name, value in values.items()}, dtypes.float64)
        one.apply("ApplyMomentum", grad=grad[row], **scalars)
        for name in values:
            values[name][index] = one[name]
    for name, value in values.items():
        np.testing.assert_allclose(at_once[name], value)


def test_large_variables_are_updated_part_by_part() -> None:
    """Parts make no difference to the result."""
    size = 100_001
    var, accum, grad = (np.random.default_rng(i).uniform(0.1, 1, size) for i in range(3))
    variables = Variables({"var": var, "accum": accum}, dtypes.float64)
    variables.apply("ApplyAdagrad", lr=np.float64(0.1), grad=grad)
    np.testing.assert_allclose(variables["var"], var - 0.1 * grad / np.sqrt(accum + grad**2))


@pytest.mark.parametrize("repeated", [False, True])
def test_many_rows_are_updated_part_by_part(repeated: bool) -> None:
    """Parts make no difference to the result, and take less memory."""
    rows = 60_000
    answer = next(a for a in ANSWERS if a["op"] == "ResourceSparseApplyFtrl")
    start = {name: np.resize(value, (rows, 3)) for name, value in answer["start"].items()}
    indices = np.random.default_rng(0).permutation(rows)
    inputs = {**_inputs(answer, dtypes.float64), "grad": np.random.default_rng(1).normal(size=(rows, 3))}
    if repeated:
        indices[::1000] = 7
    parts, rows_alone = (Variables(start, dtypes.float64) for _ in range(2))
    tracemalloc.start(1)
    try:
        parts.apply("SparseApplyFtrl", **{**inputs, "indices": indices})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 15 << 20  # three arrays are copied, of 1.4 MB each, and rows are sorted
    for some in (slice(0, 100), slice(100, rows)):
        one_by_one = {**inputs, "grad": inputs["grad"][some], "indices": indices[some]}
        rows_alone.apply("SparseApplyFtrl", **one_by_one)
    for name in start:
        np.testing.assert_allclose(parts[name], rows_alone[name], err_msg=name)


def test_values_read_before_stay() -> None:
    """What was read is not changed by an update; what nobody holds is updated in place."""
    variables = Variables({"var": [1.0, 2.0]})
    before = variables["var"]
    variables.apply("ApplyGradientDescent", alpha=np.float32(1), delta=np.ones(2, np.float32))
    assert before.tolist() == [1, 2]
    assert variables["var"].tolist() == [0, 1]
    where = variables["var"].ctypes.data
    del before
    variables.apply("ApplyGradientDescent", alpha=np.float32(1), delta=np.ones(2, np.float32))
    assert variables["var"].ctypes.data == where
    variables.apply("ApplyGradientDescent", alpha=np.float32(1), delta=variables["var"])
    assert variables["var"].tolist() == [0, 0]


def test_variable_may_be_its_own_slot() -> None:
    """One variable named twice is one array."""
    variables = Variables({"var": [1.0]})
    handle = make_handle_tensor(ResourceHandle(container="c", name="var"))
    variables.apply(
        "ApplyMomentum", accum=handle, lr=np.float32(0.5), grad=np.ones(1, np.float32), momentum=np.float32(1)
    )
    assert variables["var"].tolist() == [1.0]


SCALARS = {"lr": np.float32(0.1), "momentum": np.float32(0.9)}
ROWS = {"grad": np.ones((2, 3), np.float32), "indices": np.array([0, 1]), **SCALARS}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"indices": np.array([0, 4])}, r"Index 4 at offset 1 in indices is out of range"),
        ({"indices": np.array([-1, 0])}, r"Index -1 at offset 0 in indices is out of range"),
        ({"indices": np.array([[0], [1]])}, "indices must be one-dimensional"),
        ({"indices": np.array([0])}, "grad must be the same size as indices in the first dimension"),
        ({"grad": np.ones((2, 2), np.float32)}, "var and grad must match in dimension 1"),
        ({"grad": np.ones(2, np.float32)}, "grad must have the same number of dimensions as var"),
        ({"lr": np.ones(1, np.float32)}, r"lr is not a scalar: \[1\]"),
    ],
)
def test_sparse_errors(changes: dict[str, Any], words: str) -> None:
    """Bad input is refused before anything changes."""
    variables = Variables({"var": np.ones((4, 3)), "accum": np.ones((4, 3))})
    with pytest.raises(errors.InvalidArgumentError, match=words):
        variables.apply("SparseApplyMomentum", **{**ROWS, **changes})
    assert (variables["var"] == 1).all()


def test_keras_momentum_has_its_own_words_for_indices() -> None:
    variables = Variables({"var": np.ones((4, 3)), "accum": np.ones((4, 3))})
    with pytest.raises(errors.InvalidArgumentError, match=r"indices\[1\] = 4 is not in \[0, 4\)"):
        variables.apply("SparseApplyKerasMomentum", **{**ROWS, "indices": np.array([0, 4])})


def test_scalar_variable_has_no_rows() -> None:
    variables = Variables({"var": 1.0, "accum": 1.0})
    with pytest.raises(errors.InvalidArgumentError, match="var must be at least 1 dimensional"):
        variables.apply("SparseApplyMomentum", **ROWS)


@pytest.mark.parametrize(
    ("accum", "grad", "words"),
    [
        ([1.0, 1.0], [1.0, 2.0, 3.0], r"var and grad do not have the same shape\[2\] \[3\]"),
        ([1.0, 1.0, 1.0], [1.0, 2.0], r"var and accum do not have the same shape\[2\] \[3\]"),
    ],
)
def test_shapes_must_match(accum: Any, grad: Any, words: str) -> None:
    variables = Variables({"var": [1.0, 1.0], "accum": accum})
    with pytest.raises(errors.InvalidArgumentError, match=words):
        variables.apply("ApplyMomentum", grad=np.array(grad, np.float32), **SCALARS)


FTRL = {"lr": 0.1, "l1": 0.1, "l2": 0.1, "lr_power": -0.5, "l2_shrinkage": 0.1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr": 0.0}, "lr is not a positive scalar"),
        ({"lr": -1.0, "multiply_linear_by_lr": True}, "lr is not a positive scalar"),
        ({"l1": -1.0}, "l1 regularization strength is not a non-negative scalar"),
        ({"l2": -1.0}, "l2 regularization strength is not a non-negative scalar"),
        ({"l2_shrinkage": -1.0}, "l2 shrinkage regularization strength is not a non-negative scalar"),
        ({"lr_power": 0.5}, "lr_power is not a non-positive scalar"),
    ],
)
def test_limits_of_ftrl(changes: dict[str, Any], words: str) -> None:
    """The sparse op checks its scalars; a rate of zero is fine where it multiplies."""
    variables = Variables({"var": [1.0], "accum": [1.0], "linear": [1.0]})
    given = {name: v if isinstance(v, bool) else np.float32(v) for name, v in {**FTRL, **changes}.items()}
    rows = {"grad": np.ones(1, np.float32), "indices": np.array([0])}
    with pytest.raises(errors.InvalidArgumentError, match=words):
        variables.apply("SparseApplyFtrlV2", **rows, **given)
    given = {name: np.float32(v) for name, v in {**FTRL, "lr": 0}.items()}
    variables.apply("SparseApplyFtrlV2", **rows, **given, multiply_linear_by_lr=True)


def test_missing_and_wrong_variables() -> None:
    """A handle to nothing, a variable without a value, one of another type."""
    step = {"alpha": np.float32(1), "delta": np.ones(1, np.float32)}
    with pytest.raises(errors.FailedPreconditionError, match=r"Invalid variable reference\."):
        Variables({}).apply("ApplyGradientDescent", **step)
    with pytest.raises(errors.FailedPreconditionError, match="Attempting to use uninitialized variables: var"):
        Variables({"var": None}).apply("ApplyGradientDescent", **step)
    variables = Variables({"var": [1.0]}, dtypes.float64)
    variables.dtype = dtypes.float32
    with pytest.raises(errors.InvalidArgumentError, match=r"wrong dtype\. Expected double got float"):
        variables.apply("ApplyGradientDescent", **step)


def test_registered_for_tensorflows_types() -> None:
    """Every op of the family, for the types that TensorFlow has."""
    ops = ops_of("training.training_ops")
    assert len(ops) == 57
    for op in ops:
        assert registered(op) == in_tensorflow(op), op


@pytest.mark.parametrize("op", ["SparseApplyAdagrad", "SparseApplyProximalGradientDescent"])
def test_repeated_rows_are_all_changed_or_none(op: str) -> None:
    class GivenUp(CallInThread):
        """Nobody waits for it any more once it has asked a few times."""

        __slots__ = ("asked",)
        asked: int

        @property  # type: ignore[override]
        def abandoned(self) -> bool:
            self.asked = getattr(self, "asked", 0) + 1
            return self.asked > 3

        @abandoned.setter
        def abandoned(self, value: bool) -> None:
            pass

    names = {"SparseApplyAdagrad": ["var", "accum"], "SparseApplyProximalGradientDescent": ["var"]}[op]
    variables = Variables({name: [[1.0], [1.0]] for name in names})
    scalars = {"lr": 0.1} if "Adagrad" in op else {"alpha": 0.1, "l1": 0.0, "l2": 0.0}
    count = 100_000
    given = {name: np.float32(value) for name, value in scalars.items()}
    rows = {"grad": np.ones((count, 1), np.float32), "indices": np.zeros(count, np.int32)}
    with GivenUp().running(), pytest.raises(AbandonedError):
        variables.apply(op, **given, **rows)
    for name in names:
        assert variables.cells[name].value.tolist() == [[1.0], [1.0]]
