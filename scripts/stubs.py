"""Writes `aexec/ops/__init__.pyi`: editors and type checkers see every op function with its parameters."""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

from aexec import ops
from aexec.framework.op_def import OpDef
from aexec.framework.op_registry import global_registry
from aexec.graph import op_functions

TARGET = Path(__file__).resolve().parent.parent / "aexec" / "ops" / "__init__.pyi"
HEAD = '''"""Op functions: each adds a node to the current graph.  Written by scripts/gen-stubs; do not edit."""

from collections.abc import Sequence
from typing import Any

from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph.node import Node, Tensor

TensorLike = Any
DTypeLike = DType | str | int | type
ShapeLike = PartialTensorShape | Sequence[int | None] | None

'''


def stub(name: str, op_def: OpDef) -> str:
    signature = op_functions.signature_of(op_def)
    parameters = []
    for parameter in signature.parameters.values():
        default = "" if parameter.default is inspect.Parameter.empty else " = ..."
        parameters.append(f"{parameter.name}: {parameter.annotation}{default}")
    return f"def {name}({', '.join(parameters)}) -> {signature.return_annotation}: ...\n"


def text() -> str:
    registry = global_registry
    functions = sorted(op_functions.function_names().items())
    modules = "".join(f"from aexec.ops import {module} as {module}\n" for module in ops.__all__)
    return HEAD + modules + "\n" + "".join(stub(n, registry.lookup(op).op_def) for n, op in functions)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the file is current")
    wanted = text()
    if parser.parse_args().check:
        if TARGET.exists() and TARGET.read_text() == wanted:
            return 0
        print(f"{TARGET} is stale: run scripts/gen-stubs", file=sys.stderr)
        return 1
    TARGET.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
