"""Nodes on the wire: names, inputs, and the check of a NodeDef against its OpDef.

`resolve_attrs`, which an importer calls for each node, decodes, checks and completes the node's attrs.  Graphs of a
hundred thousand nodes have to load in seconds, so the reader of each attr is made once per OpDef, and texts are made
only when there is an error to report. The checks and their wording are those of TensorFlow's
core/framework/node_def_util.cc.
Next to read: `op_contract/node_def_builder.py`, then `aexec/graph/nodes/node_import.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from aexec import proto
from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType, names
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import Placeholder
from aexec.framework.wire.op_def import AttrDef, OpDef

__all__ = [
    "CONTROL_PORT",
    "TensorName",
    "attr_readers",
    "attrs_to_proto",
    "check_attrs",
    "check_input_count",
    "check_node_name",
    "node_text",
    "parse_tensor_name",
    "resolve_attrs",
    "split_inputs",
    "validate",
]

logger = logging.getLogger("aexec")

CONTROL_PORT = -1


class TensorName(NamedTuple):
    """A node's output: port 0, 1, ..., or `CONTROL_PORT`."""

    node: str
    port: int

    def __str__(self) -> str:
        """The name as a NodeDef's input has it: `n`, `n:1`, `^n`."""
        if self.port == CONTROL_PORT:
            return f"^{self.node}"
        return f"{self.node}:{self.port}" if self.port else self.node


_PORT = re.compile(r"(.+):([0-9]+)", re.DOTALL)
_PIECE = r"[A-Za-z0-9.][A-Za-z0-9_.\\/-]*"
_NAME = re.compile(f"{_PIECE}(?:>{_PIECE})*")


def parse_tensor_name(text: str) -> TensorName:
    """Split `name`, `name:k` or `^name`.

    A port takes precedence over a caret: `^c:0` is output 0 of a node `^c`, which cannot exist.
    """
    if ":" in text:
        match = _PORT.fullmatch(text)
        if match:
            return TensorName(match[1], int(match[2]) if len(match[2]) < 20 else 2**63)
    if text.startswith("^"):
        return TensorName(text[1:], CONTROL_PORT)
    return TensorName(text, 0)


def check_node_name(name: str, *, internal: bool = False) -> None:
    """Raise InvalidArgumentError if `name` is not a valid node name; a leading `_` is valid in `internal` graphs
    only.
    """
    checked = name[1:] if internal and name.startswith("_") else name
    if not _NAME.fullmatch(checked):
        raise errors.InvalidArgumentError(f"Node '{name}': Node name contains invalid characters")


def split_inputs(node: str, inputs: Iterable[str]) -> tuple[list[TensorName], list[str]]:
    """The data inputs, and the names of the control inputs without repetitions.

    Data input i is `inputs[i]`.

    Raises:
        InvalidArgumentError: a data input comes after a control input.
    """
    data: list[TensorName] = []
    controls: dict[str, None] = {}
    for text in inputs:
        if text.startswith("^"):
            controls[text[1:]] = None
        elif controls:
            raise errors.InvalidArgumentError(
                f"Node '{node}': Control dependencies must come after regular dependencies: "
                f"'{text}' comes after '^{next(reversed(controls))}'"
            )
        else:
            data.append(parse_tensor_name(text))
    return data, list(controls)


# ---- attrs

Reader = Callable[[proto.AttrValue], Any]

# (op, attr) of the unknown attrs that the log has mentioned.
_mentioned: set[tuple[str, str]] = set()


def resolve_attrs(
    op_def: OpDef, attr_map: Mapping[str, proto.AttrValue], *, node: str = "", placeholders: bool = False
) -> dict[str, Any]:
    """A node's attrs as Python values: decoded, checked against the OpDef, with defaults filled in.

    An attr that the OpDef does not have is kept, unchecked; it is logged once per op and attr, unless its name begins
    with `_`. Default lists are shared: do not modify them.

    Args:
        op_def: the node's op.
        attr_map: the `attr` field of a NodeDef.
        node: the node's name, for errors.
        placeholders: keep placeholders, which function bodies may have, as `Placeholder`.

    Raises:
        InvalidArgumentError: an attr is missing, of the wrong type, too small or not allowed.
    """
    values = dict(op_def.defaults)
    readers = attr_readers(op_def)
    for name in attr_map:
        message = attr_map[name]
        reader = readers.get(name)
        if reader is None:
            values[name] = _read_unknown(op_def, name, message)
            continue
        try:
            values[name] = reader(message)
        except errors.InvalidArgumentError as e:
            if placeholders and message.WhichOneof("value") == "placeholder":
                values[name] = Placeholder(message.placeholder)
            else:
                raise errors.InvalidArgumentError(f"{e.message}\n\t; {_context(node, op_def)}") from None
    _check_complete(op_def, values, node)
    return values


