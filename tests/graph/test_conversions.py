"""Classes of a program's own as tensors."""

from __future__ import annotations

import pytest

import aexec
from aexec import errors
from aexec.graph import conversions


class Temperature:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class Hot(Temperature):
    pass


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversions, "_conversions", [])


def test_smallest_priority_is_asked_first_and_may_decline() -> None:
    asked: list[str] = []

    def convert(name: str, declines: bool):  # type: ignore[no-untyped-def]
        def call(value: Temperature, dtype: object, wanted: object) -> object:
            asked.append(name)
            return NotImplemented if declines else aexec.constant(value.degrees)

        return call

    conversions.register_conversion(Temperature, convert("late", False), 200)
    conversions.register_conversion(Temperature, convert("early", True), 1)
    with aexec.Graph():
        assert aexec.ops.neg(Hot(3.0)).dtype is aexec.float32
    assert asked == ["early", "late"]


def test_wrong_results_are_refused() -> None:
    conversions.register_conversion(Temperature, lambda value, dtype, name: 3)
    with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match="returned no tensor"):
        aexec.ops.neg(Temperature(1.0))
    conversions.register_conversion(Temperature, lambda value, dtype, name: aexec.constant(1.0), 1)
    with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match="expected"):
        aexec.ops.mat_mul(aexec.constant([[1]]), Temperature(1.0))
    with pytest.raises(errors.InvalidArgumentError, match="numeric types"):
        conversions.register_conversion(float, lambda value, dtype, name: 3)
