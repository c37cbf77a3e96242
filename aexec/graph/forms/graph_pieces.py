"""`graph_pieces`: serializes a graph as bytes, JSON or text in small pieces, so that it can be sent meanwhile.

A node becomes a message only when it is written, and large tensors are written straight from their arrays.  So writing
takes the memory of a few nodes, however large the graph is, and no piece takes more than some milliseconds.
Next to read: `aexec/framework/wire/message_pieces.py`.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from google.protobuf.message import Message

from aexec import proto
from aexec.framework.errors import OpError
from aexec.framework.wire.message_pieces import Apart, Fields, json_pieces, text_pieces
from aexec.framework.wire.wire_format import LENGTH, enclosed, put_varint
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.node_table import NodeTable

__all__ = ["GraphForm", "graph_pieces"]

# Random bytes of a mark, which has twice as many characters: a multiple of 3, so that base64 needs no padding.
_MARK_BYTES = 12
# An attr of more bytes that cannot be written in pieces is counted by `Holding`, times the copies made of it.
_HELD_BYTES = 1 << 16
_COPIES = 3
_KEY, _VALUE = 1, 2  # field numbers in a map entry

# Context manager that counts bytes of memory while it is open; raises ResourceExhaustedError if they are too many.
Holding = Callable[[int], AbstractContextManager[object]]
_Bytes = bytes | memoryview


class GraphForm(enum.Enum):
    """The forms that a graph can be written in."""

    BYTES = "bytes"
    JSON = "json"
    TEXT = "text"


def graph_pieces(
    graph: NodeTable, form: GraphForm, holding: Holding = nullcontext
) -> Iterator[str | bytes | memoryview]:
    """Yield in pieces what `Graph.to_bytes`, `to_json` or `to_text` return; map entries may be in another order.

    The graph must not change meanwhile.

    Args:
        holding: called to count the memory of each large part that cannot be written in pieces.
    """
    writer = _GraphWriter(graph, holding)
    if form is GraphForm.BYTES:
        return writer.wire()
    fields = Fields(proto.GraphDef, writer.fields())
    return json_pieces(fields) if form is GraphForm.JSON else text_pieces(fields)


class _GraphWriter:
    def __init__(self, graph: NodeTable, holding: Holding) -> None:
        self._graph = graph
        self._library = graph.library
        self._holding = holding

    def _held(self, size: int) -> AbstractContextManager[object]:
        return self._holding(_COPIES * size) if size > _HELD_BYTES else nullcontext()

    def _nodes(self) -> Iterator[tuple[Node, _Tensors]]:
        """Yield each node with its large tensors; memory of its other large attrs stays counted until the next node."""
        for node in self._graph.nodes:
            tensors, others = _large_tensors(node)
            with self._held(others):
                yield node, tensors

    def _functions(self) -> Iterator[proto.FunctionDef]:
        for name in self._library:
            function = self._library.get(name)
            with self._held(function.ByteSize()):
                yield function

    # As a message

    def fields(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields of the GraphDef by name."""
        yield "node", (_marked(node, tensors) for node, tensors in self._nodes())
        if len(self._library):
            library = [("function", self._functions()), ("gradient", self._library.gradients())]
            yield "library", Fields(proto.FunctionDefLibrary, library)
        yield "versions", self._graph.versions

    # On the wire

    def wire(self) -> Iterator[_Bytes]:
        """Yield the bytes of the GraphDef."""
        for node, tensors in self._nodes():
            parts = enclosed(proto.GraphDef.NODE_FIELD_NUMBER, _wire_node(node, tensors))
            yield from parts if tensors else (b"".join(parts),)
        if len(self._library):
            yield from self._wire_library()
        yield from enclosed(proto.GraphDef.VERSIONS_FIELD_NUMBER, [_wire(self._graph.versions)])

    def _wire_library(self) -> Iterator[_Bytes]:
        """Yield the bytes of the library.  Its size comes first on the wire, so all functions are measured first."""
        number = proto.FunctionDefLibrary.FUNCTION_FIELD_NUMBER
        gradients = b"".join(
            part
            for one in self._library.gradients()
            for part in enclosed(proto.FunctionDefLibrary.GRADIENT_FIELD_NUMBER, [_wire(one)])
        )
        size = len(gradients)
        for name in self._library:
            length = self._library.get(name).ByteSize()
            size += len(put_varint(number << 3 | LENGTH)) + len(put_varint(length)) + length
        yield put_varint(proto.GraphDef.LIBRARY_FIELD_NUMBER << 3 | LENGTH) + put_varint(size)
        for function in self._functions():
            yield from enclosed(number, [_wire(function)])
        yield gradients


# Attr name → the TensorProto without its elements, and the bytes of the elements.
_Tensors = dict[str, tuple[proto.TensorProto, memoryview]]


def _large_tensors(node: Node) -> tuple[_Tensors, int]:
    """Return a node's large numeric tensors by attr name, and the total bytes of its other large attrs."""
    found: _Tensors = {}
    wire = node.wire
    others = 0 if wire is None else sum(map(len, wire.attr))
    if wire is not None and not wire.tensors:
        return found, others
    for name, tensor in node.large_tensors().items():
        apart = None
        with suppress(OpError):
            apart = tensor.to_proto_apart()
        if apart is None:
            others += tensor.num_bytes
        else:
            found[name] = apart
    return found, others


def _marked(node: Node, tensors: _Tensors) -> Message | Apart:
    message = node.without_tensors(tensors)
    contents = {}
    for name, (head, content) in tensors.items():
        mark = secrets.token_hex(_MARK_BYTES)
        tensor = message.attr[name].tensor
        tensor.CopyFrom(head)
        tensor.tensor_content = mark.encode()
        contents[mark] = content
    return Apart(message, contents) if contents else message


def _wire_node(node: Node, tensors: _Tensors) -> list[_Bytes]:
    parts: list[_Bytes] = [_wire(node.without_tensors(tensors))]
    for name, (head, content) in tensors.items():
        tensor = [_wire(head), *enclosed(proto.TensorProto.TENSOR_CONTENT_FIELD_NUMBER, [content])]
        value = enclosed(_VALUE, enclosed(proto.AttrValue.TENSOR_FIELD_NUMBER, tensor))
        parts += enclosed(proto.NodeDef.ATTR_FIELD_NUMBER, [*enclosed(_KEY, [name.encode()]), *value])
    return parts


def _wire(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)
