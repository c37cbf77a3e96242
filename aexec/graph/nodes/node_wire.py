"""Undecoded parts of imported nodes, kept so that export writes the same bytes.

A GraphDef is read as a `FlatGraphDef`: the same message with the attrs of nodes undecoded.  Nodes with the same attr
bytes share one `NodeWire` and the decoded attrs and types, as a graph has many nodes but few kinds of them.
Next to read: `node_import.py`, `forms/graph_export.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError, Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.waiting.long_work import expect
from aexec.framework.waiting.loop_budget import WIRE_NS
from aexec.framework.wire.attr_value import TensorAttr
from aexec.framework.wire.messages import as_message, unreadable
from aexec.framework.wire.node_def import resolve_attrs
from aexec.framework.wire.op_def import OpDef
from aexec.framework.wire.tensors_apart import attr_tensor_apart
from aexec.framework.wire.wire_format import parse_in_pieces

__all__ = ["AttrReader", "NodeKind", "NodeWire", "flatten", "flatten_node", "unflatten_node"]

# Tensors above this many bytes are kept decoded only, not as bytes too.
_LARGE_BYTES = 1024


class NodeWire:
    """The parts of a NodeDef that nodes keep as bytes.

    Attributes:
        attr: entries of the attr map.
        tensors: names of tensor attrs that are not in `attr`; export encodes the decoded ones.
        debug_info, type: `experimental_debug_info` and `experimental_type`, each in parts; mostly empty.
    """

    __slots__ = ("attr", "debug_info", "tensors", "type")

    def __init__(
        self,
        attr: tuple[bytes, ...],
        tensors: tuple[str, ...] = (),
        debug_info: tuple[bytes, ...] = (),
        type_: tuple[bytes, ...] = (),
    ) -> None:
        self.attr = attr
        self.tensors = tensors
        self.debug_info = debug_info
        self.type = type_

    def original_names(self) -> tuple[list[str], list[str]]:
        """Return the original nodes and their functions, as the debug info names them."""
        if not self.debug_info:
            return [], []
        message = proto.NodeDef.ExperimentalDebugInfo.FromString(b"".join(self.debug_info))
        return list(message.original_node_names), list(message.original_func_names)


class NodeKind:
    """The common data of nodes of one op with equal attrs.

    Attributes:
        attrs: decoded, with defaults filled in.
        input_types, output_types: DTypes of the flattened inputs and outputs.
        wire: the bytes that they were decoded from.
    """

    __slots__ = ("attrs", "input_types", "output_types", "wire")

    def __init__(self, op_def: OpDef, attrs: dict[str, Any], wire: NodeWire) -> None:
        self.attrs = attrs
        self.input_types: tuple[DType, ...] = op_def.input_types(attrs)
        self.output_types: tuple[DType, ...] = op_def.output_types(attrs)
        self.wire = wire


class AttrReader:
    """Decodes the attrs of one graph's nodes, equal bytes only once."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[tuple[bytes, ...], NodeKind]] = {}
        self._entries: dict[bytes, bytes] = {}

    def read(self, op_def: OpDef, node: proto.FlatNodeDef) -> tuple[NodeKind, NodeWire]:
        """Return a node's attrs and types, and the parts of its NodeDef to keep.

        Raises:
            InvalidArgumentError: as `resolve_attrs`; or an attr cannot be parsed.
        """
        kinds = self._kinds.get(op_def.name)
        if kinds is None:
            kinds = self._kinds[op_def.name] = {}
        entries = tuple(node.attr)
        if max(map(len, entries), default=0) > _LARGE_BYTES:
            kind = _large_kind(op_def, node, entries)  # not shared: hashing large attrs takes longer than decoding them
        else:
            known = kinds.get(entries)
            kind = self._decode(op_def, node, entries, kinds) if known is None else known
        if node.experimental_debug_info or node.experimental_type:
            wire = kind.wire
            extra = tuple(node.experimental_debug_info), tuple(node.experimental_type)
            return kind, NodeWire(wire.attr, wire.tensors, *extra)
        return kind, kind.wire

    def _decode(
        self,
        op_def: OpDef,
        node: proto.FlatNodeDef,
        entries: tuple[bytes, ...],
        kinds: dict[tuple[bytes, ...], NodeKind],
    ) -> NodeKind:
        attrs = resolve_attrs(op_def, _attr_map(_parsed(node, entries)), node=node.name)
        entries = tuple([self._entries.setdefault(entry, entry) for entry in entries])
        kind = kinds[entries] = NodeKind(op_def, attrs, NodeWire(entries))
        return kind


