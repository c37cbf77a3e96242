"""Kernels of control flow that do something themselves.

How values travel is in `tests/runtime/interpreter/test_execution.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

from aexec.framework import errors
from tests.kernels.harness import run_op


def test_abort_ends_the_step_with_its_message():
    with pytest.raises(errors.AbortedError, match="Abort op intentionally failed: enough"):
        run_op("Abort", [], error_msg="enough")


def test_abort_without_error_does_nothing():
    assert run_op("Abort", [], error_msg="enough", exit_without_error=True) is None


@pytest.mark.parametrize("op", ["NoOp", "ControlTrigger"])
def test_ops_that_only_order_others_do_nothing(op):
    assert run_op(op, []) is None


@pytest.mark.parametrize("value", [True, False])
def test_loop_cond_is_an_identity(value):
    assert run_op("LoopCond", [np.array(value)]) == value
