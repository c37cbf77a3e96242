"""Requests of TensorFlow Serving's REST API as runs by signature, and the JSON that answers them.

A predict request has its tensors row by row or column by column:

    {"instances": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}       answered by {"predictions": […]}
    {"inputs": {"x": [1, 3], "y": [2, 4]}}                    answered by {"outputs": {…}}

www.tensorflow.org/tfx/serving/api_rest describes the rest.
Next to read: `tensorflow_serving.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from aexec import errors, proto
from aexec.hosting import DType, FeedSpec, Signature, dtypes, listed
from aexec_server.http import bodies
from aexec_server.http.json_style import JsonStyle, styled
from aexec_server.models.models import ModelVersion
from aexec_server.requests import tensors
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_response import Answer
from aexec_server.requests.served_call import AnswerForm, ServedCall

__all__ = [
    "CLASSIFY",
    "REGRESS",
    "ExamplesRequest",
    "PredictRequest",
    "RegressRequest",
    "SignatureOf",
    "class_scores",
    "example_values",
    "only_input",
    "read_examples",
    "read_predict",
]

SignatureOf = Callable[[str | None], Signature]

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"

_PREDICT_FIELDS = frozenset({"signature_name", "instances", "inputs"})
_EXAMPLES_FIELDS = frozenset({"signature_name", "context", "examples"})
_MIN_INT64, _MAX_INT64 = dtypes.int64.min, dtypes.int64.max
# Outputs with this suffix are bytes even if they happen to be valid text.
_BYTES = "_bytes"


def _signature_name(fields: Mapping[str, Any]) -> str | None:
    name = fields.get("signature_name")
    if name is not None and type(name) is not str:
        raise bodies.expected('"signature_name" must be a string', name)
    return name or None


@dataclass(slots=True)
class PredictRequest:
    """A predict request.

    Attributes:
        asked: the run.
        instances: number of rows if the tensors are given, and answered, row by row; else None.
    """

    asked: RunRequest
    instances: int | None

    @property
    def rows(self) -> int:
        """See `ModelRequest`."""
        return self.asked.rows if self.instances is None else self.instances

    def check(self, served: ServedCall) -> None:
        """Check that the outputs have a JSON form.  Raises InvalidArgumentError or UnimplementedError."""
        _check_form(served)

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Write `{"predictions": […]}` or `{"outputs": …}`.

        Raises:
            InvalidArgumentError: the request is row by row, and an output has another number of rows.
        """
        arrays = [tensors.as_array(value, dtype) for value, dtype in zip(values, served.dtypes, strict=True)]
        outputs = list(zip(served.names, arrays, served.dtypes, strict=True))
        style = self.asked.style
        if self.instances is None:
            texts = [_text(*output, style) for output in outputs]
            return f'{{"outputs":{_object(served.name_texts, texts)}}}'.encode(), None
        for name, array, _ in outputs:
            if not array.ndim or len(array) != self.instances:
                raise errors.InvalidArgumentError(
                    f"Output '{name}' has shape {list(array.shape)}, but one row for each of the {self.instances} "
                    'instances is expected: ask with "inputs"'
                )
        if len(outputs) == 1:
            return f'{{"predictions":{_text(*outputs[0], style)}}}'.encode(), None
        columns = [[_text(name, row, dtype, style) for row in _rows(array)] for name, array, dtype in outputs]
        rows = [_object(served.name_texts, row) for row in zip(*columns, strict=True)]
        return f'{{"predictions":[{",".join(rows)}]}}'.encode(), None


def _check_form(served: ServedCall) -> None:
    for name, dtype in zip(served.names, served.dtypes, strict=True):
        tensors.check_people_form(name, dtype)


def read_predict(body: bytes, signature_of: SignatureOf) -> PredictRequest:
    """Decode a predict request.

    Raises:
        InvalidArgumentError: the request is not valid; the message says what is wrong.
        NotFoundError: there is no such signature.
    """
    fields = bodies.json_object(body)
    bodies.check_fields(fields, _PREDICT_FIELDS, "the request")
    if ("instances" in fields) == ("inputs" in fields):
        raise errors.InvalidArgumentError('A request has either "instances", row by row, or "inputs", column by column')
    name = _signature_name(fields)
    signature = signature_of(name)
    if "instances" in fields:
        feeds, rows = _columns(fields["instances"], signature), len(fields["instances"])
    else:
        feeds, rows = _named(fields["inputs"], signature), None
    asked = RunRequest(by_signature=True, signature=name, feeds=feeds, untyped=True, fetches=None)
    return PredictRequest(asked, rows)


