"""Reads the signatures in a server's description of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aexec.framework.datatypes import DATATYPES
from aexec.framework.dtypes import as_dtype
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.graph.signature import Signature, TensorInfo

__all__ = ["default_signature", "read_signatures"]


def read_signatures(document: Mapping[str, Any]) -> dict[str, Signature]:
    """The signatures of a model, by name."""
    described = document.get("signatures", {})
    return {name: _signature(fields) for name, fields in described.items()}


def default_signature(document: Mapping[str, Any]) -> Signature:
    """The signature of a graph as a whole: its inputs and outputs."""
    return _signature(document)


def _signature(fields: Mapping[str, Any]) -> Signature:
    inputs, outputs = (_tensors(fields.get(key, ())) for key in ("inputs", "outputs"))
    return Signature(inputs, outputs, fields.get("method_name", ""))


def _tensors(described: Iterable[Mapping[str, Any]]) -> dict[str, TensorInfo]:
    return {tensor["name"]: _tensor(tensor) for tensor in described}


def _tensor(fields: Mapping[str, Any]) -> TensorInfo:
    datatype, dims = fields["datatype"], fields["shape"]
    dtype = None if datatype is None else DATATYPES.get(datatype) or as_dtype(datatype)
    shape = UNKNOWN_RANK if dims is None else PartialTensorShape([None if size < 0 else size for size in dims])
    return TensorInfo(fields.get("tensor", ""), dtype, shape, tuple(fields.get("tensors", ())))
