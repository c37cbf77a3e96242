"""Op definitions: the inputs, outputs and attrs of an op, apart from how it is computed.

`OpDef` describes one op type, and how the types of a node's inputs and outputs follow from the node's attrs.
Definitions are written in the mini-language of `op_contract/op_def_builder.py` and found through
`op_contract/op_registry.py`; functions of a graph have a definition of the same kind. Source of the rules: TensorFlow's
op_def.proto and core/framework/node_def_util.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import Placeholder

__all__ = ["NO_DEFAULT", "ArgDef", "AttrDef", "Deprecation", "OpDef"]


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


# Default of an attr that has to be given.  Not None, which can be a value.
NO_DEFAULT: Final = _NoDefault()

# Limits on the inputs and outputs of a node.  The numbers come from attrs, so that a few bytes could ask for any amount
# of # memory; and handling them holds the event loop, for a third of a microsecond each.
MAX_INPUTS = 2**20
MAX_OUTPUTS = 2**16


@dataclass(frozen=True, slots=True)
class ArgDef:
    """One input or output argument: a tensor, N tensors of one type, or a list of tensors.

    Attributes:
        name: unique among the op's inputs, outputs and attrs.
        type: the fixed element type, or None if an attr gives it.
        type_attr: attr of type `type` that gives the element type, or "".
        number_attr: attr of type `int` that gives the number of tensors, or "".
        type_list_attr: attr of type `list(type)` that gives all their types, or "".
        is_ref: True if the tensors are variables' cells (ref types).
        handle_data: for a resource, the (dtype, shape) pairs of its values.
        description: for people.
        full_type: TensorFlow's experimental type, kept as it was read.
    """

    name: str
    type: DType | None = None
    type_attr: str = ""
    number_attr: str = ""
    type_list_attr: str = ""
    is_ref: bool = False
    handle_data: tuple[tuple[DType, PartialTensorShape], ...] = ()
    description: str = field(default="", compare=False)
    full_type: proto.FullTypeDef | None = field(default=None, compare=False)

    @classmethod
    def from_proto(cls, message: proto.OpDef.ArgDef) -> ArgDef:
        """Decode an ArgDef.  Raises InvalidArgumentError if a type in it is invalid."""
        return cls(
            name=message.name,
            type=dtypes.as_dtype(int(message.type)) if message.type else None,
            type_attr=message.type_attr,
            number_attr=message.number_attr,
            type_list_attr=message.type_list_attr,
            is_ref=message.is_ref,
            handle_data=tuple(
                (dtypes.as_dtype(int(d.dtype)), PartialTensorShape.from_proto(d.shape)) for d in message.handle_data
            ),
            description=message.description,
            full_type=message.experimental_full_type if message.HasField("experimental_full_type") else None,
        )

    def to_proto(self) -> proto.OpDef.ArgDef:
        message = proto.OpDef.ArgDef(
            name=self.name,
            description=self.description,
            type_attr=self.type_attr,
            number_attr=self.number_attr,
            type_list_attr=self.type_list_attr,
            is_ref=self.is_ref,
        )
        if self.type is not None:
            message.type = self.type.enum
        for dtype, shape in self.handle_data:
            entry = message.handle_data.add(shape=shape.to_proto())
            entry.dtype = dtype.enum
        if self.full_type is not None:
            message.experimental_full_type.CopyFrom(self.full_type)
        return message

    def __str__(self) -> str:
        """`name:type`, e.g. `x:T`, `inputs:N*T`, `ref:Ref(float)`."""
        text = self.type.wire_name if self.type is not None else self.type_attr or self.type_list_attr
        if self.number_attr:
            text = f"{self.number_attr}*{text}"
        return f"{self.name}:Ref({text})" if self.is_ref else f"{self.name}:{text}"


@dataclass(frozen=True, slots=True)
class AttrDef:
    """One attr of an op.

    Attributes:
        name: unique among the op's inputs, outputs and attrs.
        type: `int`, `type`, `list(shape)`, ...
        default: the Python value for nodes that do not give it, or `NO_DEFAULT`.
        allowed: the DTypes or byte strings that it is limited to, or None.
        minimum: the least int, or the least length of a list, or None.
        description: for people.
    """

    name: str
    type: str
    default: Any = NO_DEFAULT
    allowed: tuple[Any, ...] | None = None
    minimum: int | None = None
    description: str = field(default="", compare=False)

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT

    @property
    def is_list(self) -> bool:
        return self.type.startswith("list(")

    @classmethod
    def from_proto(cls, message: proto.OpDef.AttrDef) -> AttrDef:
        """Decode an AttrDef.  Raises InvalidArgumentError if its default is invalid."""
        default: Any = NO_DEFAULT
        if message.HasField("default_value"):
            default = attr_value.decode(message.default_value)
            if default is None and message.type.startswith("list("):
                default = []
        allowed = tuple(attr_value.decode(message.allowed_values)) if message.HasField("allowed_values") else None
        minimum = message.minimum if message.has_minimum else None
        return cls(message.name, message.type, default, allowed, minimum, message.description)

    def to_proto(self) -> proto.OpDef.AttrDef:
        message = proto.OpDef.AttrDef(name=self.name, type=self.type, description=self.description)
        if self.has_default:
            message.default_value.CopyFrom(attr_value.encode(self.default, self.type))
        if self.allowed is not None:
            message.allowed_values.CopyFrom(attr_value.encode(self.allowed))
        if self.minimum is not None:
            message.has_minimum = True
            message.minimum = self.minimum
        return message

    def check(self, value: Any) -> None:
        """Raise InvalidArgumentError if `value`, of the right type, is below the minimum or not allowed."""
        if self.minimum is not None:
            if isinstance(value, list):
                if len(value) < self.minimum:
                    raise errors.InvalidArgumentError(
                        f"Length for attr '{self.name}' of {len(value)} must be at least minimum {self.minimum}"
                    )
            elif value < self.minimum:
                raise errors.InvalidArgumentError(
                    f"Value for attr '{self.name}' of {value} must be at least minimum {self.minimum}"
                )
        if self.allowed is not None:
            for one in value if isinstance(value, list) else (value,):
                if one not in self.allowed:
                    raise errors.InvalidArgumentError(
                        f"Value for attr '{self.name}' of {_allowed_text(one)} is not in the list of allowed values: "
                        + ", ".join(map(_allowed_text, self.allowed))
                    )

    def __str__(self) -> str:
        text = f"{self.name}:{self.type}"
        if self.has_default:
            text += f",default={attr_value.summarize(self.default)}"
        if self.minimum is not None:
            text += f",min={self.minimum}"
        if self.allowed is not None:
            text += f",allowed={attr_value.summarize(self.allowed, shorten=False)}"
        return text


def _allowed_text(value: DType | bytes) -> str:
    return value.wire_name if isinstance(value, DType) else attr_value.summarize(value)


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The op does not exist from GraphDef producer `version` on; `explanation` says what to use instead."""

    version: int
    explanation: str


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """The definition of an op type.  Immutable; two are equal if they differ in nothing but texts for people.

    Attributes:
        name: the op type, e.g. `MatMul`, or a function's name.
        inputs, outputs: arguments in order.
        attrs: attrs in order of declaration.
        control_outputs: names, for functions.
        is_stateful: True if running a node has effects, so that it is never folded, shared or pruned.
        is_commutative: True if the two inputs may be swapped.
        is_aggregate: True if it sums any number of inputs, so that such nodes may be regrouped.
        allows_uninitialized_input: True if an input may be a variable without a value.
        is_distributed_communication: True if it waits for the same op in another task.
        deprecation: since when the op does not exist, or None.
        summary, description: for people.
        attr_map: attrs by name.
        defaults: attr name → default, of the attrs that have one.  Not to be modified.
        required: names of the attrs that have no default.
    """

    name: str
    inputs: tuple[ArgDef, ...] = ()
    outputs: tuple[ArgDef, ...] = ()
    attrs: tuple[AttrDef, ...] = ()
    control_outputs: tuple[str, ...] = ()
    is_stateful: bool = False
    is_commutative: bool = False
    is_aggregate: bool = False
    allows_uninitialized_input: bool = False
    is_distributed_communication: bool = False
    deprecation: Deprecation | None = None
    summary: str = ""
    description: str = ""
    attr_map: Mapping[str, AttrDef] = field(init=False, repr=False)
    defaults: Mapping[str, Any] = field(init=False, repr=False)
    required: tuple[str, ...] = field(init=False, repr=False)
    _input_types: _Types = field(init=False, repr=False)
    _output_types: _Types = field(init=False, repr=False)
    # Attr name → the function that reads it; filled by `node_def.attr_readers` at the first node of the op.
    attr_readers: dict[str, Callable[[proto.AttrValue], Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        derive = object.__setattr__  # the dataclass is frozen
        derive(self, "attr_map", {a.name: a for a in self.attrs})
        derive(self, "defaults", {a.name: a.default for a in self.attrs if a.has_default})
        derive(self, "required", tuple(a.name for a in self.attrs if not a.has_default))
        derive(self, "_input_types", _types_function(self.inputs, MAX_INPUTS))
        derive(self, "_output_types", _types_function(self.outputs, MAX_OUTPUTS))
        derive(self, "attr_readers", {})

    def input_types(self, attrs: Mapping[str, Any]) -> tuple[DType, ...]:
        """The types of a node's data inputs, list arguments spelled out, from the Python values of its attrs.

        Raises:
            InvalidArgumentError: a type or number attr is missing, a placeholder, or too large.
        """
        return self._input_types(attrs)

    def output_types(self, attrs: Mapping[str, Any]) -> tuple[DType, ...]:
        """The types of a node's outputs.  Raises as `input_types`."""
        return self._output_types(attrs)

    def input_ranges(self, attrs: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Argument name → [start, stop) in the flat list of a node's data inputs.  Raises as `input_types`."""
        return _ranges(self.inputs, attrs, MAX_INPUTS)

    def output_ranges(self, attrs: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Argument name → [start, stop) in the flat list of a node's outputs.  Raises as `input_types`."""
        return _ranges(self.outputs, attrs, MAX_OUTPUTS)

    @classmethod
    def from_proto(cls, message: proto.OpDef) -> OpDef:
        """Decode an OpDef.  Raises InvalidArgumentError if a type or default in it is invalid."""
        deprecation = None
        if message.HasField("deprecation"):
            deprecation = Deprecation(message.deprecation.version, message.deprecation.explanation)
        return cls(
            name=message.name,
            inputs=tuple(map(ArgDef.from_proto, message.input_arg)),
            outputs=tuple(map(ArgDef.from_proto, message.output_arg)),
            attrs=tuple(map(AttrDef.from_proto, message.attr)),
            control_outputs=tuple(message.control_output),
            is_stateful=message.is_stateful,
            is_commutative=message.is_commutative,
            is_aggregate=message.is_aggregate,
            allows_uninitialized_input=message.allows_uninitialized_input,
            is_distributed_communication=message.is_distributed_communication,
            deprecation=deprecation,
            summary=message.summary,
            description=message.description,
        )

    def to_proto(self) -> proto.OpDef:
        message = proto.OpDef(
            name=self.name,
            input_arg=[a.to_proto() for a in self.inputs],
            output_arg=[a.to_proto() for a in self.outputs],
            attr=[a.to_proto() for a in self.attrs],
            control_output=self.control_outputs,
            summary=self.summary,
            description=self.description,
            is_stateful=self.is_stateful,
            is_commutative=self.is_commutative,
            is_aggregate=self.is_aggregate,
            allows_uninitialized_input=self.allows_uninitialized_input,
            is_distributed_communication=self.is_distributed_communication,
        )
        if self.deprecation is not None:
            message.deprecation.version = self.deprecation.version
            message.deprecation.explanation = self.deprecation.explanation
        return message

    def _signature(self) -> tuple[Any, ...]:
        return (
            self.name,
            self.inputs,
            self.outputs,
            self.control_outputs,
            self.is_stateful,
            self.is_commutative,
            self.is_aggregate,
            self.allows_uninitialized_input,
            self.is_distributed_communication,
            self.deprecation,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpDef):
            return NotImplemented
        # The order of attrs has no meaning.
        return self is other or (self._signature() == other._signature() and self.attr_map == other.attr_map)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        """One line, as errors print it: `Op<name=AddN; signature=inputs:N*T -> sum:T; attr=N:int,min=1; ...>`."""
        text = f"Op<name={self.name}; signature={_args_text(self.inputs)} -> {_args_text(self.outputs)}"
        text += "".join(f"; attr={a}" for a in self.attrs)
        for flag in ("is_commutative", "is_aggregate", "is_stateful", "allows_uninitialized_input"):
            if getattr(self, flag):
                text += f"; {flag}=true"
        return text + ">"


def _args_text(args: Iterable[ArgDef]) -> str:
    return ", ".join(map(str, args))


# ---- from attrs to types

_Types = Callable[[Mapping[str, Any]], tuple[DType, ...]]


def _types_function(args: Sequence[ArgDef], most: int) -> _Types:
    """A function from attrs to the flat types of `args`; constant if no attr decides."""
    if all(a.type is not None and not a.number_attr for a in args):
        fixed = tuple(a.type.ref if a.is_ref else a.type for a in args if a.type is not None)
        return lambda attrs: fixed
    plan = [(a, a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in args]

    def types(attrs: Mapping[str, Any]) -> tuple[DType, ...]:
        flat: list[DType] = []
        try:
            for arg, fixed_type, type_attr, number_attr, list_attr, is_ref in plan:
                if list_attr:
                    listed = attrs[list_attr]
                    if isinstance(listed, Placeholder):
                        raise _unbound(list_attr, listed)
                    _check_count(len(flat) + len(listed), list_attr, most)
                    flat += [t.ref for t in listed] if is_ref else listed
                    continue
                dtype = fixed_type or attrs[type_attr]
                if isinstance(dtype, Placeholder):
                    raise _unbound(type_attr, dtype)
                if is_ref:
                    dtype = dtype.ref
                if number_attr:
                    flat += [dtype] * _number(arg, attrs, len(flat), most)
                else:
                    flat.append(dtype)
        except KeyError as e:
            if not e.args[0]:
                raise errors.InvalidArgumentError(f'No type fields in ArgDef name: "{arg.name}"') from None
            raise _no_attr(e.args[0]) from None
        return tuple(flat)

    return types


def _ranges(args: Iterable[ArgDef], attrs: Mapping[str, Any], most: int) -> dict[str, tuple[int, int]]:
    ranges = {}
    start = 0
    try:
        for arg in args:
            if arg.type_list_attr:
                listed = attrs[arg.type_list_attr]
                if isinstance(listed, Placeholder):
                    raise _unbound(arg.type_list_attr, listed)
                stop = start + len(listed)
                _check_count(stop, arg.type_list_attr, most)
            elif arg.number_attr:
                stop = start + _number(arg, attrs, start, most)
            else:
                stop = start + 1
            ranges[arg.name] = (start, stop)
            start = stop
    except KeyError as e:
        raise _no_attr(e.args[0]) from None
    return ranges


def _number(arg: ArgDef, attrs: Mapping[str, Any], so_far: int, most: int) -> int:
    number = attrs[arg.number_attr]
    if isinstance(number, Placeholder):
        raise _unbound(arg.number_attr, number)
    if number < 0:
        raise errors.InvalidArgumentError(
            f"Value for number_attr() {number} < 0: attr '{arg.number_attr}' of '{arg.name}'"
        )
    _check_count(so_far + number, arg.number_attr, most)
    return int(number)


def _check_count(tensors: int, attr: str, most: int) -> None:
    if tensors > most:
        raise errors.InvalidArgumentError(
            f"Number of outputs or inputs is too big: {tensors} with attr '{attr}', at most {most} are allowed"
        )


def _no_attr(name: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"No attr named '{name}' in NodeDef")


def _unbound(attr: str, placeholder: Placeholder) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"AttrValue had value with unexpected type 'placeholder': attr '{attr}' is ${placeholder}, "
        "which only the instantiation of a function can bind"
    )
