"""Nodes and tensors: an operation of a graph, and a reference to one of its outputs.

A node has its inputs as `(node id, output slot)` pairs, its attrs as Python values, and the types of its inputs and
outputs; nothing that runs later reads a protobuf message.  A tensor holds no data: at run time values are arrays.
Next to read: `node_table.py`, where nodes are kept.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.html_repr import MAX_ROWS, block, facts_table, table
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_types import TensorAttr
from aexec.framework.wire.op_def import OpDef
from aexec.graph.nodes.colocation import group_names
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node_wire import NodeWire, unflatten_node

__all__ = ["Derivation", "Endpoint", "GraphView", "Node", "NodesById", "Tensor", "TensorOperators"]

# One output of a node: (node id, output slot).
Endpoint = tuple[int, int]


class NodesById(Protocol):
    """Nodes by id."""

    def __getitem__(self, node_id: int, /) -> Node: ...

    def __len__(self) -> int: ...


class GraphView(Protocol):
    """What nodes, plans and passes need of a graph; `Graph` and the passes' `WorkingGraph` implement it."""

    @property
    def nodes(self) -> NodesById:
        """The nodes by id; every id that an edge names is there."""

    @property
    def versions(self) -> proto.VersionDef:
        """The versions of op semantics that the graph was written for."""

    @property
    def library(self) -> FunctionLibrary:
        """The functions that nodes may call."""

    def __contains__(self, name: object) -> bool:
        """True if there is a node of that name."""

    def find(self, name: str) -> Node | None:
        """Return the node of that name, or None."""


class Derivation(NamedTuple):
    """The names of the nodes that a rewrite made a node from, and of the functions that they were in, if any."""

    nodes: tuple[str, ...]
    functions: tuple[str, ...] = ()

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Derivation:
        """Return the derivation of a node made from several nodes, which may be derived themselves."""
        parts = [node.derived_from or cls((node.name,)) for node in nodes]
        names = dict.fromkeys(name for part in parts for name in part.nodes)
        functions = dict.fromkeys(name for part in parts for name in part.functions)
        return cls(tuple(names), tuple(functions))

    def __str__(self) -> str:
        nodes, functions = (", ".join(f"'{name}'" for name in names) for names in self)
        return f"node {nodes}" + (f" of function {functions}" if functions else "")


