"""Gradients of graphs: `gradients.py` walks back over a graph; a package per family of ops has the gradient functions.

A family has the same name as in `aexec.ops` and `aexec.kernels`, and is imported when a gradient of one of its ops is
first needed.
"""

import pkgutil

from aexec.framework.op_contract.gradient_registry import global_registry, gradient, no_gradient
from aexec.ops.families import FAMILIES

__all__ = ["gradient", "no_gradient"]

for _module in pkgutil.iter_modules(__path__):
    if _module.ispkg:
        global_registry.load_on_first_use(f"{__name__}.{_module.name}", FAMILIES[_module.name].split())
