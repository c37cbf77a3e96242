"""Builds NodeDefs in code: infers types and lengths from the inputs, and collects errors.

`FakeInput` stands for an input without a producer, so that tests of kernels and shape functions describe a node in one
line.  The rules are TensorFlow's: core/framework/node_def_builder.h and fake_input.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract.op_registry import OpRegistry, global_registry
from aexec.framework.wire import attr_value
from aexec.framework.wire.node_def import (
    TensorName,
    attrs_to_proto,
    check_attrs,
    check_input_count,
    check_node_name,
    parse_tensor_name,
)
from aexec.framework.wire.op_def import ArgDef, OpDef

__all__ = ["FakeInput", "NodeDefBuilder"]


class FakeInput:
    """Stands for an input: it has a dtype and a number of tensors, but no source.

    Args:
        spec: a dtype for a tensor or a list of equal ones, a list of dtypes for a list of tensors, a number for N of
            them; what is missing is taken from attrs and their defaults.

    Example:
        >>> NodeDefBuilder("n", "AddN").input(FakeInput(2, "float")).finalize().input
        ['a', 'a:1']
    """

    def __init__(self, *spec: Any) -> None:
        self.number: int | None = None
        self.types: list[DType] = []
        for part in spec:
            if isinstance(part, list | tuple):
                self.types = [as_dtype(d) for d in part]
            elif isinstance(part, int):
                self.number = part
            else:
                self.types = [as_dtype(part)]


@dataclass(slots=True)
class _Source:
    name: TensorName
    dtype: DType


class NodeDefBuilder:
    """Builds one NodeDef.

    Args:
        name: the node's name.
        op: an op type that `registry` knows, or a definition.
        registry: the registry to look the op up in.

    Example:
        >>> node = NodeDefBuilder("m", "MatMul").input("a", "float").input("b", "float").finalize()
        >>> node.attr["T"].type == proto.DataType.DT_FLOAT
        True
    """

    def __init__(self, name: str, op: str | OpDef, *, registry: OpRegistry = global_registry) -> None:
        self._name = name
        self._errors: list[str] = []
        self._op_def = op if isinstance(op, OpDef) else OpDef("Unknown")
        self._known = True
        if isinstance(op, str):
            try:
                self._op_def = registry.lookup(op).op_def
            except errors.OpError as e:
                self._known = False
                self._errors.append(e.message)
        self._device = ""
        self._attrs: dict[str, Any] = {}
        self._inputs: list[TensorName] = []
        self._controls: dict[str, None] = {}
        self._args_given = 0

    def input(self, source: Any, dtype: Any = None) -> NodeDefBuilder:
        """Set the next input argument.

        Args:
            source: `name` or `name:k` with `dtype`, a `FakeInput`, or for an argument of several tensors a list of
                (name, dtype).
            dtype: element type of a single source.
        """
        if self._args_given >= len(self._op_def.inputs):
            if self._known:
                self._errors.append(f"More inputs specified than the {len(self._op_def.inputs)} that there are")
            return self
        arg = self._op_def.inputs[self._args_given]
        self._args_given += 1
        try:
            self._add(arg, self._sources(arg, source, dtype))
        except errors.InvalidArgumentError as e:
            self._errors.append(e.message)
        return self

    def control_input(self, node: str) -> NodeDefBuilder:
        """Make the node wait for `node`."""
        self._controls[node.removeprefix("^")] = None
        return self

    def attr(self, name: str, value: Any) -> NodeDefBuilder:
        """Set an attr.  A value that contradicts an earlier or inferred one is an error."""
        try:
            self._set_attr(name, value)
        except errors.InvalidArgumentError as e:
            self._errors.append(e.message)
        return self

    def device(self, device: str) -> NodeDefBuilder:
        """Request a device."""
        self._device = device
        return self

    def finalize(self) -> proto.NodeDef:
        """Return the node, with its attrs checked and complete.

        Raises:
            InvalidArgumentError: some parts are not valid; the message names each error.
        """
        found = list(self._errors)
        if not found and self._args_given < len(self._op_def.inputs):
            found.append(f"{self._args_given} inputs specified of {len(self._op_def.inputs)} inputs in Op")
        attrs: Mapping[str, Any] = {}
        try:
            check_node_name(self._name, internal=True)
            if not found:
                attrs = check_attrs(self._op_def, self._attrs, node=self._name)
                check_input_count(self._op_def, attrs, len(self._inputs), node=self._name)
                self._op_def.output_types(attrs)
        except errors.InvalidArgumentError as e:
            found.append(e.message)
        if found:
            raise errors.InvalidArgumentError(
                f"{len(found)} error(s) while building NodeDef '{self._name}' using {self._op_def}:\n"
                + "\n".join(found)
            )
        return proto.NodeDef(
            name=self._name,
            op=self._op_def.name,
            input=[*map(str, self._inputs), *(f"^{c}" for c in self._controls)],
            device=self._device,
            attr=attrs_to_proto(self._op_def, attrs),
        )

    def _set_attr(self, name: str, value: Any) -> None:
        attr = self._op_def.attr_map.get(name)
        if attr is not None:
            value = attr_value.normalize(value, attr.type)
        if name in self._attrs and not attr_value.equal(self._attrs[name], value):
            raise errors.InvalidArgumentError(
                f"Inconsistent values for attr '{name}': {self._attrs[name]} vs. {value} while building NodeDef"
            )
        self._attrs[name] = value

    # ---- inputs

    def _sources(self, arg: ArgDef, source: Any, dtype: Any) -> list[_Source]:
        if isinstance(source, FakeInput):
            stem = chr(ord("a") + (self._args_given - 1) % 26)
            return [_Source(TensorName(stem, i), t) for i, t in enumerate(self._fake_types(arg, source))]
        if isinstance(source, list | tuple):
            return [_Source(parse_tensor_name(name), as_dtype(t)) for name, t in source]
        if arg.number_attr or arg.type_list_attr:
            raise errors.InvalidArgumentError(f"Single tensor passed to '{arg.name}', expected list")
        if dtype is None:
            raise errors.InvalidArgumentError(f"the type of '{source}', passed to '{arg.name}', is not given")
        return [_Source(parse_tensor_name(source), as_dtype(dtype))]

    def _add(self, arg: ArgDef, sources: Sequence[_Source]) -> None:
        """Use the sources for `arg`, and infer the attrs that its type and number refer to."""
        types = [s.dtype.base for s in sources]
        if arg.type_list_attr:
            self._set_attr(arg.type_list_attr, types)
        else:
            if arg.number_attr:
                self._set_attr(arg.number_attr, len(sources))
            elif len(sources) != 1:
                raise errors.InvalidArgumentError(f"List provided to input '{arg.name}' when single Tensor expected")
            for i, dtype in enumerate(types):
                wanted = arg.type or self._attrs.get(arg.type_attr)
                if wanted is None:
                    self._set_attr(arg.type_attr, dtype)
                elif dtype is not as_dtype(wanted):
                    raise errors.InvalidArgumentError(
                        f"Input '{arg.name}' passed {dtype} expected {as_dtype(wanted)}"
                        + (f" (element {i})" if arg.number_attr else "")
                    )
        if arg.is_ref:
            for s in sources:
                if not s.dtype.is_ref:
                    raise errors.InvalidArgumentError(
                        f"Input '{arg.name}' passed {s.dtype} expected ref type {s.dtype.ref}"
                    )
        self._inputs += [s.name for s in sources]

    def _fake_types(self, arg: ArgDef, fake: FakeInput) -> list[DType]:
        if arg.type_list_attr:
            listed = fake.types or self._attr_or_default(arg.type_list_attr)
            if listed is None:
                raise errors.InvalidArgumentError(
                    f"FakeInput for '{arg.name}': expected the list of types, attr '{arg.type_list_attr}' is not set"
                )
            types = [as_dtype(t) for t in listed]
        else:
            one = arg.type or (fake.types[0] if fake.types else self._attr_or_default(arg.type_attr))
            if one is None:
                raise errors.InvalidArgumentError(
                    f"FakeInput for '{arg.name}': expected a type, attr '{arg.type_attr}' is not set"
                )
            types = [as_dtype(one)] * self._fake_number(arg, fake)
        return [t.ref for t in types] if arg.is_ref else types

    def _fake_number(self, arg: ArgDef, fake: FakeInput) -> int:
        if not arg.number_attr:
            return 1
        number = fake.number
        if number is None:
            number = self._attr_or_default(arg.number_attr)
        if number is None:
            number = max(self._op_def.attr_map[arg.number_attr].minimum or 0, len(fake.types))
        return number

    def _attr_or_default(self, name: str) -> Any:
        return self._attrs.get(name, self._op_def.defaults.get(name))
