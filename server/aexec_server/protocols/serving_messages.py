"""Requests of TensorFlow Serving's gRPC services as runs, and the messages that answer them.

Inputs and outputs have the names of a signature.  Requests are read and answered as those of the REST API
(`serving_request.py`); both share the meaning of examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

import aexec
from aexec import errors, proto
from aexec.hosting import (
    DType,
    Signature,
    check_inline,
    dtypes,
    tensor_decode_ns,
    tensor_from_proto,
    tensor_to_field_parts,
    tensor_to_proto,
    wire_format,
)
from aexec.proto import serving
from aexec_server.http import bodies
from aexec_server.models.models import ModelVersion
from aexec_server.protocols.large_tensors import predict_apart
from aexec_server.protocols.serving_models import DEFAULT_SIGNATURE
from aexec_server.protocols.serving_request import CLASSIFY, REGRESS, class_scores, example_values, only_input
from aexec_server.requests.run_request import MAX_NAMES, RunRequest
from aexec_server.requests.run_response import Answer
from aexec_server.requests.served_call import AnswerForm, ServedCall
from aexec_server.requests.tensors import as_array
from aexec_server.settings.message_scan import MessageLimits

__all__ = [
    "ExamplesByMessage",
    "PredictByMessage",
    "TasksByMessage",
    "parse_predict",
    "parse_small_predict",
    "read_examples_message",
    "read_multi_inference",
    "read_predict_message",
    "read_session_run",
    "session_run_answer",
    "spec_of",
]

_OUTPUTS = serving.PredictResponse.OUTPUTS_FIELD_NUMBER
# Requests up to this many bytes, and elements of their tensors, are not measured first.
_SMALL = 1024
_KEY, _VALUE = 1, 2  # of an entry of a map
_PREDICTS = ("", "tensorflow/serving/predict", CLASSIFY, REGRESS)


def spec_of(version: ModelVersion, signature: str | None = None) -> serving.ModelSpec:
    """Return the spec of the model that has answered, with the signature's name if there is one."""
    spec = serving.ModelSpec(name=version.model, signature_name=signature or "")
    spec.version.value = version.number
    return spec


@lru_cache(maxsize=1024)
def _spec_field(model: str, number: int, signature: str) -> bytes:
    """Return the encoded field `model_spec` of a PredictResponse."""
    spec = serving.ModelSpec(name=model, signature_name=signature)
    spec.version.value = number
    return serving.PredictResponse(model_spec=spec).SerializeToString()


# Predict


