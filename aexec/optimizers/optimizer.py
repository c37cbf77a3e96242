"""`Optimizer`: adds nodes to a graph that change variables to minimise a loss.

`minimize` is `compute_gradients`, which differentiates the loss, and `apply_gradients`, which adds one update for each
variable: a training op that does all of its arithmetic in one kernel, in place.  A subclass gives the op, the slots of
each variable, and the hyperparameters.  Nodes and slots have TensorFlow's names: `Adam/update_w/ApplyAdam`, `w/Adam`,
`w/Adam_1`.
Next to read: `gradient_descent.py`, the shortest one; then `adam.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from aexec import ops
from aexec.autodiff.aggregation import Gradient
from aexec.autodiff.gradients import gated, gradients
from aexec.client.building import colocate_with, control_dependencies, group, name_scope
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node, require_graph
from aexec.variables.initialization import trainable_variables
from aexec.variables.initializers import Initializer, Zeros
from aexec.variables.partitioned_variable import parts_or_self
from aexec.variables.variable import Variable

__all__ = ["GradientAndVariable", "Optimizer", "Update", "once_each"]

GradientAndVariable = tuple[Gradient | None, Variable]

_TYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)

_GATES = ("none", "op", "graph")


class Update(NamedTuple):
    """A training op for one variable.

    Attributes:
        op: its name without `Apply`: `Momentum` for ApplyMomentum, SparseApplyMomentum, ResourceApplyMomentum.
        inputs: besides the variable, the gradient and its rows.
    """

    op: str
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = {}


class Optimizer:
    """The base of optimisers.

    Args:
        learning_rate: a number or a scalar tensor, or a function that returns one, which is called whenever updates are
            built; so may the subclass's numbers be.
        use_locking: updates of a ref variable exclude each other; those of resource variables always do.
        name: of the scope of its nodes, and of its slots.
    """

    default_name: ClassVar[str]

    def __init__(self, learning_rate: Any, *, use_locking: bool = False, name: str | None = None) -> None:
        self.name = name or self.default_name
        self.use_locking = use_locking
        self._numbers: dict[str, Any] = {"learning_rate": learning_rate}
        self._tensors: dict[str, Tensor] = {}
        self._slots: dict[str, dict[Variable, Variable]] = {}

    # Implemented by subclasses

    def update(self, variable: Variable, *, rows: bool) -> Update:
        """The op that changes a variable, as a whole or in some rows."""
        raise NotImplementedError

    def create_slots(self, variables: Sequence[Variable]) -> None:
        """Make the slots of these variables."""

    def prepare(self) -> None:
        """Make nodes that all updates share; called once `number` can be used."""

    def finish(self, updates: list[Node], name: str) -> Node:
        """A node that runs after all updates; `name` is its name."""
        return group(*updates, name=name)

    def apply_slices(self, variable: Variable, grad: IndexedSlices[Tensor]) -> Node:
        """Change rows of a variable, some of which may be named several times."""
        return self.apply_rows(variable, *once_each(grad))

    def apply_rows(self, variable: Variable, grad: Tensor, rows: Tensor) -> Node:
        """Change rows of a variable, each of which is named once."""
        return self._apply(self.update(variable, rows=True), variable, {"grad": grad, "indices": rows})

    def apply_whole(self, variable: Variable, grad: Tensor) -> Node:
        """Change a variable."""
        return self._apply(self.update(variable, rows=False), variable, {"grad": grad})

    def _apply(self, update: Update, variable: Variable, given: Mapping[str, Any]) -> Node:
        sparse = "Sparse" if "indices" in given else ""
        op = f"{'Resource' if variable.is_resource else ''}{sparse}Apply{update.op}"
        inputs = {"var": variable, **update.inputs, **given}
        return create_node(op, inputs, {"use_locking": self.use_locking, **update.attrs})

    def number(self, name: str, dtype: DType) -> Tensor:
        """One of the hyperparameters as a tensor of that type."""
        tensor = self._tensors[name]
        return tensor if tensor.dtype.base is dtype else ops.cast(tensor, DstT=dtype)

    # Called by users

    def minimize(
        self,
        loss: Tensor,
        variables: Iterable[Variable] | None = None,
        *,
        global_step: Variable | None = None,
        gate_gradients: Literal["none", "op", "graph"] = "op",
        aggregation: str = "add_n",
        colocate: bool = False,
        grad_loss: Any = None,
        name: str | None = None,
    ) -> Node:
        """An operation that makes one step towards a smaller loss: `compute_gradients`, then `apply_gradients`.

        Raises:
            InvalidArgumentError: the loss depends on none of the variables; and what those raise.
        """
        pairs = self.compute_gradients(
            loss,
            variables,
            gate_gradients=gate_gradients,
            aggregation=aggregation,
            colocate=colocate,
            grad_loss=grad_loss,
        )
        if all(grad is None for grad, _ in pairs):
            raise errors.InvalidValueError(
                "No gradients provided for any variable, check your graph for ops that do not support gradients, "
                f"between variables {[str(v) for _, v in pairs]} and loss {loss!r}."
            )
        return self.apply_gradients(pairs, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: Tensor,
        variables: Iterable[Variable] | None = None,
        *,
        gate_gradients: Literal["none", "op", "graph"] = "op",
        aggregation: str = "add_n",
        colocate: bool = False,
        grad_loss: Any = None,
    ) -> list[GradientAndVariable]:
        """The gradient of a loss with respect to each variable, None if it does not depend on it.

        Args:
            variables: by default all trainable ones; partitioned ones count as their parts.
            gate_gradients: when a gradient may be used: at once (`"none"`), when all those of the same op are computed
                (`"op"`), or when all are (`"graph"`).
            aggregation, colocate: as for `gradients`.
            grad_loss: the gradient with respect to the loss; ones by default.

        Raises:
            InvalidArgumentError: there are no variables, or the loss depends on one whose type is not float16,
                bfloat16, float32 or float64.
        """
        if gate_gradients not in _GATES:
            raise errors.InvalidValueError(f"gate_gradients must be one of {', '.join(_GATES)}; got {gate_gradients}")
        given = trainable_variables() if variables is None else variables
        chosen = [part for variable in given for part in parts_or_self(variable)]
        if not chosen:
            raise errors.InvalidValueError("No variables to optimize.")
        _check_type(loss.name, loss.dtype)
        found: Sequence[Gradient | None] = gradients(
            loss,
            chosen,
            grad_loss,
            gate_gradients=gate_gradients == "op",
            aggregation=aggregation,
            colocate=colocate,
        )
        for grad, variable in zip(found, chosen, strict=True):
            if grad is not None:
                _check_type(variable.name, variable.dtype)
        if gate_gradients == "graph":
            found = gated(found)
        return list(zip(found, chosen, strict=True))

    def apply_gradients(
        self,
        gradients_and_variables: Iterable[GradientAndVariable],
        *,
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Node:
        """An operation that changes the variables; it has run when all of them are changed.

        Args:
            gradients_and_variables: as `compute_gradients` returns them; variables without a gradient do not change.
            global_step: incremented by one after that.
            name: of the scope; by default the optimiser's.

        Raises:
            InvalidArgumentError: no variable has a gradient, or one with a constraint has a sparse gradient.
        """
        pairs = list(gradients_and_variables)
        kept = [(grad, variable) for grad, variable in pairs if grad is not None]
        if not kept:
            raise errors.InvalidValueError(
                f"No gradients provided for any variable: {[variable.name for _, variable in pairs]}."
            )
        with control_dependencies(None):
            self.create_slots([variable for _, variable in kept])
        with name_scope(name or self.name) as scope:
            self._tensors = {key: convert_to_tensor(_called(value), name=key) for key, value in self._numbers.items()}
            self.prepare()
            updates = [self._updated(grad, variable) for grad, variable in kept]
            done = self._done(updates, scope, global_step)
        in_collection = require_graph().collections.get_ref(GraphKeys.TRAIN_OP)
        if done not in in_collection:
            in_collection.append(done)
        return done

    def _updated(self, grad: Any, variable: Variable) -> Node:
        with name_scope(f"update_{variable.op.name}"), colocate_with(variable):
            if isinstance(grad, IndexedSlices):
                if variable.constraint is not None:
                    raise errors.InvalidValueError(
                        f"Cannot use a constraint function on a sparse variable: '{variable.name}'"
                    )
                return self.apply_slices(variable, grad)
            done = self.apply_whole(variable, convert_to_tensor(grad))
            if variable.constraint is None:
                return done
            with control_dependencies([done]):
                constrained: Node = variable.assign(variable.constraint(variable.read_value()), read_value=False)
                return constrained

    def _done(self, updates: list[Node], scope: str, global_step: Variable | None) -> Node:
        if global_step is None:
            return self.finish(updates, scope)
        with control_dependencies([self.finish(updates, "update")]), colocate_with(global_step):
            done: Node = global_step.assign_add(1, name=scope, read_value=False)
            return done

    # Slots

    def slot(self, variable: Variable, name: str) -> Variable:
        """The slot of that name of a variable, such as its momentum.  Raises NotFoundError."""
        found = self._slots.get(name, {}).get(variable)
        if found is None:
            raise errors.UnknownKeyError(
                f"{type(self).__name__} keeps no {name!r} for {variable.name}; it has slots {self.slot_names}"
            )
        return found

    @property
    def slot_names(self) -> list[str]:
        """Names of the slots made so far, sorted."""
        return sorted(self._slots)

    def variables(self) -> list[Variable]:
        """All slots."""
        return [slot for slots in self._slots.values() for slot in slots.values()]

    def add_slot(self, name: str, variable: Variable, initializer: Initializer | None = None) -> Variable:
        """Make a slot with the shape, type and device of `variable`; it starts with zeros by default."""
        made = initializer or Zeros()
        shape = [int(size) for size in variable.static_shape if size is not None]
        return self.keep_slot(name, variable, lambda: made(shape, variable.dtype))

    def keep_slot(self, name: str, variable: Variable, first: Any, label: str | None = None) -> Variable:
        """Make a slot with this first value, unless `variable` has one of that name.

        Args:
            label: the last part of its name, by default the name of the optimizer.
        """
        slots = self._slots.setdefault(name, {})
        if variable not in slots:
            with name_scope(None), colocate_with(variable):
                slots[variable] = Variable(
                    first,
                    trainable=False,
                    name=f"{variable.op.name}/{label or self.name}",
                    use_resource=variable.is_resource,
                )
            if variable.save_slice_info is not None:
                called = slots[variable].op.name.removeprefix(f"{variable.op.name}/")
                slots[variable].save_slice_info = variable.save_slice_info.beside(called, variable.static_shape.rank)
        return slots[variable]

    def __repr__(self) -> str:
        numbers = ", ".join(f"{key}={value!r}" for key, value in self._numbers.items())
        return f"<{type(self).__name__} '{self.name}' {numbers}>"


def _called(number: Any) -> Any:
    """A number, or what a function returns for one."""
    return number() if callable(number) else number


def _check_type(name: str, dtype: DType) -> None:
    if dtype.base not in _TYPES:
        allowed = ", ".join(map(str, _TYPES))
        raise errors.InvalidValueError(f"Invalid type {dtype} for {name}, expected: {allowed}.")


def once_each(grad: IndexedSlices[Tensor]) -> tuple[Tensor, Tensor]:
    """The rows of a gradient and their indices, with repeated rows added up."""
    rows, positions = ops.unique(grad.indices)
    return ops.unsorted_segment_sum(grad.values, positions, ops.size(rows)), rows
