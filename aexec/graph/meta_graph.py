"""`MetaGraph`: a graph with what is known about it besides: collections, signatures, how to save it.

It is what a `.meta` file beside a checkpoint holds, and what a SavedModel holds one or
several of.  Next to read: `aexec/saved_model/loader.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from aexec import proto
from aexec.framework import errors, op_registry
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.messages import as_message
from aexec.framework.shape import PartialTensorShape
from aexec.graph.graph import Graph
from aexec.graph.node import Tensor
from aexec.io.files import write_atomically

__all__ = ["MetaGraph", "Signature", "TensorInfo", "parse_text"]

PREDICT = "tensorflow/serving/predict"
ASSETS_COLLECTION = "saved_model_assets"

# A collection is a list of one of these kinds; names of nodes and tensors are text.
CollectionItem = str | bytes | int | float | AnyMessage


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output of a signature.

    Attributes:
        name: the tensor to feed or fetch, `x:0`; "" if the value is made of several tensors.
        dtype, shape: what it is; the dtype is None where `name` is that of an operation.
        components: names of the tensors that a value is made of: of a sparse one values, indices
            and shape; empty for a plain tensor.
    """

    name: str
    dtype: DType | None
    shape: PartialTensorShape
    components: tuple[str, ...] = ()

    @classmethod
    def of(cls, tensor: Tensor) -> TensorInfo:
        """That of a tensor of a graph."""
        return cls(tensor.name, tensor.dtype.base, tensor.shape)

    @classmethod
    def from_proto(cls, message: proto.TensorInfo | Message) -> TensorInfo:
        """Raises InvalidArgumentError for an impossible type or shape."""
        message = as_message(message, proto.TensorInfo)
        components: tuple[str, ...] = ()
        if message.HasField("coo_sparse"):
            sparse = message.coo_sparse
            components = (sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name)
        elif message.HasField("composite_tensor"):
            components = tuple(c.name for c in message.composite_tensor.components)
        dtype = as_dtype(message.dtype) if message.dtype else None
        return cls(message.name, dtype, PartialTensorShape.from_proto(message.tensor_shape), components)

    def to_proto(self) -> proto.TensorInfo:
        message = proto.TensorInfo(dtype=self.dtype.enum if self.dtype is not None else 0)  # type: ignore[arg-type]
        message.tensor_shape.CopyFrom(self.shape.to_proto())
        if len(self.components) == 3:
            sparse = message.coo_sparse
            sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name = self.components
        else:
            message.name = self.name
        return message

    def __str__(self) -> str:
        kind = "operation" if self.dtype is None else f"{self.dtype.name}{self.shape}"
        return f"{self.name or ', '.join(self.components)}  {kind}"


@dataclass(frozen=True, slots=True)
class Signature:
    """A way to use a graph: which tensors are its inputs and outputs, by names of the user's.

    Attributes:
        inputs, outputs: name → tensor.
        method_name: what kind of signature it is.
    """

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    method_name: str = PREDICT

    @classmethod
    def of(cls, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], method_name: str = PREDICT) -> Signature:
        """A signature over tensors of a graph."""
        return cls(
            {key: TensorInfo.of(tensor) for key, tensor in inputs.items()},
            {key: TensorInfo.of(tensor) for key, tensor in outputs.items()},
            method_name,
        )

    @classmethod
    def from_proto(cls, message: proto.SignatureDef | Message) -> Signature:
        """Raises InvalidArgumentError for an impossible type or shape."""
        message = as_message(message, proto.SignatureDef)
        return cls(
            {key: TensorInfo.from_proto(message.inputs[key]) for key in sorted(message.inputs)},
            {key: TensorInfo.from_proto(message.outputs[key]) for key in sorted(message.outputs)},
            message.method_name,
        )

    def to_proto(self) -> proto.SignatureDef:
        message = proto.SignatureDef(method_name=self.method_name)
        for mine, theirs in ((self.inputs, message.inputs), (self.outputs, message.outputs)):
            for key, info in mine.items():
                theirs[key].CopyFrom(info.to_proto())
        return message

    def feeds(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by input name as feeds of a run.

        Raises:
            InvalidArgumentError: there is no such input, or one is missing or made of several tensors.
        """
        unknown = sorted(set(values) - set(self.inputs))
        if unknown:
            raise errors.InvalidArgumentError(f"no input '{unknown[0]}'; there are {', '.join(self.inputs) or 'none'}")
        missing = sorted(set(self.inputs) - set(values))
        if missing:
            raise errors.InvalidArgumentError(f"input '{missing[0]}' is not given")
        return {_single(key, self.inputs[key]): value for key, value in values.items()}

    def fetches(self) -> dict[str, str]:
        """Output name → tensor name: fetch this to get a dict of outputs."""
        return {key: _single(key, info) for key, info in self.outputs.items()}


def _single(key: str, info: TensorInfo) -> str:
    if not info.name:
        raise errors.InvalidArgumentError(f"'{key}' is made of the tensors {', '.join(info.components)}; name these")
    return info.name


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
        message: the message that it was read from, or None; what is not in the other attributes stays there.
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
            message,
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
            raise errors.InvalidArgumentError(f"Cannot read {path}: {error}") from None
        if path.suffix == ".pbtxt":
            return cls.from_proto(parse_text(data, proto.MetaGraphDef(), str(path)))
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

    def signature(self, name: str) -> Signature:
        """The signature of that name.  Raises NotFoundError, naming those that there are."""
        found = self.signatures.get(name)
        if found is None:
            raise errors.NotFoundError(f"no signature '{name}'; there are {', '.join(self.signatures) or 'none'}")
        return found

    def __repr__(self) -> str:
        return f"<MetaGraph {sorted(self.tags)} {self.graph!r}, signatures {sorted(self.signatures)}>"


def parse_text(data: bytes, message: Any, path: str) -> Any:
    """Parse the text form of a message.  Raises InvalidArgumentError.

    Messages within messages of any type are written under TensorFlow's package name.
    """
    try:
        text = data.decode().replace("[type.googleapis.com/tensorflow.", "[type.googleapis.com/aexec.")
        return text_format.Parse(text, message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise errors.InvalidArgumentError(f"Cannot parse {path}: {error}") from None


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
    raise errors.InvalidArgumentError(
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
            raise errors.InvalidArgumentError(
                f"collection '{ASSETS_COLLECTION}' holds something that is no asset"
            ) from None
        found[asset.tensor_info.name] = asset.filename
    return found


def _ops_used(graph_def: proto.GraphDef) -> proto.OpList:
    """Definitions of all ops of the graph and of its functions' bodies."""
    functions = {function.signature.name for function in graph_def.library.function}
    used = {node.op for node in graph_def.node}
    for function in graph_def.library.function:
        used.update(node.op for node in function.node_def)
    registry = op_registry.global_registry
    return proto.OpList(op=[registry.lookup(op).op_def.to_proto() for op in sorted(used - functions)])
