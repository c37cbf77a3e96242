"""`Graph`: a table of nodes that can be read, written, pickled and built into.

Next to read: `graph_import.py` (how a GraphDef becomes a Graph), `nodes/prune.py`, then
`aexec/runtime/plans/plan.py` (how a Graph becomes something that runs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextvars import ContextVar, Token
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.html_repr import block, table
from aexec.framework.memory.memory import return_freed_memory
from aexec.graph.collections import Collections
from aexec.graph.forms.graph_export import to_graph_def
from aexec.graph.forms.graph_formats import parse_json, parse_text
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.node_wire import flatten
from aexec.graph.scopes import BuildState
from aexec.graph.signature import graph_signature
from aexec.graph.tensor_proxy import TensorProxy

if TYPE_CHECKING:
    from aexec.graph.forms.drawing import Drawing

__all__ = ["Graph", "current_graph", "set_default_graph"]

# From this many nodes on, reading takes so long that the time to return the message's memory does not matter.
_MANY_NODES = 10_000
# Default limit for the boxes of a drawing: more are hard to read, and take long to lay out.
MAX_BOXES = 100

_stack: ContextVar[tuple[Graph, ...]] = ContextVar("aexec_graph_stack", default=())


# The default graph of the process.
_default: Graph | None = None


def current_graph() -> Graph | None:
    """Return the graph of this context's innermost `with` block; outside of all blocks the default graph, or None."""
    stack = _stack.get()
    return stack[-1] if stack else _default


def set_default_graph(graph: Graph | None) -> None:
    """Set the default graph, which is built into outside of all `with graph:` blocks, in all threads.

    At first there is none, and building outside of a block is an error.  `aexec.compat.v1` sets one, as TensorFlow's
    graph mode does.
    """
    global _default
    _default = graph


