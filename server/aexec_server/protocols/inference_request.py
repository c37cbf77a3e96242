"""Inference requests of the Open Inference Protocol v2, and their answers: names are those of a model's signature.

    {"id": "7", "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}

Read `requests/run_request.py` first: the tensor list is the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aexec import errors
from aexec.hosting import DType, Signature, TensorInfo, datatype_of, dtypes, has_datatype
from aexec_server.http import bodies
from aexec_server.models.models import ModelVersion
from aexec_server.protocols.classification import check_classes, read_class_count, top_classes
from aexec_server.requests import tensors
from aexec_server.requests.run_request import (
    PARAMETERS,
    RunRequest,
    binary_rest,
    read_parameters,
    read_tensor_list,
    read_wanted,
)
from aexec_server.requests.run_response import Answer, tensors_answer
from aexec_server.requests.served_call import AnswerForm, ServedCall

__all__ = [
    "InferenceRequest",
    "RepeatedInference",
    "check_no_region",
    "no_datatype",
    "read_id",
    "read_inference",
    "read_raw",
    "set_parameters",
]

_FIELDS = frozenset({"id", "parameters", "inputs", "outputs"})
_MAX_ID = 1024
# `RepeatedInference` remembers JSON up to this many bytes.
_MAX_KNOWN = 2048
# Parameters of models that keep state between the requests of a sequence, which no model here does.
_SEQUENCES = ("sequence_id", "sequence_start", "sequence_end")
# Asks a stream to end each request with an answer without tensors; has no effect here, where each request has one
# answer.
_FINAL_RESPONSE = "triton_enable_empty_final_response"
_INPUT_PARAMETERS = frozenset({"binary_data_size"})
_OUTPUT_PARAMETERS = frozenset({"binary_data"})


@dataclass(slots=True)
class InferenceRequest:
    """One inference request.

    Attributes:
        asked: the run.
        id: the client's id of the request, which is echoed; or None.
        classes: output → number of highest values that are wanted instead of it.
    """

    asked: RunRequest
    id: str | None = None
    classes: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """See `ModelRequest`."""
        return self.asked.rows

    def check(self, served: ServedCall) -> None:
        """Check before the run that the types of inputs are the model's, and that the protocol can send the outputs.

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
                raise no_datatype(f"Output '{name}' has", str(dtype))
            if name in self.classes:
                check_classes(name, dtype)

    def outputs(self, served: AnswerForm, values: Sequence[Any]) -> tuple[Sequence[DType], Sequence[Any]]:
        """Return types and values to send for the outputs: the outputs themselves, or their highest values."""
        if not self.classes:
            return served.dtypes, values
        kinds, sent = list(served.dtypes), list(values)
        for at, name in enumerate(served.names):
            if name in self.classes:
                sent[at] = top_classes(tensors.as_array(sent[at], kinds[at]), self.classes[name])
                kinds[at] = dtypes.string
        return kinds, sent

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Write the answer."""
        head = f'"model_name":"{version.model}","model_version":"{version.number}"'
        if self.id is not None:
            head += f',"id":{bodies.encode_json(self.id)}'
        kinds, sent = self.outputs(served, values)
        names, asked = served.name_texts, self.asked
        return tensors_answer(f'{head},"outputs"', names, kinds, sent, asked.binary, "", asked.style)


def no_datatype(what: str, name: str) -> errors.UnimplementedError:
    return errors.UnimplementedError(
        f"{what} type {name}, which the inference protocol has no datatype for: use /v1/sessions"
    )


def read_inference(body: bodies.Body, header_length: int | None) -> InferenceRequest:
    """Decode a request.

    Args:
        body: JSON, followed by the tensors of the binary extension if there is a `header_length`.

    Raises:
        InvalidArgumentError: the request is not valid; the message says what is wrong.
        UnimplementedError: a parameter asks for what this server cannot do.
    """
    fields = bodies.json_object(body if header_length is None else body[:header_length])
    if not _FIELDS.issuperset(fields):
        bodies.check_fields(fields, _FIELDS, "the request")
    asked = RunRequest(by_signature=True, as_list=True, fetches=None)
    if fields.get("parameters"):
        set_parameters(asked, fields["parameters"])
    classes = _read_outputs(asked, fields["outputs"]) if "outputs" in fields else {}
    inputs = fields.get("inputs")
    if type(inputs) is not list:
        raise bodies.expected('"inputs" must be a list of tensors', inputs)
    for tensor in inputs:
        if type(tensor) is not dict:
            continue
        if "parameters" in tensor:
            tensor["parameters"] = _known_parameters(tensor["parameters"], _INPUT_PARAMETERS)
        if str(tensor.get("datatype")).startswith("DT_"):
            raise no_datatype("An input has", tensor["datatype"])
    read_tensor_list(asked, inputs, binary_rest(body, header_length), '"inputs"')
    return InferenceRequest(asked, read_id(fields.get("id")), classes)


def _read_outputs(asked: RunRequest, outputs: Any) -> dict[str, int]:
    """Set the outputs that are wanted; return those with the parameter `classification`, with its value."""
    classes: dict[str, int] = {}
    for output in outputs if type(outputs) is list else ():
        if type(output) is dict and type(output.get("parameters")) is dict:
            count = read_class_count(output["parameters"].get("classification"))
            if count:
                classes[str(output.get("name"))] = count
            output["parameters"] = _known_parameters(output["parameters"], _OUTPUT_PARAMETERS)
    read_wanted(asked, outputs, '"outputs"')
    return classes


def _known_parameters(given: Any, known: frozenset[str]) -> Any:
    """Return the parameters of a tensor that have a meaning here; as in Triton, others are for models that read them.

    Raises:
        NotFoundError: the tensor is in shared memory, of which there is none.
    """
    if type(given) is not dict:
        return given
    check_no_region(given)
    return {name: value for name, value in given.items() if name in known}


def check_no_region(parameters: Mapping[str, Any]) -> None:
    """Raise NotFoundError if a tensor's parameters say that it lies in shared memory."""
    region = parameters.get("shared_memory_region")
    if region is not None:
        raise errors.NotFoundError(
            f"Unable to find shared memory region: '{str(region)[:80]}': this server reads no memory of its clients; "
            "send the tensor in the request"
        )


