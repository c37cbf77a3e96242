"""The kernel registry: which implementation serves a node on a device.

Kernels register under (op, device type, label); several may share a key and are told apart by constraints on type
attrs. An OpDef is the op's interface, one per name; a KernelDef describes one implementation, of which an op may have
many, or none. The rules of lookup are TensorFlow's: core/framework/op_kernel.cc.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.first_use import FirstUse
from aexec.framework.kernel_contract.allocated_outputs import in_registered_memory
from aexec.framework.kernel_contract.op_kernel import (
    DEFAULT_COST,
    BuiltKernel,
    Compute,
    Cost,
    DilatedCost,
    OpKernel,
    OpKernelConstruction,
    PaddedCost,
    Scratch,
)
from aexec.framework.kernel_contract.output_sizes import AttrCost, Broadcast, broadcasts
from aexec.framework.late_dataclass import dataclass
from aexec.framework.wire.op_def import OpDef

__all__ = [
    "DEFAULT_DEVICE",
    "KernelRegistration",
    "KernelRegistry",
    "OpKernelFactory",
    "global_registry",
    "kernel",
    "registered_text",
    "registration_filter",
]

# A builder function, or a class of kernels.
OpKernelFactory = Callable[[OpKernelConstruction], Compute | OpKernel]
AnyFactory = TypeVar("AnyFactory", bound=OpKernelFactory)

# Tried if no kernel is registered for the node's own device type.
DEFAULT_DEVICE = "DEFAULT"


@dataclass(frozen=True, slots=True)
class KernelRegistration:
    """One registered implementation.

    Attributes:
        op, device_type, label: the registry key; the label is "" or a node's `_kernel` attr.
        constraints: type attr → DTypes it may have (for a list attr: each element).
        host_memory: names of inputs and outputs that are in host memory on any device.
        priority: preference in placement; lookup ignores it.
        builder: makes the compute callable, or an `OpKernel` instance.
        cost: estimate of a call's time; see `op_kernel.Cost`.
        needs: modules of other packages that the kernel needs, that take long to import and that no other kernels use.
        scratch: estimate of the memory that a call needs for itself; see `op_kernel.Scratch`.
    """

    op: str
    device_type: str
    builder: OpKernelFactory
    constraints: Mapping[str, frozenset[DType]]
    host_memory: tuple[str, ...] = ()
    label: str = ""
    priority: int = 0
    cost: Cost | AttrCost = DEFAULT_COST
    needs: tuple[str, ...] = ()
    scratch: Scratch = 0.0

    def mismatch(self, attrs: Mapping[str, Any]) -> str | None:
        """The name of the first constrained attr whose value is not allowed, or None if all constraints hold.

        Raises:
            InvalidArgumentError: a constraint is on an attr that the node lacks or that is not a type.
        """
        for name, allowed in self.constraints.items():
            value = attrs.get(name)
            values = value if isinstance(value, list) else [value]
            for dtype in values:
                if not isinstance(dtype, DType):
                    raise errors.InvalidArgumentError(
                        f"KernelDef of '{self.op}' has constraint on attr '{name}', "
                        "expected an attr of kind type or list(type)"
                    )
                if dtype.base not in allowed:
                    return name
        return None

    def build(self, construction: OpKernelConstruction) -> BuiltKernel:
        """Bind the kernel to a node.  Raises whatever the builder's checks raise."""
        self.check_host_memory(construction.op_def)
        construction.host_memory = self.host_memory
        for module in self.needs:
            importlib.import_module(module)
        built = self.builder(construction)
        c = construction
        if c.status is not None:
            raise c.status
        compute = in_registered_memory(built.compute_callable(c) if isinstance(built, OpKernel) else built, c)
        cost = self._cost_of_node(c)
        made = BuiltKernel(compute, c.wants_context, cost, c.explain, takes_list=c.takes_list, forwards=c.forwards)
        made.gives_new_array = c.gives_new_array
        made.calls = c.calls
        made.variables = c.variables
        made.may_be_abandoned = c.may_be_abandoned
        made.in_any_thread = c.in_any_thread
        made.scratch = self.scratch
        return made

    def _cost_of_node(self, c: OpKernelConstruction) -> Cost:
        given = self.cost
        cost = given.of_node(c.op_def, c.attrs) if isinstance(given, AttrCost) else given
        paddings = c.attrs.get("explicit_paddings")
        if paddings and callable(cost):
            return PaddedCost(cost, paddings)
        if isinstance(given, AttrCost):  # it has seen the dilations
            return cost
        if not callable(cost):
            return Broadcast(cost) if cost and broadcasts(c.op) else cost
        return DilatedCost(cost, c.attrs["dilations"]) if _pads_for_dilations(c) else cost

    def check_host_memory(self, op_def: OpDef) -> None:
        """Raise InvalidArgumentError if it keeps arguments in host memory that its op does not have."""
        if self.host_memory:
            unknown = set(self.host_memory) - {arg.name for arg in (*op_def.inputs, *op_def.outputs)}
            if unknown:
                listed = ", ".join(f"'{name}'" for name in sorted(unknown))
                raise errors.InvalidArgumentError(f"HostMemory args {listed} not found in OpDef: {op_def.name}")

    def to_proto(self) -> proto.KernelDef:
        message = proto.KernelDef(
            op=self.op,
            device_type=self.device_type,
            label=self.label,
            priority=self.priority,
            host_memory_arg=self.host_memory,
        )
        for name, allowed in self.constraints.items():
            constraint = message.constraint.add(name=name)
            constraint.allowed_values.list.type.extend(sorted(d.enum for d in allowed))
        return message

    def __str__(self) -> str:
        text = f"device='{self.device_type}'"
        if self.label:
            text += f"; label='{self.label}'"
        for name, allowed in self.constraints.items():
            listed = ", ".join(d.enum_name for d in sorted(allowed, key=lambda d: d.enum))
            text += f"; {name} in [{listed}]"
        return text


