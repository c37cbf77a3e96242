"""The op definitions against TensorFlow's own: `data/ops.json.gz` has the OpDefs of its 2.21 release, a name each."""

from __future__ import annotations

import ast
import gzip
import importlib
import json
from pathlib import Path

import pytest
from google.protobuf import json_format

import aexec.ops
from aexec import proto
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.op_contract.op_registry import global_registry
from aexec.framework.wire.op_def import OpDef

# The modules that define ops: `math.cwise_ops`.
MODULES = sorted(f"{path.parent.name}.{path.stem}" for path in Path(aexec.ops.__file__).parent.glob("*/*_ops.py"))
# Ops that only passes put into plans.
OWN = {"_GRULoop", "_LSTMLoop", "_SumToShape"}


@pytest.fixture(scope="module")
def theirs() -> dict[str, dict]:
    return json.loads(gzip.decompress((Path(__file__).parent / "data" / "ops.json.gz").read_bytes()))


def registrations(module: str) -> list[str]:
    """Op names that a module registers, in its order, from its source."""
    path = Path(importlib.import_module(f"aexec.ops.{module}").__file__)
    return [
        call.args[0].value.partition("(")[0]
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "register_op"
    ]


@pytest.mark.parametrize("module", MODULES)
def test_definitions_equal_tensorflows(module, theirs):
    names = registrations(module)
    assert names
    for name in names:
        if name in OWN:
            assert name not in theirs
            continue
        ours = global_registry.lookup(name).op_def
        message = json_format.ParseDict({"name": name, **theirs[name]}, proto.OpDef())
        assert ours.to_proto() == message, name
        assert OpDef.from_proto(message) == ours


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_sorted(module):
    names = registrations(module)
    assert names == sorted(names, key=lambda name: (name.startswith("_"), name))


def test_each_op_is_in_one_module():
    names = [name for module in MODULES for name in registrations(module)]
    assert len(names) == len(set(names))
    assert len(names) > 1000
    for name in ("Const", "NoOp", "MatMul", "While", "_Arg", "_Send", "Switch", "VarHandleOp", "TensorArrayV3"):
        assert name in names


def test_every_op_that_has_a_kernel_has_a_shape_function(theirs):
    with_kernel = [op for op in kernel_registry.global_registry.ops() if op in theirs]
    assert len(with_kernel) > 900
    assert [op for op in with_kernel if global_registry.lookup(op).shape_fn is None] == []