def only_input(signature: Signature, what: str) -> str:
    """Return the name of a signature's only input.  Raises InvalidArgumentError if it has several."""
    if len(signature.inputs) != 1:
        raise errors.InvalidArgumentError(f"{what} must name the inputs, for there are {listed(signature.inputs)}")
    return next(iter(signature.inputs))


def _named(value: Any, signature: Signature) -> dict[str, Any]:
    """Return values by name; a bare value is that of the only input."""
    if type(value) is dict and not _is_bytes(value):
        return value
    return {only_input(signature, '"inputs"'): value}


def _columns(rows: Any, signature: Signature) -> dict[str, Any]:
    if type(rows) is not list:
        raise bodies.expected('"instances" must be a list', rows)
    if not rows:
        raise errors.InvalidArgumentError('"instances" is empty')
    if type(rows[0]) is not dict or _is_bytes(rows[0]):
        return {only_input(signature, '"instances"'): rows}
    names = rows[0].keys()
    for number, row in enumerate(rows):
        if type(row) is not dict or row.keys() != names:
            raise errors.InvalidArgumentError(
                f'Row {number} of "instances" has not the same names as the first: '
                f"expected {listed(names)}, got {listed(row) if type(row) is dict else 'no object'}"
            )
    return {name: [row[name] for row in rows] for name in names}


def _is_bytes(value: dict[str, Any]) -> bool:
    return value.keys() == {"b64"}


def _rows(array: Any) -> list[Any]:
    return [array[i : i + 1].reshape(array.shape[1:]) for i in range(len(array))]


def _object(names: Sequence[str], texts: Sequence[str]) -> str:
    """Write one bare value, or an object of several."""
    if len(texts) == 1:
        return texts[0]
    return f"{{{','.join([f'{name}:{text}' for name, text in zip(names, texts, strict=True)])}}}"


def _text(name: str, array: Any, dtype: DType, style: JsonStyle | None) -> str:
    if dtype is dtypes.string and name.endswith(_BYTES):
        return bodies.encode_json(tensors.base64_texts(array.tolist()))
    return tensors.people_text(array, dtype, style)


# Classify and regress


