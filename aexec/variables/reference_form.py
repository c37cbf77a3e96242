"""Variables in reference form: the node holds the value, and ops that change it take a ref to it.

TensorFlow's graph mode makes this form by default.  Reads go through one Identity, `v/read`; a run copies the value
only when it is changed.
Next to read: `resource_form.py`, the other form.
"""

from __future__ import annotations

from typing import Any

from aexec.client.building import colocate_with
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import create_node

__all__ = ["ReferenceForm"]


class ReferenceForm:
    """`VariableV2`, `Assign` and an Identity.

    Attributes:
        reference: the ref.
        initializer: assigns the initial value.
        element: the tensor that runs feed and fetch.
    """

    is_resource = False

    def __init__(self, reference: Tensor, initializer: Node, read: Tensor) -> None:
        self.reference = reference
        self.initializer = initializer
        self.element = reference
        self._read = read

    @classmethod
    def node(cls, scope: str, dtype: DType, shape: PartialTensorShape) -> Node:
        """The variable's node, with the name of the scope in which it is made."""
        return create_node("VariableV2", {}, {"dtype": dtype, "shape": shape}, name=scope)

    @classmethod
    def complete(cls, variable: Node, scope: str, initial_value: Tensor, *, validate_shape: bool) -> ReferenceForm:
        """Make the other nodes of a variable."""
        reference = variable.output(0)
        with colocate_with(variable):
            inputs = {"ref": reference, "value": initial_value}
            initializer = create_node("Assign", inputs, {"validate_shape": validate_shape}, name="Assign")
            read = create_node("Identity", {"input": reference}, {}, name="read").output(0)
        return cls(reference, initializer, read)

    @property
    def snapshot(self) -> Tensor:
        """The value's tensor in MetaGraphs."""
        return self._read

    def value(self) -> Tensor:
        return self._read

    def read(self, name: str = "read") -> Tensor:
        return create_node("Identity", {"input": self.reference}, {}, name=name).output(0)

    def is_initialized(self, name: str | None) -> Tensor:
        with colocate_with(self.reference):
            return create_node("IsVariableInitialized", {"ref": self.reference}, {}, name=name).output(0)

    def assign(self, how: str, value: Any, *, use_locking: bool, name: str | None) -> Node:
        """Add an assignment; `how` is "", "Add" or "Sub"."""
        inputs = {"ref": self.reference, "value": value}
        with colocate_with(self.reference):
            return create_node(f"Assign{how}", inputs, {"use_locking": use_locking}, name=name)

    def scatter(self, how: str, indices: Any, updates: Any, *, use_locking: bool, name: str | None) -> Node:
        """Add a scatter op; `how` follows `Scatter` in the op's name."""
        inputs = {"ref": self.reference, "indices": indices, "updates": updates}
        with colocate_with(self.reference):
            return create_node(f"Scatter{how}", inputs, {"use_locking": use_locking}, name=name)

    def after(self, change: Node) -> Tensor:
        """The value after a change: the ref that the op returns."""
        return change.output(0)

    def gather(self, indices: Any, name: str | None) -> Tensor:
        inputs = {"params": self.reference, "indices": indices}
        return create_node("Gather", inputs, {}, name=name).output(0)