@dataclass(slots=True)
class PredictByMessage:
    """A predict request.

    Attributes:
        asked: the run.
        kinds: input → its DataType in the message.
    """

    asked: RunRequest
    kinds: Mapping[str, int]

    @property
    def rows(self) -> int:
        """See `ModelRequest`."""
        return self.asked.rows

    def check(self, served: ServedCall) -> None:
        """Raise InvalidArgumentError if an input's type differs from the signature's."""
        check_types(self.kinds, served)

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Write a PredictResponse with elements in the fields of their types, where clients read them."""
        parts: list[bytes | memoryview] = []
        for name, value, dtype in zip(served.names, values, served.dtypes, strict=True):
            tensor = tensor_to_field_parts(as_array(value, dtype), dtype)
            entry = [*wire_format.enclosed(_KEY, [name.encode()]), *wire_format.enclosed(_VALUE, tensor)]
            parts += wire_format.enclosed(_OUTPUTS, entry)
        parts.append(_spec_field(version.model, version.number, self.asked.signature or DEFAULT_SIGNATURE))
        return b"".join(parts), None


def check_types(kinds: Mapping[str, int], served: ServedCall) -> None:
    """Raise InvalidArgumentError if an input's type differs from the signature's."""
    for at, (name, dtype) in enumerate(zip(served.inputs, served.input_dtypes, strict=True)):
        if kinds[name] != dtype.enum:
            got = dtypes.as_dtype(kinds[name])
            raise errors.InvalidArgumentError(f"Expects arg[{at}] to be {dtype} but {got} is provided: input '{name}'")


def parse_small_predict(data: bytes) -> serving.PredictRequest | None:
    """Parse a small request whose tensors cannot be large; None for any other, which must be measured first."""
    if len(data) > _SMALL:
        return None
    try:
        message = serving.PredictRequest.FromString(data)
    except DecodeError:
        return None
    for tensor in message.inputs.values():
        if not tensor.tensor_content and math.prod([dim.size for dim in tensor.tensor_shape.dim]) > _SMALL:
            return None
    return message


def parse_predict(data: bytes, limits: MessageLimits) -> tuple[serving.PredictRequest, dict[str, memoryview]]:
    """Decode a request; the contents of its large tensors are returned beside it.  Raises as `bodies.parse_message`."""
    rest, contents = predict_apart(data)
    message, _ = bodies.parse_message(serving.PredictRequest, rest, limits)
    return message, contents


def read_predict_message(
    message: serving.PredictRequest, contents: Mapping[str, memoryview], session: aexec.Session
) -> PredictByMessage:
    """Decode a predict request.

    Args:
        contents: contents of large tensors by name, which `parse_predict` has taken out of the message.

    Raises:
        FailedPreconditionError: the model has no such signature.
        InvalidArgumentError: the signature lacks an input or output, or a tensor is not valid.
        UnimplementedError: an option asks for what this server cannot do.
    """
    if message.HasField("predict_streamed_options"):
        raise errors.UnimplementedError("PredictStreamedOptions are not supported: requests are whole here")
    name = message.model_spec.signature_name or None
    signature = _predict_signature(session, name)
    _check_inputs(message.inputs, signature.inputs)
    outputs = tuple(message.output_filter)
    _check_outputs(outputs, signature.outputs)
    feeds, kinds = {}, {}
    for key, tensor in message.inputs.items():
        feeds[key] = _tensor(key, tensor, contents.get(key))
        kinds[key] = tensor.dtype
    asked = RunRequest(by_signature=True, signature=name, feeds=feeds, fetches=outputs or None, as_message=True)
    return PredictByMessage(asked, kinds)


def _tensor(name: str, tensor: proto.TensorProto, content: memoryview | None = None) -> Any:
    if content is None and tensor.ByteSize() > _SMALL:
        check_inline(tensor_decode_ns(tensor))
    try:
        return tensor_from_proto(tensor, content=content)
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(f"tensor parsing error: {name}: {error.message}") from None


def _predict_signature(session: aexec.Session, name: str | None) -> Signature:
    try:
        signature = session.signature(name)
    except errors.NotFoundError as error:
        raise errors.FailedPreconditionError(
            f'Serving signature key "{(name or DEFAULT_SIGNATURE)[:80]}" not found. {error.message}'
        ) from None
    if signature.method_name not in _PREDICTS:
        raise errors.InvalidArgumentError(
            f"Expected prediction signature method_name to be one of {{{', '.join(_PREDICTS[1:])}}}. "
            f"Was: {signature.method_name}"
        )
    return signature


def _check_inputs(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError if the names of inputs differ from the signature's."""
    if len(given) == len(wanted) and all(name in wanted for name in given):
        return
    sets = [f"{{{','.join(sorted(names)[:MAX_NAMES])}}}" for names in _differences(given, wanted)]
    raise errors.InvalidArgumentError(
        f"input size does not match signature: {len(given)}!={len(wanted)} len({sets[0]}) != len({sets[1]}). "
        f"Sent extra: {sets[2]}. Missing but required: {sets[3]}."
    )


def _differences(given: Iterable[str], wanted: Iterable[str]) -> tuple[set[str], ...]:
    sent, needed = {name[:80] for name in given}, set(wanted)
    return sent, needed, sent - needed, needed - sent


