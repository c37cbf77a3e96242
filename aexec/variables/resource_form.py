"""Variables in resource form: a handle represents the value, which ops read and change one after another.

Each read is a node of its own and returns the value at that time: a value that was read does not change.
Next to read: `variable.py`, which uses the forms.
"""

from __future__ import annotations

from typing import Any

from aexec.client.building import control_dependencies, device, name_scope
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node

__all__ = ["ResourceForm"]


class ResourceForm:
    """`VarHandleOp`, `AssignVariableOp` and `ReadVariableOp`.

    Attributes:
        reference: the handle.
        initializer: assigns the initial value.
        element: the tensor that runs feed and fetch: the read that is made with the variable.
    """

    is_resource = True

    def __init__(self, reference: Tensor, initializer: Node, read: Tensor) -> None:
        self.reference = reference
        self.initializer = initializer
        self.element = read
        self._dtype = read.dtype
        self._shape = reference.node.attrs["shape"]

    @classmethod
    def node(cls, scope: str, dtype: DType, shape: PartialTensorShape) -> Node:
        """The handle's node, with the name of the scope in which it is made, and shared under this name."""
        attrs = {"dtype": dtype, "shape": shape, "shared_name": scope.rstrip("/").encode()}
        return create_node("VarHandleOp", {}, attrs, name=scope)

    @classmethod
    def complete(cls, variable: Node, scope: str, initial_value: Tensor, *, validate_shape: bool) -> ResourceForm:
        """Make the other nodes of a variable."""
        handle = variable.output(0)
        dtype = initial_value.dtype.base
        with name_scope("IsInitialized"):
            create_node("VarIsInitializedOp", {"resource": handle}, {})
        with device(variable.device or None):
            with name_scope("Assign") as assign:
                inputs = {"resource": handle, "value": initial_value}
                initializer = create_node("AssignVariableOp", inputs, {}, name=assign)
            with name_scope("Read"):
                read = create_node("ReadVariableOp", {"resource": handle}, {"dtype": dtype}).output(0)
        return cls(handle, initializer, read)

    @property
    def snapshot(self) -> Tensor:
        """The value's tensor in MetaGraphs."""
        return self.element

    def value(self) -> Tensor:
        return self._reading(None)

    def read(self, name: str = "Read") -> Tensor:
        with name_scope(name):
            value = self._reading(None)
        return create_node("Identity", {"input": value}, {}).output(0)

    def _reading(self, name: str | None) -> Tensor:
        inputs = {"resource": self.reference}
        return create_node("ReadVariableOp", inputs, {"dtype": self._dtype}, name=name).output(0)

    def is_initialized(self, name: str | None) -> Tensor:
        return create_node("VarIsInitializedOp", {"resource": self.reference}, {}, name=name).output(0)

    def assign(self, how: str, value: Any, *, use_locking: bool, name: str | None) -> Node:
        """Add an assignment; `how` is "", "Add" or "Sub".  These ops never overlap, so `use_locking` has no effect."""
        given = convert_to_tensor(value, self._dtype)
        if not given.static_shape.is_compatible_with(self._shape):
            raise errors.InvalidValueError(
                f"Cannot assign value to variable '{self.reference.name}': Shape mismatch. "
                f"The variable shape {self._shape}, and the assigned value shape {given.static_shape} are incompatible."
            )
        inputs = {"resource": self.reference, "value": given}
        return create_node(f"Assign{how}VariableOp", inputs, {"dtype": self._dtype}, name=name)

    def scatter(self, how: str, indices: Any, updates: Any, *, use_locking: bool, name: str | None) -> Node:
        """Add a scatter op; `how` follows `ResourceScatter` in the op's name."""
        nd = how.startswith("Nd")
        handle = "ref" if nd else "resource"
        attrs = {"use_locking": use_locking} if nd else {"dtype": self._dtype}
        inputs = {handle: self.reference, "indices": indices, "updates": updates}
        return create_node(f"ResourceScatter{how}", inputs, attrs, name=name)

    def after(self, change: Node) -> Tensor:
        """The value after a change."""
        with control_dependencies([change]):
            return self._reading(None)

    def gather(self, indices: Any, name: str | None) -> Tensor:
        inputs = {"resource": self.reference, "indices": indices}
        return create_node("ResourceGather", inputs, {"dtype": self._dtype}, name=name).output(0)
