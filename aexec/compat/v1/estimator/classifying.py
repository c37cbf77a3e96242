"""Heads of classifiers: `BinaryHead` for two classes, with one logit, and `MultiClassHead` for more.

Next to read: `regressing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aexec import metrics, nn, ops
from aexec.client.building import control_dependencies
from aexec.compat.v1.estimator.export import ClassificationOutput, PredictOutput, RegressionOutput
from aexec.compat.v1.estimator.head import Head
from aexec.compat.v1.functions.control_flow_ops import assert_greater_equal, assert_less
from aexec.compat.v1.functions.lookup import index_table_from_tensor, index_to_string_table_from_tensor
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.losses import Reduction, sparse_softmax_cross_entropy

__all__ = ["BinaryHead", "MultiClassHead", "classifying_head"]


def classifying_head(
    n_classes: int, weight_column: Any, label_vocabulary: Sequence[Any] | None, loss_reduction: str
) -> Head:
    """Make the head of a classifier.

    Raises:
        ValueError: `n_classes` is below 2, or `label_vocabulary` does not have `n_classes` names.
    """
    if n_classes == 2:
        return BinaryHead(n_classes, weight_column, label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)


class _Classes(Head):
    """The base of classifiers' heads: translates between class names and class ids, which are in [0, n_classes)."""

    def __init__(
        self, n_classes: int, weight_column: Any, label_vocabulary: Sequence[Any] | None, loss_reduction: str, size: int
    ) -> None:
        super().__init__(size, weight_column, loss_reduction)
        if n_classes is None or n_classes < 2:
            raise errors.InvalidValueError(f"n_classes must be > 1 for classification: {n_classes}.")
        if label_vocabulary is not None:
            if not isinstance(label_vocabulary, list | tuple):
                raise errors.InvalidValueError(
                    f"label_vocabulary should be a list or a tuple. Given type: {type(label_vocabulary).__name__}"
                )
            if len(label_vocabulary) != n_classes:
                raise errors.InvalidValueError(
                    f"Length of label_vocabulary must equal n_classes. Given: {len(label_vocabulary)}, expected: "
                    f"{n_classes}."
                )
        self._classes = n_classes
        self._names = label_vocabulary

    def named(self, numbers: Tensor) -> Tensor:
        """The names of the classes with these ids, strings of the same shape; decimal digits without a vocabulary."""
        if self._names is None:
            found = ops.as_string(numbers, name="str_classes")
        else:
            found = index_to_string_table_from_tensor(list(self._names), name="class_string_lookup").lookup(numbers)
        return convert_to_tensor(found)

    def of_batch(self, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """The ids (int32) and the names (string) of all classes, repeated for each example: [batch, n_classes]."""
        shape = ops.pack([ops.shape(probabilities)[0], self._classes])
        numbers = ops.range(0, self._classes, 1)
        given = ops.as_string(numbers) if self._names is None else convert_to_tensor(list(self._names), dtypes.string)
        return ops.broadcast_to(numbers, shape), ops.broadcast_to(given, shape)

    def classified(self, scores: Tensor, probabilities: Tensor) -> dict[str, Any]:
        """Predict the class with the highest score.

        Args:
            scores, probabilities: [batch, n_classes], floating.

        Returns:
            `probabilities`, `class_ids` (int64) and `classes` (string), both [batch, 1], `all_class_ids` and
            `all_classes`, both [batch, n_classes].
        """
        numbers = ops.expand_dims(ops.arg_max(scores, 1), 1)
        all_numbers, all_names = self.of_batch(probabilities)
        return {
            "probabilities": probabilities,
            "class_ids": numbers,
            "classes": self.named(numbers),
            "all_class_ids": all_numbers,
            "all_classes": all_names,
        }

    def outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        classes = ClassificationOutput(predictions["probabilities"], predictions["all_classes"])
        return {"serving_default": classes, "classification": classes, "predict": PredictOutput(predictions)}

    def numbers(self, labels: Any) -> Tensor:
        """Convert labels to class ids, [batch, 1].

        Raises:
            ValueError: labels are not strings although there is a vocabulary, or are strings although there is none.
        """
        found = self.columns_of(labels, 1)
        if self._names is not None:
            if found.dtype.base is not dtypes.string:
                raise errors.InvalidValueError(
                    f"Labels dtype should be string if there is a vocabulary. Instead got {found.dtype.base}"
                )
            found = index_table_from_tensor(list(self._names), name="class_id_lookup").lookup(found)
        elif found.dtype.base is dtypes.string:
            raise errors.InvalidValueError("Labels dtype should be a number without a vocabulary. Instead got string.")
        return found

    def within(self, numbers: Tensor) -> Tensor:
        """Return `numbers`; a run fails with InvalidArgumentError if one is not a class id."""
        end, zero = (convert_to_tensor(number, numbers.dtype.base) for number in (self._classes, 0))
        checks = [
            assert_less(numbers, end, message=f"Labels must be <= n_classes - 1 = {self._classes - 1}"),
            assert_greater_equal(numbers, zero, message="Labels must be >= 0"),
        ]
        with control_dependencies(checks):
            return ops.identity(numbers)


class BinaryHead(_Classes):
    """The head for two classes.  Its one logit is the log-odds of class 1; the logit of class 0 is always 0."""

    def __init__(self, n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str) -> None:
        super().__init__(n_classes, weight_column, label_vocabulary, loss_reduction, 1)

    def predictions(self, logits: Tensor) -> dict[str, Any]:
        two = ops.concat_v2([ops.zeros_like(logits), logits], 1)
        found = {"logits": logits, "logistic": ops.sigmoid(logits, name="logistic")}
        return {**found, **self.classified(two, ops.softmax(two, name="probabilities"))}

    def outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().outputs(predictions), "regression": RegressionOutput(predictions["logistic"])}

    def labels(self, labels: Any) -> Tensor:
        return self.within(ops.cast(self.numbers(labels), DstT=dtypes.float32))

    def losses(self, labels: Tensor, logits: Tensor) -> Tensor:
        return nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def metrics(
        self, labels: Tensor, predictions: Mapping[str, Any], losses: Tensor, weights: Any
    ) -> dict[str, tuple[Any, Any]]:
        logistic, numbers = predictions["logistic"], predictions["class_ids"]
        curve = {"weights": weights, "summation_method": "careful_interpolation"}
        share = metrics.mean(labels, weights, name="label/mean")
        return {
            "average_loss": metrics.mean(losses, weights, name="average_loss"),
            "accuracy": metrics.accuracy(labels, numbers, weights, name="accuracy"),
            "precision": metrics.precision(labels, numbers, weights, name="precision"),
            "recall": metrics.recall(labels, numbers, weights, name="recall"),
            "prediction/mean": metrics.mean(logistic, weights, name="prediction/mean"),
            "label/mean": share,
            "accuracy_baseline": (_of_the_larger(share[0]), _of_the_larger(share[1])),
            "auc": metrics.auc(labels, logistic, name="auc", **curve),
            "auc_precision_recall": metrics.auc(labels, logistic, curve="PR", name="auc_precision_recall", **curve),
        }


