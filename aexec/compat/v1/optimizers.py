"""Optimisers with TensorFlow's arguments, over `aexec.optimizers`.

Next to read: `train.py`, which is their namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any, cast

from aexec import training
from aexec.compat.v1.namespace import refuse, renamed
from aexec.graph.node import Node
from aexec.optimizers.optimizer import GradientAndVariable
from aexec.optimizers.optimizer import Optimizer as _Optimizer
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
    """`tf.train.Optimizer`: the methods of an optimiser with TensorFlow's arguments."""

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

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
        """One step towards a smaller loss."""
        pairs = self.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        return self.apply_gradients(pairs, global_step, name)

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
        """The gradient of a loss, and the variable, for each of the variables; a wrapper gives our own arguments."""
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
        """What is kept besides a variable under that name, or None."""
        return self._slots.get(name, {}).get(var)

    def get_slot_names(self) -> list[str]:
        """Names of the slots that there are by now."""
        return self.slot_names


def _optimizer(ours: type[_Optimizer], arguments: str) -> type[Optimizer]:
    prepare = renamed(dict, arguments, ours.__name__)

    def begin(self: Any, *values: Any, **named: Any) -> None:
        ours.__init__(self, **prepare(*values, **named))

    members = {"__init__": begin, "__signature__": signature(prepare), "__doc__": f"`tf.train.{ours.__name__}`."}
    return type(ours.__name__, (Optimizer, ours), members)


_LENGTHS = "l1_regularization_strength=l1 l2_regularization_strength=l2"

GradientDescentOptimizer = _optimizer(training.GradientDescentOptimizer, "learning_rate use_locking name")
MomentumOptimizer = _optimizer(training.MomentumOptimizer, "learning_rate momentum use_locking name use_nesterov")
AdagradOptimizer = _optimizer(training.AdagradOptimizer, "learning_rate initial_accumulator_value use_locking name")
AdagradDAOptimizer = _optimizer(
    training.AdagradDAOptimizer,
    f"learning_rate global_step initial_gradient_squared_accumulator_value {_LENGTHS} use_locking name",
)
AdadeltaOptimizer = _optimizer(training.AdadeltaOptimizer, "learning_rate rho epsilon use_locking name")
AdamOptimizer = _optimizer(
    training.AdamOptimizer, "learning_rate beta1 beta2 epsilon use_locking name use_own_namescope_for_non_slot_vars!"
)
RMSPropOptimizer = _optimizer(
    training.RMSPropOptimizer, "learning_rate decay momentum epsilon use_locking centered name"
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
        """As of the optimiser that it is made of."""
        found: Variable | None = cast(Optimizer, self._optimizer).get_slot(var, name)
        return found

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> Any:  # type: ignore[override]
        """The hook of the session that takes the rounds: there is one, the chief's."""
        refuse("make_session_run_hook", is_chief=None if is_chief else is_chief or "False")
        return training.SyncReplicasOptimizer.make_session_run_hook(self, max(0, num_tokens))

    def get_chief_queue_runner(self) -> Any:
        """`make_session_run_hook` has it."""
        refuse("get_chief_queue_runner", use="make_session_run_hook")