@dataclass(slots=True)
class ExamplesRequest:
    """A request with examples for a signature with the method of classification.

    Attributes:
        asked: the run, which is fed a vector of serialised Example messages.
    """

    asked: RunRequest
    method: ClassVar[str] = CLASSIFY

    @property
    def rows(self) -> int:
        """See `ModelRequest`."""
        return self.asked.rows

    def check(self, served: ServedCall) -> None:
        """Check that the outputs have a JSON form.  Raises InvalidArgumentError or UnimplementedError."""
        _check_form(served)

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Write `{"results": [[[label, score], …], …]}`; without classes the labels are empty, without scores the
        scores are 0.

        Raises:
            FailedPreconditionError: the model has neither output, or their shapes are wrong.
        """
        labels, weights = class_scores(_by_name(served, values))
        results = [
            [[tensors.string_text(label), score] for label, score in zip(*row, strict=True)]
            for row in zip(labels.tolist(), styled(weights, self.asked.style), strict=True)
        ]
        return f'{{"results":{bodies.encode_json(results)}}}'.encode(), None


@dataclass(slots=True)
class RegressRequest(ExamplesRequest):
    """A request with examples for a signature with the method of regression."""

    method: ClassVar[str] = REGRESS

    def write(self, version: ModelVersion, served: AnswerForm, values: Sequence[Any]) -> Answer:
        """Write `{"results": [value, …]}`.  Raises FailedPreconditionError unless there is one value for each
        example.
        """
        outputs = _by_name(served, values)
        array = example_values(outputs, self.rows)
        text = tensors.people_text(array, outputs["outputs"][1], self.asked.style)
        return f'{{"results":{text}}}'.encode(), None


def _by_name(served: AnswerForm, values: Sequence[Any]) -> dict[str, tuple[Any, DType]]:
    return dict(zip(served.names, zip(values, served.dtypes, strict=True), strict=True))


def class_scores(outputs: Mapping[str, tuple[Any, DType]]) -> tuple[Any, Any]:
    """Return labels and scores from a model's outputs; without classes the labels are empty, without scores the scores
    are 0.

    Raises:
        FailedPreconditionError: it has neither output, or their shapes are wrong.
    """
    given = {name: tensors.as_array(value, dtype) for name, (value, dtype) in outputs.items()}
    classes, scores = given.get("classes"), given.get("scores")
    shape = next((a.shape for a in (classes, scores) if a is not None), ())
    if len(shape) != 2 or any(a is not None and a.shape != shape for a in (classes, scores)):
        raise errors.FailedPreconditionError(
            "A model that classifies must have outputs 'classes' or 'scores' of shape [examples, classes]"
        )
    labels = np.full(shape, b"", object) if classes is None else classes
    return labels, np.zeros(shape, np.float32) if scores is None else scores


def example_values(outputs: Mapping[str, tuple[Any, DType]], examples: int) -> Any:
    """Return the value of each example from a model's outputs.

    Raises:
        FailedPreconditionError: there is not one value for each of the `examples`.
    """
    if "outputs" in outputs:
        array = tensors.as_array(*outputs["outputs"])
        if array.shape in ((examples,), (examples, 1)):
            return array.reshape(-1)
    raise errors.FailedPreconditionError(
        "A model for regression must have an output 'outputs' with one value for each example"
    )


def read_examples(body: bytes, signature_of: SignatureOf, kind: type[ExamplesRequest]) -> ExamplesRequest:
    """Decode a request with examples: maps of features, to which those of the context are added.

    Raises:
        InvalidArgumentError: the request is not valid, or the signature has another method.
        NotFoundError: there is no such signature.
    """
    fields = bodies.json_object(body)
    bodies.check_fields(fields, _EXAMPLES_FIELDS, "the request")
    name = _signature_name(fields)
    signature = signature_of(name)
    if signature.method_name != kind.method:
        raise errors.InvalidArgumentError(
            f"Expected a signature whose method is {kind.method}, got {signature.method_name or 'none'}"
        )
    examples, context = fields.get("examples"), fields.get("context", {})
    if type(examples) is not list or not examples:
        raise bodies.expected('"examples" must be a list of objects, and not empty', examples)
    if type(context) is not dict:
        raise bodies.expected('"context" must be an object', context)
    shared = _features(context, "the context")
    serialized = np.empty(len(examples), object)
    for number, example in enumerate(examples):
        if type(example) is not dict:
            raise bodies.expected(f"Example {number} must be an object", example)
        message = proto.Example(features=shared)
        message.features.MergeFrom(_features(example, f"example {number}"))
        serialized[number] = message.SerializeToString()
    feeds = {only_input(signature, "A request with examples"): serialized}
    return kind(RunRequest(by_signature=True, signature=name, feeds=feeds, fetches=None))


def _features(given: dict[str, Any], where: str) -> proto.Features:
    features = proto.Features()
    for name, value in given.items():
        _set_feature(features.feature[name], value if type(value) is list else [value], f"{name[:80]!r} of {where}")
    return features


def _set_feature(feature: proto.Feature, items: list[Any], what: str) -> None:
    """Add the items to a feature that has none.

    As in TensorFlow Serving, an empty list leaves the feature's kind unset, and true is 1.
    """
    kinds = {type(item) for item in items}
    try:
        if not items:
            return
        if kinds <= {str, dict}:
            feature.bytes_list.value.extend([tensors.string_bytes(what, item) for item in items])
        elif kinds <= {int, bool} and all(_MIN_INT64 <= item <= _MAX_INT64 for item in items):
            feature.int64_list.value.extend(map(int, items))
        elif kinds in ({float}, {int}):  # an integer beyond 64 bits can only be a float
            feature.float_list.value.extend(FeedSpec(what, dtypes.float32).convert(items).tolist())
        else:
            raise errors.InvalidArgumentError(
                f"{what} must be whole numbers, decimal numbers or strings, all of a kind"
            )
    except ValueError as error:
        raise errors.InvalidArgumentError(f"{what}: {error}") from None
