"""`MetaGraph`: a graph with its collections, its signatures, and the nodes that save it.

A `.meta` file beside a checkpoint holds one; a SavedModel holds one or several.
Next to read: `aexec/saved_model/loader.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.html_repr import block
from aexec.framework.op_contract import op_registry
from aexec.framework.wire.message_files import read_message_file
from aexec.framework.wire.messages import as_message
from aexec.graph.graph import Graph
from aexec.graph.signature import Signature, choose_signature, signature_tables
from aexec.io.files import write_atomically

__all__ = ["CollectionItem", "MetaGraph"]

INTERNAL_SIGNATURES = "__saved_model_"  # prefix of signatures for loading and training
ASSETS_COLLECTION = "saved_model_assets"

# The items of a collection are all of one of these types; names of nodes and tensors are str.
CollectionItem = str | bytes | int | float | AnyMessage


@dataclass
class MetaGraph:
    """A graph with the data that is stored beside it.

    Attributes:
        graph: the graph.
        collections: name → items, all of one type: names of nodes, bytes, numbers, or messages of any type.
        signatures: name → `Signature`.
        saver_def: names of the nodes that save and restore the variables, or None.
        assets: name of a tensor that is fed with a file's path → the file's name in the assets directory.
        tags: uses that the graph is meant for, such as `serve` and `train`.
        message: the message that it was read from, without its graph, or None; has fields that no other attribute
            has.
    """

    graph: Graph
    collections: dict[str, list[CollectionItem]] = field(default_factory=dict)
    signatures: dict[str, Signature] = field(default_factory=dict)
    saver_def: proto.SaverDef | None = None
    assets: dict[str, str] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    message: proto.MetaGraphDef | None = None

    @classmethod
    def from_proto(cls, message: proto.MetaGraphDef | Message) -> MetaGraph:
        """Import a MetaGraphDef, ours or TensorFlow's.  Raises what importing its graph raises."""
        message = as_message(message, proto.MetaGraphDef)
        return cls(
            Graph.from_graph_def(message.graph_def),
            {name: _items(message.collection_def[name]) for name in sorted(message.collection_def)},
            {name: Signature.from_proto(message.signature_def[name]) for name in sorted(message.signature_def)},
            message.saver_def if message.HasField("saver_def") else None,
            _assets(message),
            frozenset(message.meta_info_def.tags),
            _without_graph(message),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> MetaGraph:
        """Import a binary MetaGraphDef.  Raises InvalidArgumentError if the bytes are not one."""
        return cls.from_proto(as_message(data, proto.MetaGraphDef))

    @classmethod
    def load(cls, path: str | Path) -> MetaGraph:
        """Read a `.meta` file, or a `.pbtxt` file in text form.

        Raises:
            NotFoundError: the file does not exist.
            InvalidArgumentError: the file cannot be read, or does not hold a MetaGraphDef.
        """
        return cls.from_proto(read_message_file(path, proto.MetaGraphDef, is_text=Path(path).suffix == ".pbtxt"))

    def to_proto(self, *, clear_devices: bool = False, strip_default_attrs: bool = False) -> proto.MetaGraphDef:
        """Return the MetaGraphDef, with a list of the ops that it uses.

        Args:
            clear_devices: leave out the requested devices of the nodes.
            strip_default_attrs: leave out the attributes of nodes that have their op's default value, so that older
                programs, which lack the newest attributes, can read the graph.
        """
        message = proto.MetaGraphDef()
        if self.message is not None:
            message.object_graph_def.CopyFrom(self.message.object_graph_def)
            message.meta_info_def.CopyFrom(self.message.meta_info_def)
            if not self.message.HasField("object_graph_def"):
                message.ClearField("object_graph_def")
        message.graph_def.CopyFrom(self.graph.to_graph_def())
        if clear_devices:
            for node in message.graph_def.node:
                node.device = ""
        info = message.meta_info_def
        info.stripped_op_list.CopyFrom(_ops_used(message.graph_def))
        info.stripped_default_attrs = strip_default_attrs
        if strip_default_attrs:
            _strip_default_attrs(message.graph_def, info.stripped_op_list)
        del info.tags[:]
        info.tags.extend(sorted(self.tags))
        for name, items in self.collections.items():
            _put_items(message.collection_def[name], items, name)
        for name, signature in self.signatures.items():
            message.signature_def[name].CopyFrom(signature.to_proto())
        if self.saver_def is not None:
            message.saver_def.CopyFrom(self.saver_def)
        for tensor, filename in self.assets.items():
            asset = message.asset_file_def.add(filename=filename)
            asset.tensor_info.name = tensor
        return message

    def to_bytes(self, *, clear_devices: bool = False) -> bytes:
        """Return the binary MetaGraphDef, the same bytes for the same contents."""
        return self.to_proto(clear_devices=clear_devices).SerializeToString(deterministic=True)

    def save(self, path: str | Path, *, clear_devices: bool = False) -> None:
        """Write a `.meta` file, or a `.pbtxt` file in text form, atomically.

        Raises:
            OpError: the file could not be written; the class follows from the system's error.
        """
        if Path(path).suffix == ".pbtxt":
            from google.protobuf import text_format

            data = text_format.MessageToString(self.to_proto(clear_devices=clear_devices)).encode()
        else:
            data = self.to_bytes(clear_devices=clear_devices)
        with write_atomically(str(path)) as file:
            file.write(data)

    @property
    def public_signatures(self) -> dict[str, Signature]:
        """The signatures for callers, without those for loading and training."""
        return {name: s for name, s in self.signatures.items() if not name.startswith(INTERNAL_SIGNATURES)}

    def signature(self, name: str | None = None) -> Signature:
        """Return a signature for callers; `choose_signature` says which one if `name` is None."""
        return choose_signature(self.public_signatures, name)

    def _repr_html_(self) -> str:
        return block("MetaGraph", ", ".join(sorted(self.tags)), *signature_tables(self.public_signatures))

    def __repr__(self) -> str:
        return f"<MetaGraph {sorted(self.tags)} {self.graph!r}, signatures {sorted(self.signatures)}>"


_KINDS = {"node_list": str, "bytes_list": bytes, "int64_list": int, "float_list": float, "any_list": AnyMessage}


def _items(message: proto.CollectionDef) -> list[CollectionItem]:
    kind = message.WhichOneof("kind")
    return [] if kind is None else list(getattr(message, kind).value)


def _put_items(message: proto.CollectionDef, items: Iterable[CollectionItem], name: str) -> None:
    items = list(items)
    for kind, type_ in _KINDS.items():
        if all(isinstance(item, type_) and not isinstance(item, bool) for item in items):
            getattr(message, kind).SetInParent()
            getattr(message, kind).value.extend(items)
            return
    raise errors.InvalidValueError(
        f"collection '{name}' has to hold names, bytes, ints, floats or messages of any type, and only one kind"
    )


def _assets(message: proto.MetaGraphDef) -> dict[str, str]:
    """Return tensor name → file name, from the asset definitions, or from the collection in which TF1 puts them."""
    found = {asset.tensor_info.name: asset.filename for asset in message.asset_file_def}
    collection = message.collection_def.get(ASSETS_COLLECTION) if ASSETS_COLLECTION in message.collection_def else None
    for packed in collection.any_list.value if collection is not None else ():
        if packed.type_url.rpartition(".")[2] != "AssetFileDef":
            continue
        try:
            asset = proto.AssetFileDef.FromString(packed.value)
        except DecodeError:
            raise errors.InvalidValueError(
                f"collection '{ASSETS_COLLECTION}' holds something that is no asset"
            ) from None
        found[asset.tensor_info.name] = asset.filename
    return found


def _without_graph(message: proto.MetaGraphDef) -> proto.MetaGraphDef:
    """Return the message without its graph, whose constants would be in memory twice."""
    rest = proto.MetaGraphDef()
    rest.meta_info_def.CopyFrom(message.meta_info_def)
    if message.HasField("object_graph_def"):
        rest.object_graph_def.CopyFrom(message.object_graph_def)
    return rest


def _strip_default_attrs(graph_def: proto.GraphDef, op_list: proto.OpList) -> None:
    """Delete the attributes, in the graph and its functions, that have the default value of `op_list`."""
    defaults = {
        op.name: {attr.name: attr.default_value for attr in op.attr if attr.HasField("default_value")}
        for op in op_list.op
    }
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            for name, value in defaults.get(node.op, {}).items():
                if name in node.attr and node.attr[name] == value:
                    del node.attr[name]


def _ops_used(graph_def: proto.GraphDef) -> proto.OpList:
    """Return the definitions of all ops of the graph and of its functions."""
    functions = {function.signature.name for function in graph_def.library.function}
    used = {node.op for node in graph_def.node}
    for function in graph_def.library.function:
        used.update(node.op for node in function.node_def)
    registry = op_registry.global_registry
    return proto.OpList(op=[registry.lookup(op).op_def.to_proto() for op in sorted(used - functions)])
