"""User-defined ops: a Python function, or a coroutine, becomes an op with a kernel.

::

    @aexec.op("FetchJson(url: string) -> body: string", stateful=True)
    async def fetch_json(url): ...

    with aexec.Graph() as graph:
        body = fetch_json(aexec.placeholder("string", name="url"), name="body")

The function gets the inputs as read-only arrays (they may be the caller's, or inputs of other nodes, too), and returns
the outputs; `user_op_outputs.py` says which values are accepted.  Attrs are keyword arguments.  A coroutine may await
anything; if the step is cancelled, the coroutine is cancelled at its await.

A definition replaces an earlier one by the same function, as `def` does in Python, so that a notebook's cell can run
again, and a module can be reloaded.  Graphs and sessions made before keep the old one.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import numpy as np

from aexec import ops
from aexec.client.user_op_outputs import OutputConverter
from aexec.framework import errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration
from aexec.framework.kernel_contract.op_kernel import Cost, OpKernelConstruction
from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract import gradient_registry, op_registry
from aexec.framework.op_contract.gradient_registry import GradientFunction
from aexec.framework.wire.op_def import OpDef
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import make_function, snake_case

__all__ = ["UserOp", "op"]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
Made = TypeVar("Made", covariant=True)


class UserOp(Generic[P, R, Made]):
    """The result of the decorator `op`: call it to add a node of the op to the current graph.

    Attributes:
        compute: the function itself.
        op_def: the op's definition.
    """

    compute: Callable[P, R]

    def __init__(self, function: Callable[P, R], op_def: OpDef) -> None:
        functools.update_wrapper(self, function)
        self.compute = function
        self.op_def = op_def
        self._add = make_function(op_def)
        self.__doc__ = function.__doc__ or self._add.__doc__
        self.__signature__ = inspect.signature(self._add)

    def __call__(self, *inputs: Any, name: str | None = None, **attrs: Any) -> Made:
        """Add a node: inputs are tensors, or values that become constants.

        Returns:
            A tensor, a tuple of them for several outputs, or the node if the op has none.

        Raises:
            InvalidArgumentError: the op does not take these inputs or attrs.
            TypeError: there are too few or too many of them.
        """
        made: Made = self._add(*inputs, name=name, **attrs)
        return made

    def __repr__(self) -> str:
        return f"<aexec.op {self.op_def.name} {self.__signature__}>"


class _Register(Protocol):
    """The function's return type determines the result type of the call that adds a node."""

    # The overloads overlap on purpose: None and tuples have their own result types.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, None]]
    ) -> UserOp[P, Coroutine[Any, Any, None], Node]: ...
    @overload
    def __call__(self, function: Callable[P, None]) -> UserOp[P, None, Node]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, tuple[A, B]]]
    ) -> UserOp[P, Coroutine[Any, Any, tuple[A, B]], tuple[Tensor, Tensor]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, tuple[A, B]]
    ) -> UserOp[P, tuple[A, B], tuple[Tensor, Tensor]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, tuple[Any, ...]]]
    ) -> UserOp[P, Coroutine[Any, Any, tuple[Any, ...]], tuple[Any, ...]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, tuple[Any, ...]]
    ) -> UserOp[P, tuple[Any, ...], tuple[Any, ...]]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> UserOp[P, R, Tensor]: ...


