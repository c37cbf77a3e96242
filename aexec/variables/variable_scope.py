"""Variable scopes: names of variables that can be shared, and defaults of those made inside.

::

    def layer(x):
        w = aexec.get_variable("w", [4, 4])
        return x @ w

    with aexec.variable_scope("model"):
        y = layer(x)
    with aexec.variable_scope("model", reuse=True):
        z = layer(y)  # with the same w, `model/w`

Names of variables depend on variable scopes alone; a variable scope also opens a name scope, for the other nodes made
inside.  Each task or thread that builds has its own current scope.
Next to read: `variable_store.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

from aexec.client.building import name_scope
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.graph.collections import GraphKeys
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import constant_array, require_graph
from aexec.graph.tensor_proxy import TensorProxy
from aexec.variables.initializers import Initializer
from aexec.variables.partitioned_variable import PartitionedVariable
from aexec.variables.partitioners import Partitioner
from aexec.variables.regularizers import Regularizer
from aexec.variables.variable import Variable
from aexec.variables.variable_store import Reuse, VariableRequest, VariableStore, store_of

__all__ = ["VariableScope", "get_variable", "get_variable_scope", "variable_scope"]

# (the function that makes or finds a variable, its arguments) → the variable.
CustomGetter = Callable[..., Any]


@dataclass(slots=True)
class VariableScope:
    """The defaults of the variables that are made or found inside a variable scope.

    Attributes:
        name: `outer/inner`, "" for the root.
        original_name_scope: the name scope that was opened with it, with its `/`.
        reuse: whether variables are shared or made; `AUTO_REUSE` for either.
        initializer, regularizer, dtype, constraint, use_resource: defaults of variables.
        partitioner: returns the number of parts of a variable.
        custom_getter: called instead of the function that finds or makes a variable, with that function and its
            arguments.
    """

    name: str = ""
    original_name_scope: str = ""
    reuse: Reuse = None
    initializer: Initializer | Any = None
    regularizer: Regularizer | None = None
    dtype: DType = dtypes.float32
    constraint: Callable[[Tensor], Tensor] | None = None
    use_resource: bool = False
    custom_getter: CustomGetter | None = None
    partitioner: Partitioner | None = None

    def reuse_variables(self) -> None:
        """From now on only share existing variables, also in scopes entered inside."""
        self.reuse = True

    def global_variables(self) -> list[Variable]:
        """The graph's global variables in this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Variable]:
        """The graph's local variables in this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def trainable_variables(self) -> list[Variable]:
        """The graph's trainable variables in this scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def set_initializer(self, initializer: Initializer | Any) -> None:
        """Set the default initializer."""
        self.initializer = initializer

    def set_regularizer(self, regularizer: Regularizer | None) -> None:
        """Set the default regularizer."""
        self.regularizer = regularizer

    def set_dtype(self, dtype: Any) -> None:
        """Set the default type."""
        self.dtype = dtypes.as_dtype(dtype)

    def set_use_resource(self, use_resource: bool) -> None:
        """Set the default form."""
        self.use_resource = use_resource

    def set_partitioner(self, partitioner: Partitioner | None) -> None:
        """Set the default partitioner."""
        self.partitioner = partitioner

    def set_custom_getter(self, custom_getter: CustomGetter | None) -> None:
        """Set the custom getter."""
        self.custom_getter = custom_getter

    def get_variable(
        self,
        store: VariableStore,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Initializer | Any = None,
        *,
        regularizer: Regularizer | None = None,
        reuse: Reuse = None,
        trainable: bool = True,
        collections: Iterable[str] | None = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        constraint: Callable[[Tensor], Tensor] | None = None,
        partitioner: Partitioner | Literal[False] | None = None,
        custom_getter: CustomGetter | None = None,
    ) -> Any:
        """The variable of that name in this scope, found in `store` or made.

        Args and Raises: as of the function `get_variable`; and

            reuse: by default as the scope says.
            custom_getter: called before that of the scope.
        """
        first = self.initializer if initializer is None else initializer
        if dtype is None and first is not None and not callable(first):
            dtype = first.dtype.base if isinstance(first, Tensor | TensorProxy) else _dtype_of(first)
        request = VariableRequest(
            name=f"{self.name}/{name}" if self.name else name,
            shape=PartialTensorShape.of(shape),
            has_shape=shape is not None,
            dtype=self.dtype if dtype is None else dtypes.as_dtype(dtype),
            initializer=first,
            regularizer=self.regularizer if regularizer is None else regularizer,
            reuse=self.reuse if reuse is None else reuse,
            trainable=trainable,
            collections=collections,
            validate_shape=validate_shape,
            use_resource=self.use_resource if use_resource is None else use_resource,
            constraint=self.constraint if constraint is None else constraint,
            partitioner=self.partitioner if partitioner is None else partitioner or None,
        )
        getter = _both(custom_getter, self.custom_getter)
        if getter is None:
            return _got(store, request)
        arguments = {
            name: getattr(request, name) for name in VariableRequest.__slots__ if name not in ("name", "has_shape")
        }
        return getter(partial(_got_as_asked, store, request), request.name, **arguments)

    def get_collection(self, name: str) -> list[Any]:
        """The items of a collection of the graph that are in this scope."""
        return require_graph().collections.get(name, f"{self.name}/" if self.name else None)


