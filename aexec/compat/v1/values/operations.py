"""`tf.Operation`: the nodes of a `tf.Graph`, with TensorFlow's methods; and TensorFlow's other methods of tensors.

Nodes of other graphs are unchanged.  Tensors of all graphs have these methods once this module is imported.
Next to read: `members.py`, which adds those of types and of rows; `shapes.py`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from aexec import ops
from aexec.compat.v1.values.default_session import default_session
from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_types import NameAttrList, TensorAttr
from aexec.framework.wire.op_def import OpDef
from aexec.graph.nodes.node import Node, Tensor, TensorOperators
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["Operation", "consumers", "give"]


def _sizes(shape: PartialTensorShape) -> str:
    return "<unknown>" if shape.rank is None else str(tuple(shape))


class Operation(Node):
    """A node whose inputs are tensors, and which runs in a session."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """The name of its op."""
        return self.op_def.name

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Its input tensors."""
        nodes = self.graph.nodes
        return tuple([nodes[node_id].output(slot) for node_id, slot in self.in_edges])

    @property
    def control_inputs(self) -> list[Node]:
        """The operations that run before it."""
        nodes = self.graph.nodes
        return [nodes[node_id] for node_id in self.control_edges]

    def colocation_groups(self) -> list[bytes]:
        """`loc:@name` of each operation that it is colocated with; by default its own."""
        return [f"loc:@{name}".encode() for name in self.colocated_with or [self.name]]

    def get_attr(self, name: str) -> Any:
        """An attr: shapes, tensors and functions as messages.  Raises ValueError if there is none of this name."""
        if name not in self.attrs:
            raise errors.InvalidValueError(f"Operation '{self.name}' has no attr named '{name}'.")
        return _as_message(self.attrs[name])

    def values(self) -> tuple[Tensor, ...]:
        """Its outputs."""
        return self.outputs

    def run(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> Any:
        """Run it in a session, by default that of the `with` block."""
        return _session(session).run(self, feed_dict)

    @property
    def traceback(self) -> traceback.StackSummary:
        """The Python statement that made it."""
        file, _, line = (self.site or "").rpartition(":")
        frames = [(file, int(line), "", "")] if line.isdigit() else []
        return traceback.StackSummary.from_list(frames)

    def shape_as_read(self, shape: PartialTensorShape) -> Any:
        """A `TensorShape`."""
        return TensorShape(shape)

    def described(self, kind: str, name: str, shape: PartialTensorShape, dtype: DType) -> str:
        """`<tf.Tensor 'x:0' shape=(2,) dtype=float32>`; of a variable in reference form with its reference's type."""
        if kind == "Variable" and self.output_types[0].is_ref:
            dtype = self.output_types[0]
        return f"<tf.{kind} '{name}' shape={_sizes(shape)} dtype={dtype.name}>"

    def printed(self, name: str, shape: PartialTensorShape, dtype: DType) -> str:
        """`Tensor("x:0", shape=(2,), dtype=float32)`."""
        known = "" if shape.rank is None else f"shape={_sizes(shape)}, "
        return f'Tensor("{name}", {known}dtype={dtype.name})'

    def __repr__(self) -> str:
        return f"<tf.Operation '{self.name}' type={self.type}>"

    def __str__(self) -> str:
        return str(self.node_def)


def _as_message(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_message(item) for item in value]
    if isinstance(value, PartialTensorShape | TensorAttr | NameAttrList):
        message = attr_value.encode(value)
        return getattr(message, str(message.WhichOneof("value")))
    return value


def _session(given: Any) -> Any:
    """The given session, or the entered one.  Raises ValueError if there is none."""
    return default_session() if given is None else given


def _eval(self: Any, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> Any:
    """The value in a session, by default that of the `with` block."""
    return _session(session).run(self, feed_dict)


def _eval_variable(self: TensorProxy, session: Any = None) -> Any:
    """The value in a session, by default that of the `with` block."""
    return _session(session).run(self)


def _get_shape(self: Any) -> TensorShape:
    """The static shape."""
    return TensorShape(self.static_shape)


def _set_shape(self: Tensor, shape: Any) -> None:
    """Refine the static shape; a run does not check it."""
    more = TensorShape(self.static_shape)
    more.assert_is_compatible_with(shape, "Incompatible shapes: Shapes {} and {} are not compatible")
    more = more.merge_with(shape)
    shapes = [tensor.static_shape for tensor in self.node.outputs]
    shapes[self.index] = more.partial
    self.node.shapes = shapes


def _set_variable_shape(self: TensorProxy, shape: Any) -> None:
    """Raise ValueError unless the value may have this shape."""
    TensorShape(self.static_shape).merge_with(shape)


def _ndim(self: Any) -> int:
    """The rank.  Raises ValueError if it is unknown."""
    rank = self.static_shape.rank
    if rank is None:
        raise errors.InvalidValueError(f"the rank of {self!r} is not known")
    return int(rank)


def consumers(self: Tensor) -> list[Node]:
    """The operations that use it as input."""
    return [node for node in self.graph.nodes if self.endpoint in node.in_edges]  # type: ignore[attr-defined]


_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _assign_to_slice(self: Tensor) -> Callable[..., Any]:
    """The method that assigns to the variable's part that a slice selects.  Raises AttributeError for other tensors."""
    nodes = self.graph.nodes
    node = self.node
    source = nodes[node.in_edges[0][0]] if node.op == "StridedSlice" else None
    while source is not None and source.op in ("Identity", "ReadVariableOp"):
        source = nodes[source.in_edges[0][0]]
    if source is None or source.op not in ("Variable", "VariableV2", "VarHandleOp"):
        raise AttributeError(f"{self!r} is no variable, and no slice of one", name="assign")
    assign = ops.resource_strided_slice_assign if source.op == "VarHandleOp" else ops.strided_slice_assign
    begin, end, strides = (nodes[node_id].output(slot) for node_id, slot in node.in_edges[1:])
    masks: dict[str, Any] = {name: node.attrs[name] for name in _MASKS}

    def change(value: Any, name: str | None = None) -> Any:
        given = convert_to_tensor(value, self.dtype.base)
        return assign(source.output(0), begin, end, strides, given, **masks, name=name)

    return change


class _Reference:
    """A hashable reference to a tensor or variable, for use as a key; `deref` returns that."""

    __slots__ = ("_referent",)

    def __init__(self, referent: Any) -> None:
        self._referent = referent

    def deref(self) -> Any:
        """The tensor or variable."""
        return self._referent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reference) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> Any:
        # Operators of variables build nodes; tensors are new objects at each use.
        return self._referent if isinstance(self._referent, Tensor) else id(self._referent)


def _ref(self: Any) -> _Reference:
    """A hashable reference to it, for use as a key."""
    return _Reference(self)


def give(to: type, **methods: Any) -> None:
    """Add methods to a class of aexec, unless it has them."""
    for name, method in methods.items():
        if not hasattr(to, name):
            setattr(to, name, method)


give(Tensor, value_index=property(lambda self: self.index), device=property(lambda self: self.node.device))
give(Tensor, consumers=consumers, set_shape=_set_shape, eval=_eval, assign=property(_assign_to_slice))
give(TensorProxy, set_shape=_set_variable_shape, eval=_eval_variable)
give(TensorOperators, get_shape=_get_shape, ndim=property(_ndim), ref=_ref, experimental_ref=_ref)
give(Node, run=Operation.run, type=Operation.type, get_attr=Operation.get_attr, values=Operation.values)
give(Node, traceback=Operation.traceback)
give(PartialTensorShape, as_list=lambda self: list(self), ndims=PartialTensorShape.rank)
give(OpDef, input_arg=property(lambda self: self.to_proto().input_arg))
give(
    OpDef,
    output_arg=property(lambda self: self.to_proto().output_arg),
    attr=property(lambda self: self.to_proto().attr),
)
