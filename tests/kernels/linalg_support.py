"""What the tests of matrix products and linear algebra share: calls with one argument an input, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.op_kernel import BuiltKernel
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
