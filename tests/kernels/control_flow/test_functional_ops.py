"""The kernels of control flow by functions.

What they do is in `tests/runtime/functions/test_functions.py`: they need a step.
"""

from __future__ import annotations

import numpy as np
import pytest

from aexec.framework import dtypes
from tests.kernels.array_support import assert_gives
from tests.kernels.harness import ops_of, run_op


def test_ops_that_have_kernels():
    assert ops_of("control_flow.functional_ops") == [
        "Case",
        "DeviceIndex",
        "FakeParam",
        "For",
        "If",
        "PartitionedCall",
        "RemoteCall",
        "StatefulPartitionedCall",
        "StatelessCase",
        "StatelessIf",
        "StatelessWhile",
        "SymbolicGradient",
        "ToBool",
        "While",
        "_If",
        "_While",
    ]


def test_fake_param_gives_zeros_where_dimensions_are_unknown():
    assert_gives("FakeParam", [], np.zeros((2, 0), np.float32), dtype="float", shape=[2, None])


def test_fake_param_of_strings_is_empty_strings():
    assert run_op("FakeParam", [], dtype=dtypes.string, shape=[2]).tolist() == [b"", b""]
    assert run_op("FakeParam", [], dtype=dtypes.variant, shape=[1]).tolist() == [None]


@pytest.mark.parametrize(
    ("value", "truth"),
    [(0, False), (0.5, True), (np.array(b"", object), False), (np.array(b"0", object), True), ([], False), ([0], True)],
)
def test_to_bool_is_the_truth_of_conditions(value, truth):
    array = np.array(value)
    dtype = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
    assert run_op("ToBool", [array], T=dtype) == truth


@pytest.mark.parametrize(
    ("names", "index"),
    [
        ([b"CPU", b"GPU"], 0),
        ([b"GPU", b"CPU"], 1),
        ([b"GPU"], 1),
        ([b"GPU", b"TPU_REPLICATED_CORE"], 2),
        ([b"\xff\xfe", b"CPU"], 1),
    ],
)
def test_device_index_is_the_place_of_the_device(names, index):
    assert_gives("DeviceIndex", [], np.int32(index), device_names=names)
