"""docs/stability.md says which modules users import from: these exist, and examples import from no others."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_imports import modules

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "stability.md").read_text("utf-8")
SOURCES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*.py"))]


def tier(name: str) -> list[str]:
    """The modules that the page imports after a mark."""
    listed = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert listed is not None
    return re.findall(r"import ([\w.]+)", listed[1])


_MODULES = modules()
_IMPORT = re.compile(r"^\s*(?:from (aexec[\w.]*) import (\([^)]*\)|[^\n#]*)|import (aexec[\w.]*))", re.MULTILINE)
PUBLIC, FOR_EXTENSIONS = tier("public"), tier("for extensions")


def programs(path: Path) -> Iterator[str]:
    """The Python in a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        yield text
    else:
        yield from re.findall(r"^ *```python[^\n]*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


def imported(program: str) -> Iterator[str]:
    """The modules of ours from which a program imports.  A module that its package lists is a name of it."""
    for match in _IMPORT.finditer(program):
        package, names, module = match.groups()
        if module:
            yield module
        for name in re.findall(r"\w+", names or ""):
            listed = getattr(importlib.import_module(package), "__all__", ())
            yield f"{package}.{name}" if f"{package}.{name}" in _MODULES and name not in listed else package


@pytest.mark.parametrize("name", [*PUBLIC, *FOR_EXTENSIONS])
def test_module_of_a_tier_lists_its_names(name: str) -> None:
    module = importlib.import_module(name)
    assert hasattr(module, "__all__") or hasattr(module, "__getattr__")  # which makes the functions of ops


def test_tiers_are_sorted_and_apart() -> None:
    assert sorted(PUBLIC) == PUBLIC and sorted(FOR_EXTENSIONS) == FOR_EXTENSIONS
    assert not {*PUBLIC} & {*FOR_EXTENSIONS}


def test_examples_import_from_the_tiers_alone() -> None:
    allowed = {*PUBLIC, *FOR_EXTENSIONS}
    found = {(path.name, name) for path in SOURCES for text in programs(path) for name in imported(text)}
    assert {name for _, name in found} & allowed, "no example was read"
    assert {(path, name) for path, name in found if name not in allowed} == set()


def test_import_that_is_too_deep_is_found() -> None:
    program = "from aexec.runtime.plans import plan\nimport aexec.runtime.config\nfrom aexec import nn, Session\n"
    assert [*imported(program)] == ["aexec.runtime.plans.plan", "aexec.runtime.config", "aexec", "aexec"]
