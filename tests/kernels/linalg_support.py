"""What the tests of matrix products and linear algebra share: calls with one argument an input, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from tests.kernels import harness

# Its one argument takes a list of tensors.
_TAKES_A_LIST = {"Einsum"}


def run_op(op: str, *inputs: Any, **attrs: Any) -> Any:
    """As `harness.run_op`, with outputs as arrays; the kernel's cost function must cope with the inputs too."""
    arguments = [inputs] if op in _TAKES_A_LIST else inputs
    cost = build(op, *inputs, **attrs).cost
    arrays = [np.asarray(x) for x in inputs]
    assert (cost(*arrays) if callable(cost) else cost) >= 0
    result = harness.run_op(op, arguments, **attrs)
    return tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)


def build(op: str, *inputs: Any, **attrs: Any) -> BuiltKernel:
    """The kernel of a node with these inputs."""
    return harness.build(op, [inputs] if op in _TAKES_A_LIST else inputs, **attrs)[0]


def refused(op: str, *inputs: Any, **attrs: Any) -> str:
    """The message of the InvalidArgumentError that this call raises."""
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run_op(op, *inputs, **attrs)
    return caught.value.message


def random(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    """Normally distributed, of complex types in both parts."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def assert_close(got: Any, want: Any) -> None:
    """Same type and shape, and values as near as the type allows after some hundred operations."""
    want = np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    digits = 1e-3 if want.dtype.itemsize < 8 or want.dtype == np.complex64 else 1e-9
    np.testing.assert_allclose(got, want, rtol=digits, atol=digits)
