"""Kernels: a package for each family of ops, of the same name as that of its definitions in `aexec.ops`.

A family's kernels are imported when one of its ops first needs one.
"""

from aexec.framework.kernel_contract import kernel_registry
from aexec.ops.families import FAMILIES

__all__: list[str] = []

for _family, _ops in FAMILIES.items():
    kernel_registry.global_registry.load_on_first_use(f"{__name__}.{_family}", _ops.split())
