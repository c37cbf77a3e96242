"""Variables and their scopes with TensorFlow's arguments, over `aexec.variables`.

Next to read: `initializers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.values.old_scopes import VariableAggregation, VariableSynchronization
from aexec.compat.v1.values.operations import give
from aexec.framework import dtypes, errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Node
from aexec.graph.op_functions import convert_to_tensor
from aexec.variables import variable as _variable
from aexec.variables import variable_scope as _variable_scope
from aexec.variables.initialization import variables_initializer
from aexec.variables.partitioned_variable import PartitionedVariable
from aexec.variables.save_slices import SaveSliceInfo

__all__ = [
    "Variable",
    "assign",
    "assign_add",
    "assign_sub",
    "batch_scatter_update",
    "count_up_to",
    "create_partitioned_variables",
    "disable_resource_variables",
    "enable_resource_variables",
    "get_local_variable",
    "get_variable",
    "initialize_variables",
    "resource_variables_enabled",
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_sub",
    "scatter_update",
    "variable_op_scope",
    "variable_scope",
]

_resource_form = False


def enable_resource_variables() -> None:
    """Make resource variables by default."""
    global _resource_form
    _resource_form = True


def disable_resource_variables() -> None:
    """Make ref variables by default, as initially."""
    global _resource_form
    _resource_form = False


def resource_variables_enabled() -> bool:
    """Whether variables are resource variables by default."""
    return _resource_form


class _Any(type):
    """Every variable of aexec is an instance, whichever function made it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _variable.Variable)


