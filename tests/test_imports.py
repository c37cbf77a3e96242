"""No module needs itself: imports form no circle, whether at the head of a module, inside a function or for types.

No folder has more than 25 modules, but for those in `LARGE`.

Which way imports point between the layers is in pyproject.toml, for import-linter.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Circles that stay, with the reason.
KNOWN = {
    # A tensor may hold variants, and the metadata of a variant may be tensors: the wire format recurs, and so
    # do its two codecs.
    frozenset({"aexec.framework.wire.tensor_codec", "aexec.framework.wire.variant"}),
}


def modules() -> dict[str, Path]:
    """All modules by name; what protoc wrote is left out."""
    found = {}
    for base in (ROOT, ROOT / "server"):
        for package in ("aexec", "aexec_server"):
            for path in (base / package).rglob("*.py"):
                parts = path.relative_to(base).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                if not name.startswith("aexec.proto."):
                    found[name] = path
    return found


def imported(tree: ast.AST, name: str, *, is_package: bool) -> Iterator[str]:
    """Full names of all that a module imports anywhere in it: modules, or names in modules."""
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*above, *([origin] if origin else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def edges(sources: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module → modules that it imports."""
    found: dict[str, set[str]] = {}
    for name, path in sources.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        targets = imported(tree, name, is_package=path.name == "__init__.py")
        found[name] = {m for target in targets if (m := _module(target, sources)) is not None and m != name}
    return found


def _module(target: str, sources: Mapping[str, Path]) -> str | None:
    while target and target not in sources:
        target = target.rpartition(".")[0]
    return target or None


def circles(graph: Mapping[str, Iterable[str]]) -> set[frozenset[str]]:
    """The sets of modules that can reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        open_.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in open_:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            members = set()
            while name not in members:
                members.add(open_.pop())
            if len(members) > 1:
                found.add(frozenset(members))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_no_circle_but_the_known_ones() -> None:
    found = circles(edges(modules()))
    assert found == KNOWN, [sorted(circle) for circle in found ^ KNOWN]


def test_imports_inside_functions_and_for_types_count(tmp_path: Path) -> None:
    sources = {
        "p": "",
        "p.a": "from p import b\n",
        "p.b": "def f():\n    from p.c import g\n",
        "p.c": "if TYPE_CHECKING:\n    from .a import A\n",
        "p.d": "import p.a\nimport os\n",
    }
    paths = {}
    for name, text in sources.items():
        paths[name] = tmp_path / ("__init__.py" if name == "p" else f"{name}.py")
        paths[name].write_text(text)
    assert circles(edges(paths)) == {frozenset({"p.a", "p.b", "p.c"})}


def test_no_folder_has_more_than_25_modules() -> None:
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in _written_by_hand())
    assert not {folder: count for folder, count in counts.items() if count > 25}


def _written_by_hand() -> Iterator[Path]:
    for path in (*modules().values(), *(ROOT / "tests").rglob("*.py")):
        if path.name != "__init__.py":
            yield path
