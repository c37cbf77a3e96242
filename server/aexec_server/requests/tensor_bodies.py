"""Tensors in bodies that are not runs: those put into and taken out of queues, and those that sessions keep.

They have the two forms of a run's tensors (`run_request.py`): V2 tensors, some of which may follow the JSON as bytes,
and nested lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from multidict import istr

from aexec import errors, proto
from aexec.hosting import DType, datatype_of, listed, tensor_from_proto
from aexec_server.http import bodies
from aexec_server.http.bodies import encode_json
from aexec_server.http.json_style import JsonStyle
from aexec_server.requests import tensors
from aexec_server.requests.run_request import (
    RunRequest,
    binary_rest,
    parse_header_length,
    read_parameters,
    read_tensor_list,
)
from aexec_server.requests.run_response import Answer, tensors_answer

__all__ = ["TensorBody", "TensorMessage", "check_form", "ordered_tensors", "tensors_text", "wants_binary"]

_JSON_LENGTH = istr("Inference-Header-Content-Length")


class TensorBody:
    """A JSON body, with the bytes that follow it.

    Args:
        body: the whole body.
        json_length: what the header Inference-Header-Content-Length says; None: it is all JSON.
        allowed: names of the members that the JSON may have.

    Attributes:
        fields: the JSON object.

    Raises:
        InvalidArgumentError: the JSON is not an object, or has other members.
    """

    def __init__(self, body: bytes, json_length: int | None, allowed: frozenset[str]) -> None:
        self.fields = bodies.json_object(body if json_length is None else body[:json_length])
        bodies.check_fields(self.fields, allowed, "the request")
        self._rest = binary_rest(body, json_length)

    @classmethod
    def of(cls, request: web.Request, body: bytes, allowed: frozenset[str]) -> TensorBody:
        """Return the body of a request; an empty one counts as `{}`."""
        if bodies.is_protobuf(bodies.media_type(request)):
            raise errors.UnimplementedError(
                "There is no message for this call: send JSON, with tensors in bytes after it"
            )
        length = parse_header_length(request.headers.get(_JSON_LENGTH), body)
        return cls(body if body.strip() else b"{}", length, allowed)

    is_message = False

    def tensors(self, member: str, names: Sequence[str], dtypes: Sequence[DType | None]) -> list[Any]:
        """Return the tensors in a member: V2 tensors, nested lists, or numbers and strings.

        Args:
            member: its name; it has to be a list.
            names: of the tensors, in the order in which they are wanted; V2 tensors with names come in any order.
            dtypes: their types; None for one whose type the request gives.

        Raises:
            InvalidArgumentError: the number of tensors or a type is wrong.
            NeedsThreadError: it would take too long on the event loop, where it was called.
        """
        given = self.fields.get(member)
        if type(given) is not list or len(given) != len(names):
            raise bodies.expected(
                f'"{member}" must be a list of {len(names)} tensors ({", ".join(names)[:200]})', given
            )
        if all(type(item) is dict and "datatype" in item for item in given):
            return self._listed(given, names, dtypes)
        if len(self._rest):
            raise errors.InvalidArgumentError("Bytes follow the JSON, but none of its tensors has a binary_data_size")
        values = []
        for name, dtype, value in zip(names, dtypes, given, strict=True):
            if dtype is None:
                raise bodies.expected(f'{name} must be {{"datatype", "shape", "data"}}', value)
            values.append(tensors.from_people(name, dtype, value))
        return values

    def _listed(self, given: list[dict[str, Any]], names: Sequence[str], dtypes: Sequence[DType | None]) -> list[Any]:
        if not any("name" in tensor for tensor in given):
            given = [{**tensor, "name": name} for tensor, name in zip(given, names, strict=True)]
        read = RunRequest()
        read_tensor_list(read, given, self._rest, "the list")
        _check_names(read.feeds, names)
        sent = {tensor["name"]: tensors.dtype_of_datatype(tensor["datatype"], tensor["name"]) for tensor in given}
        for name, dtype in zip(names, dtypes, strict=True):
            if dtype not in (None, sent[name]):
                assert dtype is not None
                raise errors.InvalidArgumentError(
                    f"{name} has datatype {datatype_of(sent[name])}, but must have {datatype_of(dtype)}"
                )
        return [read.feeds[name] for name in names]


class TensorMessage:
    """Like `TensorBody`, for a RunStepRequest: its feeds are the tensors, and the other members are in the query.

    Args:
        message: the body.
        query: of the address.
        allowed: names of the members that a JSON body may have.

    Attributes:
        fields: the members, as of a JSON body.

    Raises:
        InvalidArgumentError: the query has other members.
    """

    is_message = True

    def __init__(self, message: proto.RunStepRequest, query: Mapping[str, str], allowed: frozenset[str]) -> None:
        self._feeds = message.feed
        self.fields = {name: _from_query(name, value) for name, value in query.items()}
        bodies.check_fields(self.fields, allowed, "the address")

    def tensors(self, member: str, names: Sequence[str], dtypes: Sequence[DType | None]) -> list[Any]:
        """Like `TensorBody.tensors`.  Types are checked later, where the tensors are used."""
        return ordered_tensors(self._feeds, names)


def ordered_tensors(given: Sequence[proto.NamedTensorProto], names: Sequence[str]) -> list[Any]:
    """The values of tensors in the order of these names.  Tensors without names are in that order already.

    Raises:
        InvalidArgumentError: there are others, or more, or fewer; a tensor is not valid.
    """
    if len(given) != len(names):
        raise errors.InvalidArgumentError(f"There must be {len(names)} feeds, got {len(given)}")
    if not any(named.name for named in given):
        return [tensor_from_proto(named.tensor) for named in given]
    by_name = {named.name: named.tensor for named in given}
    _check_names(by_name, names)
    return [tensor_from_proto(by_name[name]) for name in names]


def _check_names(given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise InvalidArgumentError unless these are the names, in any order."""
    if given.keys() != set(names):
        raise errors.InvalidArgumentError(
            f"Tensors have these names, or none: expected {listed(names)}, got {listed(given)}"
        )


