"""The portable kernels as another device type has them: what of them is in its memory, and what in the host's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.op_contract import op_registry
from aexec.kernels.common.portable import HOST_ONLY, PORTABLE, register_portable_kernels

KIND = "TestPortable"
registry = kernel_registry.global_registry


@pytest.fixture(autouse=True)
def device_type() -> Iterator[None]:
    register_portable_kernels(KIND)
    yield
    registry._derivations.pop(KIND)


def found(op: str, **attrs: DType) -> KernelRegistration:
    return registry.lookup(op, KIND, attrs, node="n")


def test_shapes_and_axes_are_in_host_memory() -> None:
    assert found("Reshape", T=dtypes.float32, Tshape=dtypes.int32).host_memory == ("shape",)
    assert found("MatMul", T=dtypes.float32).host_memory == ()


def test_int32_is_arithmetic_of_the_host() -> None:
    """After TensorFlow: it is mostly of shapes and counters, which the host would wait for."""
    kernel = found("FloorMod", T=dtypes.int32)
    assert set(kernel.host_memory) == {"x", "y", "z"}
    assert found("FloorMod", T=dtypes.float32).host_memory == ()


def test_kernel_of_the_host_computes_with_numpy() -> None:
    op_def = op_registry.global_registry.lookup("MatMul").op_def
    attrs: dict[str, Any] = {"T": dtypes.int32, "transpose_a": False, "transpose_b": False}
    construction = OpKernelConstruction(
        name="n",
        op_def=op_def,
        attrs=attrs,
        input_types=[dtypes.int32] * 2,
        output_types=[dtypes.int32],
        xp=object(),
    )
    kernel = found("MatMul", T=dtypes.int32).build(construction)
    one = np.ones((1, 1), np.int32)
    assert kernel.compute(one, one) == 1


@pytest.mark.parametrize("op", ["NoOp", "LoopCond"])
def test_ops_without_values_run_on_any_device(op: str) -> None:
    kernel = found(op)
    assert kernel.device_type == KIND


@pytest.mark.parametrize(("op", "attrs"), [("StringJoin", {}), ("Add", {"T": dtypes.string}), ("StringLower", {})])
def test_device_has_no_kernels_for_strings(op: str, attrs: dict[str, DType]) -> None:
    with pytest.raises(errors.NotFoundError, match=f"No registered '{op}' OpKernel for {KIND} devices"):
        found(op, **attrs)


def test_every_portable_op_has_a_kernel() -> None:
    for op in PORTABLE | HOST_ONLY:
        kernels = registry.kernels_of(op)
        derived = registry._derived_of(KIND, kernels)
        default = [kernel for kernel in kernels if kernel.device_type == "DEFAULT"]
        assert derived or default, op
