"""`KernelDefBuilder`: the description of a kernel, part by part, and its registration.

For code that finds out at run time what its kernels are; `kernel_registry.kernel` takes the same as arguments.  Errors
are collected and reported together. The rules are TensorFlow's: core/framework/kernel_def_builder.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration, KernelRegistry, OpKernelFactory
from aexec.framework.kernel_contract.op_kernel import DEFAULT_COST, Cost
from aexec.framework.op_contract import op_registry

__all__ = ["KernelDefBuilder"]


class KernelDefBuilder:
    """Describes one kernel.

    Args:
        op: the op type that it serves.  If an op of that name is registered, the names of attrs
            and arguments are checked against its definition.

    Example:
        >>> builder = KernelDefBuilder("MatMul").device("ASIC").type_constraint("T", "float", "half").priority(1)
        >>> str(builder.build().device_type), builder.build().priority
        ('ASIC', 1)
    """

    def __init__(self, op: str) -> None:
        self._op = op
        self._device = ""
        self._label: str | None = None
        self._priority: int | None = None
        self._constraints: dict[str, frozenset[DType]] = {}
        self._host_memory: dict[str, None] = {}
        self._errors: list[str] = []

    def device(self, device_type: str) -> KernelDefBuilder:
        """Set the device type, such as `CPU`; required, and only once."""
        if self._device:
            self._errors.append(f"device type given twice: '{self._device}' and '{device_type}'")
        self._device = device_type
        return self

    def type_constraint(self, attr: str, *allowed: Any) -> KernelDefBuilder:
        """Serve only nodes whose type attr has one of these dtypes; of a list, each element.

        Args:
            attr: name of an attr of kind `type` or `list(type)`.
            allowed: dtypes, or their names.
        """
        if attr in self._constraints:
            self._errors.append(f"attr '{attr}' has a constraint already")
        if not allowed:
            self._errors.append(f"the constraint on attr '{attr}' allows no type")
        types: set[DType] = set()
        for each in allowed:
            try:
                types.add(as_dtype(each))
            except errors.InvalidArgumentError as e:
                self._errors.append(f"the constraint on attr '{attr}': {e.message}")
        self._constraints[attr] = frozenset(types)
        return self

    def host_memory(self, *arguments: str) -> KernelDefBuilder:
        """Keep these inputs and outputs in host memory on any device."""
        self._host_memory.update(dict.fromkeys(arguments))
        return self

    def label(self, label: str) -> KernelDefBuilder:
        """Serve only nodes whose `_kernel` attr is this label; only once."""
        if self._label is not None:
            self._errors.append(f"label given twice: '{self._label}' and '{label}'")
        self._label = label
        return self

    def priority(self, priority: int) -> KernelDefBuilder:
        """Set the preference in placement, higher first; 0 if not given."""
        if self._priority is not None:
            self._errors.append(f"priority given twice: {self._priority} and {priority}")
        if not -(2**31) <= priority < 2**31:
            self._errors.append(f"priority must fit 32 bits, got {priority}")
        self._priority = priority
        return self

    def build(self) -> proto.KernelDef:
        """The description as a message.

        Raises:
            InvalidArgumentError: naming the op and every error found.
        """
        return self._registration(_no_builder, DEFAULT_COST).to_proto()

    def register(
        self,
        builder: OpKernelFactory,
        *,
        cost: Cost = DEFAULT_COST,
        registry: KernelRegistry = kernel_registry.global_registry,
    ) -> KernelRegistration:
        """Register the kernel.

        Args:
            builder: makes the compute callable of a node; a function or an `OpKernel` class.
            cost: as for `kernel_registry.kernel`.
            registry: the registry to add it to.

        Returns:
            The registration, which `registry.unregister` takes.

        Raises:
            InvalidArgumentError: as `build`; nothing is registered then.
        """
        registration = self._registration(builder, cost)
        registry.register(registration)
        return registration

    def _registration(self, builder: OpKernelFactory, cost: Cost) -> KernelRegistration:
        found = [*self._errors, *self._missing(), *self._unknown()]
        if found:
            raise errors.InvalidArgumentError(
                f"{len(found)} error(s) while building KernelDef of '{self._op}':\n" + "\n".join(found)
            )
        return KernelRegistration(
            self._op,
            self._device,
            builder,
            dict(self._constraints),
            tuple(self._host_memory),
            self._label or "",
            self._priority or 0,
            cost,
        )

    def _missing(self) -> Iterable[str]:
        if not self._op:
            yield "the op is not named"
        if not self._device:
            yield "no device type is given"

    def _unknown(self) -> Iterable[str]:
        """Errors for names that the op's registered definition does not have."""
        data = op_registry.global_registry.find(self._op)
        if data is None:
            return
        for name in self._constraints:
            attr = data.op_def.attr_map.get(name)
            if attr is None or attr.type not in ("type", "list(type)"):
                yield f"constraint on '{name}', which is no attr of kind type or list(type) of {data.op_def}"
        arguments = {arg.name for arg in (*data.op_def.inputs, *data.op_def.outputs)}
        for name in self._host_memory:
            if name not in arguments:
                yield f"host memory for '{name}', which is no input or output of {data.op_def}"


def _no_builder(_construction: Any) -> Any:
    raise errors.InternalError("a description is no kernel")