def _pads_for_dilations(c: OpKernelConstruction) -> bool:
    return max(c.attrs.get("dilations") or (1,)) > 1 and c.attrs.get("padding") == b"SAME"


Filter = Callable[[KernelRegistration], bool]
# Makes kernels of one device type from the kernel of another.
Derivation = Callable[[KernelRegistration], Iterable[KernelRegistration]]


class KernelRegistry:
    """A thread-safe multimap of kernels, keyed by op, device type and label."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_op: dict[str, list[KernelRegistration]] = {}
        self._filters: list[Filter] = []
        self._first_use = FirstUse()
        self._watches: list[list[KernelRegistration]] = []
        self._derivations: dict[str, Derivation] = {}
        self._not_default: dict[str, frozenset[str]] = {}
        # (device type, id of the kernel) → the kernel, which keeps the id valid, and the kernels derived from it.
        self._derived: dict[tuple[str, int], tuple[KernelRegistration, list[KernelRegistration]]] = {}

    def derive(self, device_type: str, derivation: Derivation, *, without: Iterable[str] = ()) -> None:
        """Let a device type run kernels derived from those of other types, for ops that have none registered for it.

        Args:
            derivation: makes kernels of that type from a kernel; called when a kernel of the op is looked up.  If the
                type already has a derivation, this one is ignored.
            without: ops whose kernels for DEFAULT devices the type cannot run.
        """
        self._derivations.setdefault(device_type, derivation)
        self._not_default.setdefault(device_type, frozenset(without))

    def takes_default(self, device_type: str, op: str) -> bool:
        """True if a device of the type can run an op's kernel for DEFAULT devices."""
        return op not in self._not_default.get(device_type, ())

    def _derived_of(self, device_type: str, kernels: Iterable[KernelRegistration]) -> list[KernelRegistration]:
        derivation = self._derivations.get(device_type)
        if derivation is None:
            return []
        found = []
        for each in kernels:
            key = (device_type, id(each))
            known = self._derived.get(key)
            if known is None:
                known = self._derived[key] = (each, list(derivation(each)))
            found += known[1]
        return found

    def load_on_first_use(self, module: str, ops: Iterable[str]) -> None:
        """Import `module`, which registers the kernels of `ops`, when a kernel of one of them is first looked up."""
        self._first_use.add(module, ops)

    def is_loaded(self, op: str) -> bool:
        """True if the kernels of an op can be looked up and built without an import that takes long."""
        return op not in self._first_use and all(
            module in sys.modules for kernel in self._by_op.get(op, ()) for module in kernel.needs
        )

    def load(self, ops: Iterable[str] | None = None, *, without: Container[str] = ()) -> None:
        """Import the kernels of these ops, or all kernels, and the modules that they need.

        Reads files, and may take a second: not for the event loop.

        Args:
            ops: names of ops; None for all.
            without: modules to leave until a graph has an op that needs them.
        """
        for op in self.ops() if ops is None else ops:
            for kernel in self.kernels_of(op):
                for module in kernel.needs:
                    if module not in without:
                        importlib.import_module(module)

    def register(self, registration: KernelRegistration) -> None:
        """Add a kernel, unless a `registration_filter` in force drops it."""
        with self._lock:
            if all(accept(registration) for accept in self._filters):
                self._by_op.setdefault(registration.op, []).append(registration)
                # A family imported only now does not belong to the library that is being loaded.
                for registered in () if self._first_use.loading else self._watches:
                    registered.append(registration)

    def unregister(self, registration: KernelRegistration) -> None:
        """Remove a kernel, as of a library that failed to load.  Unknown ones are ignored."""
        with self._lock:
            kernels = self._by_op.get(registration.op, [])
            kernels[:] = [k for k in kernels if k is not registration]

    def kernels_of(self, op: str) -> list[KernelRegistration]:
        """All kernels of an op, in order of registration."""
        if op in self._first_use:
            self._first_use.load(op)
        with self._lock:
            return list(self._by_op.get(op, ()))

    def ops(self) -> list[str]:
        """The names of all ops that have a kernel, sorted.  Imports all kernels."""
        self._first_use.load_all()
        with self._lock:
            return sorted(name for name, kernels in self._by_op.items() if kernels)

    def to_proto(self) -> proto.KernelList:
        return proto.KernelList(kernel=[k.to_proto() for op in self.ops() for k in self.kernels_of(op)])

    def device_types(self, op: str, attrs: Mapping[str, Any]) -> dict[str, int]:
        """Device types with a matching kernel → its priority, in order of registration, derived ones last."""
        label, kernels = _label(attrs), self.kernels_of(op)
        derived = [k for device_type in self._derivations for k in self._derived_of(device_type, kernels)]
        found: dict[str, int] = {}
        for each in (*kernels, *derived):
            if each.label == label and each.mismatch(attrs) is None:
                found.setdefault(each.device_type, each.priority)
        return found

    def lookup(self, op: str, device_type: str, attrs: Mapping[str, Any], *, node: str) -> KernelRegistration:
        """The kernel for a node on a device type.

        Raises:
            InvalidArgumentError: more than one kernel matches.
            NotFoundError: none does; the message lists the kernels of the op.
        """
        kernels = self.kernels_of(op)
        label = _label(attrs)
        missed_constraint = False
        for some in self._in_turn(op, device_type, kernels):
            keyed = [k for k in some if k.label == label]
            matching = [k for k in keyed if k.mismatch(attrs) is None]
            if len(matching) > 1:
                raise errors.InvalidArgumentError(
                    f"Multiple OpKernel registrations match NodeDef '{node}' at the same priority: "
                    + " and ".join(f"'{k}'" for k in matching),
                    node=node,
                    op=op,
                )
            if matching:
                return matching[0]
            missed_constraint |= bool(keyed)
        raise errors.NotFoundError(
            f"No registered '{op}' OpKernel for {device_type} devices compatible with node {{{{node {node}}}}}"
            + (" (OpKernel was found, but attributes didn't match)" if missed_constraint else "")
            + (".  Registered:\n" if kernels else ".  Registered:")
            + registered_text(kernels),
            node=node,
            op=op,
        )

    def _in_turn(
        self, op: str, device_type: str, kernels: Iterable[KernelRegistration]
    ) -> Iterator[Iterable[KernelRegistration]]:
        """Groups of an op's kernels for a device type, in the order in which they are tried: the first with a match
        counts.
        """
        yield [k for k in kernels if k.device_type == device_type]
        if self.takes_default(device_type, op):
            yield [k for k in kernels if k.device_type == DEFAULT_DEVICE]
        yield self._derived_of(device_type, kernels)

    @contextmanager
    def watch(self) -> Iterator[list[KernelRegistration]]:
        """Context manager for loading a library: yields the list of kernels that it registers.

        If the scope ends with an error they are removed.
        """
        registered: list[KernelRegistration] = []
        with self._lock:
            self._watches.append(registered)
        try:
            yield registered
        except BaseException:
            for registration in registered:
                self.unregister(registration)
            raise
        finally:
            with self._lock:
                self._watches = [w for w in self._watches if w is not registered]

    @contextmanager
    def registration_filter(self, accept: Filter) -> Iterator[None]:
        """Context manager: registrations that `accept` refuses are dropped without an error."""
        with self._lock:
            self._filters.append(accept)
        try:
            yield
        finally:
            with self._lock:
                self._filters.remove(accept)


