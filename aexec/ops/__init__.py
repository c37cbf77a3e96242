"""Op definitions and op functions: a package for each family of ops, imported when one of its ops is first used.

A definition describes an op; its kernels are in `aexec.kernels`, in the family of the same name. `families.py` maps ops
to families.
"""

from typing import Any

from aexec.framework.op_contract import op_registry
from aexec.ops.families import FAMILIES

__all__: list[str] = []

for _family, _ops in FAMILIES.items():
    op_registry.global_registry.load_on_first_use(f"{__name__}.{_family}", _ops.split())


def __getattr__(name: str) -> Any:
    """`aexec.ops.mat_mul`: the function that adds a node of op MatMul to the current graph."""
    from aexec.graph import op_functions

    op = op_functions.function_names().get(name)
    if op is None:
        # Tools look up names like `__wrapped__` in every module.
        nearest = "" if name.startswith("_") else op_functions.suggest(name)
        raise AttributeError(f"module 'aexec.ops' has no attribute {name!r}{nearest}")
    function = op_functions.make_function(op_registry.global_registry.lookup(op).op_def)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    from aexec.graph import op_functions

    return sorted([*FAMILIES, *op_functions.function_names()])
