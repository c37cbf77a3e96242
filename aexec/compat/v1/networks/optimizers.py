"""Optimisers with TensorFlow's arguments, over `aexec.optimizers`.

Next to read: `train.py`, which is their namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from aexec import training
from aexec.client import building
from aexec.compat.v1.namespace import made_with, refuse
from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype, bfloat16, float16, float32, float64
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Node, Tensor
from aexec.optimizers.optimizer import GradientAndVariable, once_each
from aexec.optimizers.optimizer import Optimizer as _Optimizer
from aexec.variables.initializers import Zeros
from aexec.variables.variable import Variable

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "SyncReplicasOptimizer",
]

_GATES = {0: "none", 1: "op", 2: "graph"}


class Optimizer(_Optimizer):
    """`tf.train.Optimizer`: an optimizer with TensorFlow's methods, which programs may subclass.

    A method that a subclass overrides, such as `_apply_dense`, replaces aexec's.
    """

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(self, use_locking: bool, name: str, use_own_namescope_for_non_slot_vars: bool = False) -> None:
        refuse("Optimizer", use_own_namescope_for_non_slot_vars=use_own_namescope_for_non_slot_vars)
        if not name:
            raise errors.InvalidValueError("Must specify the optimizer name")
        super().__init__(None, use_locking=use_locking, name=name)
        self._numbers = {}

    @property
    def _name(self) -> str:
        return self.name

    @property
    def _use_locking(self) -> bool:
        return self.use_locking

    def minimize(  # type: ignore[override]
        self,
        loss: Any,
        global_step: Variable | None = None,
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: str | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Node:
        """An operation that makes one step towards a smaller loss."""
        pairs = self.compute_gradients(
            loss,
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=grad_loss,
        )
        if all(grad is None for grad, _ in pairs):
            raise errors.InvalidValueError(
                "No gradients provided for any variable, check your graph for ops that do not support gradients, "
                f"between variables {[str(variable) for _, variable in pairs]} and loss {loss!r}."
            )
        return self.apply_gradients(pairs, global_step=global_step, name=name)

    def compute_gradients(  # type: ignore[override]
        self,
        loss: Any,
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: str | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
        *,
        aggregation: str = "add_n",
        colocate: bool = False,
    ) -> list[GradientAndVariable]:
        """The (gradient, variable) pairs of a loss; optimizers that wrap this one pass aexec's arguments instead."""
        return super().compute_gradients(
            loss,
            [var_list] if isinstance(var_list, Variable) else var_list,
            gate_gradients=cast(Any, _GATES.get(gate_gradients, gate_gradients)),
            aggregation=aggregation_method or aggregation,
            colocate=colocate_gradients_with_ops or colocate,
            grad_loss=grad_loss,
        )

    def apply_gradients(
        self,
        grads_and_vars: Iterable[GradientAndVariable],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Node:
        """An operation that changes the variables."""
        return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def get_name(self) -> str:
        """Its name."""
        return self.name

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """The slot of that name of a variable, or None."""
        return self._slots.get(name, {}).get(var)

    def get_slot_names(self) -> list[str]:
        """Names of the slots made so far."""
        return self.slot_names

    def variables(self) -> list[Variable]:
        """All slots and other variables of the optimiser, sorted by name."""
        return sorted([*super().variables(), *self._non_slot_variables()], key=lambda variable: variable.name)

    # aexec's optimizer calls these methods, which a subclass may override.  By default they call aexec's own.

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        super().create_slots(var_list)

    def _prepare(self) -> None:
        super().prepare()

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        return super().apply_whole(var, grad)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        return super().apply_whole(handle, grad)

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices[Tensor], var: Variable) -> Any:
        values, rows = once_each(grad)
        return self._apply_sparse(IndexedSlices(values, rows, grad.dense_shape), var)

    def _apply_sparse(self, grad: IndexedSlices[Tensor], var: Variable) -> Any:
        return super().apply_rows(var, grad.values, grad.indices)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        values, rows = once_each(IndexedSlices(grad, indices))
        return self._resource_apply_sparse(values, handle, rows)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        return super().apply_rows(handle, grad, indices)

    def _finish(self, update_ops: list[Node], name_scope: str) -> Node:
        return super().finish(update_ops, name_scope)

    def create_slots(self, variables: Sequence[Variable]) -> None:
        self._create_slots(variables)

    def prepare(self) -> None:
        self._prepare()

    def apply_whole(self, variable: Variable, grad: Tensor) -> Node:
        apply = self._resource_apply_dense if variable.is_resource else self._apply_dense
        return cast(Node, apply(grad, variable))

    def apply_slices(self, variable: Variable, grad: IndexedSlices[Tensor]) -> Node:
        if variable.is_resource:
            return cast(Node, self._resource_apply_sparse_duplicate_indices(grad.values, variable, grad.indices))
        return cast(Node, self._apply_sparse_duplicate_indices(grad, variable))

    def finish(self, updates: list[Node], name: str) -> Node:
        return self._finish(updates, name)

    # Called by it.

    def _zeros_slot(self, var: Variable, slot_name: str, op_name: str) -> Variable:
        return self._get_or_make_slot_with_initializer(var, Zeros(), var.static_shape, var.dtype, slot_name, op_name)

    def _get_or_make_slot(self, var: Variable, val: Any, slot_name: str, op_name: str) -> Variable:
        return self.keep_slot(slot_name, var, val, op_name)

    def _get_or_make_slot_with_initializer(
        self, var: Variable, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Variable:
        sizes = [int(size) for size in shape]
        return self.keep_slot(slot_name, var, lambda: initializer(sizes, as_dtype(dtype)), op_name)

    def _slot_dict(self, slot_name: str) -> dict[Variable, Variable]:
        return self._slots.setdefault(slot_name, {})

    @property
    def _non_slots(self) -> dict[tuple[str, Any], Variable]:
        """Variables that belong to no other variable, by name and graph."""
        found: dict[tuple[str, Any], Variable] = self.__dict__.setdefault("_by_name", {})
        return found

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Variable) -> Variable:
        key = (name, colocate_with.op.graph)
        if key not in self._non_slots:
            with building.colocate_with(colocate_with):
                self._non_slots[key] = Variable(
                    initial_value, trainable=False, name=name, use_resource=colocate_with.is_resource
                )
        return self._non_slots[key]

    def _get_non_slot_variable(self, name: str, graph: Any = None) -> Variable | None:
        return next((kept for (of, at), kept in self._non_slots.items() if of == name and graph in (None, at)), None)

    def _non_slot_variables(self) -> list[Variable]:
        return list(self._non_slots.values())

    def _call_if_callable(self, param: Any) -> Any:
        return param() if callable(param) else param

    def _valid_dtypes(self) -> set[DType]:
        return {float16, bfloat16, float32, float64}

    def _assert_valid_dtypes(self, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            if tensor.dtype.base not in self._valid_dtypes():
                raise errors.InvalidValueError(f"Invalid type {tensor.dtype!r} for {tensor.name}.")


def _entry(of: str, name: str) -> property:
    """An entry of a dict of aexec's optimiser as an attribute."""

    def get(self: _Optimizer) -> Any:
        return getattr(self, of)[name]

    def change(self: _Optimizer, value: Any) -> None:
        getattr(self, of)[name] = value

    return property(get, change)


def _optimizer(
    ours: type[_Optimizer], arguments: str, numbers: str = "_learning_rate=learning_rate"
) -> type[Optimizer]:
    """An optimiser of aexec with TensorFlow's arguments.

    Args:
        numbers: names of attributes that subclasses use, and of the numbers that these are.
    """
    members: dict[str, Any] = {}
    for pair in numbers.split():
        theirs, _, mine = pair.partition("=")
        members[theirs] = _entry("_numbers", mine)
        for suffix in ("_t", "_tensor"):
            members[f"{theirs}{suffix}"] = _entry("_tensors", mine)
    made: type[Optimizer] = made_with(ours, arguments, Optimizer, ours, **members)
    return made


_LENGTHS = "l1_regularization_strength=l1 l2_regularization_strength=l2"

GradientDescentOptimizer = _optimizer(training.GradientDescentOptimizer, "learning_rate use_locking name")
MomentumOptimizer = _optimizer(
    training.MomentumOptimizer,
    "learning_rate momentum use_locking name use_nesterov",
    "_learning_rate=learning_rate _momentum=momentum",
)
AdagradOptimizer = _optimizer(training.AdagradOptimizer, "learning_rate initial_accumulator_value use_locking name")
AdagradDAOptimizer = _optimizer(
    training.AdagradDAOptimizer,
    f"learning_rate global_step initial_gradient_squared_accumulator_value {_LENGTHS} use_locking name",
)
AdadeltaOptimizer = _optimizer(
    training.AdadeltaOptimizer, "learning_rate rho epsilon use_locking name", "_lr=lr _rho=rho _epsilon=epsilon"
)
AdamOptimizer = _optimizer(
    training.AdamOptimizer,
    "learning_rate beta1 beta2 epsilon use_locking name use_own_namescope_for_non_slot_vars!",
    "_lr=learning_rate _beta1=beta1 _beta2=beta2 _epsilon=epsilon",
)
RMSPropOptimizer = _optimizer(
    training.RMSPropOptimizer,
    "learning_rate decay momentum epsilon use_locking centered name",
    "_learning_rate=learning_rate _decay=decay _momentum=momentum _epsilon=epsilon",
)
FtrlOptimizer = _optimizer(
    training.FtrlOptimizer,
    "learning_rate learning_rate_power initial_accumulator_value l1_regularization_strength "
    "l2_regularization_strength use_locking name accum_name! linear_name! l2_shrinkage_regularization_strength beta!",
)
ProximalGradientDescentOptimizer = _optimizer(
    training.ProximalGradientDescentOptimizer, f"learning_rate {_LENGTHS} use_locking name"
)
ProximalAdagradOptimizer = _optimizer(
    training.ProximalAdagradOptimizer, f"learning_rate initial_accumulator_value {_LENGTHS} use_locking name"
)


class SyncReplicasOptimizer(Optimizer, training.SyncReplicasOptimizer):
    """`tf.train.SyncReplicasOptimizer`, of replicas in one process."""

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: Any = None,
        variables_to_average: Any = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        training.SyncReplicasOptimizer.__init__(
            self,
            opt,
            replicas_to_aggregate,
            total_num_replicas,
            variable_averages=variable_averages,
            variables_to_average=variables_to_average,
            name=name,
        )

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """Like the wrapped optimizer's."""
        found: Variable | None = cast(Optimizer, self._optimizer).get_slot(var, name)
        return found

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> Any:  # type: ignore[override]
        """The session hook that completes the rounds: there is only the chief's."""
        refuse("make_session_run_hook", is_chief=None if is_chief else is_chief or "False")
        return training.SyncReplicasOptimizer.make_session_run_hook(self, max(0, num_tokens))

    def get_chief_queue_runner(self) -> Any:
        """Refuses; `make_session_run_hook` includes it."""
        refuse("get_chief_queue_runner", use="make_session_run_hook")