def _label(attrs: Mapping[str, Any]) -> str:
    return str(attrs.get("_kernel", b""), "utf-8")


def registered_text(kernels: Iterable[KernelRegistration]) -> str:
    """One line per kernel, as in errors."""
    return "".join(f"  {k}\n" for k in kernels) or "  <no registered kernels>\n"


global_registry = KernelRegistry()
registration_filter = global_registry.registration_filter


def kernel(
    *ops: str,
    device: str | tuple[str, ...] = "CPU",
    host_memory: tuple[str, ...] = (),
    label: str = "",
    priority: int = 0,
    cost: Cost | AttrCost = DEFAULT_COST,
    needs: tuple[str, ...] = (),
    scratch: Scratch = 0.0,
    **constraints: Iterable[DType],
) -> Callable[[AnyFactory], AnyFactory]:
    """Register a builder (a function or an `OpKernel` class) as kernel of one or more ops.

    Args:
        ops: op names.
        device: device type or types, e.g. "CPU".
        host_memory: names of inputs and outputs kept in host memory.
        label: serve only nodes whose `_kernel` attr is this.
        priority: preference in placement.
        cost: nanoseconds per input element, or a function of the inputs giving nanoseconds; 0 for work that does not
            grow with its inputs (views, shapes, handles).  `PerOutput` if outputs may be larger than the inputs,
            `AttrCost` if attrs decide how long it takes.  If the op's shape function broadcasts, the output's size is
            counted anyway.
        needs: modules that take long to import, which the builder or the kernel imports.  They are imported before the
            builder runs, and never on the event loop.
        scratch: bytes that a call needs for itself until it ends, besides its outputs, per element of the inputs or of
            the outputs, whichever are more; or a function of the inputs that returns bytes.  If memory is limited, they
            are reserved before the call.  A call that finds out itself announces them (`announce_scratch`).
        constraints: type attr → allowed DTypes.

    Example:
        >>> @kernel("Double", T=dtypes.NUMBER)
        ... def double(c):
        ...     return lambda x: x + x
    """
    allowed = {name: frozenset(types) for name, types in constraints.items()}
    devices = (device,) if isinstance(device, str) else device

    def register(builder: AnyFactory) -> AnyFactory:
        for op in ops:
            for device_type in devices:
                global_registry.register(
                    KernelRegistration(
                        op, device_type, builder, allowed, host_memory, label, priority, cost, needs, scratch
                    )
                )
        return builder

    return register
