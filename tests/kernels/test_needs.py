"""A kernel says which modules of other packages it needs, so that a plan imports them and no step, or loop, waits."""

from __future__ import annotations

import builtins
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.kernel_contract import kernel_registry
from tests.kernels import kernel_calls
from tests.kernels.harness import run_op

# What is there once `import aexec` is done.
ALWAYS_THERE = ("aexec", "numpy", "google", "ml_dtypes")


@contextmanager
def imported_by_kernels() -> Iterator[set[str]]:
    """Yields the modules of other packages that code of ours asks for meanwhile, imported before or not."""
    found: set[str] = set()
    by_statement, by_name = builtins.__import__, importlib.import_module

    def is_slow(name: str) -> bool:
        package = name.partition(".")[0]
        return package not in ALWAYS_THERE and package not in sys.stdlib_module_names

    def statement(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        module = by_statement(name, globals, locals, fromlist, level)
        if level == 0 and is_slow(name) and (globals or {}).get("__name__", "").startswith("aexec.kernels"):
            parts = {f"{name}.{part}" for part in fromlist or () if f"{name}.{part}" in sys.modules}
            found.update(parts or {name})
        return module

    def function(name: str, package: str | None = None) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if is_slow(name) and caller.startswith("aexec.kernels"):
            found.add(name)
        return by_name(name, package)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "__import__", statement)
        patch.setattr(importlib, "import_module", function)
        yield found


def needs_of(op: str) -> tuple[str, ...]:
    return kernel_registry.global_registry.kernels_of(op)[0].needs


def not_declared(run: Callable[[], object], needs: tuple[str, ...]) -> set[str]:
    """Modules that a call imported, although its kernel does not say so."""
    with imported_by_kernels() as found:
        run()
    return {part_of(name) for name in found} - {part_of(name) for name in needs}


def part_of(module: str) -> str:
    """The package that a module is imported with: parts of SciPy are imported one by one."""
    package, _, rest = module.partition(".")
    return f"{package}.{rest.partition('.')[0]}" if package == "scipy" else package


def test_kernels_say_what_they_import():
    missing: dict[str, set[str]] = {}
    for call in kernel_calls.load():
        construction = call.construction(np)
        registration = call.registration(construction)

        def run(call=call, construction=construction, registration=registration) -> None:
            with np.errstate(all="ignore"), suppress(errors.OpError):  # some are recorded as they are refused
                registration.build(construction).compute(*call.inputs)

        if undeclared := not_declared(run, registration.needs):
            missing.setdefault(call.op, set()).update(undeclared)
    assert missing == {}, "kernel(..., needs=...) lacks these"


@pytest.mark.parametrize("form", ["Jpeg", "Png"])
def test_kernels_of_image_files_say_what_they_import(form):
    picture, files = np.zeros((4, 5, 3), np.uint8), []
    undeclared = not_declared(lambda: files.append(run_op(f"Encode{form}", [picture])), needs_of(f"Encode{form}"))
    assert undeclared == set()
    assert not_declared(lambda: run_op(f"Decode{form}", files), needs_of(f"Decode{form}")) == set()


def test_large_sums_of_rows_say_what_they_import():
    rows, ids = np.ones((3000, 4), np.float32), np.zeros(3000, np.int32)
    for op, inputs in {
        "SegmentSum": [rows, ids],
        "UnsortedSegmentSum": [rows, ids, 3],
        "SparseSegmentSum": [rows, ids, ids],
        "SparseTensorDenseMatMul": [np.zeros((1, 2), np.int64), np.ones(1, np.float32), np.array([2, 2]), rows[:2]],
    }.items():
        assert needs_of(op) == ("scipy.sparse",)
        assert not_declared(lambda: run_op(op, inputs), needs_of(op)) == set()  # noqa: B023


def test_kernels_are_loaded_with_what_they_need(monkeypatch):
    registry = kernel_registry.KernelRegistry()
    registration = kernel_registry.KernelRegistration("Op", "CPU", lambda c: None, {}, needs=("wave",))
    registry.register(registration)
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    assert not registry.is_loaded("Op")
    registry.load(["Op"])
    assert registry.is_loaded("Op") and "wave" in sys.modules


PROGRAM = """
import asyncio, sys, threading
import aexec, numpy as np

with aexec.Graph() as graph:
    x = aexec.placeholder("float32", [None, None], name="x")
    aexec.ops.lgamma(aexec.ops.sigmoid(x), name="special")
    aexec.ops.segment_sum(x, aexec.constant([0, 0, 1]), name="rows")
    aexec.ops.fft(aexec.ops.cast(x, DstT="complex64"), name="spectrum")
    aexec.ops.lu(x, name="lu")
    aexec.ops.decode_png(aexec.ops.encode_png(aexec.ops.cast(aexec.ops.expand_dims(x, 2), DstT="uint8")), name="png")

on_the_loop = set()

def note(event, args):
    if event == "import" and threading.current_thread() is threading.main_thread():
        on_the_loop.add(args[0])

async def main():
    sys.addaudithook(note)
    async with aexec.Session(graph) as session:
        await session.run(["special:0", "rows:0", "spectrum:0", "lu:0", "png:0"], {"x:0": np.eye(3, dtype="float32")})

asyncio.run(main())
print(*sorted(name for name in on_the_loop if name.startswith(("scipy", "PIL", "aexec.kernels."))))
"""


def test_loop_imports_no_kernels_and_nothing_that_they_need():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
