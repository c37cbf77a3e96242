"""`VariableStore`: the variables of a graph that `get_variable` made, by name, to be shared or refused.

Next to read: `variable_scope.py`, which determines the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from typing import Any

from aexec import ops
from aexec.client.building import colocate_with, name_scope
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.graph.collections import GraphKeys
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.graph.tensor_proxy import TensorProxy
from aexec.variables.initializers import Initializer, Zeros, glorot_uniform
from aexec.variables.partitioned_variable import PartitionedVariable
from aexec.variables.partitioners import Partitioner, parts_of
from aexec.variables.regularizers import Regularizer
from aexec.variables.save_slices import PartitionInfo, SaveSliceInfo
from aexec.variables.variable import Variable

__all__ = ["AUTO_REUSE", "Reuse", "VariableRequest", "VariableStore", "store_of"]


class _AutoReuse:
    """Share an existing variable; make one that does not exist."""

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE = _AutoReuse()

# False or None: only new variables; True: only existing ones; or AUTO_REUSE.
Reuse = bool | _AutoReuse | None


@dataclass(slots=True)
class VariableRequest:
    """The arguments of `get_variable`, completed by the current scope."""

    name: str
    shape: PartialTensorShape
    has_shape: bool
    dtype: DType
    initializer: Initializer | Any
    regularizer: Regularizer | None
    reuse: Reuse
    trainable: bool
    collections: Iterable[str] | None
    validate_shape: bool
    use_resource: bool
    constraint: Callable[[Tensor], Tensor] | None
    partitioner: Partitioner | None


class VariableStore:
    """Variables by name, and how often each variable scope was entered."""

    def __init__(self) -> None:
        self._variables: dict[str, Variable] = {}
        self._partitioned: dict[str, PartitionedVariable] = {}
        self._entered: Counter[str] = Counter()

    def get(self, request: VariableRequest) -> Variable:
        """The requested variable, found or made.

        Raises:
            InvalidArgumentError: the variable exists or does not, against the request; it has another shape or type; or
                a new one has no shape or no initializer.
        """
        found = self._variables.get(request.name)
        if found is not None:
            return self._shared(found, request)
        if request.name in self._partitioned:
            raise errors.InvalidValueError(
                "No partitioner was provided, but a partitioned version of the variable was found: "
                f"{request.name}/part_0. Perhaps a variable of the same name was already created with partitioning?"
            )
        if request.reuse is True:
            raise errors.InvalidValueError(
                f"Variable {request.name} does not exist, or was not created with get_variable(). "
                "Did you mean to set reuse=AUTO_REUSE in variable_scope?"
            )
        return self._made(request)

    def get_partitioned(self, request: VariableRequest) -> PartitionedVariable:
        """The requested partitioned variable, found or made; without a partitioner, an existing one.

        Raises:
            InvalidArgumentError: as of `get`; or the variable exists, but not in parts or in other ones.
        """
        if request.name in self._variables:
            raise errors.InvalidValueError(
                "A partitioner was provided, but an unpartitioned version of the variable was found: "
                f"{request.name}.  Perhaps a variable of the same name was already created without partitioning?"
            )
        found = self._partitioned.get(request.name)
        if found is not None:
            return _shared_in_parts(found, request)
        if request.reuse is True:
            raise errors.InvalidValueError(
                f"PartitionedVariable {request.name} does not exist, or was not created with get_variable(). "
                "Did you mean to set reuse=False or reuse=AUTO_REUSE in variable_scope?"
            )
        made = self._partitioned[request.name] = self._made_in_parts(request)
        return made

    def has_parts(self, name: str) -> bool:
        """True if there is a partitioned variable of that name."""
        return name in self._partitioned

    def _made_in_parts(self, request: VariableRequest) -> PartitionedVariable:
        given = request.initializer
        if isinstance(given, type):
            given = given()
        if given is None:
            given = _default_initializer(request)
        if not callable(given) or isinstance(given, TensorProxy):
            if request.has_shape:
                raise errors.InvalidValueError(
                    f"Variable {request.name}: if the initializer is a constant or tensor, do not specify a shape"
                )
            given = convert_to_tensor(given, request.dtype)
            request = replace(request, shape=given.static_shape)
        shape = _defined(request)
        assert request.partitioner is not None
        partitions = [int(count) for count in request.partitioner(shape, request.dtype)]
        parts = []
        for number, (offset, size) in enumerate(parts_of(shape, partitions)):
            name = f"{request.name}/part_{number}"
            first: Any
            if isinstance(given, Tensor):
                with name_scope(f"{name}/PartitionedInitializer"):
                    first = ops.slice(given, offset, size)
            else:
                first = _for_part(given, PartitionInfo(shape, offset))
            part = self._made(
                replace(
                    request,
                    name=name,
                    shape=PartialTensorShape(size),
                    has_shape=not isinstance(first, Tensor),
                    initializer=first,
                    partitioner=None,
                )
            )
            part.save_slice_info = SaveSliceInfo(request.name, shape, offset, size)
            parts.append(part)
        return PartitionedVariable(request.name, shape, request.dtype, parts, partitions)

    def _shared(self, found: Variable, request: VariableRequest) -> Variable:
        if not request.reuse:
            site = f" Originally defined at {found.op.site}" if found.op.site else ""
            raise errors.InvalidValueError(
                f"Variable {request.name} already exists, disallowed. "
                f"Did you mean to set reuse=True or reuse=AUTO_REUSE in variable_scope?{site}"
            )
        if not request.shape.is_compatible_with(found.static_shape):
            raise errors.InvalidValueError(
                f"Trying to share variable {request.name}, but specified shape {request.shape} "
                f"and found shape {found.static_shape}."
            )
        if request.dtype is not found.dtype:
            raise errors.InvalidValueError(
                f"Trying to share variable {request.name}, but specified dtype {request.dtype} "
                f"and found dtype {found.dtype}."
            )
        return found

    def _made(self, request: VariableRequest) -> Variable:
        made = self._variables[request.name] = Variable(
            _first_value(request),
            trainable=request.trainable,
            collections=request.collections,
            validate_shape=request.validate_shape,
            name=request.name,
            dtype=request.dtype,
            constraint=request.constraint,
            use_resource=request.use_resource,
        )
        if request.regularizer is not None:
            with colocate_with(made), name_scope(f"{request.name}/Regularizer/"):
                loss = request.regularizer(made)
            if loss is not None:
                require_graph().collections.add(GraphKeys.REGULARIZATION_LOSSES, loss)
        return made

    # Scopes

    def entered(self, scope: str) -> None:
        """Called when a variable scope of that full name is entered."""
        self._entered[scope] += 1

    def left(self, scope: str) -> None:
        """Called when it is left: default names inside count from the start when it is entered again."""
        for name in [name for name in self._entered if name.startswith(f"{scope}/")]:
            del self._entered[name]

    def default_name(self, outer: str, wanted: str) -> str:
        """`wanted`, or with the first of `_1`, `_2`, … that no variable scope inside `outer` has yet."""
        within = f"{outer}/" if outer else ""
        name, count = wanted, 0
        while self._entered[within + name]:
            count += 1
            name = f"{wanted}_{count}"
        return name


def store_of(graph: Graph) -> VariableStore:
    """The store of a graph, which is in one of its private collections."""
    kept = graph.collections.get_ref(GraphKeys.VARIABLE_STORE)
    if not kept:
        kept.append(VariableStore())
    store: VariableStore = kept[0]
    return store


def _first_value(request: VariableRequest) -> Any:
    given = request.initializer
    if given is None:
        given = _default_initializer(request)
    if not callable(given):
        if request.has_shape:
            raise errors.InvalidValueError(
                f"Variable {request.name}: if the initializer is a constant or tensor, do not specify a shape"
            )
        return given
    if isinstance(given, type):
        given = given()
    if not request.shape.is_fully_defined and not _must_be_told(given):
        return given
    return partial(given, _defined(request), request.dtype)


def _must_be_told(initializer: Callable[..., Any]) -> bool:
    """Whether a function has arguments without defaults, so that it needs a shape."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    arguments = signature(initializer).parameters.values()
    return any(one.kind in kinds and one.default is Parameter.empty for one in arguments)