def _of_the_larger(share: Tensor) -> Tensor:
    """The accuracy of always predicting the more frequent of two classes; `share` is the fraction of class 1."""
    return ops.maximum(share, 1.0 - share)


class MultiClassHead(_Classes):
    """The head for more than two classes, with a logit per class."""

    def __init__(self, n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str) -> None:
        super().__init__(n_classes, weight_column, label_vocabulary, loss_reduction, n_classes)

    def predictions(self, logits: Tensor) -> dict[str, Any]:
        return {"logits": logits, **self.classified(logits, ops.softmax(logits, name="probabilities"))}

    def labels(self, labels: Any) -> Tensor:
        numbers = self.numbers(labels)
        if not numbers.dtype.base.is_integer:
            raise errors.InvalidValueError(f"Labels dtype should be integer. Instead got {numbers.dtype.base}.")
        return self.within(numbers)

    def losses(self, labels: Tensor, logits: Tensor) -> Tensor:
        numbers = ops.reshape(labels, [-1])
        found = sparse_softmax_cross_entropy(numbers, logits, loss_collection=None, reduction=Reduction.NONE)
        return ops.reshape(found, [-1, 1])

    def metrics(
        self, labels: Tensor, predictions: Mapping[str, Any], losses: Tensor, weights: Any
    ) -> dict[str, tuple[Any, Any]]:
        return {
            "average_loss": metrics.mean(losses, weights, name="average_loss"),
            "accuracy": metrics.accuracy(labels, predictions["class_ids"], weights, name="accuracy"),
        }
