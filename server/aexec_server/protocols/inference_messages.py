"""Inference requests in the messages of Triton's gRPC service, and the messages that answer them.

They have the meaning of the JSON that `inference_request.py` reads; only the encoding of tensors and parameters
differs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aexec import errors
from aexec.hosting import DType, check_inline, datatype_of, dtypes, has_datatype, loop_budget, wire_format
from aexec.proto import inference
from aexec_server.http import bodies
from aexec_server.models.models import ModelVersion
from aexec_server.protocols.classification import read_class_count
from aexec_server.protocols.inference_request import (
    InferenceRequest,
    check_no_region,
    no_datatype,
    read_id,
    set_parameters,
)
from aexec_server.protocols.large_tensors import infer_apart
from aexec_server.requests import tensors
from aexec_server.requests.run_request import MAX_NAMES, RunRequest
from aexec_server.requests.run_response import Answer
from aexec_server.requests.served_call import AnswerForm
from aexec_server.settings.message_scan import MessageLimits

__all__ = ["InferenceByMessage", "parse_infer", "plain_parameters", "read_infer_message"]

_RAW_OUTPUTS = inference.ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number
# The field of InferTensorContents with the elements of each type; 16-bit floats have none.
_CONTENTS: Mapping[DType, str] = {
    dtypes.bool_: "bool_contents",
    dtypes.int8: "int_contents",
    dtypes.int16: "int_contents",
    dtypes.int32: "int_contents",
    dtypes.int64: "int64_contents",
    dtypes.uint8: "uint_contents",
    dtypes.uint16: "uint_contents",
    dtypes.uint32: "uint_contents",
    dtypes.uint64: "uint64_contents",
    dtypes.float32: "fp32_contents",
    dtypes.float64: "fp64_contents",
    dtypes.string: "bytes_contents",
}

# Size of an integer in such a field; values of smaller types are range-checked.
_FIELD_BYTES = 4


@dataclass(slots=True)
class InferenceByMessage(InferenceRequest):
    """An inference request that is answered with a message."""

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Return a ModelInferResponse whose tensors are raw bytes."""
        response = inference.ModelInferResponse(
            model_name=version.model, model_version=str(version.number), id=self.id or ""
        )
        raw: list[bytes | memoryview] = []
        kinds, sent = self.outputs(served, values)
        for name, dtype, value in zip(served.names, kinds, sent, strict=True):
            array = tensors.as_array(value, dtype)
            response.outputs.add(name=name, datatype=datatype_of(dtype), shape=array.shape)
            raw += wire_format.enclosed(_RAW_OUTPUTS, [tensors.to_binary(array, dtype)])
        return b"".join([response.SerializeToString(), *raw]), None


def plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a map of parameters, of any message type; None for a parameter without a value."""
    return {name: _plain(parameter) for name, parameter in parameters.items()}


def _plain(parameter: Any) -> Any:
    chosen = parameter.WhichOneof("parameter_choice")
    return None if chosen is None else getattr(parameter, chosen)


def parse_infer(data: bytes, limits: MessageLimits) -> tuple[inference.ModelInferRequest, list[memoryview]]:
    """Decode a request; large raw contents are returned beside it.  Raises as `bodies.parse_message`."""
    rest, raw = infer_apart(data)
    message, _ = bodies.parse_message(inference.ModelInferRequest, rest, limits)
    return message, raw


def read_infer_message(
    message: inference.ModelInferRequest, raw: Sequence[bytes | memoryview] = ()
) -> InferenceByMessage:
    """Decode a request.

    Args:
        raw: the raw contents that `parse_infer` has taken out of the message.

    Raises:
        InvalidArgumentError: the request is not valid; the message says what is wrong.
        NotFoundError: a tensor lies in shared memory.
        UnimplementedError: a parameter asks for what this server cannot do.
    """
    asked = RunRequest(by_signature=True, fetches=None, as_message=True)
    if message.parameters:
        set_parameters(asked, plain_parameters(message.parameters))
    if max(len(message.inputs), len(message.outputs)) > MAX_NAMES:
        raise errors.InvalidArgumentError(f"A request may have at most {MAX_NAMES} inputs and outputs each")
    classes = {}
    if message.outputs:
        asked.fetches = tuple([output.name for output in message.outputs])
        asked.binary = [False] * len(asked.fetches)
        classes = _classes(message.outputs)
    _read_inputs(asked.feeds, message, raw or message.raw_input_contents)
    return InferenceByMessage(asked, read_id(message.id), classes)


def _classes(outputs: Sequence[inference.ModelInferRequest.InferRequestedOutputTensor]) -> dict[str, int]:
    """Return output → number of highest values, for outputs with the parameter `classification`."""
    found = {}
    for output in outputs:
        if output.parameters:
            parameters = plain_parameters(output.parameters)
            check_no_region(parameters)
            count = read_class_count(parameters.get("classification"))
            if count:
                found[output.name] = count
    return found


def _read_inputs(
    feeds: dict[str, Any], message: inference.ModelInferRequest, raw: Sequence[bytes | memoryview]
) -> None:
    """Read the tensors by name: all from raw bytes, or each from the field of its type."""
    if raw and len(raw) != len(message.inputs):
        raise errors.InvalidArgumentError(
            f"expected raw_input_contents for each of {len(message.inputs)} inputs, got {len(raw)}"
        )
    for at, tensor in enumerate(message.inputs):
        name = tensor.name
        if name in feeds:
            raise errors.InvalidArgumentError(f'Endpoint "{name}" fed more than once.')
        if tensor.parameters:
            check_no_region(plain_parameters(tensor.parameters))
        dtype = tensors.dtype_of_datatype(tensor.datatype, name)
        if not has_datatype(dtype):
            raise no_datatype("An input has", tensor.datatype)
        dims = tensors.read_shape(name, list(tensor.shape))
        if not raw:
            feeds[name] = _from_contents(name, dtype, dims, tensor.contents)
        elif tensor.HasField("contents"):
            raise errors.InvalidArgumentError(
                f"contents field must not be specified when using raw_input_contents for '{name}' "
                f"for model '{message.model_name}'"
            )
        else:
            feeds[name] = tensors.from_binary(name, dtype, dims, memoryview(raw[at]))


def _from_contents(name: str, dtype: DType, dims: tuple[int, ...], contents: inference.InferTensorContents) -> Any:
    field = _CONTENTS.get(dtype)
    if field is None:
        raise errors.InvalidArgumentError(
            f"{name} has datatype {datatype_of(dtype)}, which contents have no field for: use raw_input_contents"
        )
    values = getattr(contents, field)
    if len(values) != math.prod(dims):
        raise errors.InvalidArgumentError(
            f"{field} of {name} has {len(values)} elements, but shape {list(dims)} has {math.prod(dims)}"
        )
    check_inline(loop_budget.OBJECT_NS * len(values))
    if dtype is dtypes.string:
        return np.fromiter(values, object, len(values)).reshape(dims)
    given = np.array(values, np.int64 if dtype.np.itemsize < _FIELD_BYTES else dtype.np)
    narrow = given.astype(dtype.np, copy=False)
    if narrow.dtype != given.dtype and (narrow != given).any():
        raise errors.InvalidArgumentError(f"{field} of {name} has numbers beyond {datatype_of(dtype)}")
    return narrow.reshape(dims)