def check_attrs(op_def: OpDef, attrs: Mapping[str, Any], *, node: str = "") -> dict[str, Any]:
    """Like `resolve_attrs`, for attrs that are Python values and not messages.

    A value may be anything that `attr_value.encode` takes.

    Raises:
        InvalidTypeError: an attr is of the wrong type, or is a type that is not allowed.
        InvalidValueError: an attr is missing, too small or not allowed.
    """
    values = dict(op_def.defaults)
    for name, value in attrs.items():
        attr = op_def.attr_map.get(name)
        if attr is None:
            values[name] = attr_value.decode(attr_value.encode(value))
            continue
        try:
            values[name] = value = attr_value.normalize(value, attr.type)
            if not isinstance(value, Placeholder):
                _check_types(attr, value)
                attr.check(value)
        except errors.InvalidArgumentError as e:
            message = e.message if f"attr '{name}'" in e.message else f"{e.message}\n\t for attr '{name}'"
            error = errors.InvalidArgumentError(f"{message}\n\t; {_context(node, op_def)}")
            of_type = attr.type.endswith(("type", "type)")) or isinstance(e, TypeError)
            raise errors.as_python(error, TypeError if of_type else ValueError) from None
    _check_complete(op_def, values, node)
    return values


def attrs_to_proto(op_def: OpDef, attrs: Mapping[str, Any]) -> dict[str, proto.AttrValue]:
    """Attrs as messages, for a NodeDef's `attr` field.  Raises InvalidArgumentError if one has the wrong type."""
    known = op_def.attr_map
    return {
        name: attr_value.encode(value, known[name].type if name in known else None) for name, value in attrs.items()
    }


def _context(node: str, op_def: OpDef) -> str:
    return f"{_named(node)}; {op_def}" if node else str(op_def)


def _named(node: str) -> str:
    return f"NodeDef: {{{{node {abridged(node)}}}}}"


def _check_complete(op_def: OpDef, values: Mapping[str, Any], node: str) -> None:
    for name in op_def.required:
        if name not in values:
            missing = [n for n in op_def.required if n not in values]
            raise errors.InvalidArgumentError(
                f"NodeDef missing attr{'s' if len(missing) > 1 else ''} '"
                + "', '".join(missing)
                + f"' from {op_def}"
                + (f"; {_named(node)}" if node else "")
            )


def _read_unknown(op_def: OpDef, name: str, message: proto.AttrValue) -> Any:
    if not name.startswith("_") and (op_def.name, name) not in _mentioned:
        _mentioned.add((op_def.name, name))
        logger.warning(
            "NodeDef mentions attribute %s which is not in the op definition: %s. It is kept, and means nothing here.",
            name,
            op_def,
        )
    try:
        return attr_value.decode(message)
    except errors.InvalidArgumentError:
        return attr_value.encode(message)  # a copy of the undecoded message


def attr_readers(op_def: OpDef) -> Mapping[str, Reader]:
    """The readers of an op's attrs, by name; made at the first call."""
    if not op_def.attr_readers:  # another thread may do the same: each sees all or none
        op_def.attr_readers.update({attr.name: _reader(attr) for attr in op_def.attrs})
    return op_def.attr_readers


def _reader(attr: AttrDef) -> Reader:
    """The reader of an attr: fast for an expected value, and through `_read_checked` for all others."""
    if attr.type == "type":
        return _type_reader(attr)
    member = attr_value.MEMBER_OF_TYPE.get(attr.type)
    if member in ("i", "b", "f", "s"):
        return _scalar_reader(attr, member)
    if attr.type in ("list(int)", "list(bool)", "list(float)", "list(string)") and attr.allowed is None:
        return _list_reader(attr, attr_value.MEMBER_OF_TYPE[attr.type[5:-1]])
    return lambda message: _read_checked(attr, message)


def _type_reader(attr: AttrDef) -> Reader:
    good = {dtype.enum: dtype for dtype in attr.allowed or ()}

    def read(message: proto.AttrValue) -> Any:
        dtype = good.get(message.type)  # 0 if the value is of another kind
        if dtype is None:
            dtype = _read_checked(attr, message)
            good[dtype.enum] = dtype
        return dtype

    return read


def _scalar_reader(attr: AttrDef, member: str) -> Reader:
    allowed = attr.allowed
    minimum = attr.minimum

    def read(message: proto.AttrValue) -> Any:
        if message.WhichOneof("value") == member:
            value = getattr(message, member)
            if (allowed is None or value in allowed) and (minimum is None or value >= minimum):
                return value
        return _read_checked(attr, message)

    return read


