"""Node import: makes nodes from NodeDefs and checks that they fit into a table.

It checks names, inputs, attrs, the types along edges, cycles and colocation groups; `graph/graph_import.py` checks
functions and shapes.  The checks, their order and their messages are TensorFlow's
(core/common_runtime/graph_constructor.cc).  Every pass is linear in nodes and edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from aexec import proto
from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract.op_registry import check_deprecation
from aexec.framework.progress import Advance, counted, unheard
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire.attr_value import NameAttrList
from aexec.framework.wire.node_def import CONTROL_PORT, TensorName, parse_tensor_name
from aexec.framework.wire.op_def import OpDef
from aexec.graph.nodes import colocation
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.node_wire import AttrReader, flatten_node, unflatten_node
from aexec.graph.nodes.traversal import producers_first

__all__ = ["ImportOptions", "NodeImport", "without_mapped"]

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./-]*(>[A-Za-z0-9.][A-Za-z0-9_./-]*)*")
_INTERNAL_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_./-]*(>[A-Za-z0-9.][A-Za-z0-9_./-]*)*")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How imported names map to names of the existing graph.

    Attributes:
        prefix: put before every imported name, with a `/`.
        uniquify_prefix: append `_1`, `_2`, … to the prefix if names that begin with it are taken.
        uniquify_names: rename an imported node whose name is taken instead of refusing it.
        input_map: input of imported nodes → the input of the existing graph to use instead.  Both are `name` (or
            `name:0`), `name:k`, or both `^name`.
        skip_mapped_nodes: leave out nodes all of whose outputs `input_map` replaces.
        control_dependencies: existing nodes that imported nodes without imported inputs wait for.
        default_device: requested device for imported nodes that request none.
        refer_to_existing: inputs may name nodes of the existing graph (as Session.extend allows).
        internal_names: allow names with a leading `_`, which rewritten graphs have.
        infer_shapes: False leaves all shapes unknown, for parts of a graph that was checked as a whole.
    """

    prefix: str = ""
    uniquify_prefix: bool = False
    uniquify_names: bool = False
    input_map: Mapping[str, str] = field(default_factory=dict)
    skip_mapped_nodes: bool = False
    control_dependencies: Sequence[str] = ()
    default_device: str = ""
    refer_to_existing: bool = False
    internal_names: bool = False
    infer_shapes: bool = True


