"""Optimisers' updates on a device: TensorFlow's answers from arrays that are not NumPy's, nothing written over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.kernels.common.gpu.device_forms import form_of
from tests.kernels.device_harness import device_compute
from tests.kernels.training.test_training_ops import ANSWERS, _inputs, _name, _order
from tests.support.stand_ins.code_for_hosts import COMPILER, Recorder, compile_kernels
from tests.support.stand_ins.strict_arrays import StrictArray, strict, waits


def compute_of(answer: dict[str, Any], xp: Any = strict) -> Any:
    return device_compute(answer["op"], xp, T=dtypes.float32, Tindices=dtypes.int32, **answer["attrs"])


def updated(answer: dict[str, Any], compute: Any = None, **changed: Any) -> dict[str, Any]:
    """The variables after the update."""
    holders = list(answer["start"])
    order = [name for name in _order(answer["op"]) if name not in holders]
    inputs = _inputs(answer, dtypes.float32) | changed
    before = {name: StrictArray(np.array(value, np.float32)) for name, value in answer["start"].items()}
    given = [StrictArray(np.array(inputs[name])) for name in order]
    compute = compute_of(answer) if compute is None else compute
    after = compute(
        *(before[name] for name in _order(answer["op"])[: len(holders)]), tuple(range(len(holders))), *given
    )
    for name, value in answer["start"].items():
        assert before[name].get().tolist() == np.array(value, np.float32).tolist()
    return dict(zip(_order(answer["op"]), after, strict=False))


@pytest.mark.parametrize("answer", ANSWERS, ids=_name)
def test_gives_tensorflows_answer(answer: dict[str, Any]) -> None:
    after = updated(answer)
    for name, value in answer["end"].items():
        np.testing.assert_allclose(after[name].get(), value, rtol=2e-6, atol=2e-6, err_msg=name)


@pytest.fixture(scope="module")
def in_one_launch(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], Any]]:
    """Answers, and what computes them where all that there is for them is one kernel."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler named c++")
    found, recorder = [], Recorder(strict)
    for answer in ANSWERS:
        before = len(recorder.kernels)
        compute = compute_of(answer, recorder.module)
        found += [(answer, compute)] * (len(recorder.kernels) - before)
    compile_kernels(recorder.kernels, tmp_path_factory.mktemp("codes"))
    return found


def test_update_in_one_launch_gives_tensorflows_answer(in_one_launch: list[tuple[dict[str, Any], Any]]) -> None:
    ops = set()
    for answer, compute in in_one_launch:
        with waits() as waited:
            after = updated(answer, compute)
            assert waited() == len(answer["start"])  # which looked at what was there before
        for name, value in answer["end"].items():
            np.testing.assert_allclose(after[name].get(), value, rtol=2e-6, atol=2e-6, err_msg=answer["op"])
        ops.add(answer["op"].removeprefix("Resource"))
    names = "Adagrad AdagradV2 Adam GradientDescent KerasMomentum Momentum RMSProp"
    assert ops == {f"Apply{name}" for name in names.split()}


@pytest.mark.parametrize("launches", ["several", "one"])
def test_mismatched_shapes_are_refused(launches: str, request: pytest.FixtureRequest) -> None:
    answer, compute = next(a for a in ANSWERS if a["op"] == "ResourceApplyMomentum"), None
    if launches == "one":
        answer, compute = next(a for a in request.getfixturevalue("in_one_launch") if a[0]["op"] == answer["op"])
    with pytest.raises(errors.InvalidArgumentError, match="do not have the same shape"):
        updated(answer, compute, grad=np.zeros(17, np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="lr is not a scalar"):
        updated(answer, compute, lr=np.zeros(2, np.float32))


def test_index_outside_the_variable_is_refused() -> None:
    answer = next(a for a in ANSWERS if a["op"] == "ResourceSparseApplyMomentum")
    wrong = np.full_like(np.array(answer["inputs"]["indices"], np.int32), 99)
    with pytest.raises(errors.InvalidArgumentError, match="Index 99 at offset 0 in indices is out of range"):
        updated(answer, indices=wrong)


def test_variable_may_be_its_own_slot() -> None:
    value = StrictArray(np.ones(1, np.float32))
    compute = device_compute("ResourceApplyMomentum", T=dtypes.float32)
    scalar = [StrictArray(np.float32(x) * np.ones((), np.float32)) for x in (0.5, 1.0)]
    var, accum = compute(value, value, (0, 0), scalar[0], StrictArray(np.ones(1, np.float32)), scalar[1])
    assert var is accum
    assert var.get().tolist() == [1.0]


def test_two_variables_may_have_one_array_as_their_value() -> None:
    zeros, ones = StrictArray(np.zeros(1, np.float32)), StrictArray(np.ones(1, np.float32))
    compute = device_compute("ResourceApplyMomentum", T=dtypes.float32)
    scalars = [StrictArray(np.array(x, np.float32)) for x in (0.5, 1.0)]
    var, accum = compute(zeros, zeros, (0, 1), scalars[0], ones, scalars[1])
    assert (var.get().tolist(), accum.get().tolist()) == ([-0.5], [1.0])


def test_every_update_has_a_form() -> None:
    assert all(form_of(answer["op"]) is not None for answer in ANSWERS)
