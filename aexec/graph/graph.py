"""`Graph` and `Node`: a dataflow graph as nodes indexed by small integers.

A node knows its inputs as `(node id, output slot)` pairs, its attrs as Python
values, and the types of what flows in and out; nothing that runs later looks at a
proto.  The NodeDef a node was imported from is kept for a faithful round trip.
Next to read: `graph_import.py` (how a GraphDef becomes a Graph), `prune.py`, then
`aexec/runtime/plan.py` (how a Graph becomes something that runs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar, Token
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.node_def import parse_tensor_name
from aexec.framework.op_def import OpDef
from aexec.graph.function_library import FunctionLibrary

if TYPE_CHECKING:
    from aexec.graph.scopes import BuildState
    from aexec.graph.tensor import Tensor

__all__ = ["Endpoint", "Graph", "Node", "current_graph"]

# One output of a node: (node id, output slot).
Endpoint = tuple[int, int]

# What TensorFlow 2.21 writes; graphs made here promise the same meaning of ops.
PRODUCER_VERSION = 2474

_stack: ContextVar[tuple[Graph, ...]] = ContextVar("aexec_graph_stack", default=())


def current_graph() -> Graph | None:
    """The graph whose `with` block is innermost in this context, or None."""
    stack = _stack.get()
    return stack[-1] if stack else None


class Node:
    """One operation of a graph.

    Attributes:
        id: index in `Graph.nodes`.
        name: unique in the graph.
        op_def: definition of its op; `op` is its name.
        attrs: attr name → Python value, defaults filled in.
        inputs: data inputs as (node id, output slot), in the order of the op's signature.
        control_inputs: ids of the nodes that must finish before it starts.
        device: requested device, "" for any.
        input_types, output_types: DTypes of the flattened inputs and outputs.
        shapes: inferred static shapes of the outputs, or None if not inferred.
        handle_data: what shape inference knows of the values behind resource and variant outputs:
            per output a tuple of `ShapeAndType` or None; None if nothing for any output.
        site: `file:line` of the Python statement that made it, or None.
        derived_from: (name of a node, name of its function) that a rewrite made it of, or None.
    """

    __slots__ = (
        "attrs",
        "control_inputs",
        "derived_from",
        "device",
        "graph",
        "handle_data",
        "id",
        "input_types",
        "inputs",
        "name",
        "node_def",
        "op_def",
        "output_types",
        "shapes",
        "site",
    )

    def __init__(
        self,
        graph: Graph,
        node_id: int,
        name: str,
        op_def: OpDef,
        attrs: Mapping[str, Any],
        *,
        inputs: tuple[Endpoint, ...] = (),
        control_inputs: tuple[int, ...] = (),
        device: str = "",
        node_def: proto.NodeDef | None = None,
        site: str | None = None,
    ) -> None:
        self.graph = graph
        self.id = node_id
        self.name = name
        self.op_def = op_def
        self.attrs = attrs
        self.inputs = inputs
        self.control_inputs = control_inputs
        self.device = device
        self.input_types: tuple[DType, ...] = op_def.input_types(attrs)
        self.output_types: tuple[DType, ...] = op_def.output_types(attrs)
        self.node_def = node_def
        self.shapes: Any = None
        self.handle_data: Any = None
        self.site = site
        self.derived_from: tuple[str, str] | None = None

    @property
    def origin(self) -> str | None:
        """What it was derived from, for messages; its NodeDef may know of rewrites by others."""
        if self.derived_from is not None:
            return "node '{}' of function '{}'".format(*self.derived_from)
        info = None if self.node_def is None else self.node_def.experimental_debug_info
        if info is None or not info.original_node_names:
            return None
        nodes = ", ".join(f"'{name}'" for name in info.original_node_names)
        functions = ", ".join(f"'{name}'" for name in info.original_func_names)
        return f"node {nodes}" + (f" of function {functions}" if functions else "")

    @property
    def op(self) -> str:
        return self.op_def.name

    @property
    def num_outputs(self) -> int:
        return len(self.output_types)

    def output(self, index: int) -> Tensor:
        """The tensor of output `index`.  Raises OutOfRangeError if there is no such output."""
        from aexec.graph.tensor import Tensor

        if not 0 <= index < self.num_outputs:
            raise errors.OutOfRangeError(
                f"Node '{self.name}' (type: '{self.op}', num of outputs: {self.num_outputs}) "
                f"does not have output {index}"
            )
        return Tensor(self, index)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.output(i) for i in range(self.num_outputs))

    def rewired(self, graph: Any, inputs: tuple[Endpoint, ...], control_inputs: tuple[int, ...]) -> Node:
        """A copy with other inputs, of the same types, whose ids `graph` knows."""
        other = Node.__new__(Node)
        for slot in Node.__slots__:
            setattr(other, slot, getattr(self, slot))
        other.graph, other.inputs, other.control_inputs = graph, inputs, control_inputs
        return other

    @property
    def colocation_groups(self) -> list[str]:
        """Names of the nodes that it must share a device with: the `loc:@name` entries of `_class`."""
        entries = self.attrs.get("_class")
        if not isinstance(entries, list):
            return []  # internal attrs are not checked; one of another kind says nothing
        return [str(e[5:], "utf-8", "replace") for e in entries if isinstance(e, bytes) and e.startswith(b"loc:@")]

    def input_names(self) -> list[str]:
        """Inputs in the text form of a NodeDef: `name`, `name:k`, `^name`."""
        nodes = self.graph.nodes
        data = [nodes[i].name if k == 0 else f"{nodes[i].name}:{k}" for i, k in self.inputs]
        return data + [f"^{nodes[i].name}" for i in self.control_inputs]

    def __repr__(self) -> str:
        return f"<Node '{self.name}' {self.op}({', '.join(self.input_names())})>"


class Graph:
    """A dataflow graph: nodes, versions and a function library.

    Use it as a context manager to build into it::

        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [None, 2], name="x")
            y = aexec.ops.square(x, name="y")

    Nodes are only ever added, so whoever holds a node id may go on using it.  A graph can be
    pickled, and so passed to another process: what travels is its GraphDef.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.library = FunctionLibrary()
        self.versions = proto.VersionDef(producer=PRODUCER_VERSION)
        self._by_name: dict[str, Node] = {}
        self._build_state: BuildState | None = None
        self._tokens: list[Token[tuple[Graph, ...]]] = []

    # Reading and writing

    @classmethod
    def from_graph_def(cls, graph_def: proto.GraphDef) -> Graph:
        """Import a GraphDef message.  Raises what `graph_import.import_graph_def` raises."""
        from aexec.graph.graph_import import import_graph_def

        graph = cls()
        graph.versions = proto.VersionDef()
        graph.versions.CopyFrom(graph_def.versions)
        import_graph_def(graph, graph_def)
        return graph

    @classmethod
    def from_bytes(cls, data: bytes) -> Graph:
        """Import a binary GraphDef.

        Raises:
            InvalidArgumentError: not a GraphDef, or one that no graph can be made of.
            NotFoundError: an op that is not registered.
        """
        return cls.from_graph_def(parse_graph_def(data))

    @classmethod
    def from_text(cls, text: str) -> Graph:
        """Import a GraphDef in protobuf text form.  Raises as `from_bytes` does."""
        return cls.from_graph_def(_parse_text(text_format.Parse, text, "text"))

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """Import a GraphDef in protobuf JSON form.  Raises as `from_bytes` does."""
        return cls.from_graph_def(_parse_text(json_format.Parse, text, "JSON"))

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """Read a graph file: text form if named `.pbtxt`, JSON if `.json`, else binary.

        Raises:
            NotFoundError: no such file.  And what `from_bytes` raises.
        """
        path = Path(path)
        try:
            if path.suffix == ".pbtxt":
                return cls.from_text(path.read_text(encoding="utf-8"))
            if path.suffix == ".json":
                return cls.from_json(path.read_text(encoding="utf-8"))
            return cls.from_bytes(path.read_bytes())
        except FileNotFoundError:
            raise errors.NotFoundError(f"{path}; No such file or directory") from None
        except (IsADirectoryError, PermissionError, UnicodeDecodeError) as error:
            raise errors.InvalidArgumentError(f"Cannot read graph file {path}: {error}") from None

    def to_graph_def(self) -> proto.GraphDef:
        """The graph as a GraphDef message; imported nodes come out as they went in."""
        from aexec.graph.graph_export import to_graph_def

        return to_graph_def(self)

    def to_bytes(self) -> bytes:
        """The graph as a binary GraphDef, the same bytes for the same graph."""
        return self.to_graph_def().SerializeToString(deterministic=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.to_bytes())

    def to_text(self) -> str:
        """The graph in protobuf text form."""
        return text_format.MessageToString(self.to_graph_def())

    def to_json(self) -> str:
        """The graph in protobuf JSON form, with field names as in the .proto files."""
        return json_format.MessageToJson(self.to_graph_def(), preserving_proto_field_name=True)

    # Looking things up

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def find(self, name: str) -> Node | None:
        """The node of that name, or None."""
        return self._by_name.get(name)

    def node(self, name: str) -> Node:
        """The node of that name.  Raises NotFoundError, with the nearest names."""
        found = self._by_name.get(name)
        if found is None:
            raise errors.NotFoundError(f"Node '{name}' was not found in the Graph{self.suggest(name)}")
        return found

    def tensor(self, name: str) -> Tensor:
        """The tensor `node:k` (or `node` for `node:0`).  Raises NotFoundError or OutOfRangeError."""
        node_name, index = parse_tensor_name(name)
        return self.node(node_name).output(index)

    def check_element(self, item: Tensor | Node) -> None:
        """Raise InvalidArgumentError unless a tensor or an operation is of this graph: names do not tell."""
        node = item if isinstance(item, Node) else item.node
        if node.id >= len(self.nodes) or self.nodes[node.id] is not node:
            raise errors.InvalidArgumentError(f"{item!r} is not an element of this graph")

    def suggest(self, name: str) -> str:
        """`; did you mean …?` with the names that look most like `name`, or ""."""
        import difflib

        # difflib is quadratic: in a large graph look only at names of about that length.
        names = [n for n in self._by_name if abs(len(n) - len(name)) <= 3] if len(self.nodes) > 1000 else self._by_name
        near = difflib.get_close_matches(name, list(names)[:5000], n=3)
        return f"; did you mean {', '.join(repr(n) for n in near)}?" if near else ""

    # Changing

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Append nodes whose ids continue `self.nodes` and whose names are new (not checked)."""
        for node in nodes:
            self.nodes.append(node)
            self._by_name[node.name] = node

    def copy(self) -> Graph:
        """A graph with the same nodes that can be extended independently.  Nodes are shared: they never change."""
        other = Graph()
        other.nodes = self.nodes.copy()
        other.library = self.library.copy()
        other.versions.CopyFrom(self.versions)
        other._by_name = self._by_name.copy()
        return other

    @property
    def build_state(self) -> BuildState:
        """Name scopes, devices and control dependencies in force while building."""
        if self._build_state is None:
            from aexec.graph.scopes import BuildState

            self._build_state = BuildState(self)
        return self._build_state

    def __enter__(self) -> Graph:
        self._tokens.append(_stack.set((*_stack.get(), self)))
        return self

    def __exit__(self, *exc_info: object) -> None:
        _stack.reset(self._tokens.pop())

    def __repr__(self) -> str:
        functions = f", {len(self.library)} functions" if len(self.library) else ""
        return f"<Graph {len(self.nodes)} nodes{functions}>"


def parse_graph_def(data: bytes) -> proto.GraphDef:
    """Decode a binary GraphDef.  Raises InvalidArgumentError if it is none."""
    try:
        return proto.GraphDef.FromString(data)
    except DecodeError:
        raise errors.InvalidArgumentError(f"Cannot parse GraphDef: {len(data)} bytes are no such message") from None


def _parse_text(parse: Callable[[str, proto.GraphDef], proto.GraphDef], text: str, form: str) -> proto.GraphDef:
    """Read one of protobuf's text forms, whose parsers leak all sorts of exceptions on hostile texts."""
    try:
        # Copying a message takes its binary form, which may be nested less deeply than a text.
        return proto.GraphDef.FromString(parse(text, proto.GraphDef()).SerializeToString())
    except (RecursionError, DecodeError):
        raise errors.InvalidArgumentError(f"Cannot parse GraphDef from {form}: it is nested too deeply") from None
    except Exception as error:
        why = str(error)[:_MAX_PARSE_MESSAGE].encode("utf-8", "backslashreplace").decode()
        raise errors.InvalidArgumentError(f"Cannot parse GraphDef from {form}: {why}") from None


# A parser's message may quote the line, which may be the whole text.
_MAX_PARSE_MESSAGE = 500


def _unpickled(cls: type[Graph], data: bytes) -> Graph:
    """What `Graph.__reduce__` wrote; unlike files, it may have internal names."""
    from aexec.graph.graph_import import ImportOptions, import_graph_def

    graph_def = parse_graph_def(data)
    graph = cls()
    graph.versions.CopyFrom(graph_def.versions)
    import_graph_def(graph, graph_def, ImportOptions(internal_names=True))
    return graph