class Variable(_variable.Variable, metaclass=_Any):
    """`tf.Variable`."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Iterable[str] | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Callable[..., Any] | None = None,
        use_resource: bool | None = None,
        synchronization: Any = 0,
        aggregation: Any = 0,
        shape: Any = None,
    ) -> None:
        refuse("Variable", variable_def=variable_def, import_scope=import_scope, shape=shape)
        super().__init__(
            initial_value,
            trainable=trainable is not False,
            collections=collections,
            validate_shape=validate_shape,
            name=name,
            dtype=dtype,
            constraint=constraint,
            use_resource=_resource_form if use_resource is None else use_resource,
        )


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Iterable[str] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Callable[..., Any] | None = None,
    synchronization: Any = 0,
    aggregation: Any = 0,
) -> Any:
    """`tf.get_variable`; there is one replica, so that `synchronization` and `aggregation` change nothing."""
    if use_resource is None and _resource_form:
        use_resource = True
    return _variable_scope.get_variable(
        name,
        [shape] if isinstance(shape, int) else shape,
        dtype,
        initializer,
        regularizer=regularizer,
        trainable=trainable is not False,
        collections=collections,
        validate_shape=validate_shape,
        use_resource=use_resource,
        constraint=constraint,
        partitioner=partitioner,
        custom_getter=custom_getter,
    )


def get_local_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = False,
    collections: Iterable[str] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Callable[..., Any] | None = None,
    synchronization: Any = 0,
    aggregation: Any = 0,
) -> Any:
    """`tf.get_local_variable`."""
    return get_variable(
        name,
        shape,
        dtype,
        initializer,
        regularizer,
        trainable=False,
        collections=["local_variables", *(collections or ())],
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
    )


def variable_scope(
    name_or_scope: Any = None,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
    auxiliary_name_scope: bool = True,
) -> AbstractContextManager[Any]:
    """`tf.variable_scope`."""
    return _variable_scope.variable_scope(
        name_or_scope,
        default_name,
        reuse=reuse,
        initializer=initializer,
        regularizer=regularizer,
        dtype=dtype,
        constraint=constraint,
        use_resource=use_resource,
        custom_getter=custom_getter,
        auxiliary_name_scope=auxiliary_name_scope,
        partitioner=partitioner,
    )


def variable_op_scope(
    values: Any,
    name_or_scope: Any,
    default_name: str | None = None,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
) -> Any:
    """`tf.variable_op_scope`: `tf.variable_scope`, with the values first."""
    return variable_scope(
        name_or_scope,
        default_name,
        values,
        initializer=initializer,
        regularizer=regularizer,
        caching_device=caching_device,
        partitioner=partitioner,
        custom_getter=custom_getter,
        reuse=reuse,
        dtype=dtype,
        use_resource=use_resource,
        constraint=constraint,
    )


def initialize_variables(var_list: Iterable[Any], name: str = "init") -> Node:
    """`tf.variables_initializer`."""
    return variables_initializer(var_list, name=name)


def assign(
    ref: Any, value: Any, validate_shape: bool | None = None, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """`tf.assign`."""
    if validate_shape is False:
        return ops.assign(ref, value, validate_shape=False, use_locking=use_locking, name=name)
    return ref.assign(value, use_locking=bool(use_locking), name=name)


def assign_add(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
    """`tf.assign_add`."""
    return ref.assign_add(value, use_locking=bool(use_locking), name=name)


def assign_sub(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
    """`tf.assign_sub`."""
    return ref.assign_sub(value, use_locking=bool(use_locking), name=name)


def count_up_to(ref: Any, limit: int, name: str | None = None) -> Any:
    """`tf.count_up_to`."""
    if isinstance(ref, _variable.Variable) and ref.is_resource:
        return ops.resource_count_up_to(ref.handle, limit, ref.dtype, name=name)
    return ops.count_up_to(ref, limit, name=name)


def _scattering(how: str, locking: bool = False) -> Callable[..., Any]:
    def scatter(ref: Any, indices: Any, updates: Any, use_locking: bool = locking, name: str | None = None) -> Any:
        rows = IndexedSlices(updates, indices, None)
        return getattr(ref, f"scatter_{how}")(rows, use_locking=use_locking, name=name)

    scatter.__name__ = scatter.__qualname__ = f"scatter_{how}"
    scatter.__doc__ = f"`tf.scatter_{how}`."
    return scatter


scatter_update = _scattering("update", True)
scatter_add = _scattering("add")
scatter_sub = _scattering("sub")
scatter_mul = _scattering("mul")
scatter_div = _scattering("div")
scatter_min = _scattering("min")
scatter_max = _scattering("max")


def batch_scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """`tf.batch_scatter_update`: scatter updates within each batch: indices [*batch, n] select slices of that batch."""
    with name_scope(name or "batch_scatter_update"):
        places = convert_to_tensor(indices)
        rank = places.static_shape.rank
        if rank is None:
            raise errors.InvalidValueError("batch_scatter_update does not allow indices with unknown shape.")
        whole = ops.shape(places)
        axes = []
        for axis in range(rank - 1):
            along = [1] * rank
            along[axis] = -1
            numbers = ops.cast(ops.range(0, whole[axis], 1), DstT=places.dtype.base)
            axes.append(ops.broadcast_to(ops.reshape(numbers, along), whole))
        return ref.scatter_nd_update(ops.pack([*axes, places], axis=-1), updates)


def create_partitioned_variables(
    shape: Sequence[int],
    slicing: Sequence[int],
    initializer: Any,
    dtype: Any = dtypes.float32,
    trainable: bool = True,
    collections: Iterable[str] | None = None,
    name: str | None = None,
    reuse: bool | None = None,
) -> list[Any]:
    """`tf.create_partitioned_variables`: create a variable in parts; return the list of parts.

    Args:
        slicing: number of parts along each axis; it may exceed 1 for one axis only.

    Raises:
        ValueError: `slicing` does not have a number per axis, or the variable is a scalar.
    """
    if len(shape) != len(slicing) or not shape:
        raise errors.InvalidValueError(
            f"a partitioned variable has a number of parts for each of its axes, got {list(slicing)} for {list(shape)}"
        )
    outer = _variable_scope.get_variable_scope()
    with _variable_scope.variable_scope(name, "PartitionedVariable", reuse=reuse, auxiliary_name_scope=False) as own:
        is_reused = own.reuse
    with _variable_scope.variable_scope(outer, reuse=is_reused, auxiliary_name_scope=False):
        whole = get_variable(
            own.name.removeprefix(f"{outer.name}/"),
            shape,
            dtype,
            initializer,
            trainable=trainable,
            collections=collections,
            partitioner=lambda *_: list(slicing),
        )
    return list(whole) if isinstance(whole, PartitionedVariable) else [whole]


def scatter_nd_update(ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None) -> Any:
    """`tf.scatter_nd_update`; updates of a variable always exclude each other."""
    return ref.scatter_nd_update(indices, updates, name)


def scatter_nd_add(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """`tf.scatter_nd_add`."""
    return ref.scatter_nd_add(indices, updates, name)


def scatter_nd_sub(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """`tf.scatter_nd_sub`."""
    return ref.scatter_nd_sub(indices, updates, name)


# Members of every variable of aexec


def _batch_scatter_update(
    self: Any, sparse_delta: IndexedSlices[Any], use_locking: bool = False, name: str | None = None
) -> Any:
    """Like `tf.batch_scatter_update`."""
    return batch_scatter_update(self, sparse_delta.indices, sparse_delta.values, use_locking, name)


give(
    _variable.Variable,
    SaveSliceInfo=SaveSliceInfo,
    # There is one replica.
    aggregation=VariableAggregation.NONE,
    synchronization=VariableSynchronization.AUTO,
    batch_scatter_update=_batch_scatter_update,
    count_up_to=count_up_to,
)
give(
    _variable_scope.VariableScope,
    # Where a value is kept for its readers changes no value.
    caching_device=None,
    set_caching_device=lambda self, caching_device: None,
)
