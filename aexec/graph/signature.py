"""`Signature`: a way to use a graph, with names for its inputs and outputs.

A MetaGraph has several; for a graph without any, `graph_signature` makes one from its nodes.
Next to read: `meta_graph.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.html_repr import MAX_ROWS, block, tensor_table
from aexec.framework.late_dataclass import dataclass
from aexec.framework.near_names import listed, near_names
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.messages import as_message
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.nodes.node_table import NodeTable

__all__ = ["Signature", "TensorInfo", "choose_signature", "graph_signature", "named_inputs", "signature_tables"]

PREDICT = "tensorflow/serving/predict"
DEFAULT_SIGNATURE = "serving_default"
# Longest part of a name in an error, in characters.
_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output of a signature.

    Attributes:
        name: name of the tensor to feed or fetch, `x:0`; "" if the value is made of several tensors.
        dtype, shape: type of its values; dtype is None if `name` is that of an operation.
        components: names of the tensors that a value is made of: for a sparse one values, indices and shape; empty for
            a plain tensor.
    """

    name: str
    dtype: DType | None
    shape: PartialTensorShape
    components: tuple[str, ...] = ()

    @classmethod
    def of(cls, tensor: Tensor) -> TensorInfo:
        """Return the description of a graph's tensor."""
        return cls(tensor.name, tensor.dtype.base, tensor.static_shape)

    @classmethod
    def from_proto(cls, message: proto.TensorInfo | Message) -> TensorInfo:
        """Read the message.  Raises InvalidArgumentError if the dtype or shape is not valid."""
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
        message = proto.TensorInfo(dtype=self.dtype.enum if self.dtype is not None else None)
        message.tensor_shape.CopyFrom(self.shape.to_proto())
        if len(self.components) == 3:
            sparse = message.coo_sparse
            sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name = self.components
        else:
            message.name = self.name
        return message

    def facts(self) -> tuple[str, str, str]:
        """Return the names of its tensors, its dtype and its shape as text."""
        dtype, shape = ("operation", "") if self.dtype is None else (str(self.dtype), str(self.shape))
        return self.name or ", ".join(self.components), dtype, shape

    def __str__(self) -> str:
        name, dtype, shape = self.facts()
        return f"{name}  {dtype}{shape}"


@dataclass(frozen=True, slots=True)
class Signature:
    """A way to use a graph: names for the tensors that are its inputs and outputs.

    Attributes:
        inputs, outputs: name → tensor.
        method_name: kind of the signature, such as TensorFlow's predict method.
    """

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    method_name: str = PREDICT

    @classmethod
    def of(cls, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], method_name: str = PREDICT) -> Signature:
        """Return a signature for tensors of a graph."""
        return cls(
            {key: TensorInfo.of(tensor) for key, tensor in inputs.items()},
            {key: TensorInfo.of(tensor) for key, tensor in outputs.items()},
            method_name,
        )

    @classmethod
    def from_proto(cls, message: proto.SignatureDef | Message) -> Signature:
        """Read the message.  Raises InvalidArgumentError if a dtype or shape is not valid."""
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
        """Convert values by input name to feeds, in the order of the inputs, so that one plan serves every order.

        Raises:
            InvalidArgumentError: an input does not exist, is missing or is made of several tensors, or two inputs are
                the same tensor.
        """
        if values.keys() != self.inputs.keys():
            raise _other_names(values, self.inputs)
        feeds = {_single(key, info): values[key] for key, info in self.inputs.items()}
        if len(feeds) < len(self.inputs):
            raise _same_tensor(self.inputs)
        return feeds

    def fetches(self, wanted: Iterable[str] | None = None) -> dict[str, str]:
        """Return output name → tensor name; a fetch of this dict returns a dict of outputs.

        Args:
            wanted: names of some outputs; by default all.

        Raises:
            InvalidArgumentError: an output does not exist, or is made of several tensors.
        """
        fetches = {}
        for key in self.outputs if wanted is None else wanted:
            info = self.outputs.get(key)
            if info is None:
                raise _not_there("output", key, self.outputs)
            fetches[key] = _single(key, info)
        return fetches

    def __str__(self) -> str:
        """Return the method, the inputs and the outputs, one a line."""
        lines = [self.method_name]
        for heading, infos in (("input", self.inputs), ("output", self.outputs)):
            lines += [f"  {heading} {key}: {info}" for key, info in infos.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return block("Signature", self.method_name, *self.html_tables())

    def html_tables(self, prefix: str = "") -> list[str]:
        """Return tables of inputs and outputs for notebooks, each under a heading that begins with `prefix`."""
        return [
            tensor_table(prefix + heading, [(key, *info.facts()) for key, info in infos.items()])
            for heading, infos in (("inputs", self.inputs), ("outputs", self.outputs))
        ]


def _single(key: str, info: TensorInfo) -> str:
    if not info.name:
        raise errors.InvalidArgumentError(f"'{key}' is made of the tensors {', '.join(info.components)}; name these")
    return info.name


def _other_names(given: Mapping[str, Any], inputs: Mapping[str, TensorInfo]) -> errors.InvalidArgumentError:
    """Return the error for names that are not exactly those of the inputs."""
    unknown = sorted([str(name) for name in given if name not in inputs])
    if unknown:
        return _not_there("input", unknown[0], inputs)
    missing = min(inputs.keys() - given.keys())
    return errors.InvalidArgumentError(
        f"input '{missing}' is not given; expected {listed(inputs)}, got {listed(given)}"
    )


def _not_there(what: str, name: str, infos: Mapping[str, TensorInfo]) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"no {what} '{name[:_MAX_SHOWN]}'; there are {listed(infos)}{near_names(name, infos)}"
    )


