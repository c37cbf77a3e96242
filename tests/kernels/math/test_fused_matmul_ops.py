"""_FusedMatMul: TensorFlow's answers, the same op by op, refusals in TensorFlow's words."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from aexec.framework import errors
from aexec.kernels.common import epilogue
from aexec.kernels.common.fusions import BIAS_THEN
from tests.kernels.array_support import F32, assert_refuses
from tests.kernels.fused_support import apply, arguments
from tests.kernels.harness import build, in_tensorflow, registered, run_op


def test_types_are_tensorflows():
    assert registered("_FusedMatMul") == in_tensorflow("_FusedMatMul")


# What TensorFlow 2.21 answers on a CPU, by its plain or its oneDNN kernel.
A = F32([[-1.5, 1, 0], [-1, 1.5, 0.5]])
B = F32([[-1.25, -0.5], [0.25, 1], [-1, -0.25]])
SIDE = F32([[-2, 1], [-1, 2]])
ANSWERS = [
    ("BiasAdd", [0.125, 0.75, -0.875, 0.875]),
    ("BiasAdd Add", [-1.875, 1.75, -1.875, 2.875]),
    ("BiasAdd Relu", [0.125, 0.75, 0.0, 0.875]),
    ("BiasAdd Relu6", [0.125, 0.75, 0.0, 0.875]),
    ("BiasAdd Elu", [0.125, 0.75, -0.5831, 0.875]),
    ("BiasAdd LeakyRelu", [0.125, 0.75, -0.2188, 0.875]),
    ("BiasAdd Tanh", [0.1244, 0.6351, -0.7039, 0.7039]),
    ("BiasAdd Sigmoid", [0.5312, 0.6792, 0.2942, 0.7058]),
    ("BiasAdd GeluApproximate", [0.0687, 0.58, -0.167, 0.708]),
    ("BiasAdd GeluExact", [0.0687, 0.58, -0.1669, 0.7081]),
]


def fused(text: str) -> list[bytes]:
    return [name.encode() for name in text.split()]


@pytest.mark.parametrize(("ops", "want"), ANSWERS, ids=[ops for ops, _ in ANSWERS])
def test_tensorflows_answers(ops, want):
    args = [F32([-2, -1]), *([SIDE] if " Add" in ops else [])]
    got = run_op("_FusedMatMul", [A, B, args], fused_ops=fused(ops), leakyrelu_alpha=0.25)
    np.testing.assert_allclose(got.reshape(-1), want, rtol=1e-4, atol=1e-4)


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(dtype)


@pytest.mark.parametrize("ops", sorted(BIAS_THEN), ids="+".join)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("rows", [1, 7, 500])
def test_fused_product_agrees_with_its_ops(ops, transpose_a, transpose_b, rows, monkeypatch):
    monkeypatch.setattr(epilogue, "BLOCK_BYTES", 100)
    a, b = normal(*((4, rows) if transpose_a else (rows, 4))), normal(*((5, 4) if transpose_b else (4, 5)), seed=1)
    attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    product = run_op("MatMul", [a, b], **attrs)
    args = arguments(ops, product.shape)
    want, exact = apply(product, ops, args)
    got = run_op("_FusedMatMul", [a, b, args], fused_ops=fused(" ".join(ops)), **attrs)
    if exact:
        assert got.tobytes() == want.tobytes()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_types_are_rounded_once(dtype):
    a, b, bias = normal(3, 4, dtype=dtype), normal(4, 5, seed=1, dtype=dtype), normal(5, seed=2, dtype=dtype)
    want = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + bias.astype(np.float32), 0).astype(dtype)
    got = run_op("_FusedMatMul", [a, b, [bias]], fused_ops=fused("BiasAdd Relu"))
    assert got.dtype == dtype
    assert got.tobytes() == want.tobytes()


BIAS = F32([1, 2])


@pytest.mark.parametrize(
    ("inputs", "ops", "message", "error"),
    [
        ([A, B, []], "", "Fused MatMul must have at least one fused op.", errors.InvalidArgumentError),
        ([A, B, []], "Relu", "Fusion is not implemented: [Relu]", errors.UnimplementedError),
        (
            [A, B, [BIAS] * 4],
            "FusedBatchNorm",
            "Fusion is not implemented: [FusedBatchNorm]",
            errors.UnimplementedError,
        ),
        (
            [A, B, [BIAS, BIAS]],
            "BiasAdd",
            "Fused MatMul with BiasAdd must have one extra argument: bias or 4 extra arguments: bias, side_input, "
            "conv_input_scale and side_input_scale",
            errors.InvalidArgumentError,
        ),
        ([A, B, [B]], "BiasAdd", "bias must be 1-dimensional[3,2]", errors.InvalidArgumentError),
        (
            [A, B, [F32([1, 2, 3])]],
            "BiasAdd",
            "bias must have as many elements as the output has channels: [3] vs. [2,2]",
            errors.InvalidArgumentError,
        ),
        (
            [A, A, [BIAS]],
            "BiasAdd",
            "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]",
            errors.InvalidArgumentError,
        ),
        (
            [A[0], B, [BIAS]],
            "BiasAdd",
            "In[0] and In[1] has different ndims: [3] vs. [3,2]",
            errors.InvalidArgumentError,
        ),
    ],
)
def test_refused(inputs, ops, message, error):
    assert_refuses("_FusedMatMul", inputs, message, error, fused_ops=fused(ops))


def test_constants_are_prepared_once_and_variables_each_time():
    """What was made of a bias is kept if nothing can change it."""
    (built, arrays, _) = build("_FusedMatMul", [normal(400, 8), normal(8, 16), [normal(16)]], fused_ops=[b"BiasAdd"])
    *matrices, bias = arrays
    for writeable in (True, False, True):
        bias = bias + 1
        bias.flags.writeable = writeable
        want = matrices[0] @ matrices[1] + bias
        assert built.compute(*matrices, bias).tobytes() == want.tobytes()
        if writeable:
            bias[:] = 5
            want = matrices[0] @ matrices[1] + bias
            assert built.compute(*matrices, bias).tobytes() == want.tobytes()
