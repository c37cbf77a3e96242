"""docs/from-tensorflow.md: the names in its tables exist, and the names that it calls missing do not."""

from __future__ import annotations

import importlib
import operator
import re
from pathlib import Path

import pytest

import aexec
from tests.compat.recorded.names import resolve

PAGE = Path(__file__).parent.parent.parent / "docs" / "from-tensorflow.md"


def rows() -> dict[str, list[str]]:
    """TensorFlow's name → the other cells of its row."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `tf.")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {first.strip("`").removeprefix("tf."): rest for first, *rest in cells}


THERE = {name: cells for name, cells in rows().items() if len(cells) == 2}
MISSING = {name: cells for name, cells in rows().items() if len(cells) == 1 and name != "compat.v1"}  # the heading


def test_names_of_tensorflow_are_many() -> None:
    assert len(THERE) > 180 and len(MISSING) > 4


def test_names_of_the_table_exist() -> None:
    for name, (ours, note) in THERE.items():
        assert callable(resolve(name)) or name in ("errors", "float32", "AUTO_REUSE"), name
        assert ours or note, f"{name}: the row says nothing"
        for native in re.findall(r"`aexec\.([\w.]+)`", ours):
            operator.attrgetter(native)(aexec)
        for attribute, path in re.findall(r"`(\w+)` of `(aexec/[\w/]+)\.py`", ours):
            assert hasattr(importlib.import_module(path.replace("/", ".")), attribute), name


@pytest.mark.parametrize("name", MISSING)
def test_missing_names_say_why(name: str) -> None:
    with pytest.raises(AttributeError, match=r"aexec\.compat\.v1(\.\w+)* has no '\w+': \w"):
        resolve(name)