def _same_tensor(inputs: Mapping[str, TensorInfo]) -> errors.InvalidArgumentError:
    by_tensor: dict[str, str] = {}
    for key, info in inputs.items():
        other = by_tensor.setdefault(info.name, key)
        if other != key:
            break
    return errors.InvalidArgumentError(
        f"Endpoint \"{info.name}\" fed more than once: the inputs '{other}' and '{key}' are both this tensor"
    )


def named_inputs(inputs: Mapping[str, Any] | None, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge values by input name from a mapping and from keywords.

    Raises:
        InvalidArgumentError: a name is in both.
    """
    if not inputs:
        return named
    twice = sorted(inputs.keys() & named.keys())
    if twice:
        raise errors.InvalidArgumentError(f"input '{twice[0]}' is given twice: in the mapping, and by itself")
    return {**inputs, **named}


def signature_tables(signatures: Mapping[str, Signature]) -> list[str]:
    """Return tables of several signatures for notebooks, under their names; only the first ones if they are many."""
    return [table for name, one in islice(signatures.items(), MAX_ROWS) for table in one.html_tables(f"{name}: ")]


def choose_signature(signatures: Mapping[str, Signature], name: str | None = None) -> Signature:
    """Return one of several signatures.

    Args:
        name: name of the signature; by default the only one, else `serving_default`.

    Raises:
        NotFoundError: there is none of that name, or no default; the message lists the names.
    """
    if name is None and len(signatures) == 1:
        return next(iter(signatures.values()))
    found = signatures.get(DEFAULT_SIGNATURE if name is None else name)
    if found is None:
        wanted = "say which signature" if name is None else f"no signature '{name}'"
        raise errors.NotFoundError(f"{wanted}; there are {', '.join(signatures) or 'none'}")
    return found


# The signature of a whole graph

_INPUTS = ("Placeholder", "PlaceholderV2")
_NO_RESULTS = (*_INPUTS, "PlaceholderWithDefault", "Const")
_NO_VALUES = (dtypes.resource, dtypes.variant)


def graph_signature(graph: NodeTable) -> Signature:
    """Return the signature of a graph that has none.

    Inputs are the placeholders without a default value.  Outputs are the tensors of all nodes whose outputs no node
    uses, without constants, and without cells and handles, which are not values.  A name is that of the node, with `:k`
    for one of several outputs.
    """
    taken = {node_id for node in graph for node_id, _ in node.in_edges}
    inputs = {node.name: node.output(0) for node in graph if node.op in _INPUTS}
    outputs: dict[str, Tensor] = {}
    for node in graph:
        if node.id not in taken and node.op not in _NO_RESULTS:
            outputs |= _values(node)
    return Signature.of(inputs, outputs)


def _values(node: Node) -> dict[str, Tensor]:
    tensors = [t for t in node.outputs if not t.dtype.is_ref and t.dtype not in _NO_VALUES]
    return {node.name if node.num_outputs == 1 else t.name: t for t in tensors}