def op(
    signature: str,
    *attrs: str,
    stateful: bool = False,
    cost: Cost = 1.0,
    gradient: GradientFunction | None = None,
    **options: Any,
) -> _Register:
    """Register the decorated function as op and kernel; return a `UserOp`, which adds nodes to a graph.

    Args:
        signature: `Name(input: type, ...) -> output: type, ...`, in the language of op definitions.
        attrs: `name: type = default` of each attr.
        stateful: running it twice differs from running it once (I/O, randomness); such nodes are never folded or
            shared.
        cost: nanoseconds per input element, as `kernel` takes it; a function that is measured to hold up the event loop
            runs in a worker thread from then on.
        gradient: its gradient function, as `aexec.gradient` takes it.
        options: other options of `op_registry.register_op`, e.g. `shape_fn`.

    Raises:
        InvalidArgumentError: the signature is malformed, or the function does not take the op's inputs.
        AlreadyExistsError: the op is already registered by another function.
    """
    name = signature.partition("(")[0].strip()

    def register(function: Callable[..., Any]) -> UserOp[..., Any, Any]:
        def define() -> OpDef:
            op_registry.register_op(signature, *attrs, stateful=stateful, **options)
            op_def = op_registry.global_registry.lookup(name).op_def
            _check_parameters(function, op_def)
            return op_def

        kernel = KernelRegistration(name, "CPU", functools.partial(_build, function), {}, cost=cost)
        op_def = _definitions.put(name, _origin(function), define, kernel)
        if gradient is not None:
            gradient_registry.global_registry.replace(name, gradient)
        return UserOp(function, op_def)

    return cast(_Register, register)


# Module and qualified name of the function that defined an op; None if several functions may have them.
Origin = tuple[str, str] | None


def _origin(function: Callable[..., Any]) -> Origin:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<none>")
    return None if module is None or "<" in name else (module, name)


@dataclass(frozen=True, slots=True)
class _Definition:
    origin: Origin
    kernel: KernelRegistration


class _Definitions:
    """The function that defined each user op, so that the same one may define it again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_op: dict[str, _Definition] = {}

    def put(self, op: str, origin: Origin, define: Callable[[], OpDef], kernel: KernelRegistration) -> OpDef:
        """Define an op and register its kernel, replacing an earlier definition of the same origin."""
        with self._lock:
            old = self._by_op.get(op)
            replaced = old if old is not None and origin is not None and old.origin == origin else None
            before = op_registry.global_registry.find(op) if replaced is not None else None
            had_it = op_registry.global_registry.has(op)
            if replaced is not None:
                op_registry.global_registry.unregister(op)
            try:
                op_def = define()
            except BaseException:
                if before is not None or not had_it:
                    op_registry.global_registry.unregister(op)
                if before is not None:
                    op_registry.global_registry.register(op, lambda: before)
                raise
            if replaced is not None:
                kernel_registry.global_registry.unregister(replaced.kernel)
                vars(ops).pop(snake_case(op), None)  # its cached function, if any
            kernel_registry.global_registry.register(kernel)
            self._by_op[op] = _Definition(origin, kernel)
            return op_def


_definitions = _Definitions()


def _check_parameters(function: Callable[..., Any], op_def: OpDef) -> None:
    """Raise InvalidArgumentError unless the function can be called with the op's inputs."""
    if any(arg.number_attr or arg.type_list_attr for arg in op_def.inputs):
        return  # the number of inputs depends on the node
    try:
        parameters = inspect.signature(function)
    except (ValueError, TypeError):
        return  # a function written in C may not have a signature
    given = {attr.name: None for attr in op_def.attrs if attr.name in parameters.parameters}
    try:
        parameters.bind(*op_def.inputs, **given)
    except TypeError as error:
        inputs = ", ".join(arg.name for arg in op_def.inputs) or "none"
        raise errors.InvalidValueError(
            f"op '{op_def.name}' has the inputs {inputs}, which its function "
            f"{getattr(function, '__name__', function)}{parameters} cannot be called with: {error}"
        ) from None


def _build(function: Callable[..., Any], c: OpKernelConstruction) -> Any:
    attrs = {attr.name: c.attr(attr.name) for attr in c.op_def.attrs if attr.type not in ("type", "list(type)")}
    attrs = {k: v for k, v in attrs.items() if k in inspect.signature(function).parameters}
    convert = OutputConverter(c).convert
    if inspect.iscoroutinefunction(function):

        async def await_and_convert(*inputs: Any) -> Any:
            return convert(await function(*map(_read_only, inputs), **attrs))

        return await_and_convert

    def compute_and_convert(*inputs: Any) -> Any:
        return convert(function(*map(_read_only, inputs), **attrs))

    return compute_and_convert


def _read_only(value: Any) -> Any:
    """A read-only view, made in a third of a microsecond; a read-only array itself."""
    if type(value) is np.ndarray and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value
