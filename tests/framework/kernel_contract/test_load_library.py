from __future__ import annotations

import importlib.metadata
import itertools
import sys
import threading

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.load_library import ENTRY_POINT_GROUP, load_library
from aexec.framework.op_contract import op_registry

_numbers = itertools.count(1)

GOOD = """
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op

register_op("{op}(x: T) -> y: T", "T: {{float, double}}")

@kernel("{op}")
def build(c):
    return lambda x: x + 1

@kernel("{op}", label="other")
def build_other(c):
    return lambda x: x + 2
"""


@pytest.fixture
def op():
    """A new op name; whatever was registered under it is taken back."""
    name = f"LoadedOp{next(_numbers)}"
    yield name
    op_registry.global_registry.unregister(name)
    for registration in kernel_registry.global_registry.kernels_of(name):
        kernel_registry.global_registry.unregister(registration)


def write(tmp_path, text, name="library.py"):
    path = tmp_path / name
    path.write_text(text)
    return path


def is_registered(op) -> bool:
    return op_registry.global_registry.has(op) or bool(kernel_registry.global_registry.kernels_of(op))


def test_file_is_loaded_and_says_what_it_registered(tmp_path, op):
    library = load_library(write(tmp_path, GOOD.format(op=op)))
    assert [o.name for o in library.op_list.op] == [op]
    assert [(k.op, k.label) for k in library.kernel_list.kernel] == [(op, ""), (op, "other")]
    assert library.handle.build(None)(np.float32(1)) == 2
    assert is_registered(op)


def test_library_is_loaded_once_per_path(tmp_path, op, monkeypatch):
    path = write(tmp_path, GOOD.format(op=op))
    monkeypatch.chdir(tmp_path)
    assert load_library(path) is load_library(str(path)) is load_library("./library.py")


def test_package_folder_is_loaded(tmp_path, op):
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "ops.py").write_text(GOOD.format(op=op))
    (folder / "__init__.py").write_text("from . import ops\n")
    assert [o.name for o in load_library(folder).op_list.op] == [op]


def test_module_is_loaded_by_its_name(tmp_path, op, monkeypatch):
    name = f"library_of_{op.lower()}"
    write(tmp_path, GOOD.format(op=op), f"{name}.py")
    monkeypatch.syspath_prepend(tmp_path)
    library = load_library(name)
    assert library.handle is sys.modules.pop(name)
    assert [o.name for o in library.op_list.op] == [op]


def test_entry_point_is_loaded_by_its_name(tmp_path, op, monkeypatch):
    module = f"library_of_{op.lower()}"
    write(tmp_path, GOOD.format(op=op), f"{module}.py")
    monkeypatch.syspath_prepend(tmp_path)
    entry_point = importlib.metadata.EntryPoint("my-ops", module, ENTRY_POINT_GROUP)

    def entry_points(*, group, name):
        return [entry_point] if (group, name) == (ENTRY_POINT_GROUP, "my-ops") else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert [o.name for o in load_library("my-ops").op_list.op] == [op]
    del sys.modules[module]


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "/no/such/file.py", "./nothing.py"])
def test_missing_library_is_refused(name):
    with pytest.raises(errors.NotFoundError):
        load_library(name)


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        ("1 / 0", errors.UnknownError, "failed to load: ZeroDivisionError: division by zero"),
        ("raise errors.DataLossError('torn')", errors.DataLossError, "torn"),
        ("register_op('Const(x: int32) -> y: int32')", errors.AlreadyExistsError, "Const is registered already"),
        ("import no_such_module_anywhere", errors.NotFoundError, "No module named 'no_such_module_anywhere'"),
        ("register_op('{op}Wrong(x: nonsense) -> y: int32')", errors.InvalidArgumentError, "nonsense"),
    ],
)
def test_library_that_fails_leaves_nothing_behind(tmp_path, op, failure, error, message):
    text = GOOD.format(op=op) + "from aexec.framework import errors\n" + failure.format(op=op)
    path = write(tmp_path, text)
    before = set(sys.modules)
    with pytest.raises(error, match=message):
        load_library(path)
    assert not is_registered(op)
    assert not is_registered(f"{op}Wrong")
    assert set(sys.modules) == before
    # Once mended it can be loaded.
    path.write_text(GOOD.format(op=op))
    load_library(path)
    assert is_registered(op)


def test_library_may_load_another(tmp_path, op):
    inner = write(tmp_path, GOOD.format(op=op), "inner.py")
    outer = write(
        tmp_path,
        "from aexec.framework.kernel_contract.load_library import load_library\n"
        f"inner = load_library({str(inner)!r})\n",
    )
    library = load_library(outer)
    assert library.handle.inner is load_library(inner)
    assert is_registered(op)


def test_racing_loads_import_once(tmp_path, op):
    path = write(tmp_path, GOOD.format(op=op))
    start, got = threading.Barrier(4), []

    def race() -> None:
        start.wait()
        got.append(load_library(path))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [got[0]] * 4
