"""Lookup of a value by class, by name of a class, or by predicate; the last registration first."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from aexec import errors
from aexec.runtime.feeding.type_patterns import TypePatterns


class Base:
    pass


class Derived(Base):
    size = 1


@pytest.fixture
def patterns() -> TypePatterns[str]:
    return TypePatterns()


def test_class_stands_for_its_subclasses(patterns: TypePatterns[str]) -> None:
    assert patterns.find(Base()) is None
    patterns.register(Base, "base")
    assert patterns.find(Base()) == patterns.find(Derived()) == "base"
    assert patterns.find(object()) is None and patterns.find(Base) is None


def test_exact_class_excludes_its_subclasses(patterns: TypePatterns[str]) -> None:
    patterns.register(Base, "base", exact=True)
    assert patterns.find(Base()) == "base" and patterns.find(Derived()) is None


def test_last_registration_wins(patterns: TypePatterns[str]) -> None:
    patterns.register(Derived, "derived")
    patterns.register(Base, "base")
    assert patterns.find(Derived()) == "base"
    patterns.register(lambda value: getattr(value, "size", 0) == 1, "small")
    assert patterns.find(Derived()) == "small" and patterns.find(Base()) == "base"
    big = Derived()
    big.size = 2
    assert patterns.find(big) == "base"
    patterns.register(Derived, "derived again")
    assert patterns.find(big) == "derived again"


def test_pattern_registered_again_is_replaced(patterns: TypePatterns[str]) -> None:
    for i in range(3):
        patterns.register(Base, f"base {i}")
        patterns.register(Base, f"exact {i}", exact=True)
    assert (patterns.find(Base()), patterns.find(Derived())) == ("exact 2", "base 2")
    assert len(patterns._entries) == 2


def test_class_name_as_pattern_imports_nothing(patterns: TypePatterns[str], monkeypatch: pytest.MonkeyPatch) -> None:
    patterns.register("a_library.arrays.Array", "array")
    assert patterns.find(Base()) is None
    library, arrays = ModuleType("a_library"), ModuleType("a_library.arrays")
    Array = type("Array", (), {})
    monkeypatch.setitem(sys.modules, "a_library", library)
    assert patterns.find(Array()) is None  # it is half imported
    library.arrays = arrays  # type: ignore[attr-defined]
    arrays.Array = Array  # type: ignore[attr-defined]
    assert patterns.find(type("Matrix", (Array,), {})()) == "array"
    patterns.register("a_library.arrays.Array", "itself", exact=True)
    assert patterns.find(Array()) == "itself" and patterns.find(type("Matrix", (Array,), {})()) == "array"
    assert patterns.find(arrays) is None


def test_types_of_the_language(patterns: TypePatterns[str]) -> None:
    assert patterns.find(1) is patterns.find([]) is None
    patterns.register(lambda value: value == 1, "one")
    assert patterns.find(1) == "one" and patterns.find(2) is None
    patterns.register(list, "list")
    assert patterns.find([]) == "list"


@pytest.mark.parametrize("pattern", [None, 3, "Array", "", "a.b-c", "a..b"])
def test_invalid_patterns_are_refused(patterns: TypePatterns[str], pattern: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"pattern of types must be|no full name of a class"):
        patterns.register(pattern, "")


def test_exact_predicate_is_refused(patterns: TypePatterns[str]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Only a class can be meant exactly"):
        patterns.register(lambda _: True, "", exact=True)