class Node:
    """One operation of a graph.

    Attributes:
        id: index in `Graph.nodes`.
        name: unique in the graph.
        op_def: definition of its op; `op` is its name.
        attrs: attr name → Python value, with defaults filled in.  Similar nodes share it, so it must not be modified.
        in_edges: data inputs as (node id, output slot), in the order of the op's signature.
        control_edges: ids of the nodes that must finish before it starts.
        device: requested device, "" for any.
        input_types, output_types: DTypes of the flattened inputs and outputs.
        shapes: inferred static shapes of the outputs, or None if not inferred.
        handle_data: for each output a tuple of `ShapeAndType`, the inferred shapes and types of the values behind a
            resource or variant, or None; None if no output has any.
        site: `file:line` of the Python statement that made it, or None.
        wire: undecoded parts of the NodeDef that it was imported from, for export; None if it was not imported.
        derived_from: names of the nodes that a rewrite made it from, or None.
    """

    __slots__ = (
        "attrs",
        "control_edges",
        "derived_from",
        "device",
        "graph",
        "handle_data",
        "id",
        "in_edges",
        "input_types",
        "name",
        "op_def",
        "output_types",
        "shapes",
        "site",
        "wire",
    )

    def __init__(
        self,
        graph: GraphView,
        node_id: int,
        name: str,
        op_def: OpDef,
        attrs: Mapping[str, Any],
        *,
        inputs: tuple[Endpoint, ...] = (),
        control_inputs: tuple[int, ...] = (),
        device: str = "",
        site: str | None = None,
        types: tuple[tuple[DType, ...], tuple[DType, ...]] | None = None,
        wire: NodeWire | None = None,
    ) -> None:
        self.graph = graph
        self.id = node_id
        self.name = name
        self.op_def = op_def
        self.attrs = attrs
        self.in_edges = inputs
        self.control_edges = control_inputs
        self.device = device
        self.input_types, self.output_types = types or (op_def.input_types(attrs), op_def.output_types(attrs))
        self.wire = wire
        self.shapes: Any = None
        self.handle_data: Any = None
        self.site = site
        self.derived_from: Derivation | None = None

    @property
    def origin(self) -> str | None:
        """Return the names it was derived from, for messages; its debug info may name rewrites by other programs."""
        if self.derived_from is not None:
            return str(self.derived_from)
        nodes, functions = ([], []) if self.wire is None else self.wire.original_names()
        return str(Derivation(tuple(nodes), tuple(functions))) if nodes else None

    @property
    def op(self) -> str:
        return self.op_def.name

    @property
    def num_outputs(self) -> int:
        return len(self.output_types)

    # For programs: in `aexec.compat.v1` a subclass overrides these to return what TensorFlow's operations return.
    # Modules of aexec use `in_edges`, `control_edges`, `colocated_with`, and the `static_shape` of tensors.

    @property
    def inputs(self) -> Any:
        """`in_edges`."""
        return self.in_edges

    @property
    def control_inputs(self) -> Any:
        """`control_edges`."""
        return self.control_edges

    @property
    def colocation_groups(self) -> Any:
        """`colocated_with`."""
        return self.colocated_with

    def shape_as_read(self, shape: PartialTensorShape) -> PartialTensorShape:
        """Convert the static shape of an output to the type that programs read: here no change."""
        return shape

    def described(self, kind: str, name: str, shape: PartialTensorShape, dtype: DType) -> str:
        """The `repr` of an output, or of a variable whose node it is; `kind` is the class."""
        return f"<{kind} '{name}' shape={shape} dtype={dtype}>"

    def printed(self, name: str, shape: PartialTensorShape, dtype: DType) -> str:
        """The `str` of an output."""
        return self.described("Tensor", name, shape, dtype)

    def output(self, index: int) -> Tensor:
        """Return the tensor of output `index`.  Raises UnknownOutputError if there is no such output."""
        if not 0 <= index < self.num_outputs:
            raise errors.UnknownOutputError(
                f"Node '{self.name}' (type: '{self.op}', num of outputs: {self.num_outputs}) "
                f"does not have output {index}"
            )
        return Tensor(self, index)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.output(i) for i in range(self.num_outputs))

    def rewired(self, graph: GraphView, inputs: tuple[Endpoint, ...], control_inputs: tuple[int, ...]) -> Node:
        """Return a copy with other inputs of the same types, whose ids are those of `graph`."""
        other = object.__new__(type(self))
        for slot in Node.__slots__:
            setattr(other, slot, getattr(self, slot))
        other.graph, other.in_edges, other.control_edges = graph, inputs, control_inputs
        return other

    @property
    def colocated_with(self) -> list[str]:
        """Return the names of the nodes that it must share a device with."""
        return group_names(self.attrs)

    @property
    def node_def(self) -> proto.NodeDef:
        """Return the node as a message, with what it was derived from in its debug info."""
        return self.without_tensors(())

    def without_tensors(self, names: Container[str]) -> proto.NodeDef:
        """Return the message without the given tensor attrs; see `large_tensors`."""
        message = self._built_def(names) if self.wire is None else self._imported_def(self.wire, names)
        if self.derived_from is not None:
            info = message.experimental_debug_info
            info.original_node_names.extend(self.derived_from.nodes)
            info.original_func_names.extend(self.derived_from.functions)
        return message

    def large_tensors(self) -> Mapping[str, TensorAttr]:
        """Return the tensor attrs that may be large: for an imported node those that are not kept as bytes."""
        return {
            name: value
            for name, value in self.attrs.items()
            if type(value) is TensorAttr and (self.wire is None or name in self.wire.tensors)
        }

    def _built_def(self, without: Container[str]) -> proto.NodeDef:
        message = proto.NodeDef(name=self.name, op=self.op, input=self.input_names(), device=self.device)
        kinds = {attr.name: attr.type for attr in self.op_def.attrs}
        for name, value in sorted(self.attrs.items()):
            if name not in without:
                message.attr[name].CopyFrom(attr_value.encode(value, kinds.get(name)))
        return message

    def _imported_def(self, wire: NodeWire, without: Container[str]) -> proto.NodeDef:
        """Return the imported NodeDef, with unknown attrs and debug info, and with the fields that may have changed."""
        flat = proto.FlatNodeDef(
            name=self.name,
            op=self.op,
            input=self.input_names(),
            device=self.device,
            attr=wire.attr,
            experimental_debug_info=wire.debug_info,
            experimental_type=wire.type,
        )
        message = unflatten_node(flat)
        for name in (name for name in wire.tensors if name not in without):
            message.attr[name].tensor.CopyFrom(self.attrs[name].to_proto())
        return message

    def input_names(self) -> list[str]:
        """Return the inputs in the text form of a NodeDef: `name`, `name:k`, `^name`."""
        nodes = self.graph.nodes
        data = [nodes[i].name if k == 0 else f"{nodes[i].name}:{k}" for i, k in self.in_edges]
        return data + [f"^{nodes[i].name}" for i in self.control_edges]

    def traced_inputs(self) -> list[str] | str:
        """Return what traces show between the parentheses of `name = Op(…)`; for a Send or Recv its key."""
        other_end = {"Send": "recv_device", "Recv": "send_device"}.get(self.op.removeprefix("_").removeprefix("Host"))
        if other_end is None:
            return self.input_names()
        return f"{self.attrs['tensor_name'].decode()} @{self.attrs[other_end].decode()}"

    def _repr_html_(self) -> str:
        nodes = self.graph.nodes
        inputs = [nodes[i].output(k) for i, k in self.in_edges[:MAX_ROWS]]
        tables = [
            facts_table({"device": self.device, "at": self.site, "derived from": self.origin}),
            *(
                table(heading, ["type", "shape"], [(t.name, t.dtype.wire_name, t.static_shape) for t in tensors], count)
                for heading, tensors, count in (
                    ("inputs", inputs, len(self.in_edges)),
                    ("outputs", [self.output(i) for i in range(min(MAX_ROWS, self.num_outputs))], self.num_outputs),
                )
            ),
            table("runs after", [], [(nodes[i].name,) for i in self.control_edges], len(self.control_edges)),
            table(
                "attributes", ["value"], [(name, repr(value)) for name, value in self.attrs.items()], len(self.attrs)
            ),
        ]
        return block(self.op, self.name, *tables)

    def __repr__(self) -> str:
        inputs = self.input_names()
        more = f", … {len(inputs) - MAX_ROWS} more" if len(inputs) > MAX_ROWS else ""
        return f"<Node '{self.name}' {self.op}({', '.join(inputs[:MAX_ROWS])}{more})>"


