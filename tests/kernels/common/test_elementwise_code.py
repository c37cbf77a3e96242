"""The code for GPUs of elementwise ops gives what their kernels for arrays give, compiled by the host's compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.op_contract import op_registry
from aexec.kernels.common.gpu.elementwise_code import CODES, in_one_launch
from tests.kernels.device_harness import construction
from tests.support.stand_ins.code_for_hosts import COMPILER, Recorder, compile_kernels
from tests.support.stand_ins.strict_arrays import StrictArray, strict, waits

TYPES = ("float16", "float32", "float64")
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}
EDGES = [0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 5.9, 6.0, 6.5, 30.0, -30.0, np.inf, -np.inf, np.nan]


def kernel_of(op: str, dtype: str, xp: Any) -> Any:
    c = construction(op, xp, T=dtypes.as_dtype(dtype))
    registration = kernel_registry.global_registry.lookup(op, "CPU", c.attrs, node="n")
    return in_one_launch(op, registration.builder)(c)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """By op and type, what its builder gives for a module that compiles."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler named c++")
    recorder = Recorder(strict)
    made = {(op, dtype): kernel_of(op, dtype, recorder.module) for op in CODES for dtype in TYPES}
    compile_kernels(recorder.kernels, tmp_path_factory.mktemp("codes"))
    return made


@pytest.mark.parametrize("op", CODES)
@pytest.mark.parametrize("dtype", TYPES)
def test_compiled_code_agrees_with_the_kernel(compiled: dict[tuple[str, str], Any], op: str, dtype: str) -> None:
    inputs = [np.array(EDGES, dtype)]
    if len(op_registry.global_registry.lookup(op).op_def.inputs) == 2:
        inputs = [x.ravel() for x in np.meshgrid(inputs[0], inputs[0])]
    with np.errstate(all="ignore"):
        want = kernel_of(op, dtype, np)(*inputs)
        with waits() as waited:
            got = compiled[op, dtype](*map(StrictArray, inputs))
    assert waited() == 0
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got._host.astype(float), want.astype(float), TOLERANCE[dtype], TOLERANCE[dtype])


def test_inputs_are_broadcast_and_gradients_must_be_of_one_shape(compiled: dict[tuple[str, str], Any]) -> None:
    row, column = StrictArray(np.arange(3, dtype=np.float32)), StrictArray(np.ones((2, 1), np.float32))
    got = compiled["SquaredDifference", "float32"](row, column)
    assert got._host.tolist() == [[1, 0, 1], [1, 0, 1]]
    with pytest.raises(errors.InvalidArgumentError):
        compiled["ReluGrad", "float32"](row, column)
    square = StrictArray(np.ones((3, 1), np.float32))
    assert compiled["TanhGrad", "float32"](square, row).shape == (3, 1)  # taken in their order, as TensorFlow does


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("SquaredDifference", "float16"), ("LeakyRelu", "bfloat16"), ("ReluGrad", "int64"), ("Exp", "float32")],
)
def test_ops_without_code_are_left_to_the_module(op: str, dtype: str) -> None:
    recorder = Recorder(strict)
    kernel_of(op, dtype, recorder.module)
    assert not recorder.kernels