# The scopes entered in this task or thread, each with its graph.
_entered: ContextVar[tuple[tuple[Graph, VariableScope], ...]] = ContextVar("aexec_variable_scopes", default=())


def get_variable_scope() -> VariableScope:
    """The innermost variable scope of the graph that is being built."""
    graph = require_graph().outermost
    return next((scope for of, scope in reversed(_entered.get()) if of is graph), None) or _root_of(graph)


def _root_of(graph: Graph) -> VariableScope:
    """The root scope, which is in a private collection of the graph."""
    kept: list[VariableScope] = graph.collections.get_ref(GraphKeys.VARIABLE_SCOPE_STORE)
    if not kept:
        kept.append(VariableScope(reuse=False))
    return kept[0]


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope | None = None,
    default_name: str | None = None,
    *,
    reuse: Reuse = None,
    initializer: Initializer | Any = None,
    regularizer: Regularizer | None = None,
    dtype: Any = None,
    constraint: Callable[[Tensor], Tensor] | None = None,
    use_resource: bool | None = None,
    custom_getter: CustomGetter | None = None,
    partitioner: Partitioner | None = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """Variables made or found inside have names inside `name_or_scope`, and the other arguments as defaults.

    Args:
        name_or_scope: name inside the current scope; or a scope, which is entered again from anywhere.
        default_name: used if there is no name, made unique among the variable scopes beside it.
        reuse: True to share existing variables, `AUTO_REUSE` to share or make them; the setting of an outer scope also
            applies inside.
        custom_getter: a function of the function that finds or makes a variable and of its arguments, which it may
            change; those of inner scopes are called first.
        partitioner: variables that are not scalars are kept in parts; see `partitioners.py`.
        auxiliary_name_scope: open a name scope too, named like the last part of the name.

    Raises:
        InvalidArgumentError: there is neither a name nor a default one, or `reuse=True` without a name.
    """
    graph = require_graph().outermost
    outer = get_variable_scope()
    store = store_of(graph)
    base = outer
    if isinstance(name_or_scope, VariableScope):
        base, name = name_or_scope, name_or_scope.name
        shown = name.rpartition("/")[2]
    else:
        if name_or_scope is None and default_name is None:
            raise errors.InvalidTypeError("variable_scope needs name_or_scope or default_name")
        if name_or_scope is None and reuse is True:
            raise errors.InvalidValueError("reuse=True cannot be used without a name_or_scope")
        shown = name_or_scope if name_or_scope is not None else default_name or ""
        last = store.default_name(outer.name, shown) if name_or_scope is None else shown
        name = "/".join(part for part in (outer.name, last) if part)
    with name_scope(shown) if auxiliary_name_scope and shown else nullcontext() as opened:
        keeps = isinstance(name_or_scope, VariableScope) or opened is None
        inner = VariableScope(
            name,
            base.original_name_scope if keeps else opened or "",
            reuse or base.reuse,
            base.initializer if initializer is None else initializer,
            base.regularizer if regularizer is None else regularizer,
            base.dtype if dtype is None else dtypes.as_dtype(dtype),
            base.constraint if constraint is None else constraint,
            base.use_resource if use_resource is None else use_resource,
            _both(custom_getter, base.custom_getter),
            base.partitioner if partitioner is None else partitioner,
        )
        with _inside(graph, inner):
            store.entered(name)
            try:
                yield inner
            finally:
                store.left(name)


