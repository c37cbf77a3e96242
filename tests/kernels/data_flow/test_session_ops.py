"""Handles of tensors that a session keeps.

What sessions do with them is in `tests/runtime/session/test_session_tensors.py`.
"""

from __future__ import annotations

import pytest

from tests.kernels.harness import in_tensorflow, ops_of, registered


@pytest.mark.parametrize("op", ops_of("data_flow.session_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def test_session_ops_have_kernels():
    assert ops_of("data_flow.session_ops") == [
        "DeleteSessionTensor",
        "GetSessionHandle",
        "GetSessionHandleV2",
        "GetSessionTensor",
    ]
