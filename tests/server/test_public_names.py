"""The server is a door: of aexec it uses public names, and none below them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import aexec.hosting

SERVER = Path(__file__).parent.parent.parent / "server" / "aexec_server"
# Modules of aexec whose names are public.
PUBLIC = {
    "aexec",
    "aexec.errors",
    "aexec.hosting",
    "aexec.proto",
    "aexec.proto.inference",
    "aexec.proto.rpc",
    "aexec.proto.serving",
    "aexec.saved_model",
    "aexec.sources",
}


def is_public(name: str) -> bool:
    """Is `aexec.errors.InvalidArgumentError`, say, a public module or a name that one lists?"""
    if name in PUBLIC:
        return True
    module, _, attribute = name.rpartition(".")
    if module not in PUBLIC:
        return False
    names = getattr(importlib.import_module(module), "__all__", None)
    return not attribute.startswith("_") if names is None else attribute in names


def used(source: str) -> Iterator[str]:
    """What a module uses of aexec, with full names: by import, or as an attribute of what it imported."""
    tree = ast.parse(source)
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "aexec":
                    yield alias.name
                    modules[alias.asname or "aexec"] = alias.name if alias.asname else "aexec"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aexec":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name
                if name in PUBLIC:
                    modules[alias.asname or alias.name] = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


@pytest.mark.parametrize("path", sorted(SERVER.rglob("*.py")), ids=lambda path: str(path.relative_to(SERVER)))
def test_server_uses_public_names_only(path: Path) -> None:
    assert [name for name in used(path.read_text()) if not is_public(name)] == []


@pytest.mark.parametrize(
    "line",
    [
        "from aexec.runtime.session.step_view import StepState",
        "import aexec.runtime",
        "from aexec import runtime",
        "import aexec\naexec.framework.dtypes",
        "from aexec import hosting as h\nh._secret",
        "from aexec.hosting import annotations",
    ],
)
def test_private_names_are_found(line: str) -> None:
    assert not all(map(is_public, used(line)))


def test_public_modules_list_names_that_are_there() -> None:
    for name in aexec.hosting.__all__:
        assert hasattr(aexec.hosting, name)