def _list_reader(attr: AttrDef, member: str) -> Reader:
    minimum = attr.minimum or 0

    def read(message: proto.AttrValue) -> Any:
        fields = message.list.ListFields()  # empty, too, if the value is of another kind
        if len(fields) == 1:
            descriptor, values = fields[0]
            if descriptor.name == member and len(values) >= minimum:
                return [*values]
        return _read_checked(attr, message)

    return read


def _read_checked(attr: AttrDef, message: proto.AttrValue) -> Any:
    """The value of an attr.  Raises InvalidArgumentError if it is not what the AttrDef asks for."""
    kind = attr_value.kind(message)
    if kind == "placeholder":
        raise _wrong(attr, "AttrValue had value with unexpected type 'placeholder'")
    if kind is None and not attr.is_list:
        raise _wrong(attr, f"AttrValue missing value with expected type '{attr.type}'")
    if kind == "list":
        if not attr.is_list:
            raise _wrong(attr, f"AttrValue missing value with expected type '{attr.type}'")
    elif kind is not None:
        for found in (kind, *_other_kinds(message)):
            if found != attr.type:
                raise _wrong(attr, f"AttrValue had value with type '{found}' when '{attr.type}' expected")
    try:
        value = attr_value.decode(message)
    except errors.InvalidArgumentError as e:
        raise _wrong(attr, e.message) from None
    if value is None:  # old graphs write an empty list as no value
        value = []
    _check_types(attr, value)
    attr.check(value)
    return value


def _other_kinds(message: proto.AttrValue) -> list[str]:
    """The further element types of a list that wrongly has several."""
    if message.WhichOneof("value") != "list":
        return []
    members = [descriptor.name for descriptor, _ in message.list.ListFields()]
    types = {member: name for name, member in attr_value.MEMBER_OF_TYPE.items()}
    return [f"list({types[member]})" for member in members[1:]]


def _check_types(attr: AttrDef, value: Any) -> None:
    if attr.type in ("type", "list(type)"):
        for dtype in value if isinstance(value, list) else (value,):
            if dtype.is_ref:
                raise _wrong(attr, f"AttrValue must not have reference type value of {dtype}")


def _wrong(attr: AttrDef, message: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"{message}\n\t for attr '{attr.name}'")


# ---- whole nodes


def check_input_count(op_def: OpDef, attrs: Mapping[str, Any], count: int, *, node: str = "") -> tuple[DType, ...]:
    """The types of a node's data inputs, given their number `count`.

    Raises:
        InvalidArgumentError: the attrs ask for another number of inputs.
    """
    types = op_def.input_types(attrs)
    if len(types) != count:
        raise errors.InvalidArgumentError(
            f"NodeDef expected inputs '{names(types[:1000])}' do not match {count} inputs specified; "
            f"{op_def}" + (f"; {_named(node)}" if node else "")
        )
    return types


def validate(message: proto.NodeDef, op_def: OpDef, *, internal: bool = False) -> dict[str, Any]:
    """Check a NodeDef by itself: name, op, inputs, attrs, types.  Returns its attrs as `resolve_attrs` does.

    Raises:
        InvalidArgumentError: as the functions above.
    """
    check_node_name(message.name, internal=internal)
    if not message.op:
        raise errors.InvalidArgumentError(f"Node '{message.name}' does not specify an operation")
    if message.op != op_def.name:
        raise errors.InvalidArgumentError(f"NodeDef op '{message.op}' does not match {op_def}; {_named(message.name)}")
    inputs, controls = split_inputs(message.name, message.input)
    for control in controls:
        if ":" in control:
            raise errors.InvalidArgumentError(f"Control input '^{control}' must not have ':' in {_named(message.name)}")
    attrs = resolve_attrs(op_def, message.attr, node=message.name)
    check_input_count(op_def, attrs, len(inputs), node=message.name)
    op_def.output_types(attrs)
    return attrs


def node_text(name: str, op: str, attrs: Mapping[str, Any], inputs: Iterable[object] = (), device: str = "") -> str:
    """The text of a node: `{{node n}} = Op[a=1, T=DT_FLOAT, _device="..."](x, ^c)`, attrs sorted by name.

    Args:
        name, op: the node's.
        attrs: Python values or AttrValues.
        inputs: input strings or `TensorName`s.
        device: the requested device, left out if empty.
    """
    pieces = [f"{key}={attr_value.summarize(attrs[key])}" for key in sorted(attrs)]
    if device:
        pieces.append(f"_device={attr_value.summarize(device.encode())}")
    return f"{{{{node {name}}}}} = {op}[{', '.join(pieces)}]({', '.join(map(str, inputs))})"
