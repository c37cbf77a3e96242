"""No two public things share a name: who reads it knows which one is meant.

Compared are modules with modules, classes with classes and functions with functions, over aexec and aexec_server, as
their `__all__` lists them. A family of ops has one name in all layers, so what lies in family packages is left out.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from aexec.ops.families import FAMILIES as OPS_OF

ROOT = Path(__file__).parent.parent
FAMILIES = (
    "aexec.ops.",
    "aexec.kernels.",
    "aexec.proto.",
    "aexec.compat.",  # TensorFlow's names over ours
    *(f"aexec.autodiff.{family}." for family in OPS_OF),
)

# Names that two things have, with the reason.
SHARED = {
    "class TensorArray": "the one that a graph is built with; the one that a step keeps",
    "module tensor_array": "likewise",
    "class Dataset": "the one that a graph is built with; the one that a step keeps",
    "module dataset": "likewise",
    "module metrics": "measures of models; those of a server",
    "function conv1d": "nn's function is given the filters; that of layers makes them",
    "function conv2d": "nn's function is given the filters; that of layers makes them",
    "function conv2d_transpose": "nn's function is given the filters; that of layers makes them",
    "function conv3d": "nn's function is given the filters; that of layers makes them",
    "function conv3d_transpose": "nn's function is given the filters; that of layers makes them",
    "function separable_conv2d": "nn's function is given the filters; that of layers makes them",
    "function batch_normalization": "nn's is given the moments; that of layers makes weights and averages",
    "function dropout": "nn's drops always; that of layers while it is training",
    "function flatten": "a layer; how nodes become a message",
    "function mean_squared_error": "a loss, and a metric",
    "module control_flow": "aexec.control_flow builds what aexec.graph.nodes.control_flow analyses",
    "function identity": "the op's node; what undoes no compression, called with its module's name",
    "function import_graph_def": "aexec.import_graph_def, and what it does with names and inputs",
    "function scan": "aexec.scan of the rows of a tensor; message_scan.scan of the bytes of a message",
    "function scalar": "the shape function `shapes.scalar`; an element of a tensor; the summary of a scalar",
    "module errors": "aexec.errors is the public face of aexec.framework.errors",
    "function decode": "codecs are called with their module's name: attr_value.decode, variant.decode",
    "function encode": "codecs are called with their module's name: attr_value.encode, variant.encode",
    "function merge": "called with its module's name: versions.merge, step_stats.merge, summary.merge",
    "function parse": "called with its module's name: attr_value.parse, log_memory.parse",
    "function routes": "each module of handlers has its own, called by app.py with the module's name",
}


def public_names(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return set(ast.literal_eval(node.value)) if isinstance(node.value, ast.List | ast.Tuple) else set()
    return set()


@pytest.fixture(scope="module")
def things() -> list[tuple[str, str]]:
    """(kind and name, full name) of everything public."""
    return list(_things())


def _things() -> Iterator[tuple[str, str]]:
    for base in (ROOT, ROOT / "server"):
        for package in ("aexec", "aexec_server"):
            for path in (base / package).rglob("*.py"):
                parts = path.relative_to(base).with_suffix("").parts
                module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                if f"{module}.".startswith(FAMILIES) or any(part.startswith("_") for part in module.split(".")):
                    continue
                yield f"module {module.rpartition('.')[2]}", module
                tree = ast.parse(path.read_text(encoding="utf-8"))
                names = public_names(tree)
                for node in tree.body:
                    if isinstance(node, ast.ClassDef) and node.name in names:
                        yield f"class {node.name}", f"{module}.{node.name}"
                    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names:
                        yield f"function {node.name}", f"{module}.{node.name}"


def test_no_two_public_things_share_a_name(things: list[tuple[str, str]]) -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for name, full_name in things:
        found[name].add(full_name)
    shared = {name: sorted(where) for name, where in found.items() if len(where) > 1 and not _is_room(name, where)}
    assert {name: where for name, where in shared.items() if name not in SHARED} == {}
    # The list is exact.
    assert [name for name in SHARED if name not in shared] == []


def _is_room(name: str, where: set[str]) -> bool:
    """Are these a package and its main module, which has the package's name?"""
    package = min(where, key=len)
    return where == {package, f"{package}.{name.removeprefix('module ')}"}


def test_names_that_are_compared(things: list[tuple[str, str]]) -> None:
    names = dict(things)
    assert names["class Session"] == "aexec.runtime.session.session.Session"
    assert names["module run_table"] == "aexec_server.requests.run_table"
    assert names["function reset"] == "aexec.runtime.session.reset.reset"
