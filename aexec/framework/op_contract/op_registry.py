"""The op registry: op type → definition and shape function.

Registration only keeps the text of a definition, so that importing a thousand of them costs next to nothing; the text
is parsed and checked when the op is first looked up.  An OpDef defines an op, a KernelDef describes one implementation
of it: those are in `kernel_contract/kernel_registry.py`.  The definitions themselves are in `aexec/ops`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aexec import proto
from aexec.framework import errors
from aexec.framework.first_use import FirstUse
from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract.op_def_builder import OpDefBuilder, parse_signature
from aexec.framework.wire.op_def import OpDef

if TYPE_CHECKING:
    from aexec.framework.shape_functions.shape_inference import ShapeFn

__all__ = [
    "OpRegistrationData",
    "OpRegistry",
    "check_deprecation",
    "global_registry",
    "register_op",
    "registration_filter",
]

logger = logging.getLogger("aexec")


@dataclass(frozen=True, slots=True)
class OpRegistrationData:
    """The registration of an op.

    Attributes:
        op_def: the definition.
        shape_fn: called with an inference context to set the output shapes; None if the op has none.
    """

    op_def: OpDef
    shape_fn: ShapeFn | None = None


# A registration before it is parsed.
Factory = Callable[[], OpRegistrationData]


class OpRegistry:
    """A thread-safe map of op definitions; each is parsed when it is first looked up."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._first_use = FirstUse()
        self._pending: dict[str, Factory] = {}
        self._ready: dict[str, OpRegistrationData] = {}
        self._filters: list[Callable[[str], bool]] = []
        self._watches: list[list[str]] = []
        self._from_libraries: set[str] = set()

    def load_on_first_use(self, module: str, ops: Iterable[str]) -> None:
        """Import `module`, which registers `ops`, when one of them is first looked up."""
        self._first_use.add(module, ops)

    def load(self) -> None:
        """Import all definitions.  Reads files: not for the event loop."""
        self._first_use.load_all()

    def register(self, op: str, factory: Factory) -> None:
        """Add an op; `factory` makes its definition at the first lookup.

        Raises:
            AlreadyExistsError: the name is taken.  Not raised if a library is being loaded and another library took the
                name: the first definition then stays.
        """
        if op in self._first_use and not self._first_use.loading:
            self._first_use.load(op)
        with self._lock:
            if not all(accept(op) for accept in self._filters):
                return
            if op in self._pending or op in self._ready:
                if not (self._watches and op in self._from_libraries):
                    raise errors.AlreadyExistsError(f"Op with name {op} is registered already")
            else:
                self._pending[op] = factory
            if self._watches and not self._first_use.loading:
                self._from_libraries.add(op)
                self._watches[-1].append(op)

    def register_builder(self, builder: OpDefBuilder) -> None:
        """Add the op that `builder` describes.  Raises AlreadyExistsError as `register`."""
        self.register(builder.name, lambda: OpRegistrationData(builder.finalize(), builder.shape_fn))

    def unregister(self, op: str) -> None:
        """Remove an op, as of a library that failed to load.  Unknown names are ignored."""
        with self._lock:
            self._pending.pop(op, None)
            self._ready.pop(op, None)
            self._from_libraries.discard(op)

    def find(self, op: str) -> OpRegistrationData | None:
        """The registration of an op, or None.

        Raises:
            InvalidArgumentError: the definition is wrong; raised at the first lookup and every later one.
        """
        found = self._ready.get(op)
        if found is None and op in self._first_use:
            self._first_use.load(op)
        if found is None and op in self._pending:
            with self._lock:
                factory = self._pending.get(op)
                if factory is not None:
                    self._ready[op] = factory()
                    del self._pending[op]
                found = self._ready.get(op)
        return found

    def lookup(self, op: str) -> OpRegistrationData:
        """The registration of an op.

        Raises:
            NotFoundError: `Op type not registered`, with the most similar names.
            InvalidArgumentError: the definition is wrong.
        """
        found = self._ready.get(op) or self.find(op)
        if found is None:
            import difflib

            near = difflib.get_close_matches(op, self.ops(), n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise errors.NotFoundError(
                f"Op type not registered '{op}': it is neither a built-in op nor one of a loaded library.{hint} "
                "Ops of tf.contrib and of other libraries have to be registered before the graph is loaded: "
                "by @aexec.op, or from a module by aexec.load_library."
            )
        return found

    def has(self, op: str) -> bool:
        """True if an op of that name is registered."""
        return op in self._ready or op in self._pending or op in self._first_use

    def ops(self) -> list[str]:
        """All names, sorted."""
        with self._lock:
            return sorted({*self._ready, *self._pending, *self._first_use})

    def to_proto(self, *, include_internal: bool = True) -> proto.OpList:
        """All definitions, sorted by name; internal ones are those whose name begins with `_`."""
        return proto.OpList(
            op=[self.lookup(op).op_def.to_proto() for op in self.ops() if include_internal or not op.startswith("_")]
        )

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """Context manager for loading a library: yields the list of op names that it registers.

        The definitions are checked when the scope ends.  If it ends with an error, of the library or of a definition,
        the registrations are removed.
        """
        names: list[str] = []
        with self._lock:
            before = {*self._ready, *self._pending, *self._first_use}
            self._watches.append(names)
        try:
            yield names
            for op in names:
                self.lookup(op)
        except BaseException:
            for op in names:
                if op not in before:
                    self.unregister(op)
            raise
        finally:
            with self._lock:
                self._watches = [w for w in self._watches if w is not names]

    @contextmanager
    def registration_filter(self, accept: Callable[[str], bool]) -> Iterator[None]:
        """Context manager: registrations of ops whose name `accept` refuses are dropped without an error."""
        with self._lock:
            self._filters.append(accept)
        try:
            yield
        finally:
            with self._lock:
                self._filters.remove(accept)


global_registry = OpRegistry()
registration_filter = global_registry.registration_filter


def register_op(
    signature: str,
    *attrs: str,
    shape_fn: ShapeFn | None = None,
    stateful: bool = False,
    commutative: bool = False,
    aggregate: bool = False,
    allows_uninitialized_input: bool = False,
    distributed_communication: bool = False,
    deprecated: tuple[int, str] | None = None,
    control_outputs: tuple[str, ...] = (),
    doc: str = "",
    registry: OpRegistry = global_registry,
) -> None:
    """Register an op.

    Args:
        signature: `Name(in: spec, ...) -> out: spec, ...`, in the mini-language of `op_def_builder`.
        attrs: attr specifications.
        shape_fn: how output shapes follow from input shapes.
        stateful, commutative, aggregate, allows_uninitialized_input, distributed_communication: see `OpDef`.
        deprecated: GraphDef version it is gone from, and what to use instead.
        control_outputs: names of control outputs.
        doc: text for people; the first line is the summary.

    Raises:
        AlreadyExistsError: see `OpRegistry.register`.  Errors in the text show at the first lookup.

    Example:
        >>> register_op("AddN(inputs: N * T) -> sum: T", "N: int >= 1", "T: {numbertype, variant}",
        ...             commutative=True, aggregate=True)
    """

    def make() -> OpRegistrationData:
        name, inputs, outputs = parse_signature(signature)
        builder = OpDefBuilder(name)
        for spec in attrs:
            builder.attr(spec)
        for spec in inputs:
            builder.input(spec)
        for spec in outputs:
            builder.output(spec)
        for output in control_outputs:
            builder.control_output(output)
        if stateful:
            builder.set_is_stateful()
        if commutative:
            builder.set_is_commutative()
        if aggregate:
            builder.set_is_aggregate()
        if allows_uninitialized_input:
            builder.set_allows_uninitialized_input()
        if distributed_communication:
            builder.set_is_distributed_communication()
        if deprecated is not None:
            builder.deprecated(*deprecated)
        if doc:
            builder.doc(doc)
        return OpRegistrationData(builder.finalize(), shape_fn)

    registry.register(signature.partition("(")[0].strip(), make)


_warned: set[str] = set()


def check_deprecation(op_def: OpDef, producer: int) -> None:
    """Check that the op exists for graphs of this producer version; warn once per op if it is deprecated.

    Raises:
        UnimplementedError: the op does not exist for them.
    """
    deprecation = op_def.deprecation
    if deprecation is None:
        return
    if producer >= deprecation.version:
        raise errors.UnimplementedError(
            f"Op {op_def.name} is not available in GraphDef version {producer}. "
            f"It has been removed in version {deprecation.version}. {deprecation.explanation}."
        )
    if op_def.name not in _warned:
        _warned.add(op_def.name)
        logger.warning(
            "Op %s is deprecated. It will cease to work in GraphDef version %d. %s.",
            op_def.name,
            deprecation.version,
            deprecation.explanation,
        )
