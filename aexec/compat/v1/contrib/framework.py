"""`tf.contrib.framework`: creates, finds and assigns variables, and has `arg_scope`.

Next to read: `arg_scope.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aexec.client.building import group, placeholder
from aexec.compat.v1.contrib.arg_scope import add_arg_scope
from aexec.compat.v1.contrib.layer_scopes import model_getter
from aexec.compat.v1.functions.variables import get_variable
from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.platform.logging import warning
from aexec.compat.v1.running.checkpoints import NewCheckpointReader
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.op_functions import require_graph
from aexec.variables.variable_scope import VariableScope

__all__ = [
    "assign_from_checkpoint",
    "assign_from_checkpoint_fn",
    "assign_from_values",
    "assign_from_values_fn",
    "filter_variables",
    "get_local_variables",
    "get_model_variables",
    "get_trainable_variables",
    "get_unique_variable",
    "get_variables",
    "get_variables_by_name",
    "get_variables_by_suffix",
    "get_variables_to_restore",
    "local_variable",
    "model_variable",
    "variable",
]


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Iterable[str] | None = None,
    caching_device: Any = None,
    device: Any = "",
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
) -> Any:
    """Get or create a variable in the current scope, as `tf.get_variable` does.

    Args:
        device: device of the variable; "" for the current one.
        collections: by default GLOBAL_VARIABLES.
        caching_device: ignored.
    """
    from aexec.client.building import device as on

    with on(device or None):
        return get_variable(
            name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=list(collections or [GraphKeys.GLOBAL_VARIABLES]),
            partitioner=partitioner,
            use_resource=use_resource,
            custom_getter=custom_getter,
        )


@add_arg_scope
def model_variable(name: str, *args: Any, **kwargs: Any) -> Any:
    """`variable`, added to the collection MODEL_VARIABLES as well."""
    return variable(name, *args, **{"custom_getter": model_getter(None, {}), **kwargs})


def local_variable(initial_value: Any, validate_shape: bool = True, name: str | None = None, **kwargs: Any) -> Any:
    """Create a local variable: savers skip it, and `tf.local_variables_initializer` initialises it."""
    from aexec.compat.v1.functions.variables import Variable

    settings = {"trainable": False, "collections": [GraphKeys.LOCAL_VARIABLES], **kwargs}
    return Variable(initial_value, validate_shape=validate_shape, name=name, **settings)


def get_variables(
    scope: str | VariableScope | None = None, suffix: str | None = None, collection: str = GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """The variables of a collection whose names begin with `scope` and end with `suffix`."""
    within = scope.name if isinstance(scope, VariableScope) else scope
    if suffix is not None:
        ending = suffix if ":" in suffix else f"{suffix}:0"
        return [one for one in require_graph().collections.get(collection, within) if one.name.endswith(ending)]
    return list(require_graph().collections.get(collection, within))


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """`get_variables` of the collection MODEL_VARIABLES."""
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """`get_variables` of the collection TRAINABLE_VARIABLES."""
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """`get_variables` of the collection LOCAL_VARIABLES."""
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """The variables whose names end with a suffix."""
    return get_variables(scope, suffix)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """The variables in a scope whose name's last part is `given_name`."""
    ending = f"/{given_name}:0"
    return [one for one in get_variables(scope) if one.name.endswith(ending) or one.name == f"{given_name}:0"]


def get_unique_variable(var_op_name: str) -> Any:
    """The variable whose full name is `var_op_name`.  Raises ValueError if there is none."""
    found = [one for one in get_variables(var_op_name) if one.name.rpartition(":")[0] == var_op_name]
    if not found:
        raise errors.InvalidValueError(f"Variable {var_op_name} not found.")
    return found[0]


def get_variables_to_restore(include: Iterable[str] | None = None, exclude: Iterable[str] | None = None) -> list[Any]:
    """The variables in the scopes `include`, by default all, except those in the scopes `exclude`.

    Raises:
        TypeError: an argument is not a list or tuple.
    """
    for scopes, name in ((include, "include"), (exclude, "exclude")):
        if scopes is not None and not isinstance(scopes, list | tuple):
            raise errors.InvalidTypeError(f"{name} is provided but is not a list or a tuple.")
    wanted = get_variables() if include is None else [one for scope in include for one in get_variables(scope)]
    left_out = {id(one) for scope in exclude or () for one in get_variables(scope)}
    return [one for one in wanted if id(one) not in left_out]