def _check_outputs(names: Sequence[str], known: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError for names that the signature lacks, or that are repeated."""
    seen: set[str] = set()
    for name in names:
        if name not in known:
            raise errors.InvalidArgumentError(
                f"output tensor alias not found in signature: {name[:80]} Outputs expected to be in the set "
                f"{{{','.join(sorted(known))}}}."
            )
        if name in seen:
            raise errors.InvalidArgumentError(f"duplicate output tensor alias: {name}")
        seen.add(name)


# Classify, Regress and MultiInference


@dataclass(frozen=True, slots=True)
class _Method:
    """Converts the outputs of signatures with one method name to a message.

    Attributes:
        name: name of the method.
        what: its name in error messages.
        result: makes the result message from outputs by name, for a number of examples.
        response: the message type with one such result.
        field: name of the result's field in a MultiInferenceResponse.
    """

    name: str
    what: str
    result: Callable[[Mapping[str, tuple[Any, DType]], int], Any]
    response: type[serving.ClassificationResponse | serving.RegressionResponse]
    field: str


def _classifications(outputs: Mapping[str, tuple[Any, DType]], examples: int) -> serving.ClassificationResult:
    labels, scores = class_scores(outputs)
    result = serving.ClassificationResult()
    for row in zip(labels.tolist(), scores.tolist(), strict=True):
        classes = result.classifications.add().classes
        for label, score in zip(*row, strict=True):
            classes.add(label=label.decode(errors="replace"), score=score)
    return result


def _regressions(outputs: Mapping[str, tuple[Any, DType]], examples: int) -> serving.RegressionResult:
    values = example_values(outputs, examples).tolist()
    return serving.RegressionResult(regressions=[serving.Regression(value=value) for value in values])


_METHODS = {
    CLASSIFY: _Method(
        CLASSIFY, "classification", _classifications, serving.ClassificationResponse, "classification_result"
    ),
    REGRESS: _Method(REGRESS, "regression", _regressions, serving.RegressionResponse, "regression_result"),
}


@dataclass(slots=True)
class ExamplesByMessage:
    """A request with examples for one signature, for classification or regression.

    Attributes:
        asked: the run, which is fed a vector of serialised Example messages.
        method: the signature's method.
    """

    asked: RunRequest
    method: _Method

    @property
    def rows(self) -> int:
        """See `ModelRequest`."""
        return self.asked.rows

    def check(self, served: ServedCall) -> None:
        """Accept all outputs."""

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Write a ClassificationResponse or a RegressionResponse."""
        outputs = dict(zip(served.names, zip(values, served.dtypes, strict=True), strict=True))
        response = self.method.response(model_spec=spec_of(version, self.asked.signature or DEFAULT_SIGNATURE))
        response.result.CopyFrom(self.method.result(outputs, self.rows))
        return response.SerializeToString(), None


def read_examples_message(
    message: serving.ClassificationRequest | serving.RegressionRequest, session: aexec.Session
) -> ExamplesByMessage:
    """Decode a request with examples for one signature.

    Raises:
        InvalidArgumentError: there is no such signature, it has another method, or there are no examples.
    """
    method = _METHODS[CLASSIFY if isinstance(message, serving.ClassificationRequest) else REGRESS]
    name = message.model_spec.signature_name
    signature = _signature_for_examples(session, name, method)
    feeds = {only_input(signature, "A request with examples"): _serialized_examples(message.input)}
    asked = RunRequest(by_signature=True, signature=name or None, feeds=feeds, fetches=None, as_message=True)
    return ExamplesByMessage(asked, method)


@dataclass(frozen=True, slots=True)
class _Task:
    """One of several signatures in a request.

    Attributes:
        signature: its name in the request.
        method: how its outputs become a message.
        tensors: name of each output → name of its tensor.
    """

    signature: str
    method: _Method
    tensors: Mapping[str, str]


@dataclass(slots=True)
class TasksByMessage:
    """A request for several signatures of a model on the same examples, in one run that names tensors.

    Attributes:
        asked: the run.
        tasks: the signatures.
    """

    asked: RunRequest
    tasks: list[_Task]

    @property
    def rows(self) -> int:
        """See `ModelRequest`."""
        return self.asked.rows

    def check(self, served: ServedCall) -> None:
        """Accept all outputs."""

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Write a MultiInferenceResponse."""
        by_tensor = dict(zip(served.names, zip(values, served.dtypes, strict=True), strict=True))
        response = serving.MultiInferenceResponse()
        for task in self.tasks:
            outputs = {name: by_tensor[tensor] for name, tensor in task.tensors.items()}
            one = response.results.add(model_spec=spec_of(version, task.signature or DEFAULT_SIGNATURE))
            getattr(one, task.method.field).CopyFrom(task.method.result(outputs, self.rows))
        return response.SerializeToString(), None


def read_multi_inference(message: serving.MultiInferenceRequest, session: aexec.Session) -> TasksByMessage:
    """Decode a request with examples for several signatures of one model.

    Raises:
        InvalidArgumentError: the tasks name several models, a signature is unknown or repeated, or there are no
            examples.
        UnimplementedError: a method has no result message.
    """
    _check_tasks(message.tasks)
    inputs: set[str] = set()
    fetches: dict[str, None] = {}
    tasks: list[_Task] = []
    for task in message.tasks:
        name, method = task.model_spec.signature_name, _METHODS[task.method_name]
        signature = _signature_for_examples(session, name, method)
        inputs.update(signature.feeds(dict.fromkeys(signature.inputs)))
        tensors = signature.fetches(tuple(signature.outputs))
        fetches |= dict.fromkeys(tensors.values())
        tasks.append(_Task(name, method, tensors))
    if len(inputs) != 1:
        raise errors.InvalidArgumentError("Input tensor must be the same for all Signatures, and only one.")
    feeds = {inputs.pop(): _serialized_examples(message.input)}
    return TasksByMessage(RunRequest(feeds=feeds, fetches=tuple(fetches), as_message=True), tasks)


def _check_tasks(tasks: Sequence[serving.InferenceTask]) -> None:
    """Raise if tasks name several models, are repeated, or have a method without a result message."""
    if not 0 < len(tasks) <= MAX_NAMES:
        raise errors.InvalidArgumentError(f"A request has 1 to {MAX_NAMES} tasks, got {len(tasks)}")
    seen: set[str] = set()
    for task in tasks:
        name = task.model_spec.signature_name
        if task.model_spec.name != tasks[0].model_spec.name:
            raise errors.InvalidArgumentError(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        if name in seen:
            raise errors.InvalidArgumentError(f"Duplicate evaluation of signature: {name[:80]}")
        if task.method_name not in _METHODS:
            raise errors.UnimplementedError(f"Unsupported signature method_name: {task.method_name[:80]}")
        seen.add(name)


# SessionRun


def read_session_run(message: serving.SessionRunRequest) -> RunRequest:
    """Return the step that a request asks for, by names of tensors or of a signature.

    Raises:
        InvalidArgumentError: a tensor is not valid, or targets are given with names of a signature.
        UnimplementedError: an option is set that would be ignored though the run depends on it.
    """
    if max(len(message.feed), len(message.fetch), len(message.target)) > MAX_NAMES:
        raise errors.InvalidArgumentError(f"A step may have at most {MAX_NAMES} feeds, fetches and targets each")
    asked = RunRequest(fetches=tuple(message.fetch), targets=tuple(message.target), as_message=True)
    if message.tensor_name_is_alias:
        if message.target:
            raise errors.InvalidArgumentError("A run by the names of a signature has no targets")
        asked.by_signature = True
        asked.signature = message.model_spec.signature_name or None
    for feed in message.feed:
        if feed.name in asked.feeds:
            raise errors.InvalidArgumentError(f'Endpoint "{feed.name}" fed more than once.')
        asked.feeds[feed.name] = _tensor(feed.name, feed.tensor)
    if message.HasField("options"):
        asked.set_options(message.options)
    return asked


def session_run_answer(
    version: ModelVersion,
    run_id: str,
    asked: RunRequest,
    served: AnswerForm,
    values: Sequence[Any],
    metadata: aexec.RunMetadata | None,
) -> Answer:
    """Write a SessionRunResponse with dense tensors, as a session service sends them."""
    response = serving.SessionRunResponse(model_spec=spec_of(version, asked.signature))
    for name, value, dtype in zip(served.names, values, served.dtypes, strict=True):
        tensor = tensor_to_proto(as_array(value, dtype), dtype, compact=False, content_strings=True)
        response.tensor.add(name=name, tensor=tensor)
    if metadata is not None:
        response.metadata.CopyFrom(metadata.to_proto())
    return response.SerializeToString(), None


def _signature_for_examples(session: aexec.Session, name: str, method: _Method) -> Signature:
    try:
        signature = session.signature(name or None)
    except errors.NotFoundError as error:
        raise errors.InvalidArgumentError(
            f"No signature was found with the name: {(name or DEFAULT_SIGNATURE)[:80]} ({error.message})"
        ) from None
    if signature.method_name != method.name:
        raise errors.InvalidArgumentError(
            f"Expected {method.what} signature method_name to be {method.name}. Was: {signature.method_name}"
        )
    return signature


def _serialized_examples(given: serving.Input) -> Any:
    """Return the serialised examples, each merged with the context's features.  Raises InvalidArgumentError."""
    examples = getattr(given, given.WhichOneof("kind") or "example_list").examples
    if not examples:
        raise errors.InvalidArgumentError("Input is empty")
    # Concatenated messages parse as their merger: repeated occurrences of a field are merged.
    context = given.example_list_with_context.context.SerializeToString()
    return np.fromiter((context + example.SerializeToString() for example in examples), object, len(examples))