class NodeImport:
    """Imports the nodes of one GraphDef; the table does not change before `commit`.

    Args:
        table: the table to add the nodes to.
        graph_def: the nodes, with their versions.
        options: how names map to those of the table.
        library: functions that the nodes may call.

    Attributes:
        nodes: the new nodes in order, set by `make`.
    """

    def __init__(
        self, table: NodeTable, graph_def: proto.FlatGraphDef, options: ImportOptions, library: FunctionLibrary
    ) -> None:
        self.graph = table
        self.graph_def = graph_def
        self.options = options
        self.base = len(table.nodes)
        self.library = library
        self.node_defs = (
            without_mapped(graph_def.node, options, library) if options.skip_mapped_nodes else graph_def.node
        )
        self.names: list[str] = []
        # Imported name → output 0 of the node: one tuple, shared by all consumers.
        self.by_name: dict[str, Endpoint] = {}
        self.by_port: dict[str, Endpoint] = {}
        self.devices: dict[str, str] = {}
        self.attrs = AttrReader()
        self.nodes: list[Node] = []
        self.renamed = False
        self.mapped: dict[TensorName, Endpoint] = {}
        self.common_controls: list[int] = []

    def make(self, advance: Advance = unheard) -> list[Node]:
        """Make and check the nodes; return them producers first, ignoring back edges of loops.

        Args:
            advance: called with the number of nodes that were made since the last call.

        Raises:
            InvalidArgumentError: a name, attr or input is malformed, types do not match, there is a cycle, or a
                name is taken.
            NotFoundError: an op is not registered.
            UnimplementedError: an op was removed before the graph's producer version.
        """
        self._index_names()
        self._resolve_options()
        op_defs = self._look_up_ops()
        producer = self.graph_def.versions.producer
        for index, node_def in enumerate(steadily(counted(self.node_defs, advance))):
            self.nodes.append(self._make_node(index, node_def, op_defs[node_def.op], producer))
        self._check_edge_types()
        order = self._topological_order()
        if not self.options.internal_names:  # a body's groups may name nodes of the graph that it was made from
            self._check_colocation()
        self._check_function_attrs()
        return order

    def commit(self) -> list[Node]:
        """Add the nodes to the table and return them."""
        self.graph.library = self.library
        self.graph.add_nodes(self.nodes)
        return self.nodes

    def node(self, node_id: int) -> Node:
        """Return a node of the table, or a new one."""
        return self.graph.nodes[node_id] if node_id < self.base else self.nodes[node_id - self.base]

    # Names

    def _index_names(self) -> None:
        pattern = _INTERNAL_NAME if self.options.internal_names else _NAME
        prefix = f"{self._prefix()}/" if self.options.prefix else ""
        for index, node_def in enumerate(steadily(self.node_defs)):
            name = node_def.name
            if pattern.fullmatch(name) is None:
                raise errors.InvalidArgumentError(f"Node '{name}': Node name contains invalid characters", node=name)
            if name in self.by_name:
                raise errors.InvalidArgumentError(f"Node '{name}' is not unique", node=name)
            self.by_name[name] = (self.base + index, 0)
            self.names.append(self._new_name(prefix + name))
            self.renamed |= self.names[-1] != name

    def _prefix(self) -> str:
        """Return the prefix, made unique if the options say so."""
        prefix, number = self.options.prefix, 0
        if not self.options.uniquify_prefix:
            return prefix
        taken = {node.name[:i] for node in self.graph.nodes for i in _ends_of_scopes(node.name)}
        while prefix in taken:
            number += 1
            prefix = f"{self.options.prefix}_{number}"
        return prefix

    def _new_name(self, name: str) -> str:
        if name not in self.graph:
            return name
        if not self.options.uniquify_names:
            raise errors.InvalidArgumentError(f"Node name '{name}' already exists in the Graph", node=name)
        suffix = 1
        while f"{name}_{suffix}" in self.graph or f"{name}_{suffix}" in self.by_name:
            suffix += 1
        return f"{name}_{suffix}"

    def _resolve_options(self) -> None:
        """Look up the nodes of the existing graph that the options name."""
        for key, value in self.options.input_map.items():
            source, target = parse_tensor_name(key), parse_tensor_name(value)
            entry = f"(input_map entry: {key}->{value})"
            if (source.port == CONTROL_PORT) != (target.port == CONTROL_PORT):
                raise errors.InvalidArgumentError(
                    f"input_map entry {key}->{value} between control edge and non-control edge"
                )
            if source.node.startswith("^"):
                raise errors.InvalidArgumentError(f"'{key}' is no input: expected name, name:k or ^name {entry}")
            node = self.graph.find(target.node)
            if node is None:
                raise errors.InvalidArgumentError(f"node '{target.node}' in input_map does not exist in graph {entry}")
            self.mapped[source] = (node.id, target.port)
        for name in self.options.control_dependencies:
            node = self.graph.find(name)
            if node is None:
                raise errors.InvalidArgumentError(f"node '{name}' in control_dependencies does not exist in graph")
            self.common_controls.append(node.id)

    # Nodes

    def _look_up_ops(self) -> dict[str, OpDef]:
        """Return the definitions of all ops used; the error for an unknown op says how many nodes use it."""
        found: dict[str, OpDef] = {}
        for node_def in steadily(self.node_defs):
            op = node_def.op
            if op in found:
                continue
            if not op:
                raise errors.InvalidArgumentError(
                    f"Node '{node_def.name}' does not specify an operation", node=node_def.name
                )
            try:
                found[op] = self.library.lookup_op(op)
            except errors.NotFoundError as error:
                count = sum(n.op == op for n in self.node_defs)
                users = f"{count} node{'s' if count > 1 else ''} need{'s' if count == 1 else ''} it"
                raise errors.NotFoundError(f"{error.message} ({users})", node=node_def.name, op=op) from None
        return found

    def _make_node(self, index: int, node_def: proto.FlatNodeDef, op_def: OpDef, producer: int) -> Node:
        imported_name = node_def.name
        if self.renamed:
            node_def = self._with_renamed_groups(node_def)
        try:
            inputs, controls = self._resolve_inputs(imported_name, node_def.input)
            kind, wire = self.attrs.read(op_def, node_def)
            check_deprecation(op_def, producer)
            device = node_def.device or self.options.default_device
            node = self.graph.node_class(
                self.graph,
                self.by_name[imported_name][0],
                self.names[index],
                op_def,
                kind.attrs,
                inputs=tuple(inputs),
                control_inputs=tuple(controls),
                device=self.devices.setdefault(device, device),
                types=(kind.input_types, kind.output_types),
                wire=wire,
            )
            if len(node.in_edges) != len(node.input_types):
                expected = ", ".join(map(str, node.input_types))
                raise errors.InvalidArgumentError(
                    f"NodeDef expected inputs '{expected}' do not match {len(inputs)} inputs specified; {op_def}; "
                    f"NodeDef: {{{{node {imported_name}}}}}"
                )
        except errors.OpError as error:
            error.attach_node(imported_name, node_def.op)
            raise
        return node

    def _with_renamed_groups(self, node_def: proto.FlatNodeDef) -> proto.FlatNodeDef:
        """Return a copy with the new names of the nodes in its colocation groups."""
        copy = unflatten_node(node_def)
        if colocation.ATTR not in copy.attr:
            return node_def
        groups = copy.attr[colocation.ATTR].list.s
        for position, group in enumerate(groups):
            name = colocation.group_name(group)
            endpoint = None if name is None else self.by_name.get(name)
            if endpoint is not None:
                groups[position] = colocation.group_entry(self.names[endpoint[0] - self.base])
        return flatten_node(copy)

    def _resolve_inputs(self, name: str, inputs: Iterable[str]) -> tuple[list[Endpoint], list[int]]:
        data: list[Endpoint] = []
        controls: dict[int, None] = {}  # a set in order of insertion
        for text in inputs:
            mapped = self.mapped.get(parse_tensor_name(text)) if self.mapped else None
            if text[:1] == "^":
                source = self._find(text[1:]) if mapped is None else mapped
                if source is None:
                    raise errors.InvalidArgumentError(f"Node '{name}': Unknown input node '{text}'")
                controls[source[0]] = None
                continue
            if controls:
                raise errors.InvalidArgumentError(
                    f"Node '{name}': Control dependencies must come after regular dependencies"
                )
            endpoint = mapped or self.by_name.get(text) or self.by_port.get(text) or self._other_endpoint(text)
            if endpoint is None:
                raise errors.InvalidArgumentError(f"Node '{name}': Unknown input node '{text}'")
            data.append(endpoint)
        # A node with an imported input waits through that input already.
        if self.common_controls and max((*(i for i, _ in data), *controls), default=-1) < self.base:
            controls.update(dict.fromkeys(self.common_controls))
        return data, list(controls)

    def _other_endpoint(self, text: str) -> Endpoint | None:
        """Resolve an input that is not simply the name of a new node, and remember the result."""
        source_name, port = parse_tensor_name(text)
        source = self._find(source_name)
        if source is None:
            return None
        endpoint = self.by_port[text] = source if port == 0 else (source[0], port)
        return endpoint

    def _find(self, name: str) -> Endpoint | None:
        """Return output 0 of the node that an input names, or None."""
        endpoint = self.by_name.get(name)
        if endpoint is None and self.options.refer_to_existing:
            existing = self.graph.find(name)
            return None if existing is None else (existing.id, 0)
        return endpoint

    # Edges

    def _check_edge_types(self) -> None:
        for node in steadily(self.nodes):
            for position, ((source_id, port), wanted) in enumerate(zip(node.in_edges, node.input_types, strict=True)):
                source = self.node(source_id)
                if port >= source.num_outputs:
                    raise errors.InvalidArgumentError(
                        f"Node '{node.name}': Connecting to invalid output {port} of source node {source.name} "
                        f"which has {source.num_outputs} outputs.",
                        node=node.name,
                        op=node.op,
                    )
                given = source.output_types[port]
                if given is not wanted and (wanted.is_ref or given.base is not wanted):
                    raise errors.InvalidArgumentError(
                        f"Input {position} of node {node.name} was passed {given} from {source.name}:{port} "
                        f"incompatible with expected {wanted}.",
                        node=node.name,
                        op=node.op,
                    )

    def _topological_order(self) -> list[Node]:
        """Return the new nodes producers first; only back edges of loops may close a cycle."""
        order = producers_first(self.nodes, self.node)
        if len(order) != len(self.nodes):
            ordered = {node.id for node in order}
            stuck = [node.name for node in self.nodes if node.id not in ordered]
            raise errors.InvalidArgumentError(
                f"{len(stuck)} nodes in a cycle: {', '.join(stuck[:5])}{', ...' if len(stuck) > 5 else ''} "
                "(only Merge nodes can have back edges, from NextIteration)",
                node=stuck[0],
            )
        return order

    def _check_colocation(self) -> None:
        made = set(self.names) if self.renamed else self.by_name.keys()
        for node in steadily(self.nodes):
            for group in node.colocated_with:
                if group not in made and not (self.options.refer_to_existing and group in self.graph):
                    raise errors.InvalidArgumentError(
                        f"Node '{node.name}' expects to be colocated with unknown node '{group}'", node=node.name
                    )

    def _check_function_attrs(self) -> None:
        """Raise if a function that an attr refers to is not in the library."""
        for node in steadily(self.nodes):
            for attr in node.op_def.attrs:
                if attr.type not in ("func", "list(func)"):
                    continue
                value = node.attrs.get(attr.name)
                for reference in value if isinstance(value, list) else [value]:
                    if isinstance(reference, NameAttrList) and reference.name:
                        self._check_function(node, reference.name)

    def _check_function(self, node: Node, name: str) -> None:
        try:
            self.library.get(name)
        except errors.OpError as error:
            error.attach_node(node.name, node.op)
            raise


def _ends_of_scopes(name: str) -> list[int]:
    """Return the positions in a name at which a scope ends, and the name's length."""
    return [i for i, letter in enumerate(name) if letter == "/"] + [len(name)]


def without_mapped(
    node_defs: Iterable[proto.FlatNodeDef], options: ImportOptions, library: FunctionLibrary
) -> list[proto.FlatNodeDef]:
    """Return the nodes that have an output which is used and not replaced by the input map."""
    mapped = {parse_tensor_name(key) for key in options.input_map}
    named = {name.node for name in mapped}
    kept = []
    for node_def in node_defs:
        if node_def.name in named:
            op_def = library.lookup_op(node_def.op)
            kind, _ = AttrReader().read(op_def, node_def)
            if all(TensorName(node_def.name, port) in mapped for port in range(len(kind.output_types))):
                continue
        kept.append(node_def)
    return kept
