"""Each module stands alone, and says in `__all__` what others may use.

What other modules use is listed.  What is listed is used by other modules, by scripts, by tests or in the
documentation, or is the type of something that is.  What nobody uses is not there.
Classes and functions are small.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from aexec.framework.memory.garbage_collector import collector_paused
from tests.test_imports import ROOT, modules

# Imports each of the modules named on standard input in a process of its own, forked from one that has imported
# `aexec`: so does every import of one of its modules, before anything else.  Prints the names of those that fail.
_ALONE = """
import gc, importlib, os, sys, traceback
import aexec
gc.disable()  # which would copy what the processes share
gc.freeze()
for name in sys.stdin.read().split():
    if name in sys.modules:
        continue
    child = os.fork()
    if not child:
        failed = 1
        try:
            importlib.import_module(name)
            failed = 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(failed)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def import_alone(names: list[str], path: Path = ROOT) -> tuple[list[str], str]:
    """Which of these modules cannot be imported alone, and what the interpreter said to it."""
    environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}{os.pathsep}{ROOT / 'server'}"}
    # Worker threads of NumPy's would be lost in the forked processes.
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", _ALONE]
    process = subprocess.run(command, input="\n".join(names), capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr
    return process.stdout.split(), process.stderr


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a process for each module")


@needs_fork
def test_module_can_be_imported_alone() -> None:
    """A sample: without circles (`test_imports.py`) a module needs another first only for what that does to it."""
    failed, said = import_alone(sorted(modules())[::29])
    assert not failed, said


@needs_fork
@pytest.mark.soak
def test_each_module_can_be_imported_alone() -> None:
    failed, said = import_alone(sorted(modules()))
    assert not failed, said


@needs_fork
def test_module_that_needs_another_to_be_imported_first_is_found(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text("import aexec\naexec.of_first = 1\n")
    (tmp_path / "second.py").write_text("import aexec\naexec.of_first\n")
    failed, said = import_alone(["first", "second"], tmp_path)
    assert failed == ["second"] and "of_first" in said


# Whose `__all__` is not told by use: what users of the package import, and what a script writes.
_FOR_USERS = {"aexec", "aexec.framework.errors", "aexec.ops", "aexec.ops.families", "aexec.summary"}
_FOR_USERS |= {"aexec.data", "aexec.layers", "aexec.training", "aexec_server"}


def _is_for_users(name: str) -> bool:
    return name in _FOR_USERS or name.startswith("aexec.compat.v1")


class Module:
    """What a module defines at its top level.

    Attributes:
        listed: names in `__all__`, or None if there is no `__all__`.
        defined: names that are bound by definition or assignment.
        registered: those of them that have a decorator, which may have put them where they are used from.
        imported: names that are bound by import, and the full name of what each is.
        loaded: names that the module uses itself, other than in their own definition.
        typing: names in annotations, aliases and bases of classes: the types of what others get.
    """

    def __init__(self, name: str, tree: ast.Module, *, is_package: bool) -> None:
        self.name = name
        statements = [(statement, _nodes(statement)) for statement in tree.body]
        self.nodes: list[ast.AST] = [tree, *(node for _, nodes in statements for node in nodes)]
        self.listed: set[str] | None = None
        self.defined: set[str] = set()
        self.registered: set[str] = set()
        self.package = name if is_package else name.rpartition(".")[0]
        self.imported = dict(_imports(self.nodes, self.package))
        for statement in tree.body:
            self._bind(statement)
        self.typing = set(_names_of_types(self.nodes))
        self.loaded = _loaded(statements) | self.typing

    def _bind(self, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(statement.name)
                if statement.decorator_list:
                    self.registered.add(statement.name)
            case ast.Assign(targets=targets):
                for target in targets:
                    for node in ast.walk(target):
                        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                            self._define(node.id, statement.value)
            case ast.AnnAssign(target=ast.Name(id=name)):
                self._define(name, statement.value)
            case ast.If() | ast.Try():
                for block in (statement.body, statement.orelse):
                    for inner in block:
                        self._bind(inner)

    def _define(self, name: str, value: ast.expr | None = None) -> None:
        if name == "__all__" and value is not None:
            self.listed = set(ast.literal_eval(value))
        elif not name.startswith("__"):
            self.defined.add(name)


def _loaded(statements: Sequence[tuple[ast.stmt, list[ast.AST]]]) -> set[str]:
    found: set[str] = set()
    for statement, nodes in statements:
        names = {n.id for n in nodes if type(n) is ast.Name and type(n.ctx) is ast.Load}
        found |= names - {getattr(statement, "name", None)}
    return found


def _names_of_types(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        annotations: list[ast.expr | None] = []
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                annotations = [node.returns]
            case ast.ClassDef():
                annotations = list(node.bases)
            case ast.Assign(value=ast.Subscript() | ast.BinOp()):  # an alias
                annotations = [node.value]
            case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
                annotations = [node.value]
            case ast.arg() | ast.AnnAssign():
                annotations = [node.annotation]
        for annotation in annotations:
            if annotation is not None:
                yield from (inner.id for inner in ast.walk(annotation) if isinstance(inner, ast.Name))
                yield from re.findall(r"\w+", " ".join(_texts(annotation)))


def _texts(tree: ast.AST) -> Iterator[str]:
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


class Names:
    """Where names lead: those that a module defines, and those that it has from another."""

    def __init__(self, sources: Mapping[str, Module]) -> None:
        self._sources = sources

    def resolve(self, module: str, name: str) -> list[tuple[str, str]]:
        """(module, name) of the name and of what it stands for, step by step; a module is (its name, "")."""
        origin = self._sources[module].imported.get(name) if module in self._sources else None
        if origin is None:
            submodule = f"{module}.{name}"
            return [(submodule, "")] if submodule in self._sources else [(module, name)]
        if origin in self._sources:
            return [(module, name), (origin, "")]
        return [(module, name), *self.resolve(*origin.rpartition(".")[::2])]

    def uses(self, nodes: Sequence[ast.AST], package: str = "") -> set[tuple[str, str]]:
        """All that a file takes from the modules, by import or as an attribute of one."""
        found: set[tuple[str, str]] = set()
        aliases: dict[str, str] = {}
        for name, target in _imports(nodes, package):
            chain = self.resolve(*target.rpartition(".")[::2]) if "." in target else [(target, "")]
            found.update(chain)
            if not chain[-1][1]:
                aliases[name] = chain[-1][0]
        for node in nodes:
            if isinstance(node, ast.Attribute):
                parts, value = [node.attr], node.value
                while isinstance(value, ast.Attribute):
                    parts.append(value.attr)
                    value = value.value
                if isinstance(value, ast.Name) and value.id in aliases:
                    module = aliases[value.id]
                    while parts and module:
                        chain = self.resolve(module, parts.pop())
                        found.update(chain)
                        module = "" if chain[-1][1] else chain[-1][0]
        return found


def _imports(nodes: Iterable[ast.AST], package: str) -> Iterator[tuple[str, str]]:
    """Each name that a file binds by import anywhere in it, and the full name of what it is."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield alias.asname or alias.name, f"{origin}.{alias.name}"


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """The tree's nodes, but for contexts of names: as `ast.walk`, in a third of its time."""
    found = [tree]
    for node in found:  # it grows meanwhile
        for field in node._fields:
            if field != "ctx":
                value = getattr(node, field, None)
                if isinstance(value, list):
                    found += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    found.append(value)
    return found


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def parsed() -> dict[str, Module]:
    found = modules()
    del found["aexec.proto"]  # a table of what protoc wrote
    with collector_paused():  # of a million objects none is garbage
        return {name: Module(name, _parse(path), is_package=path.name == "__init__.py") for name, path in found.items()}


@pytest.fixture(scope="module")
def used_by_programs(parsed: dict[str, Module]) -> set[tuple[str, str]]:
    """What modules take from other modules, and scripts from all."""
    names = Names(parsed)
    found: set[tuple[str, str]] = set()
    for module in parsed.values():
        found |= {use for use in names.uses(module.nodes, module.package) if use[0] != module.name}
    for path in (ROOT / "scripts").glob("*.py"):
        found |= names.uses(_nodes(_parse(path)))
    return found


@pytest.fixture(scope="module")
def used_by_readers(parsed: dict[str, Module]) -> set[tuple[str, str]]:
    """What tests take, examples of the documentation, and its text where it says `module.name`."""
    names = Names(parsed)
    found: set[tuple[str, str]] = set()
    with collector_paused():
        for path in (ROOT / "tests").rglob("*.py"):
            found |= names.uses(_nodes(_parse(path)))
    modules_by_last_part: dict[str, list[str]] = {}
    for name in parsed:
        modules_by_last_part.setdefault(name.rpartition(".")[2], []).append(name)
    for page in (*(ROOT / "docs").glob("*.md"), ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            found |= names.uses(_nodes(ast.parse(example)))
        for last, name in re.findall(r"(\w+)\.(\w+)", text):
            found |= {(module, name) for module in modules_by_last_part.get(last, ())}
    return found


def test_names_used_by_other_modules_are_listed(
    parsed: dict[str, Module], used_by_programs: set[tuple[str, str]]
) -> None:
    missing = {
        f"{name}.{public}"
        for name, module in parsed.items()
        if module.listed is not None
        for public in module.defined - module.listed
        if not public.startswith("_") and (name, public) in used_by_programs
    }
    assert not missing, "used by other modules, but not in __all__: " + ", ".join(sorted(missing))


def test_names_of_packages_are_not_names_of_their_modules(parsed: dict[str, Module]) -> None:
    """The import of such a module, by whomever, would put it in the place of what the package lists."""
    assert not {
        f"{module.name}.{listed}"
        for module in parsed.values()
        for listed in module.listed or ()
        if f"{module.name}.{listed}" in parsed
        and module.imported.get(listed, f"{module.name}.{listed}") != f"{module.name}.{listed}"
    }


def test_listed_names_exist_and_are_used(
    parsed: dict[str, Module], used_by_programs: set[tuple[str, str]], used_by_readers: set[tuple[str, str]]
) -> None:
    wrong = set()
    for name, module in parsed.items():
        if _is_for_users(name):
            continue
        for public in module.listed or ():
            if public not in module.defined | module.imported.keys():
                wrong.add(f"{name}.{public} is not defined")
            elif not ({(name, public)} & (used_by_programs | used_by_readers) or public in module.typing):
                wrong.add(f"{name}.{public} is used nowhere else")
    assert not wrong, ", ".join(sorted(wrong))


def test_nothing_is_defined_for_nobody(
    parsed: dict[str, Module], used_by_programs: set[tuple[str, str]], used_by_readers: set[tuple[str, str]]
) -> None:
    unused = {
        f"{name}.{defined}"
        for name, module in parsed.items()
        if not _is_for_users(name)
        for defined in module.defined - module.registered - module.loaded
        if (name, defined) not in used_by_programs
        and not (defined in (module.listed or ()) and (name, defined) in used_by_readers)
    }
    assert not unused, ", ".join(sorted(unused))


# How large they may be: lines of a class and of a function, and branches of a function.
_LINES_OF_CLASS, _LINES_OF_FUNCTION, _BRANCHES = 400, 70, 25
# Which are larger, with the reason.
_LARGE = {
    "aexec.runtime.interpreter.node_runner.NodeRunner.run_slice": "the loop itself: a call for each node costs more",
    "aexec_server.settings.message_scan._Scan.message": "a loop over bytes: a call would take longer than a field",
    "aexec_server.settings.server_config.ServerConfig": "a list of settings, each with what it means",
}
_BRANCHING = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)
AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


def _branches(function: AnyFunction) -> int:
    """McCabe's measure, of a function without those inside it, where each operand of `and` and `or` is a branch too."""
    found, left = 1, list[ast.AST](function.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, _BRANCHING):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
        left.extend(ast.iter_child_nodes(node))
    return found


def _definitions(name: str, node: ast.AST) -> Iterator[tuple[str, ast.ClassDef | AnyFunction]]:
    """Classes and functions inside a node, with their full names."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{inner.name}", inner
            yield from _definitions(f"{name}.{inner.name}", inner)
        elif isinstance(inner, ast.If | ast.With | ast.Try | ast.For | ast.While | ast.ExceptHandler):
            yield from _definitions(name, inner)


def _sizes(module: str, tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The large classes and functions of a module, and how large each is."""
    for name, node in _definitions(module, tree):
        assert node.end_lineno is not None
        lines = node.end_lineno - node.lineno + 1
        most = _LINES_OF_CLASS if isinstance(node, ast.ClassDef) else _LINES_OF_FUNCTION
        if lines > most:
            yield name, f"has {lines} lines, more than {most}"
        elif not isinstance(node, ast.ClassDef) and lines > _BRANCHES and (count := _branches(node)) > _BRANCHES:
            yield name, f"has {count} branches, more than {_BRANCHES}"


def test_classes_and_functions_are_small(parsed: dict[str, Module]) -> None:
    large = dict(found for name, module in parsed.items() for found in _sizes(name, module.nodes[0]))
    larger = [f"{name} {how}" for name, how in large.items() if name not in _LARGE]
    assert not larger, "; ".join(larger)
    assert not _LARGE.keys() - large.keys(), "no longer large: take them off the list"


def test_large_functions_are_found() -> None:
    branching = "def f(x):\n" + "    if x and x or x: pass\n" * 26
    nested = "class A:\n    def g(self):\n        def h():\n            pass\n" + "        pass\n" * 70
    assert dict(_sizes("m", ast.parse(branching + nested))) == {
        "m.f": "has 79 branches, more than 25",
        "m.A.g": "has 73 lines, more than 70",
    }