class Graph(NodeTable):
    """A dataflow graph: nodes, versions and a function library.

    Use it as a context manager to build into it::

        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [None, 2], name="x")
            y = aexec.ops.square(x, name="y")

    Nodes are only added, never removed, so node ids stay valid.  A graph can be pickled, and so passed to another
    process: it is pickled as its GraphDef.

    Attributes:
        functional_control_flow: True to build conditionals and loops as nodes that call functions (`If`, `While`),
            unless the call asks for `Switch` and `Merge` nodes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._build_state: BuildState | None = None
        self._collections: Collections | None = None
        self._tokens: list[Token[tuple[Graph, ...]]] = []
        self.functional_control_flow = False
        self._finalized = False

    # Reading and writing

    @classmethod
    def from_graph_def(cls, graph_def: proto.GraphDef | Message) -> Graph:
        """Import a GraphDef message, ours or TensorFlow's.  Raises what `graph_import.import_graph_def` raises."""
        return cls._imported(flatten(graph_def), ImportOptions())._slimmed()

    @classmethod
    def _imported(cls, flat: proto.FlatGraphDef, options: ImportOptions) -> Graph:
        graph = cls()
        graph.versions = proto.VersionDef()
        graph.versions.CopyFrom(flat.versions)
        import_graph_def(graph, flat, options)
        return graph

    def _slimmed(self) -> Graph:
        """Return freed memory to the system, when the message that the graph was read from is gone."""
        if len(self.nodes) > _MANY_NODES:
            return_freed_memory()
        return self

    @classmethod
    def from_bytes(cls, data: bytes) -> Graph:
        """Import a binary GraphDef.

        Raises:
            InvalidArgumentError: the bytes are not a GraphDef, or not one of a valid graph.
            NotFoundError: an op is not registered.
        """
        return cls._imported(flatten(data), ImportOptions())._slimmed()

    @classmethod
    def from_text(cls, text: str) -> Graph:
        """Import a GraphDef in protobuf text form.  Raises as `from_bytes` does."""
        return cls.from_graph_def(parse_text(text))

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """Import a GraphDef in protobuf JSON form.  Raises as `from_bytes` does."""
        return cls.from_graph_def(parse_json(text))

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """Read a graph file: text form if named `.pbtxt`, JSON if `.json`, else binary.

        Raises:
            NotFoundError: the file does not exist.  Also raises what `from_bytes` raises.
        """
        path = Path(path)
        try:
            if path.suffix == ".pbtxt":
                return cls.from_text(path.read_text(encoding="utf-8"))
            if path.suffix == ".json":
                return cls.from_json(path.read_text(encoding="utf-8"))
            return cls.from_bytes(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise errors.NotFoundError(f"{path}; {error.strerror}") from None
        except (IsADirectoryError, PermissionError, UnicodeDecodeError) as error:
            raise errors.InvalidValueError(f"Cannot read graph file {path}: {error}") from None
        except errors.InvalidArgumentError as error:
            if error.node is not None:
                raise  # its message names the node
            raise errors.InvalidValueError(f"{path}: {error.message}") from None

    def to_graph_def(self, from_version: int = 0) -> proto.GraphDef:
        """Return the graph as a GraphDef message; imported nodes keep the form in which they were read.

        Args:
            from_version: leave out the nodes that were there when `version` had this value.
        """
        return to_graph_def(self, from_version)

    def to_bytes(self) -> bytes:
        """Return the graph as a binary GraphDef, the same bytes for the same graph."""
        return self.to_graph_def().SerializeToString(deterministic=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.to_bytes())

    def to_text(self) -> str:
        """Return the graph in protobuf text form."""
        from google.protobuf import text_format

        return text_format.MessageToString(self.to_graph_def())

    def to_json(self) -> str:
        """Return the graph in protobuf JSON form, with field names as in the .proto files."""
        from google.protobuf import json_format

        return json_format.MessageToJson(self.to_graph_def(), preserving_proto_field_name=True)

    # Elements by name

    def get_operation_by_name(self, name: str) -> Node:
        """Return the node `name`.

        Raises:
            InvalidArgumentError: the name is that of a tensor, `node:k`.
            NotFoundError: no node has this name.
        """
        _check_is_name(name)
        if ":" in name:
            raise errors.InvalidValueError(f"The name {name!r} is no name of an operation, which has no ':'")
        return self.node(name)

    def get_tensor_by_name(self, name: str) -> Tensor:
        """Return the tensor `node:k`.

        Raises:
            InvalidArgumentError: the name is that of an operation.
            NotFoundError, OutOfRangeError: the node does not exist, or has no such output.
        """
        _check_is_name(name)
        if ":" not in name:
            raise errors.InvalidValueError(
                f"The name {name!r} is no name of a tensor, which is of the form '<op_name>:<output_index>'"
            )
        return self.tensor(name)

    def as_graph_element(self, item: Any, *, allow_tensor: bool = True, allow_operation: bool = True) -> Tensor | Node:
        """Return the tensor or operation that `item` stands for: a name, a tensor, an operation, or e.g. a variable.

        Raises:
            InvalidArgumentError: the item is of another graph, of a kind that is not allowed, or no element of a graph.
            NotFoundError, OutOfRangeError: no element has this name.
        """
        found: Any = item.element if isinstance(item, TensorProxy) else item
        if isinstance(item, str):
            found = self.tensor(item) if ":" in item else self.node(item)
        if not isinstance(found, Tensor | Node):
            raise errors.InvalidTypeError(f"Can not convert {item!r} ({type(item).__name__}) into a graph element")
        if not (allow_tensor if isinstance(found, Tensor) else allow_operation):
            wanted = "an operation" if isinstance(found, Tensor) else "a tensor"
            raise errors.InvalidValueError(f"{item!r} is not {wanted}")
        self.check_element(found)
        return found

    # Building

    @property
    def version(self) -> int:
        """Number that grows with each added node."""
        return len(self.nodes)

    @property
    def finalized(self) -> bool:
        """True if no node may be added any more."""
        return self._finalized

    def finalize(self) -> None:
        """Refuse new nodes from now on, to find programs that add nodes in each step of a training loop."""
        self._finalized = True

    def check_not_finalized(self) -> None:
        """Raise FailedPreconditionError if the graph is finalized."""
        if self._finalized:
            raise errors.InvalidStateError("Graph is finalized and cannot be modified.")

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        self.check_not_finalized()
        super().add_nodes(nodes)

    def _let_go(self) -> None:
        super()._let_go()
        self._build_state = self._collections = None

    @property
    def build_state(self) -> BuildState:
        """Name scopes, devices and control dependencies in force while building."""
        if self._build_state is None:
            self._build_state = BuildState(self)
        return self._build_state

    @property
    def collections(self) -> Collections:
        """Named lists of objects that belong to the graph: its variables, losses, summaries."""
        if self._collections is None:
            self._collections = Collections()
        return self._collections

    @property
    def outermost(self) -> Graph:
        """The graph itself; for a function's body, the graph around all functions."""
        return self

    def capture(self, tensor: Tensor) -> Tensor:
        """Return the tensor to use in this graph for a tensor, which a function's body may capture from an outer graph.

        Raises:
            InvalidArgumentError: the tensor is of another graph.
        """
        self.check_foreign(tensor)
        return tensor

    def check_foreign(self, source: Tensor | TensorProxy) -> None:
        """Raise InvalidArgumentError unless a tensor can be used in this graph."""
        if source.graph is not self:
            raise errors.InvalidValueError(f"{source!r} is not of the graph being built")

    def __enter__(self) -> Graph:
        self._tokens.append(_stack.set((*_stack.get(), self)))
        return self

    def __exit__(self, *exc_info: object) -> None:
        _stack.reset(self._tokens.pop())

    def __repr__(self) -> str:
        return f"<Graph {self._facts()}>"

    def _repr_html_(self) -> str:
        counts = Counter(node.op for node in self).most_common()
        ops = table("ops", ["nodes"], counts, len(counts))
        return block("Graph", self._facts(), *graph_signature(self).html_tables(), ops)

    def show(self, scope: str = "", *, depth: int | None = None, max_boxes: int = MAX_BOXES) -> Drawing:
        """Draw the graph, with name scopes folded.  Notebooks show the drawing; `save("graph.html")` writes it.

        Args:
            scope: draw only this name scope, and the names of the nodes outside that it is connected with.
            depth: most nested scopes that are open; by default as many as `max_boxes` allows.
            max_boxes: most nodes and scopes in the drawing; scopes stay folded where there would be more.

        Raises:
            InvalidArgumentError: the scope is empty, or has too many boxes even with all scopes folded.
        """
        from aexec.graph.forms.drawing import Drawing

        return Drawing(self, scope, depth, max_boxes, [self.library.get(name) for name in self.library])

    def _repr_svg_(self) -> str | None:
        """Return the drawing for notebooks; None if the graph is too large or `dot` is missing."""
        if len(self.nodes) > MAX_BOXES:
            return None
        try:
            return self.show().render().decode()
        except errors.OpError:
            return None

    def _facts(self) -> str:
        functions = f", {len(self.library)} functions" if len(self.library) else ""
        return f"{len(self.nodes)} nodes{functions}"


def _check_is_name(name: Any) -> None:
    if not isinstance(name, str):
        raise errors.InvalidTypeError(f"names of tensors and operations are strings, not {type(name).__name__}")


def _unpickled(cls: type[Graph], data: bytes) -> Graph:
    """Restore a graph from the data of `Graph.__reduce__`, which unlike a file may have internal names."""
    return cls._imported(flatten(data), ImportOptions(internal_names=True))._slimmed()
