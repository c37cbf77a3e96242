"""`MetaGraph`: a graph with what is known about it besides: collections, signatures, how to save it.

It is what a `.meta` file beside a checkpoint holds, and what a SavedModel holds one or
several of.  Next to read: `aexec/saved_model/loader.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.html_repr import block
from aexec.framework.op_contract import op_registry
from aexec.framework.wire.messages import as_message
from aexec.graph.graph import Graph
from aexec.graph.signature import Signature, choose_signature, signature_tables
from aexec.io.files import write_atomically

__all__ = ["CollectionItem", "MetaGraph", "parse_proto_text"]

INTERNAL_SIGNATURES = "__saved_model_"  # how the names begin of those that are for loading and training
ASSETS_COLLECTION = "saved_model_assets"

# A collection is a list of one of these kinds; names of nodes and tensors are text.
CollectionItem = str | bytes | int | float | AnyMessage


@dataclass
class MetaGraph:
    """A graph and what goes with it.

    Attributes:
        graph: the graph.
        collections: name → items, all of one kind: names of nodes, bytes, numbers, or messages of any type.
        signatures: name → `Signature`.
        saver_def: which of its nodes save and restore its variables, or None.
        assets: name of the tensor to be fed with a file's path → the file's name in the assets directory.
        tags: what it is for, `serve` or `train`, say.
        message: the message that it was read from, without its graph, or None; it keeps what is in no other attribute.
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
        """Import a MetaGraphDef, of ours or of TensorFlow's.  Raises what importing its graph raises."""
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
        """Import a binary MetaGraphDef.  Raises InvalidArgumentError if it is none."""
        return cls.from_proto(as_message(data, proto.MetaGraphDef))

    @classmethod
    def load(cls, path: str | Path) -> MetaGraph:
        """Read a `.meta` file, or a `.pbtxt` one in text form.

        Raises:
            NotFoundError: no such file.  And what `from_bytes` raises.
        """
        path = Path(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise errors.NotFoundError(f"{path}; No such file or directory") from None
        except OSError as error:
            raise errors.InvalidValueError(f"Cannot read {path}: {error}") from None
        if path.suffix == ".pbtxt":
            return cls.from_proto(parse_proto_text(data, proto.MetaGraphDef(), str(path)))
        return cls.from_bytes(data)

    def to_proto(self, *, clear_devices: bool = False) -> proto.MetaGraphDef:
        """As a message, with a list of the ops that it uses.

        Args:
            clear_devices: leave out which devices the nodes ask for.
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
        """As a binary MetaGraphDef, the same bytes for the same contents."""
        return self.to_proto(clear_devices=clear_devices).SerializeToString(deterministic=True)

    def save(self, path: str | Path, *, clear_devices: bool = False) -> None:
        """Write a `.meta` file, or a `.pbtxt` one in text form, at one stroke.

        Raises:
            OpError: of the class that an error of the system stands for.
        """
        if Path(path).suffix == ".pbtxt":
            data = text_format.MessageToString(self.to_proto(clear_devices=clear_devices)).encode()
        else:
            data = self.to_bytes(clear_devices=clear_devices)
        with write_atomically(str(path)) as file:
            file.write(data)

    @property
    def public_signatures(self) -> dict[str, Signature]:
        """The signatures that are for callers, not for whoever loads the model."""
        return {name: s for name, s in self.signatures.items() if not name.startswith(INTERNAL_SIGNATURES)}

    def signature(self, name: str | None = None) -> Signature:
        """A signature for callers, as `choose_signature` chooses it."""
        return choose_signature(self.public_signatures, name)

    def _repr_html_(self) -> str:
        return block("MetaGraph", ", ".join(sorted(self.tags)), *signature_tables(self.public_signatures))

    def __repr__(self) -> str:
        return f"<MetaGraph {sorted(self.tags)} {self.graph!r}, signatures {sorted(self.signatures)}>"


def parse_proto_text(data: bytes, message: Any, path: str) -> Any:
    """Parse the text form of a message.  Raises InvalidArgumentError.

    Messages within messages of any type are written under TensorFlow's package name.
    """
    try:
        text = data.decode().replace("[type.googleapis.com/tensorflow.", "[type.googleapis.com/aexec.")
        return text_format.Parse(text, message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise errors.InvalidValueError(f"Cannot parse {path}: {error}") from None


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
    """Tensor → file name: from the assets themselves, or from the collection where TF1 puts them."""
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
    """What only the message has.  The graph with its constants would be in memory twice."""
    rest = proto.MetaGraphDef()
    rest.meta_info_def.CopyFrom(message.meta_info_def)
    if message.HasField("object_graph_def"):
        rest.object_graph_def.CopyFrom(message.object_graph_def)
    return rest


def _ops_used(graph_def: proto.GraphDef) -> proto.OpList:
    """Definitions of all ops of the graph and of its functions' bodies."""
    functions = {function.signature.name for function in graph_def.library.function}
    used = {node.op for node in graph_def.node}
    for function in graph_def.library.function:
        used.update(node.op for node in function.node_def)
    registry = op_registry.global_registry
    return proto.OpList(op=[registry.lookup(op).op_def.to_proto() for op in sorted(used - functions)])
