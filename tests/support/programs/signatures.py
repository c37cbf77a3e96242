"""Random models whose outputs change if inputs are mistaken for one another, and requests to them.

    model = random_model(random.Random(7))
    request = random_request(random.Random(8), model)

The names of a signature are not in the order of their tensors, and the model's other signature has the same names for
other tensors of the same types.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import aexec
from aexec import ops
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature

__all__ = ["Fault", "NamedRequest", "RandomModel", "random_model", "random_request"]

_TYPES = ("float32", "int32", "int64", "bool", "string", "float64")
_NAMES = ("a", "b", "x", "x_1", "image", "image_size", "größe", "Zeit", "input", "inputs", "ids", "é/1", "n", "mask")
_WORDS = ("", "eins", "zwei", "drei", "vier", "ünf")
_MAX_ROWS = 3


@dataclass(frozen=True)
class RandomModel:
    """A random model.

    Attributes:
        graph: the model.
        signatures: name → signature; None → the signature of a graph that has none.
        needs: name of an output's tensor → names of the input tensors that it depends on.
    """

    graph: MetaGraph | aexec.Graph
    signatures: Mapping[str | None, Signature]
    needs: Mapping[str, frozenset[str]]


class Fault(enum.Enum):
    """The fault of a request."""

    MISSING = enum.auto()
    UNKNOWN = enum.auto()
    TWICE = enum.auto()
    UNKNOWN_OUTPUT = enum.auto()


@dataclass(frozen=True)
class NamedRequest:
    """A request by names.

    Attributes:
        signature: its name; None for the only one.
        inputs: names and values in the order in which they are sent; a name occurs twice if that is the fault.
        outputs: names of the wanted outputs, in order, possibly repeated; None for all.
        fault: what is wrong with it; None if nothing is.
        culprit: the name that is wrong.
    """

    signature: str | None
    inputs: tuple[tuple[str, Any], ...]
    outputs: tuple[str, ...] | None
    fault: Fault | None = None
    culprit: str = ""

    def with_all_outputs(self) -> NamedRequest:
        """Return the same request for protocols that cannot select outputs."""
        if self.fault is Fault.UNKNOWN_OUTPUT:
            return replace(self, outputs=None, fault=None, culprit="")
        return replace(self, outputs=None)


def random_model(rng: random.Random) -> RandomModel:
    """Return a model with one to five inputs, each a vector."""
    count = rng.randint(1, 5)
    types = [rng.choice(_TYPES) for _ in range(count)]
    nodes = rng.sample(_NAMES[:6] + _NAMES[8:], count)  # letters that node names may contain
    nodes = [name if name.isascii() else f"node_{i}" for i, name in enumerate(nodes)]
    with aexec.Graph() as graph:
        inputs = [aexec.placeholder(t, [None], name=node) for t, node in zip(types, nodes, strict=True)]
        outputs = [_combined(rng, inputs) for _ in range(rng.randint(1, 4))]
        # Each input is used by at least one output.
        outputs += [(ops.identity(x), frozenset([x.name])) for x in inputs if not any(x.name in n for _, n in outputs)]
    needs = {tensor.name: needed for tensor, needed in outputs}
    tensors = [tensor for tensor, _ in outputs]
    if rng.random() < 0.2:
        return RandomModel(graph, {None: _whole(graph)}, needs)
    first = _signature(rng, inputs, tensors)
    signatures = {"serving_default": first}
    if rng.random() < 0.5:
        signatures["other"] = _with_other_tensors(rng, first)
    named: dict[str | None, Signature] = dict(signatures.items())
    return RandomModel(MetaGraph(graph, signatures=signatures), named, needs)


def _whole(graph: aexec.Graph) -> Signature:
    return aexec.Session(graph).signature()


def _combined(rng: random.Random, inputs: list[aexec.Tensor]) -> tuple[aexec.Tensor, frozenset[str]]:
    """Return an output of one or two inputs, which changes if they are exchanged."""
    one, other = rng.choice(inputs), rng.choice(inputs)
    kinds = {t.dtype if t.dtype in (dtypes.string, dtypes.bool_) else None for t in (one, other)}
    both = frozenset([one.name, other.name])
    if kinds == {None}:
        difference = ops.sub(
            ops.cast(one, "float64"), ops.mul(ops.cast(other, "float64"), aexec.constant(3.0, "float64"))
        )
        return difference, both
    if kinds == {dtypes.string}:
        return ops.string_join([one, other], separator="|"), both
    if kinds == {dtypes.bool_}:
        return ops.logical_and(one, ops.logical_not(other)), both
    return ops.identity(one), frozenset([one.name])


def _signature(rng: random.Random, inputs: list[aexec.Tensor], outputs: list[aexec.Tensor]) -> Signature:
    names, given = rng.sample(_NAMES, len(inputs)), rng.sample(_NAMES, len(outputs))
    return Signature.of(dict(zip(names, inputs, strict=True)), dict(zip(given, outputs, strict=True)))


def _with_other_tensors(rng: random.Random, signature: Signature) -> Signature:
    """Return a signature with the same names in another order, for other tensors if a type has several."""
    sides = []
    for infos in (signature.inputs, signature.outputs):
        by_type: dict[Any, list[Any]] = {}
        for info in infos.values():
            by_type.setdefault(info.dtype, []).append(info)
        for same in by_type.values():
            rng.shuffle(same)
        moved = [(name, by_type[info.dtype].pop()) for name, info in infos.items()]
        rng.shuffle(moved)
        sides.append(dict(moved))
    return Signature(*sides)


def random_request(rng: random.Random, model: RandomModel) -> NamedRequest:
    """Return a random request; one in three has a fault."""
    name = rng.choice(list(model.signatures))
    signature = model.signatures[name]
    rows = rng.randint(1, _MAX_ROWS)
    inputs = [(key, _values(rng, info.dtype, rows)) for key, info in signature.inputs.items()]
    rng.shuffle(inputs)
    outputs = None
    if rng.random() < 0.6:
        outputs = rng.choices(list(signature.outputs), k=rng.randint(1, len(signature.outputs) + 1))
    fault = rng.choice(list(Fault)) if rng.random() < 1 / 3 else None
    culprit = ""
    if fault is Fault.MISSING:
        culprit, _ = inputs.pop(rng.randrange(len(inputs)))
    elif fault is Fault.UNKNOWN:
        culprit = _misspelt(rng, signature.inputs)
        inputs.insert(rng.randint(0, len(inputs)), (culprit, _values(rng, dtypes.float32, rows)))
    elif fault is Fault.TWICE:
        culprit, value = rng.choice(inputs)
        inputs.insert(rng.randint(0, len(inputs)), (culprit, value[::-1]))
    elif fault is Fault.UNKNOWN_OUTPUT:
        culprit = _misspelt(rng, signature.outputs)
        outputs = [*(outputs or signature.outputs)]
        outputs.insert(rng.randint(0, len(outputs)), culprit)
    return NamedRequest(name, tuple(inputs), None if outputs is None else tuple(outputs), fault, culprit)


def _misspelt(rng: random.Random, names: Mapping[str, Any]) -> str:
    name = rng.choice(list(names))
    while name in names or name in _NAMES:
        name += rng.choice("abc")
    return name


def _values(rng: random.Random, dtype: DType | None, rows: int) -> Any:
    assert dtype is not None
    if dtype is dtypes.string:
        return np.array([rng.choice(_WORDS).encode() for _ in range(rows)] + [None], object)[:-1]
    if dtype is dtypes.bool_:
        return np.array([rng.random() < 0.5 for _ in range(rows)])
    high = 2**53 if dtype in (dtypes.int64, dtypes.float64) else 2**20
    numbers = np.array([rng.randint(-high, high) for _ in range(rows)], dtype.np)
    return numbers / dtype.np.type(8) if dtype.is_floating else numbers
