"""Writes the files that are generated from the op definitions.

`aexec/ops/families.py` says which family each op is in, so that a program imports the families it needs;
`aexec/ops/__init__.pyi` shows editors and type checkers every op function with its parameters.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import sys
import textwrap
from pathlib import Path

OPS = Path(__file__).resolve().parent.parent / "aexec" / "ops"
FAMILIES_HEAD = '''"""Which op is defined in which family.  Written by scripts/gen-stubs; do not edit."""

FAMILIES = {
'''
STUBS_HEAD = '''"""Op functions: each adds a node to the current graph.  Written by scripts/gen-stubs; do not edit."""

from collections.abc import Sequence
from typing import Any

from aexec.framework.dtypes import DTypeLike
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Node, Tensor

TensorLike = Any
ShapeLike = PartialTensorShape | Sequence[int | None] | None

'''


def registered(family: Path) -> list[str]:
    """Return the ops that a family's modules define, from their source, so that nothing has to be importable."""
    calls = (
        call
        for module in sorted(family.glob("*_ops.py"))
        for call in ast.walk(ast.parse(module.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "register_op"
    )
    return sorted(ast.literal_eval(call.args[0]).partition("(")[0].strip() for call in calls)


def families_text() -> str:
    families = sorted(path.parent for path in OPS.glob("*/__init__.py"))
    entries = []
    for family in families:
        names = textwrap.indent(textwrap.fill(" ".join(registered(family)), 110, break_on_hyphens=False), " " * 8)
        entries.append(f'    "{family.name}": """\n{names}\n    """,\n')
    return FAMILIES_HEAD + "".join(entries) + "}\n"


def stubs_text() -> str:
    op_functions = importlib.import_module("aexec.graph.op_functions")
    registry = importlib.import_module("aexec.framework.op_contract.op_registry").global_registry
    importlib.import_module("aexec.ops")

    def stub(name: str, op: str) -> str:
        signature = op_functions.signature_of(registry.lookup(op).op_def)
        parameters = []
        for parameter in signature.parameters.values():
            default = "" if parameter.default is inspect.Parameter.empty else " = ..."
            parameters.append(f"{parameter.name}: {parameter.annotation}{default}")
        return f"def {name}({', '.join(parameters)}) -> {signature.return_annotation}: ...\n"

    return STUBS_HEAD + "".join(stub(name, op) for name, op in sorted(op_functions.function_names().items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the files are current")
    check = parser.parse_args().check
    # In this order, because the stubs contain the ops that families.py lists.
    for target, text in ((OPS / "families.py", families_text), (OPS / "__init__.pyi", stubs_text)):
        wanted = text()
        if target.exists() and target.read_text() == wanted:
            continue
        if check:
            print(f"{target} is stale: run scripts/gen-stubs", file=sys.stderr)
            return 1
        target.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
