"""Inference requests of the Open Inference Protocol v2, and their answers: names are those of a model's signature.

    {"id": "7", "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}

Read `requests/run_request.py` first, whose tensor list this is too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aexec import errors
from aexec.hosting import DType, Signature, TensorInfo, datatype_of, dtypes, has_datatype
from aexec_server.http import bodies
from aexec_server.models.models import ModelVersion
from aexec_server.requests import tensors
from aexec_server.requests.run_request import (
    PARAMETERS,
    RunRequest,
    binary_rest,
    read_parameters,
    read_tensor_list,
    read_wanted,
)
from aexec_server.requests.run_response import Answer, tensor_list
from aexec_server.requests.served_call import AnswerForm, ServedCall

__all__ = ["InferenceRequest", "RepeatedInference", "read_inference", "read_raw"]

_FIELDS = frozenset({"id", "parameters", "inputs", "outputs"})
_MAX_ID = 1024
# Bytes of JSON that are remembered.
_MAX_KNOWN = 2048
# Of models that keep something between the requests of a sequence, which is none here.
_SEQUENCES = ("sequence_id", "sequence_start", "sequence_end")
_PARAMETERS = PARAMETERS.union(("signature_name", *_SEQUENCES))


@dataclass(slots=True)
class InferenceRequest:
    """One request.

    Attributes:
        asked: the run.
        id: what the client calls the request, or None; it is echoed.
    """

    asked: RunRequest
    id: str | None = None

    @property
    def rows(self) -> int:
        """See `ModelRequest`."""
        return self.asked.rows

    def check(self, served: ServedCall) -> None:
        """Refuse what the protocol has no form for, and tensors of other types than the model's.

        Raises:
            InvalidArgumentError: an input has another type.
            UnimplementedError: an output has a type that the protocol lacks.
        """
        feeds = self.asked.feeds
        for name, dtype in zip(served.inputs, served.input_dtypes, strict=True):
            if feeds[name].dtype != dtype.np:
                raise errors.InvalidArgumentError(
                    f"Input '{name}' has another datatype than the model's, which is {datatype_of(dtype)}"
                )
        for name, dtype in zip(served.names, served.dtypes, strict=True):
            if not has_datatype(dtype):
                raise _no_datatype(f"Output '{name}' has", str(dtype))

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """The answer."""
        head = f'"model_name":"{version.model}","model_version":"{version.number}"'
        if self.id is not None:
            head += f',"id":{bodies.encode_json(self.id)}'
        return tensor_list(head, self.asked, served, values)


def _no_datatype(what: str, name: str) -> errors.UnimplementedError:
    return errors.UnimplementedError(
        f"{what} type {name}, which the inference protocol has no datatype for: use /v1/sessions"
    )


def read_inference(body: bodies.Body, header_length: int | None) -> InferenceRequest:
    """Decode a request.

    Args:
        body: JSON, followed by the tensors of the binary extension if there is a `header_length`.

    Raises:
        InvalidArgumentError: no such request; names what is wrong.
        UnimplementedError: a parameter for what this server does not do.
    """
    fields = bodies.json_object(body if header_length is None else body[:header_length])
    if not _FIELDS.issuperset(fields):
        bodies.check_fields(fields, _FIELDS, "the request")
    asked = RunRequest(by_signature=True, as_list=True, fetches=None)
    if fields.get("parameters"):
        asked.signature = _read_parameters(asked, fields["parameters"])
    if "outputs" in fields:
        read_wanted(asked, fields["outputs"], '"outputs"')
    inputs = fields.get("inputs")
    if type(inputs) is not list:
        raise bodies.expected('"inputs" must be a list of tensors', inputs)
    for tensor in inputs:
        if type(tensor) is dict and str(tensor.get("datatype")).startswith("DT_"):
            raise _no_datatype("An input has", tensor["datatype"])
    read_tensor_list(asked, inputs, binary_rest(body, header_length), '"inputs"')
    return InferenceRequest(asked, _read_id(fields.get("id")))


class RepeatedInference:
    """Reads the requests of a client that differ in the bytes of their tensors only: their JSON is read twice."""

    def __init__(self) -> None:
        self._seen: bytes | None = b""  # None: its tensors are not all bytes
        self._known: _Known | None = None

    def read(self, body: bytes, header_length: int) -> InferenceRequest:
        """As `read_inference`."""
        text = body[:header_length]
        known = self._known
        if known is not None and text == known.text and len(body) == known.size:
            raw, feeds, begin = memoryview(body), {}, header_length
            for name, dtype, dims, end in known.tensors:
                feeds[name] = tensors.from_binary(name, dtype, dims, raw[begin:end])
                begin = end
            return InferenceRequest(known.asked.with_feeds(feeds), known.id)
        read = read_inference(body, header_length)
        if text == self._seen:
            self._known = _known(text, read)
            if self._known is None:
                self._seen = None
        elif self._seen is not None and header_length <= _MAX_KNOWN:
            self._seen = text
        return read


@dataclass(frozen=True, slots=True)
class _Known:
    """What follows from the JSON of a request.

    Attributes:
        text: it.
        asked, id: as of an `InferenceRequest`, without feeds.
        tensors: name, type, shape and end in the body of each.
        size: of the body.
    """

    text: bytes
    asked: RunRequest
    id: str | None
    tensors: list[tuple[str, DType, tuple[int, ...], int]]
    size: int


def _known(text: bytes, read: InferenceRequest) -> _Known | None:
    """None if not all tensors are bytes after the JSON."""
    listed, end = [], len(text)
    for tensor in bodies.json_object(text)["inputs"]:
        name, size = tensor["name"], (tensor.get("parameters") or {}).get("binary_data_size")
        if size is None:
            return None
        end += size
        dtype = tensors.dtype_of_datatype(tensor["datatype"], name)
        listed.append((name, dtype, tensors.read_shape(name, tensor["shape"]), end))
    return _Known(text, read.asked.with_feeds({}), read.id, listed, end)


def _read_id(value: Any) -> str | None:
    if value is not None and (type(value) is not str or len(value) > _MAX_ID):
        raise errors.InvalidArgumentError(f'"id" must be a string of at most {_MAX_ID} characters')
    return value or None


def _read_parameters(asked: RunRequest, value: Any) -> str | None:
    """Apply them to the request; returns the signature that they name."""
    if type(value) is not dict:
        raise bodies.expected('"parameters" must be an object', value)
    bodies.check_fields(value, _PARAMETERS, "the parameters of the request")
    parameters = dict(value)
    for name in _SEQUENCES:
        if parameters.pop(name, None) not in (None, 0, False, ""):
            raise errors.UnimplementedError(f'"{name}": models keep nothing between the requests of a sequence')
    signature = parameters.pop("signature_name", None)
    if signature is not None and type(signature) is not str:
        raise bodies.expected('"signature_name" must be a name', signature)
    read_parameters(asked, parameters)
    return signature


def read_raw(body: bodies.Body, signature: Signature) -> InferenceRequest:
    """A request without JSON: the body is the one input's bytes, of a batch of one; all outputs are binary.

    Raises:
        InvalidArgumentError: the model has several inputs, or the bytes do not say their shape.
    """
    if len(signature.inputs) != 1:
        raise errors.InvalidArgumentError(
            f"A body without JSON is for models with one input; this has {len(signature.inputs)}"
        )
    ((name, info),) = signature.inputs.items()
    asked = RunRequest(by_signature=True, as_list=True, fetches=None, binary_by_default=True)
    shape = _raw_shape(name, info, len(body))
    raw = len(body).to_bytes(4, "little") + bytes(body) if info.dtype is dtypes.string else body
    assert info.dtype is not None
    asked.feeds[name] = tensors.from_binary(name, info.dtype, shape, memoryview(raw))
    return InferenceRequest(asked)


def _raw_shape(name: str, info: TensorInfo, size: int) -> tuple[int, ...]:
    """The one shape that these bytes can have: the first size is 1 if it is open, one more follows from the bytes."""
    if info.dtype is None or info.shape.dims is None or not has_datatype(info.dtype):
        raise errors.InvalidArgumentError(f"The shape of '{name}' is not known: send it in JSON")
    dims = [1 if axis == 0 and dim is None else dim for axis, dim in enumerate(info.shape.dims)]
    known = math.prod(dim for dim in dims if dim is not None)
    if info.dtype is dtypes.string:
        count = 1
    else:
        count = size // info.dtype.size
    open_axes = [axis for axis, dim in enumerate(dims) if dim is None]
    if len(open_axes) > 1 or (open_axes and known == 0):
        raise errors.InvalidArgumentError(f"The shape of '{name}' does not follow from {size} bytes: send it in JSON")
    return tuple(count // known if dim is None else dim for dim in dims)
