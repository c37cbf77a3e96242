"""An op has one family: packages of its name hold its definition, its shape function, its kernels and their tests."""

from __future__ import annotations

import gzip
import inspect
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.op_contract import op_registry
from aexec.graph import op_functions
from aexec.ops.families import FAMILIES
from tests.kernels import kernel_calls

ROOT = Path(__file__).parents[2]
OPS = [(family, op) for family, ops in FAMILIES.items() for op in ops.split()]
# Shape functions that several families share are in the vocabulary.
SHARED = ("aexec.framework.shape_functions.common_shape_fns", "aexec.framework.shape_functions.shape_inference")


def module_of(function: Callable[..., object]) -> str:
    return inspect.unwrap(function).__module__


def test_every_package_is_a_family():
    for layer in ("ops", "kernels"):
        packages = {path.parent.name for path in (ROOT / "aexec" / layer).glob("*/__init__.py")}
        assert packages - {"common"} == set(FAMILIES)


def test_families_have_no_name_of_an_op_function():
    assert not set(FAMILIES) & set(op_functions.function_names())


def test_shape_functions_are_in_the_family_of_their_op():
    elsewhere = []
    for family, op in OPS:
        shape_fn = op_registry.global_registry.lookup(op).shape_fn
        if shape_fn is not None and not module_of(shape_fn).startswith((f"aexec.ops.{family}.", *SHARED)):
            elsewhere.append((op, family, module_of(shape_fn)))
    assert elsewhere == []


def test_kernels_are_in_the_family_of_their_op():
    elsewhere = []
    for family, op in OPS:
        for kernel in kernel_registry.global_registry.kernels_of(op):
            module = module_of(kernel.builder)
            if module.startswith("aexec.kernels.") and not module.startswith(f"aexec.kernels.{family}."):
                elsewhere.append((op, family, module))
    assert elsewhere == []


def test_each_module_of_kernels_has_a_test_in_its_family():
    untested = []
    for module in sorted((ROOT / "aexec" / "kernels").glob("*/*_ops.py")):
        tests = ROOT / "tests" / "kernels" / module.parent.name
        named = f'"{module.parent.name}.{module.stem}"'
        if not (tests / f"test_{module.name}").exists() and not any(
            named in path.read_text() for path in tests.glob("test_*.py")
        ):
            untested.append(str(module.relative_to(ROOT)))
    assert untested == []


def _words(texts: Iterable[str]) -> set[str]:
    """The words of programs, and of calls `ops.name(...)` the op too that the function adds."""
    functions, words = op_functions.function_names(), set()
    for text in texts:
        words |= set(re.findall(r"\w+", text))
        words |= {functions[name] for name in re.findall(r"\bops\.(\w+)", text) if name in functions}
    return words


def _in_conformance_graphs() -> set[str]:
    words: set[bytes] = set()
    for path in (ROOT / "tests" / "conformance" / "data").glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".pb"):
                    words |= set(re.findall(rb"\w+", archive.read(name)))
    return {word.decode() for word in words if word.isascii()}


def test_each_op_with_a_kernel_is_tested():
    """By name in a test of its family or in a sweep, in a recorded call, or in a conformance graph."""
    tests = ROOT / "tests" / "kernels"
    everywhere = {call.op for call in kernel_calls.load()} | _in_conformance_graphs()
    everywhere |= _words(path.read_text() for path in tests.glob("test_sweep*.py"))
    untested = []
    for family, names in FAMILIES.items():
        with_kernel = {op for op in names.split() if kernel_registry.global_registry.kernels_of(op)}
        texts = [path.read_text() for path in (tests / family).glob("*.py")]
        texts += [gzip.decompress(path.read_bytes()).decode() for path in (tests / family).glob("data/*.json.gz")]
        untested += [f"{family}: {op}" for op in sorted(with_kernel - everywhere - _words(texts))]
    assert untested == [], "name them in tests/kernels/<family>; names put together from parts are not found"


def test_graph_imports_the_families_of_its_ops_and_no_others():
    program = """
import sys
import aexec
with aexec.Graph() as graph:
    x = aexec.placeholder("float32", [None], name="x")
    y = x + x
aexec.Session(graph)
print(*sorted({m.split(".")[2] for m in sys.modules if m.startswith("aexec.kernels.") and m.endswith("_ops")}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["array", "math"]
