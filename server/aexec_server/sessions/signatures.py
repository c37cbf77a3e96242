"""Describes the inputs and outputs of a model's signatures as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import aexec
from aexec import errors
from aexec.hosting import Signature, TensorInfo, datatype_of, loop_budget

__all__ = ["describe_signatures", "signatures_ns"]


def signatures_ns(session: aexec.Session) -> float:
    """Return the estimated nanoseconds of `describe_signatures`: without signatures it looks at all nodes."""
    infos = sum(len(s.inputs) + len(s.outputs) for s in session.signatures.values())
    return (infos or len(session.graph)) * 10 * loop_budget.OBJECT_NS


def describe_signatures(session: aexec.Session) -> dict[str, Any]:
    """Return the members of a session's document that say how to call it.

    `signatures` has the model's by name; `inputs` and `outputs` are those of the signature that a run without a name
    uses, absent if there is none.  Lists are iterators, so that their items are made only when they are written.
    """
    described: dict[str, Any] = {"signatures": {n: _signature(s) for n, s in session.signatures.items()}}
    try:
        default = session.signature()
    except errors.NotFoundError:
        return described
    return {"inputs": _tensors(default.inputs), "outputs": _tensors(default.outputs)} | described


def _signature(signature: Signature) -> dict[str, Any]:
    return {
        "inputs": _tensors(signature.inputs),
        "outputs": _tensors(signature.outputs),
        "method_name": signature.method_name,
    }


def _tensors(infos: Mapping[str, TensorInfo]) -> Iterator[dict[str, Any]]:
    return ({"name": name} | _tensor(info) for name, info in infos.items())


def _tensor(info: TensorInfo) -> dict[str, Any]:
    """Describe datatype, shape (-1 for an unknown size, null for an unknown rank) and tensor of the graph."""
    described: dict[str, Any] = {
        "datatype": None if info.dtype is None else datatype_of(info.dtype),
        "shape": None if info.shape.dims is None else [-1 if size is None else size for size in info.shape.dims],
    }
    if info.name:
        return described | {"tensor": info.name}
    return described | {"tensors": list(info.components)}