def _both(inner: CustomGetter | None, outer: CustomGetter | None) -> CustomGetter | None:
    """A getter that calls the inner one first, which calls the outer one."""
    if inner is None or outer is None:
        return inner or outer
    return partial(_nested, inner, outer)


def _nested(inner: CustomGetter, outer: CustomGetter, getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return inner(partial(outer, getter), *args, **kwargs)


@contextmanager
def _inside(graph: Graph, scope: VariableScope) -> Iterator[None]:
    before = _entered.get()
    after = (*before, (graph, scope))
    _entered.set(after)
    try:
        yield
    finally:
        if _entered.get() is not after:
            raise errors.InvalidStateError("Improper nesting of variable_scope.")
        _entered.set(before)


# Types do not tell that a variable of a scope with a partitioner is partitioned, too.
@overload
def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Initializer | Any = None,
    *,
    regularizer: Regularizer | None = None,
    trainable: bool = True,
    collections: Iterable[str] | None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    constraint: Callable[[Tensor], Tensor] | None = None,
    partitioner: Literal[False] | None = None,
    custom_getter: None = None,
) -> Variable: ...


@overload
def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Initializer | Any = None,
    *,
    regularizer: Regularizer | None = None,
    trainable: bool = True,
    collections: Iterable[str] | None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    constraint: Callable[[Tensor], Tensor] | None = None,
    partitioner: Partitioner,
    custom_getter: None = None,
) -> PartitionedVariable: ...


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Initializer | Any = None,
    *,
    regularizer: Regularizer | None = None,
    trainable: bool = True,
    collections: Iterable[str] | None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    constraint: Callable[[Tensor], Tensor] | None = None,
    partitioner: Partitioner | Literal[False] | None = None,
    custom_getter: CustomGetter | None = None,
) -> Any:
    """The variable of that name in the current variable scope: a new one, or one that is shared.

    Args:
        shape: needed for a new one, unless the initializer is a value.
        dtype: by default that of the scope, float32; or that of the initializer, if it is a value.
        initializer: makes the first value from a shape and type; or is that value.  By default that of the scope; then
            `glorot_uniform` for floats and zeros for integers, bools and strings.
        regularizer: makes the variable's loss, a term of `GraphKeys.REGULARIZATION_LOSSES`.
        trainable, collections, validate_shape, use_resource, constraint: as for `Variable`.
        partitioner: returns the number of parts; by default that of the scope; False for no parts.
        custom_getter: as of `variable_scope`, for this variable; called before those of the scopes.

    Returns:
        A `Variable`; or a `PartitionedVariable`, if there is a partitioner, and the shape is not that of a scalar.

    Raises:
        InvalidArgumentError: the variable exists and must not be shared, or must be shared and does not exist; it has
            another shape or type; or a new one has no shape or no initializer.
    """
    return get_variable_scope().get_variable(
        store_of(require_graph()),
        name,
        shape,
        dtype,
        initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=collections,
        validate_shape=validate_shape,
        use_resource=use_resource,
        constraint=constraint,
        partitioner=partitioner,
        custom_getter=custom_getter,
    )


def _got_as_asked(
    store: VariableStore, request: VariableRequest, name: str, **arguments: Any
) -> Variable | PartitionedVariable:
    """The function that custom getters call, with the arguments that they were given, or others."""
    return _got(store, replace(request, name=name, **arguments))


def _got(store: VariableStore, request: VariableRequest) -> Variable | PartitionedVariable:
    with name_scope(None):
        if request.partitioner is not None and not (request.has_shape and request.shape.rank == 0):
            return store.get_partitioned(request)
        if request.reuse is True and store.has_parts(request.name):
            return store.get_partitioned(request)
        return store.get(request)


def _dtype_of(value: Any) -> DType:
    return constant_array(value, None)[1]