def filter_variables(
    var_list: Iterable[Any],
    include_patterns: Iterable[str] | None = None,
    exclude_patterns: Iterable[str] | None = None,
    reg_search: bool = True,
) -> list[Any]:
    """The variables whose names match one of `include_patterns`, by default all, and none of `exclude_patterns`.

    Args:
        reg_search: True to match anywhere in a name, False to match from its beginning.
    """
    import re

    matches = re.search if reg_search else re.match

    def kept(name: str) -> bool:
        if include_patterns is not None and not any(matches(pattern, name) for pattern in include_patterns):
            return False
        return not any(matches(pattern, name) for pattern in exclude_patterns or ())

    return [one for one in var_list if kept(one.name.rpartition(":")[0])]


def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """Build an operation that assigns arrays to variables; return it and the feeds that it needs.

    Raises:
        ValueError: there is no variable of a name, or its shape differs from the array's.
    """
    import numpy as np

    feeds: dict[Any, Any] = {}
    assigned = []
    for name, value in var_names_to_values.items():
        target, array = get_unique_variable(name), np.asarray(value)
        fed = placeholder(target.dtype.base, list(array.shape))
        assigned.append(target.assign(fed))
        feeds[fed] = array
    return group(*assigned), feeds


def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], None]:
    """A function that takes a session, and assigns arrays to variables there.  Raises as `assign_from_values`."""
    assigned, feeds = assign_from_values(var_names_to_values)
    return lambda session: session.run(assigned, feeds)


def _from_checkpoint(model_path: str, var_list: Any, ignore_missing: bool, reshape: bool) -> tuple[Any, dict[Any, Any]]:
    reader = NewCheckpointReader(model_path)
    if isinstance(var_list, Mapping):
        named = dict(var_list)
    else:
        named = {one.name.rpartition(":")[0]: one for one in var_list}
    values: dict[str, Any] = {}
    for name, targets in named.items():
        for target in targets if isinstance(targets, list | tuple) else [targets]:
            if not reader.has_tensor(name):
                said = f"Checkpoint is missing variable [{name}]"
                if not ignore_missing:
                    raise errors.InvalidValueError(said)
                warning(said)
                continue
            value, shape = reader.get_tensor(name), [int(size) for size in target.static_shape]
            if list(value.shape) != shape:
                if not reshape or value.size != target.static_shape.num_elements:
                    raise errors.InvalidValueError(
                        f"Total size of new array must be unchanged for {name} lh_shape: [{value.shape}], "
                        f"rh_shape: [{shape}]"
                    )
                value = value.reshape(shape)
            values[target.name.rpartition(":")[0]] = value
    return assign_from_values(values)


def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Any, dict[Any, Any]]:
    """Build an operation that assigns a checkpoint's values to variables; return it and the feeds that it needs.

    Args:
        model_path: prefix of the checkpoint.
        var_list: variables, or name in the checkpoint → variable or list of variables.
        ignore_missing_vars: skip variables that the checkpoint lacks, with a warning.

    Raises:
        ValueError: the checkpoint lacks a variable, or its value has another number of elements.
    """
    return _from_checkpoint(model_path, var_list, ignore_missing_vars, reshape=True)


def assign_from_checkpoint_fn(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False, reshape_variables: bool = False
) -> Callable[[Any], None] | None:
    """A function that takes a session, and assigns a checkpoint's values to variables; None if `var_list` is empty.

    Args:
        reshape_variables: True to reshape values of another shape, False to raise ValueError for them.

    Other arguments, and errors, are those of `assign_from_checkpoint`.
    """
    if not var_list:
        warning("No Variables to restore")
        return None
    assigned, feeds = _from_checkpoint(model_path, var_list, ignore_missing_vars, reshape_variables)
    return lambda session: session.run(assigned, feeds)


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"contrib.arg_scope:{name}"
            for name in "arg_scope arg_scoped_arguments current_arg_scope has_arg_scope".split()
        },
        **{
            name: f"values.framework_ops:{name}"
            for name in "create_global_step get_global_step get_or_create_global_step is_tensor".split()
        },
        **{
            name: f"running.checkpoints:{name}"
            for name in "init_from_checkpoint list_variables load_checkpoint load_variable".split()
        },
        "argsort": "functions.math_ops:argsort",
        "nest": "platform.nest",
        "sort": "functions.math_ops:sort",
    },
    {"load_and_remap_matrix": "the op is aexec.ops.load_and_remap_matrix"},
)