def _defined(request: VariableRequest) -> list[int]:
    """The shape of a new variable."""
    if not request.shape.is_fully_defined:
        raise errors.InvalidValueError(
            f"Shape of a new variable ({request.name}) must be fully defined, but instead was {request.shape}."
        )
    return [int(size) for size in request.shape if size is not None]


def _for_part(given: Initializer, info: PartitionInfo) -> Initializer:
    """An initializer of one part, which passes `partition_info` if the given one takes it."""
    if "partition_info" in signature(given).parameters:
        told: Callable[..., Tensor] = given
        return partial(told, partition_info=info)
    return given


def _shared_in_parts(found: PartitionedVariable, request: VariableRequest) -> PartitionedVariable:
    if not request.reuse:
        raise errors.InvalidValueError(
            f"Partitioned variable with name {request.name} already exists. "
            "Did you mean to set reuse=True or reuse=AUTO_REUSE in variable_scope?"
        )
    if not request.shape.is_compatible_with(found.static_shape):
        raise errors.InvalidValueError(
            f"Trying to reuse partitioned variable {request.name}, but specified shape {request.shape} "
            f"and found shape {found.static_shape}."
        )
    if request.dtype is not found.dtype:
        raise errors.InvalidValueError(
            f"Trying to reuse partitioned variable {request.name}, but specified dtype {request.dtype} "
            f"and found dtype {found.dtype}."
        )
    if request.partitioner is not None:
        shape = [int(size) for size in found.static_shape if size is not None]
        wanted = [int(count) for count in request.partitioner(shape, request.dtype)]
        if wanted != found.partitions:
            raise errors.InvalidValueError(
                f"Trying to reuse partitioned variable {request.name}, but specified partitions {wanted} "
                f"and found partitions {found.partitions}."
            )
    return found


def _default_initializer(request: VariableRequest) -> Initializer:
    if request.dtype.is_floating:
        return glorot_uniform()
    if request.dtype.is_integer or request.dtype.name in ("bool", "string"):
        return Zeros()
    raise errors.InvalidValueError(f"An initializer for variable {request.name} of {request.dtype} is required")
