"""`Variable`: a tensor that is kept between runs, with the nodes that initialise, read and change it.

::

    with aexec.Graph():
        v = aexec.Variable([1.0, 2.0], name="v")
        step = v.assign_add([0.5, 0.5])
        init = aexec.global_variables_initializer()

Its nodes are named as in TensorFlow: `v`, `v/Assign`, `v/read`, or in resource form `v`, `v/Assign`,
`v/Read/ReadVariableOp`, `v/IsInitialized/VarIsInitializedOp`.
Next to read: `reference_form.py` and `resource_form.py`; then `initialization.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from aexec import ops, proto
from aexec.client.building import attr_scope, control_dependencies, device, name_scope
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.shape import PartialTensorShape
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes import colocation
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.graph.tensor_proxy import TensorProxy
from aexec.variables.reference_form import ReferenceForm
from aexec.variables.resource_form import ResourceForm
from aexec.variables.save_slices import SaveSliceInfo

__all__ = ["Variable"]


class Variable(TensorProxy):
    """A variable of the graph that is being built.

    It may be used wherever a tensor is taken, has the operators of tensors, and can be fed and fetched.

    Args:
        initial_value: a tensor or value, or a function without arguments that builds one; its nodes are then made
            beside the variable, outside of conditions and loops.
        trainable: optimisers change it, unless they are given a list of variables.
        collections: the collections that it is added to, by default `GraphKeys.GLOBAL_VARIABLES`; in any case
            `TRAINABLE_VARIABLES` if it is trainable.
        validate_shape: the shape must be known, and stays; else it may change with each assignment.
        name: of its node, made unique; `Variable` by default.
        dtype: element type; by default that of the initial value.
        constraint: a function of a tensor, which optimisers apply to the new value, and which keeps its shape.
        use_resource: make it in resource form rather than in reference form.

    Attributes:
        trainable: as given.
        constraint: as given.
        initial_value: the tensor that initialises it.
        save_slice_info: which part of a whole it is; None if it is none.

    Raises:
        InvalidArgumentError: the shape of the initial value must be known, and is not.
        FailedPreconditionError: no graph is being built.
    """

    def __init__(
        self,
        initial_value: Any,
        *,
        trainable: bool = True,
        collections: Iterable[str] | None = None,
        validate_shape: bool = True,
        name: str | None = None,
        dtype: Any = None,
        constraint: Callable[[Tensor], Tensor] | None = None,
        use_resource: bool = False,
    ) -> None:
        self.trainable = trainable
        self.constraint = constraint
        self.save_slice_info: SaveSliceInfo | None = None
        wanted = None if dtype is None else dtypes.as_dtype(dtype)
        form = ResourceForm if use_resource else ReferenceForm
        self._form: ReferenceForm | ResourceForm
        with _outside_functions(), control_dependencies(None), name_scope(name or "Variable") as scope:
            self.initial_value, beside = _initial_value(initial_value, wanted, scope, always_beside=use_resource)
            shape = self._checked_shape(scope, validate=validate_shape)
            with attr_scope(beside):
                node = form.node(scope, self.initial_value.dtype.base, shape)
            self._form = form.complete(node, scope, self.initial_value, validate_shape=validate_shape)
        self._shape = shape
        names = [GraphKeys.GLOBAL_VARIABLES] if collections is None else list(collections)
        if trainable and GraphKeys.TRAINABLE_VARIABLES not in names:
            names.append(GraphKeys.TRAINABLE_VARIABLES)
        require_graph().collections.add_to_each(names, self)

    def _checked_shape(self, scope: str, *, validate: bool) -> PartialTensorShape:
        shape = self.initial_value.static_shape
        if not validate:
            return PartialTensorShape(None)
        if not shape.is_fully_defined:
            raise errors.InvalidValueError(
                f"initial_value of variable {scope.rstrip('/')} must have a shape specified: {self.initial_value!r}; "
                "or give validate_shape=False"
            )
        return shape

    # In MetaGraphs

    def to_proto(self) -> proto.VariableDef:
        """The message, as a MetaGraph's collections hold it."""
        return proto.VariableDef(
            variable_name=self.name,
            initial_value_name=self.initial_value.name,
            initializer_name=self.initializer.name,
            snapshot_name=self._form.snapshot.name,
            is_resource=self.is_resource,
            trainable=self.trainable,
            save_slice_info_def=None if self.save_slice_info is None else self.save_slice_info.to_proto(),
        )

    @classmethod
    def from_proto(cls, message: proto.VariableDef, *, import_scope: str = "") -> Variable:
        """The variable of the graph that is being built whose nodes a message names.

        Args:
            import_scope: scope that the graph's nodes were imported into.

        Raises:
            NotFoundError: there are no such nodes.
        """
        graph = require_graph()
        prefix = f"{import_scope}/" if import_scope else ""
        variable = cls.__new__(cls)
        variable.trainable, variable.constraint = message.trainable, None
        reference = graph.tensor(prefix + message.variable_name)
        initializer = graph.node(prefix + message.initializer_name)
        named = message.initial_value_name
        source, slot = initializer.in_edges[1]
        variable.initial_value = graph.tensor(prefix + named) if named else graph.nodes[source].output(slot)
        form = ResourceForm if message.is_resource else ReferenceForm
        variable._form = form(reference, initializer, graph.tensor(prefix + message.snapshot_name))
        variable._shape = reference.node.attrs["shape"]
        variable.save_slice_info = SaveSliceInfo.from_proto(message.save_slice_info_def)
        return variable

    # Its nodes and tensors

    @property
    def element(self) -> Tensor:
        return self._form.element

    @property
    def reference(self) -> Tensor:
        return self._form.reference

    def as_tensor(self) -> Tensor:
        return self._form.value()

    @property
    def op(self) -> Node:
        """The variable's node."""
        return self.reference.node

    @property
    def name(self) -> str:
        """`v:0`."""
        return self.reference.name

    @property
    def dtype(self) -> DType:
        return self.initial_value.dtype.base

    @property
    def static_shape(self) -> PartialTensorShape:
        return self._shape

    @property
    def device(self) -> str:
        """The device that its node requests, "" for any."""
        return self.op.device

    @property
    def is_resource(self) -> bool:
        """True if it is in resource form."""
        return self._form.is_resource

    @property
    def handle(self) -> Tensor:
        """The resource handle.  Raises InvalidArgumentError if it is in reference form."""
        if not self.is_resource:
            raise errors.InvalidValueError(f"{self!r} is in reference form and has no handle; see use_resource")
        return self.reference

    @property
    def initializer(self) -> Node:
        """The node that assigns the initial value."""
        return self._form.initializer

    def begin_with(self, value: Any) -> None:
        """Replace its initializer by a node that assigns this value; operations made before keep the old one."""
        self._form.initializer = self.assign(value, read_value=False)

    # Reading

    def value(self) -> Tensor:
        """The tensor that ops use for it."""
        return self.as_tensor()

    def read_value(self) -> Tensor:
        """The value at this point of the graph, such as after the control dependencies in force."""
        return self._form.read()

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """Rows of the value, [*indices.shape, …], read without the others."""
        return self._form.gather(indices, name)

    def gather_nd(self, indices: Any, name: str | None = None) -> Tensor:
        """The slices that `indices`, [..., k], name by their first k coordinates."""
        return ops.gather_nd(self.as_tensor(), indices, name=name)

    def is_initialized(self, name: str | None = None) -> Tensor:
        """A bool tensor: whether it has a value."""
        return self._form.is_initialized(name)

    def initialized_value(self) -> Tensor:
        """The value, or the initial one while there is none: for initial values of other variables."""
        initialized = self.is_initialized()
        with control_dependencies(None), name_scope("cond"):
            initial, _ = ops.switch(self.initial_value, initialized)
            _, there = ops.switch(initialized, initialized)
            with control_dependencies([ops.identity(there, name="pivot")]):
                value = self.read_value()
            return ops.merge([initial, value])[0]

    # Changing

    def assign(self, value: Any, *, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Replace the value.

        Args:
            use_locking: in reference form, let no other change run at the same time; in resource form none does.
            read_value: return the value after the change; else the node.

        Raises:
            InvalidArgumentError: a value of another type or shape.
        """
        return self._changed(self._form.assign("", value, use_locking=use_locking, name=name), read_value)

    def assign_add(
        self, delta: Any, *, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add to the value.  Arguments and errors as of `assign`."""
        return self._changed(self._form.assign("Add", delta, use_locking=use_locking, name=name), read_value)

    def assign_sub(
        self, delta: Any, *, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract from the value.  Arguments and errors as of `assign`."""
        return self._changed(self._form.assign("Sub", delta, use_locking=use_locking, name=name), read_value)

    def _changed(self, change: Node, read_value: bool) -> Any:
        return self._form.after(change) if read_value else change

    def scatter_update(
        self, slices: IndexedSlices[Any], *, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Replace rows: `value[slices.indices[i]] = slices.values[i]`; return the value after that."""
        return self._scattered("Update", slices, use_locking, name)

    def scatter_add(self, slices: IndexedSlices[Any], *, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Add to rows; a row that is given twice is added to twice."""
        return self._scattered("Add", slices, use_locking, name)

    def scatter_sub(self, slices: IndexedSlices[Any], *, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Subtract from rows."""
        return self._scattered("Sub", slices, use_locking, name)

    def scatter_mul(self, slices: IndexedSlices[Any], *, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Multiply rows."""
        return self._scattered("Mul", slices, use_locking, name)

    def scatter_div(self, slices: IndexedSlices[Any], *, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Divide rows."""
        return self._scattered("Div", slices, use_locking, name)

    def scatter_min(self, slices: IndexedSlices[Any], *, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Replace each value in these rows by the smaller of it and the given one."""
        return self._scattered("Min", slices, use_locking, name)

    def scatter_max(self, slices: IndexedSlices[Any], *, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Replace each value in these rows by the larger of it and the given one."""
        return self._scattered("Max", slices, use_locking, name)

    def _scattered(self, how: str, slices: IndexedSlices[Any], use_locking: bool, name: str | None) -> Tensor:
        change = self._form.scatter(how, slices.indices, slices.values, use_locking=use_locking, name=name)
        return self._form.after(change)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Replace slices, which `indices`, [..., k], name by their first k coordinates; return the value after
        that.
        """
        change = self._form.scatter("NdUpdate", indices, updates, use_locking=True, name=name)
        return self._form.after(change)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Add to slices, named as for `scatter_nd_update`."""
        change = self._form.scatter("NdAdd", indices, updates, use_locking=True, name=name)
        return self._form.after(change)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Subtract from slices, named as for `scatter_nd_update`."""
        change = self._form.scatter("NdSub", indices, updates, use_locking=True, name=name)
        return self._form.after(change)

    def __repr__(self) -> str:
        return self.op.described("Variable", self.name, self.static_shape, self.dtype)


@contextmanager
def _outside_functions() -> Iterator[None]:
    """Context manager: the outermost graph, in the name scope in force, since a variable outlives calls of
    functions.
    """
    graph = require_graph()
    if graph.outermost is graph:
        yield
        return
    scope = graph.build_state.scope
    with graph.outermost, name_scope(f"{scope}/" if scope else None):
        yield


def _initial_value(
    given: Any, dtype: DType | None, scope: str, *, always_beside: bool
) -> tuple[Tensor, dict[str, list[bytes]]]:
    """The initial value, and the attrs of the variable's node: if it is built beside it, both are colocated."""
    made = callable(given) and not isinstance(given, TensorProxy)
    if not made and not always_beside:
        return convert_to_tensor(given, dtype, "initial_value"), {}
    beside = {colocation.ATTR: [colocation.group_entry(scope.rstrip("/"))]}
    with attr_scope(beside), name_scope("Initializer"), device(None):
        return convert_to_tensor(given() if made else given, dtype, "initial_value"), beside
