"""`tf.estimator.export`: the inputs (receivers) and the outputs of an exported model.

Next to read: `exporting.py`, which combines both into signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aexec.client.building import placeholder
from aexec.compat.v1.functions.io import parse_example
from aexec.compat.v1.running.saved_model import (
    classification_signature_def,
    predict_signature_def,
    regression_signature_def,
)
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.signature import Signature
from aexec.graph.tensor_proxy import TensorProxy

__all__ = [
    "ClassificationOutput",
    "ExportOutput",
    "PredictOutput",
    "RegressionOutput",
    "ServingInputReceiver",
    "TensorServingInputReceiver",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor | TensorProxy)


# Receivers


class _Receiver(NamedTuple):
    features: Any
    receiver_tensors: dict[str, Any]
    receiver_tensors_alternatives: dict[str, dict[str, Any]]


class ServingInputReceiver(_Receiver):
    """`tf.estimator.export.ServingInputReceiver`: the tensors that requests feed, and the features made from them.

    Args:
        features: name → tensor or sparse tensor, passed to the model_fn.  A single tensor is named `feature`.
        receiver_tensors: name → tensor that requests feed.  A single tensor is named `input`.
        receiver_tensors_alternatives: name → another such dict; each gets signatures of its own.

    Raises:
        ValueError: `features` or `receiver_tensors` is None, or holds something that is not a tensor.
        TypeError: `receiver_tensors_alternatives` is not a dict.
    """

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> ServingInputReceiver:
        named = _named(features, "feature", "features")
        return super().__new__(cls, named, *_tensors(receiver_tensors, receiver_tensors_alternatives))


class TensorServingInputReceiver(_Receiver):
    """`tf.estimator.export.TensorServingInputReceiver`: passes one tensor to the model_fn, not a dict.

    Arguments and errors are those of `ServingInputReceiver`.

    Raises:
        ValueError: `features` is a dict.
    """

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> TensorServingInputReceiver:
        if isinstance(features, Mapping):
            raise errors.InvalidValueError("features must be a Tensor here, and not a dict of them")
        _named(features, "feature", "features")
        return super().__new__(cls, features, *_tensors(receiver_tensors, receiver_tensors_alternatives))


def _named(values: Any, alone: str, what: str) -> dict[str, Any]:
    if values is None:
        raise errors.InvalidValueError(f"{what} must be defined.")
    named = dict(values) if isinstance(values, Mapping) else {alone: values}
    for name, value in named.items():
        if not _is_tensor(value) and not isinstance(value, SparseTensor):
            raise errors.InvalidValueError(f"{what} {name} must be a Tensor or SparseTensor.")
    return named


def _tensors(tensors: Any, alternatives: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    if alternatives is not None and not isinstance(alternatives, Mapping):
        raise errors.InvalidTypeError(f"receiver_tensors_alternatives must be a dict: {alternatives!r}.")
    others = {name: _named(group, "input", "receiver_tensors") for name, group in (alternatives or {}).items()}
    return _named(tensors, "input", "receiver_tensors"), others


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """`tf.estimator.export.build_raw_serving_input_receiver_fn`: a function that makes a placeholder per feature.

    Args:
        features: name → tensor; the placeholder gets its dtype and shape.
        default_batch_size: static size of the first axis; by default unknown.
    """

    def receive() -> ServingInputReceiver:
        fed = {}
        for name, tensor in features.items():
            shape = None if tensor.static_shape.rank is None else [default_batch_size, *list(tensor.static_shape)[1:]]
            fed[name] = placeholder(tensor.dtype.base, shape, name=tensor.op.name.rpartition("/")[2])
        return ServingInputReceiver(fed, fed)

    return receive


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """`tf.estimator.export.build_parsing_serving_input_receiver_fn`: a function that parses fed Examples.

    The placeholder takes serialised `Example` messages, [batch], string.

    Args:
        feature_spec: as in `tf.parse_example`.
        default_batch_size: static size of the batch; by default unknown.
    """

    def receive() -> ServingInputReceiver:
        serialized = placeholder(dtypes.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(parse_example(serialized, feature_spec), {"examples": serialized})

    return receive


# Outputs


class ExportOutput:
    """`tf.estimator.export.ExportOutput`: the base of outputs."""

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Signature:
        """Make the signature of this output with these inputs.  Raises ValueError if the inputs do not fit."""
        raise NotImplementedError


class PredictOutput(ExportOutput):
    """`tf.estimator.export.PredictOutput`: name → tensor.  A single tensor is named `output`.

    Raises:
        ValueError: `outputs` is None, or holds something that is not a tensor.
    """

    def __init__(self, outputs: Any) -> None:
        self.outputs = {
            name: convert_to_tensor(value) for name, value in _named(outputs, "output", "Prediction output").items()
        }

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Signature:
        return predict_signature_def(receiver_tensors, self.outputs)


def _examples(receiver_tensors: Mapping[str, Any], what: str) -> Any:
    """The one input tensor, of serialised Examples.  Raises ValueError for other inputs; `what` begins the message."""
    found = list(receiver_tensors.values())
    if len(found) != 1 or not _is_tensor(found[0]) or found[0].dtype.base is not dtypes.string:
        raise errors.InvalidValueError(f"{what} input must be a single string Tensor; got {receiver_tensors}")
    return found[0]


class ClassificationOutput(ExportOutput):
    """`tf.estimator.export.ClassificationOutput`.

    Args:
        scores: [batch, n_classes], floating; or None.
        classes: names, [batch, n_classes] or [batch, k] for the best k, string; or None.

    Raises:
        ValueError: both are None, or one has another dtype.
    """

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
        if scores is not None and not (_is_tensor(scores) and scores.dtype.base.is_floating):
            raise errors.InvalidValueError(f"Classification scores must be a float32 Tensor; got {scores!r}")
        if classes is not None and not (_is_tensor(classes) and classes.dtype.base is dtypes.string):
            raise errors.InvalidValueError(f"Classification classes must be a string Tensor; got {classes!r}")
        if scores is None and classes is None:
            raise errors.InvalidValueError("At least one of scores and classes must be set.")
        self.scores, self.classes = scores, classes

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Signature:
        examples = _examples(receiver_tensors, "Classification")
        return classification_signature_def(examples, self.classes, self.scores)


class RegressionOutput(ExportOutput):
    """`tf.estimator.export.RegressionOutput`: a floating tensor.  Raises ValueError for another dtype."""

    def __init__(self, value: Any) -> None:
        if not (_is_tensor(value) and value.dtype.base.is_floating):
            raise errors.InvalidValueError(f"Regression output value must be a float32 Tensor; got {value!r}")
        self.value = value

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Signature:
        return regression_signature_def(_examples(receiver_tensors, "Regression"), self.value)
