"""Makes the handles, lists and maps for the calls of `extreme_calls.py`, with content."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.op_def import ArgDef
from aexec.framework.zeros import zeros_of_type
from tests.support.programs.graphs import GraphBuilder

__all__ = ["Maker"]

# Attrs with the type of the elements behind a handle, in order of precedence.
_ELEMENT = ("element_dtype", "elem_type", "dtype", "T", "value_dtype", "Tvalues", "type", "key_dtype")
_COMPONENTS = ("component_types", "Tcomponents", "dtypes", "Toutput_types")


@dataclass
class Maker:
    """Adds the nodes that a call of an op needs before it.

    Args:
        op, attrs: of the call.
        count: number of elements; a large number of elements are without bytes.
        shape: of variables.

    Attributes:
        controls: nodes that the call has to come after.
    """

    builder: GraphBuilder
    op: str
    attrs: dict[str, Any]
    rng: random.Random
    count: int
    shape: tuple[int, ...]
    controls: list[str] = field(default_factory=list)

    def make(self, name: str, arg: ArgDef, dtype: DType) -> str:
        """Add a node `name` whose first output is a valid input for an argument; return the input."""
        if dtype.enum == 21:
            return self._variant(name)
        for word, make in _MAKERS.items():
            if word in self.op:
                return make(self, name, arg.is_ref)
        return self._ref_variable(name, dtype.base) if arg.is_ref else self._variable(name)

    # Attributes of the call

    def _element(self) -> DType:
        for name in _ELEMENT:
            dtype = self.attrs.get(name)
            if isinstance(dtype, DType) and dtype.enum not in (20, 21):
                return dtype.base
        return dtypes.float32

    def _components(self) -> list[DType]:
        for name in _COMPONENTS:
            found = self.attrs.get(name)
            if isinstance(found, list):
                return [dtype.base if dtype.enum not in (20, 21) else dtypes.float32 for dtype in found]
        return [self._element()]

    def _plain(self, *names: str) -> DType:
        """Return the type in the first of these attrs that exists, or another type if it is one of handles."""
        found = next((self.attrs[name] for name in names if name in self.attrs), dtypes.int64)
        return found.base if found.enum not in (20, 21) else dtypes.int64

    def _shape(self) -> PartialTensorShape:
        many = self.count > 1000
        return PartialTensorShape(self.rng.choice([[0], [0, self.count]] if many else [[], [2], [1, 3]]))

    def _rows(self, dtype: DType) -> Any:
        """Return elements, without bytes if there are many."""
        shape = (self.count, 0) if self.count > 1000 else (self.count, 2)
        return zeros_of_type(shape, dtype)

    def _before(self, name: str, op: str, *inputs: str, **attrs: Any) -> None:
        self.controls.append(f"^{self.builder(name, op, *inputs, **attrs)}")

    # Resources

    def _variant(self, name: str) -> str:
        builder, element, op = self.builder, self._element(), self.op
        if "Map" in op:
            builder(f"{name}e", "EmptyTensorMap")
            keys, values = (self._plain(attr) for attr in ("key_dtype", "value_dtype"))
            builder.const(f"{name}k", zeros_of_type((), keys), keys)
            builder.const(f"{name}v", zeros_of_type((2,), values), values)
            attrs = {"key_dtype": keys, "value_dtype": values}
            return builder(name, "TensorMapInsert", f"{name}e", f"{name}k", f"{name}v", **attrs)
        if op.startswith("Optional"):
            builder.const(f"{name}v", self._rows(element), element)
            return builder(name, "OptionalFromValue", f"{name}v", Toutput_types=[element])
        if "Ragged" in op:
            return self._ragged(name, self.attrs.get("Tvalues", element))
        kind = self.rng.random()
        builder.const(f"{name}s", -1, dtypes.int32)
        if kind < 0.3:
            builder.const(f"{name}v", self._rows(element), element)
            attrs = {"element_dtype": element, "shape_type": dtypes.int32}
            return builder(name, "TensorListFromTensor", f"{name}v", f"{name}s", **attrs)
        if kind < 0.8:
            dims = self.rng.choice([[], [0], [0, 1], [self.count, 0], [3000], [2, 3]])
            builder.const(f"{name}d", dims, dtypes.int32)
        builder.const(f"{name}n", self.count, dtypes.int32)
        shape = f"{name}d" if kind < 0.8 else f"{name}s"
        return builder(name, "TensorListReserve", shape, f"{name}n", element_dtype=element, shape_type=dtypes.int32)

    def _ragged(self, name: str, dtype: DType) -> str:
        splits = self.attrs.get("Tsplits", dtypes.int64)
        self.builder.const(f"{name}r", np.zeros(self.count + 1), splits)
        self.builder.const(f"{name}v", zeros_of_type((0,), dtype), dtype)
        attrs = {"RAGGED_RANK": 1, "Tvalues": dtype, "Tsplits": splits, "batched_input": True}
        return self.builder(name, "RaggedTensorToVariant", f"{name}r", f"{name}v", **attrs)

    def _queue(self, name: str, old: bool) -> str:
        types, kind = self._components(), self.rng.choice(["FIFOQueue", "RandomShuffleQueue"])
        suffix = "" if old else "V2"
        shapes = [PartialTensorShape([0] if self.count > 1000 else [2])] * len(types)
        handle = self.builder(name, kind + suffix, component_types=types, shapes=shapes)
        for i, dtype in enumerate(types):
            self.builder.const(f"{name}v{i}", self._rows(dtype), dtype)
        values = [f"{name}v{i}" for i in range(len(types))]
        self._before(f"{name}e", f"QueueEnqueueMany{suffix}", handle, *values, Tcomponents=types)
        return handle

    def _table(self, name: str, old: bool) -> str:
        keys, values = (
            self._plain("key_dtype", "Tkeys", "Tin", "Tkey"),
            self._plain("value_dtype", "Tvalues", "Tout", "Tval"),
        )
        suffix = "" if old else "V2"
        if self.op.startswith("InitializeTable"):
            return self.builder(name, f"HashTable{suffix}", key_dtype=keys, value_dtype=values)
        handle = self.builder(name, f"MutableHashTable{suffix}", key_dtype=keys, value_dtype=values)
        count = min(self.count, 30_000)
        made = np.arange(count).astype("S").astype(object) if keys is dtypes.string else np.arange(count)
        self.builder.const(f"{name}k", made, keys)
        self.builder.const(f"{name}v", zeros_of_type((count,), values), values)
        self._before(f"{name}i", f"LookupTableInsert{suffix}", handle, f"{name}k", f"{name}v", Tin=keys, Tout=values)
        return handle

    def _barrier(self, name: str, _: bool) -> str:
        types = self._components()
        count = min(self.count, 30_000)
        handle = self.builder(name, "Barrier", component_types=types, shapes=[PartialTensorShape([1])] * len(types))
        self.builder.const(f"{name}k", np.arange(count).astype("S").astype(object), dtypes.string)
        for i, dtype in enumerate(types):
            self.builder.const(f"{name}v{i}", zeros_of_type((count, 1), dtype), dtype)
            attrs = {"component_index": i, "T": dtype}
            self._before(f"{name}i{i}", "BarrierInsertMany", handle, f"{name}k", f"{name}v{i}", **attrs)
        return handle

    def _reader(self, name: str, old: bool) -> str:
        return self.builder(name, "IdentityReader" if old else "IdentityReaderV2")

    def _tensor_array(self, name: str, old: bool) -> str:
        self.builder.const(f"{name}n", self.count, dtypes.int32)
        attrs = {"dtype": self._element(), "element_shape": self._shape(), "dynamic_size": self.rng.random() < 0.5}
        return self.builder(name, f"TensorArray{'' if old else 'V3'}", f"{name}n", **attrs)

    def _stack(self, name: str, old: bool) -> str:
        element = self._element()
        self.builder.const(f"{name}n", -1, dtypes.int32)
        handle = (
            self.builder(name, "Stack", elem_type=element)
            if old
            else self.builder(name, "StackV2", f"{name}n", elem_type=element)
        )
        self.builder.const(f"{name}v", self._rows(element), element)
        self._before(f"{name}p", "StackPush" if old else "StackPushV2", handle, f"{name}v", T=element)
        return handle

    def _accumulator(self, name: str, old: bool) -> str:
        made = "ConditionalAccumulator" if old else "ResourceConditionalAccumulator"
        made = "SparseConditionalAccumulator" if "Sparse" in self.op else made
        return self.builder(name, made, dtype=self._element(), shape=PartialTensorShape(None))

    def _writer(self, name: str, _: bool) -> str:
        return self.builder(name, "SummaryWriter")

    def _mutex(self, name: str, _: bool) -> str:
        return self.builder(name, "MutexV2")

    def _ref_variable(self, name: str, dtype: DType) -> str:
        self.builder(name, "VariableV2", shape=PartialTensorShape(self.shape), dtype=dtype)
        if dtype in (dtypes.resource, dtypes.variant):
            return name  # uninitialised, because no constant holds a reference
        self.builder.const(f"{name}v", zeros_of_type(self.shape, dtype), dtype)
        self._before(f"{name}a", "Assign", name, f"{name}v", T=dtype)
        return name

    def _variable(self, name: str) -> str:
        builder, element = self.builder, self._element()
        handle = builder(name, "VarHandleOp", dtype=element, shape=PartialTensorShape(None), shared_name=name.encode())
        if element.np.kind != "O":
            builder.const(f"{name}v", np.ones(self.shape, element.np), element)
            self._before(f"{name}i", "AssignVariableOp", handle, f"{name}v", dtype=element)
        return handle


_MAKERS: dict[str, Callable[[Maker, str, bool], str]] = {
    "TensorArray": Maker._tensor_array,
    "Queue": Maker._queue,
    "Table": Maker._table,
    "Barrier": Maker._barrier,
    "Reader": Maker._reader,
    "Stack": Maker._stack,
    "Accumulator": Maker._accumulator,
    "Summary": Maker._writer,
    "Event": Maker._writer,
    "Mutex": Maker._mutex,
}
