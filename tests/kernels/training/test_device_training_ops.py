"""Optimisers' updates on a device: TensorFlow's answers from arrays that are not NumPy's, nothing written over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.kernels.common.device_forms import form_of
from tests.kernels.device_harness import device_compute
from tests.kernels.training.test_training_ops import ANSWERS, _inputs, _name, _order
from tests.support.strict_arrays import StrictArray


def updated(answer: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """The variables after the update."""
    holders = list(answer["start"])
    order = [name for name in _order(answer["op"]) if name not in holders]
    inputs = _inputs(answer, dtypes.float32) | changed
    before = {name: StrictArray(np.array(value, np.float32)) for name, value in answer["start"].items()}
    given = [StrictArray(np.array(inputs[name])) for name in order]
    compute = device_compute(answer["op"], T=dtypes.float32, Tindices=dtypes.int32, **answer["attrs"])
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


def test_what_does_not_go_together_is_refused() -> None:
    answer = next(a for a in ANSWERS if a["op"] == "ResourceApplyMomentum")
    with pytest.raises(errors.InvalidArgumentError, match="do not have the same shape"):
        updated(answer, grad=np.zeros(17, np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="lr is not a scalar"):
        updated(answer, lr=np.zeros(2, np.float32))


def test_an_index_outside_the_variable_is_refused() -> None:
    answer = next(a for a in ANSWERS if a["op"] == "ResourceSparseApplyMomentum")
    wrong = np.full_like(np.array(answer["inputs"]["indices"], np.int32), 99)
    with pytest.raises(errors.InvalidArgumentError, match="Index 99 at offset 0 in indices is out of range"):
        updated(answer, indices=wrong)


def test_a_variable_may_be_its_own_slot() -> None:
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