def _large_kind(op_def: OpDef, node: proto.FlatNodeDef, entries: tuple[bytes, ...]) -> NodeKind:
    """Return the kind of a node with large attrs, without the bytes of its large tensors."""
    expect(2 * WIRE_NS * sum(map(len, entries)))  # parsing and copying
    apart = [attr_tensor_apart(entry) for entry in entries]
    parsed = _parsed(node, [entry if cut is None else cut[0] for entry, cut in zip(entries, apart, strict=True)])
    attrs = resolve_attrs(op_def, _attr_map(parsed), node=node.name)
    last = {entry.key: (entry.value, cut) for entry, cut in zip(parsed, apart, strict=True)}
    for key, (value, cut) in last.items():
        if cut is not None and type(attrs[key]) is TensorAttr:
            attrs[key] = TensorAttr.apart(value.tensor, cut[1])
    tensors: dict[str, None] = {}
    kept: list[bytes] = []
    for entry, encoded in zip(parsed, entries, strict=True):
        if type(attrs[entry.key]) is TensorAttr and len(encoded) > _LARGE_BYTES:
            tensors[entry.key] = None
        else:
            kept.append(encoded)
    return NodeKind(op_def, attrs, NodeWire(tuple(kept), tuple(tensors)))


def _parsed(node: proto.FlatNodeDef, entries: Iterable[bytes]) -> list[proto.NodeDef.AttrEntry]:
    """Parse entries of the attr map, each a message of its own.  Raises InvalidArgumentError."""
    try:
        return [parse_in_pieces(proto.NodeDef.AttrEntry, entry) for entry in entries]
    except DecodeError:
        raise _no_attrs(node) from None


def _attr_map(entries: Iterable[proto.NodeDef.AttrEntry]) -> dict[str, proto.AttrValue]:
    # As in any map field, the last entry of a key counts.
    return {entry.key: entry.value for entry in entries}


def flatten(graph_def: proto.GraphDef | proto.FlatGraphDef | Message | bytes) -> proto.FlatGraphDef:
    """Return a GraphDef with undecoded attrs, from a message of that name in any package, or from its bytes.

    Raises:
        InvalidArgumentError: it is not a GraphDef.
    """
    if isinstance(graph_def, proto.FlatGraphDef):
        return graph_def
    data = graph_def if isinstance(graph_def, bytes) else as_message(graph_def, proto.GraphDef).SerializeToString()
    try:
        return parse_in_pieces(proto.FlatGraphDef, data)
    except DecodeError:
        raise unreadable("GraphDef", data) from None


def flatten_node(node: proto.NodeDef) -> proto.FlatNodeDef:
    """Return a NodeDef with its attrs undecoded."""
    return proto.FlatNodeDef.FromString(node.SerializeToString())


def unflatten_node(node: proto.FlatNodeDef) -> proto.NodeDef:
    """Return a NodeDef with its attrs decoded.  Raises InvalidArgumentError if they cannot be parsed."""
    try:
        return proto.NodeDef.FromString(node.SerializeToString())
    except DecodeError:
        raise _no_attrs(node) from None


def _no_attrs(node: proto.FlatNodeDef) -> errors.OpError:
    return errors.InvalidArgumentError(
        f"Cannot parse GraphDef: the attrs of node '{node.name}' are no such messages", node=node.name, op=node.op
    )