def _from_query(name: str, value: str) -> Any:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else value


def wants_binary(fields: dict[str, Any]) -> bool | None:
    """True if a request asks for V2 tensors as bytes, False for V2 tensors in JSON, None for nested lists."""
    if "parameters" not in fields:
        return None
    asked = RunRequest()
    read_parameters(asked, fields["parameters"])
    return asked.binary_by_default


def check_form(names: Sequence[str], dtypes: Sequence[DType], binary: bool | None) -> None:
    """Check that an answer can hold tensors of these types.

    Raises:
        InvalidArgumentError, UnimplementedError: a type cannot be sent in the form that is asked for.
    """
    for name, dtype in zip(names, dtypes, strict=True):
        if binary is None:
            tensors.check_people_form(name, dtype)
        else:
            tensors.check_v2_form(name, dtype, binary)


def tensors_text(
    head: str,
    member: str,
    names: Sequence[str],
    dtypes: Sequence[DType],
    values: Sequence[Any],
    binary: bool | None,
    style: JsonStyle | None = None,
) -> Answer:
    """Write an answer with a list of tensors.

    Args:
        head: its other members, with a comma after each.
        member: name of the list; for nested lists `dtypes` and `shapes` follow it.
        binary: as `wants_binary` returns it.
        style: how numbers are written.
    """
    if binary is not None:
        return tensors_answer(
            f'{head}"{member}"', [encode_json(name) for name in names], dtypes, values, [binary] * len(names), "", style
        )
    arrays = [tensors.as_array(value, dtype) for value, dtype in zip(values, dtypes, strict=True)]
    nested = [tensors.people_text(array, dtype, style) for array, dtype in zip(arrays, dtypes, strict=True)]
    text = (
        f'{{{head}"{member}":[{",".join(nested)}],"dtypes":{encode_json([d.name for d in dtypes])},'
        f'"shapes":{encode_json([list(array.shape) for array in arrays])}}}'
    )
    return text.encode(), None
