"""The code for GPUs of convolutions and normalisation gives what the kernels for the host do, compiled for the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes
from aexec.framework.kernel_contract import kernel_registry
from tests.kernels.device_harness import construction
from tests.support.stand_ins.code_for_hosts import COMPILER, Recorder, compile_kernels
from tests.support.stand_ins.strict_arrays import StrictArray, strict

SAME = {"padding": b"SAME", "strides": [1, 1, 1, 1]}


def kernel(xp: Any, op: str = "DepthwiseConv2dNative", dtype: str = "float32", **attrs: Any) -> Any:
    c = construction(op, xp, T=dtypes.as_dtype(dtype), **attrs)
    return kernel_registry.global_registry.lookup(op, "CPU", c.attrs, node="n").build(c).compute


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler named c++")
@pytest.mark.parametrize(
    ("dtype", "attrs"),
    [
        ("float32", SAME),
        ("float64", {"padding": b"VALID", "strides": [1, 2, 2, 1]}),
        ("float16", {**SAME, "dilations": [1, 2, 3, 1]}),
        ("float32", {**SAME, "padding": b"EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 3, 0, 0]}),
    ],
)
def test_gpu_code_agrees_with_the_host_kernel(dtype: str, attrs: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, weights = (rng.normal(size=shape).astype(dtype) for shape in ((2, 7, 9, 3), (3, 2, 3, 2)))
    recorder = Recorder(strict)
    on_gpu = kernel(recorder.module, dtype=dtype, **attrs)
    compile_kernels(recorder.kernels, tmp_path)
    got, want = on_gpu(StrictArray(x), StrictArray(weights)), kernel(np, dtype=dtype, **attrs)(x, weights)
    assert got.dtype == want.dtype
    tolerance = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(got.get().astype(float), want.astype(float), tolerance, tolerance)


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler named c++")
@pytest.mark.parametrize("layout", [b"NHWC", b"NCHW"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batch_normalisation_is_one_launch(layout: bytes, dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 4, 4, 4)).astype(dtype)
    vectors = [rng.uniform(0.5, 2, 4).astype("float32") for _ in range(4)]
    attrs = {"U": dtypes.float32, "is_training": False, "data_format": layout}
    recorder = Recorder(strict)
    on_gpu = kernel(recorder.module, "FusedBatchNormV3", dtype, **attrs)
    compile_kernels(recorder.kernels, tmp_path)
    got = on_gpu(StrictArray(x), *map(StrictArray, vectors))[0]
    want = kernel(np, "FusedBatchNormV3", dtype, **attrs)(x, *vectors)[0]
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.get().astype(float), want.astype(float), 1e-2, 1e-5)
