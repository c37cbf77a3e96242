"""Optional values: some tensors or none."""

from __future__ import annotations

from tests.kernels.control_flow.optional_cases import CASES, OURS
from tests.kernels.harness import in_tensorflow, registered
from tests.kernels.recorded_answers import recorded_answers

test_answers = recorded_answers("optional", CASES, OURS)


def test_registered_as_in_tensorflow() -> None:
    for op in ("OptionalFromValue", "OptionalGetValue", "OptionalHasValue", "OptionalNone"):
        assert registered(op) == in_tensorflow(op)
