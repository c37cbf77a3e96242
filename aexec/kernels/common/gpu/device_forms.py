"""Forms of kernels for devices with streams, if the CPU's form cannot be used as an array expression of `xp`.

A form is a builder that is registered beside the CPU's kernel; `portable.register_portable_kernels` gives it to devices
in place of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel import Builder
from aexec.framework.late_dataclass import dataclass

__all__ = ["DeviceForm", "device_form", "form_of"]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceForm:
    """A kernel's form for devices.

    Attributes:
        builder: makes the compute callable, of arrays of `c.xp`.
        constraints: type attr → DTypes that it may have, if fewer than for the CPU's kernel.
        of_variables: True if it works on variables that the device keeps.
        host_memory: names of inputs and outputs in host memory; None for the usual ones.
    """

    builder: Builder
    constraints: Mapping[str, frozenset[DType]]
    of_variables: bool
    host_memory: tuple[str, ...] | None = None


_forms: dict[str, DeviceForm] = {}


def device_form(
    *ops: str, of_variables: bool = False, host_memory: tuple[str, ...] | None = None, **constraints: Iterable[DType]
) -> Callable[[Builder], Builder]:
    """Register a builder as the form for devices of one or more ops.  See `DeviceForm`."""

    def register(builder: Builder) -> Builder:
        allowed = {name: frozenset(types) for name, types in constraints.items()}
        for op in ops:
            _forms[op] = DeviceForm(builder, allowed, of_variables, host_memory)
        return builder

    return register


def form_of(op: str) -> DeviceForm | None:
    """The form for devices of an op whose kernels are imported, or None."""
    return _forms.get(op)
