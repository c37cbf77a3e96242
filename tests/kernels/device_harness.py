"""Builds one kernel in its form for devices, to be called with the arrays of `strict_arrays`."""

from __future__ import annotations

from typing import Any

from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.op_contract import op_registry
from aexec.kernels.common.gpu.device_forms import form_of
from tests.support.stand_ins.strict_arrays import strict

__all__ = ["construction", "device_compute"]


def device_compute(op: str, xp: Any = strict, **attrs: Any) -> Compute:
    """The compute callable of an op's form for devices; attrs that the op does not have are left out."""
    c = construction(op, xp, **attrs)
    form = form_of(op)
    assert form is not None, f"{op} has no form for devices"
    return form.builder(c)  # type: ignore[return-value]


def construction(op: str, xp: Any, **attrs: Any) -> OpKernelConstruction:
    """What an op's builder is given, with arrays of a module; attrs that the op does not have are left out."""
    op_def = op_registry.global_registry.lookup(op).op_def
    kernel_registry.global_registry.load([op])
    defaults = {attr.name: attr.default for attr in op_def.attrs if attr.default is not None}
    attrs = defaults | {name: value for name, value in attrs.items() if name in {attr.name for attr in op_def.attrs}}
    return OpKernelConstruction(
        name="n",
        op_def=op_def,
        attrs=attrs,
        input_types=op_def.input_types(attrs),
        output_types=op_def.output_types(attrs),
        xp=xp,
    )