class RepeatedInference:
    """Reads a client's requests faster if only the bytes of their tensors differ.

    The JSON that precedes the bytes is parsed twice at most.
    """

    def __init__(self) -> None:
        self._seen: bytes | None = b""  # last JSON seen; None if its tensors are not all binary
        self._known: _Known | None = None

    def read(self, body: bytes, header_length: int) -> InferenceRequest:
        """Like `read_inference`."""
        text = body[:header_length]
        known = self._known
        if known is not None and text == known.text and len(body) == known.size:
            raw, feeds, begin = memoryview(body), {}, header_length
            for name, dtype, dims, end in known.tensors:
                feeds[name] = tensors.from_binary(name, dtype, dims, raw[begin:end])
                begin = end
            return InferenceRequest(known.asked.with_feeds(feeds), known.id, known.classes)
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
    """The data that follow from the JSON of a request alone.

    Attributes:
        text: the JSON.
        asked, id, classes: as in `InferenceRequest`, without feeds.
        tensors: name, type, shape and end in the body of each tensor.
        size: bytes of the body.
    """

    text: bytes
    asked: RunRequest
    id: str | None
    classes: Mapping[str, int]
    tensors: list[tuple[str, DType, tuple[int, ...], int]]
    size: int


def _known(text: bytes, read: InferenceRequest) -> _Known | None:
    """Return what the JSON determines; None if a tensor does not follow it as bytes."""
    listed, end = [], len(text)
    for tensor in bodies.json_object(text)["inputs"]:
        name, size = tensor["name"], (tensor.get("parameters") or {}).get("binary_data_size")
        if size is None:
            return None
        end += size
        dtype = tensors.dtype_of_datatype(tensor["datatype"], name)
        listed.append((name, dtype, tensors.read_shape(name, tensor["shape"]), end))
    return _Known(text, read.asked.with_feeds({}), read.id, read.classes, listed, end)


def read_id(value: Any) -> str | None:
    if value is not None and (type(value) is not str or len(value) > _MAX_ID):
        raise errors.InvalidArgumentError(f'"id" must be a string of at most {_MAX_ID} characters')
    return value or None


def set_parameters(asked: RunRequest, value: Any) -> None:
    """Apply the parameters of a request.

    As in Triton, unknown parameters are for models that read them, but their names may not begin with `triton_`.

    Raises:
        InvalidArgumentError: a parameter is not valid.
        UnimplementedError: a parameter asks for what this server cannot do.
    """
    if type(value) is not dict:
        raise bodies.expected('"parameters" must be an object', value)
    if any(name.startswith("triton_") and name != _FINAL_RESPONSE for name in value):
        raise errors.InvalidArgumentError(
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
        )
    for name in _SEQUENCES:
        if value.get(name) not in (None, 0, False, ""):
            raise errors.UnimplementedError(f'"{name}": models keep nothing between the requests of a sequence')
    signature = value.get("signature_name")
    if signature is not None and type(signature) is not str:
        raise bodies.expected('"signature_name" must be a name', signature)
    asked.signature = signature
    read_parameters(asked, {name: item for name, item in value.items() if name in PARAMETERS})


def read_raw(body: bodies.Body, signature: Signature) -> InferenceRequest:
    """Read a request without JSON: the body is the bytes of the only input, a batch of one; all outputs are sent as
    bytes.

    Raises:
        InvalidArgumentError: the model has several inputs, or the shape does not follow from the number of bytes.
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
    """Infer the shape from the number of bytes: an unknown first size is 1, and one further unknown size follows."""
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