class TensorOperators:
    """Base class of tensors, and of objects that can be used like one.  Each of its operators adds a node."""

    __slots__ = ()

    # Keeps NumPy from broadcasting over a tensor, so that `array + tensor` calls our operator.
    __array_priority__ = 100

    if TYPE_CHECKING:
        # Defined in `aexec/client/operators.py`, as each of them builds a node.
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __getitem__(self, key: Any) -> Tensor: ...


class Tensor(TensorOperators):
    """Output `index` of `node`.  Tensors of the same output are equal."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index

    @property
    def graph(self) -> GraphView:
        return self.node.graph

    @property
    def name(self) -> str:
        """`node:index`, as feeds and fetches name it."""
        return f"{self.node.name}:{self.index}"

    @property
    def op(self) -> Node:
        """The node that produces it."""
        return self.node

    @property
    def dtype(self) -> DType:
        return self.node.output_types[self.index]

    @property
    def static_shape(self) -> PartialTensorShape:
        """The inferred static shape; of unknown rank if nothing was inferred."""
        shapes = self.node.shapes
        return UNKNOWN_RANK if shapes is None else shapes[self.index]

    @property
    def shape(self) -> PartialTensorShape:
        """The static shape for programs; in graphs of `aexec.compat.v1` a `tf.TensorShape`."""
        return self.node.shape_as_read(self.static_shape)

    @property
    def endpoint(self) -> Endpoint:
        return (self.node.id, self.index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.node is other.node and self.index == other.index

    def __hash__(self) -> int:
        return hash((id(self.node), self.index))

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of {self.name} is not known while the graph is built; use switch/merge or a fetched value"
        )

    def _repr_html_(self) -> str:
        row = (self.node.op, self.dtype.wire_name, self.static_shape, self.node.site or "")
        return block("Tensor", self.name, table("made by", ["type", "shape", "at"], [row], 1))

    def __repr__(self) -> str:
        return self.node.described("Tensor", self.name, self.static_shape, self.dtype)

    def __str__(self) -> str:
        return self.node.printed(self.name, self.static_shape, self.dtype)
