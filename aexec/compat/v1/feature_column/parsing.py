"""The features that columns and canned estimators read, as `tf.parse_example` takes them.

Next to read: `aexec/compat/v1/functions/io.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aexec.compat.v1.feature_column.column import FeatureColumn
from aexec.compat.v1.feature_column.numeric import NumericColumn, numeric_column
from aexec.compat.v1.functions.io import FixedLenFeature
from aexec.framework import dtypes, errors

__all__ = ["classifier_parse_example_spec", "make_parse_example_spec", "regressor_parse_example_spec"]


def make_parse_example_spec(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """`tf.feature_column.make_parse_example_spec`: the features that columns read, name → parsing configuration.

    Raises:
        ValueError: an item is not a column, or two columns parse the same feature in different ways.
    """
    found: dict[str, Any] = {}
    for column in feature_columns:
        if not isinstance(column, FeatureColumn):
            raise errors.InvalidValueError(f"All feature_columns must be _FeatureColumn instances. Given: {column}")
        for key, spec in column.parse_example_spec.items():
            if found.setdefault(key, spec) != spec:
                raise errors.InvalidValueError(
                    f"feature_columns contain different parse_spec for key {key}. Given {spec} and {found[key]}"
                )
    return found


def classifier_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: Any = dtypes.int64,
    label_default: Any = None,
    weight_column: Any = None,
) -> dict[str, Any]:
    """`tf.estimator.classifier_parse_example_spec`: the features, the label and the weight that a classifier reads.

    Args:
        feature_columns: the classifier's columns.
        label_key: name of the label feature, of shape [1].
        label_dtype: int64 for class ids, string for class names.
        label_default: label of an example that lacks it; None to fail instead.
        weight_column: the weight of each example: a numeric column, or the name of the feature.

    Raises:
        ValueError: a column reads the label or the weight, `weight_column` is of another type, or two columns parse
            the same feature in different ways.
    """
    label = FixedLenFeature((1,), dtypes.as_dtype(label_dtype), label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: Any = dtypes.float32,
    label_default: Any = None,
    label_dimension: int = 1,
    weight_column: Any = None,
) -> dict[str, Any]:
    """`tf.estimator.regressor_parse_example_spec`: the features, the label and the weight that a regressor reads.

    Args:
        label_dimension: number of values per label.

    Other arguments, and errors, are those of `classifier_parse_example_spec`.
    """
    label = FixedLenFeature((label_dimension,), dtypes.as_dtype(label_dtype), label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def _with_label(feature_columns: Iterable[Any], key: str, label: FixedLenFeature, weight_column: Any) -> dict[str, Any]:
    found = make_parse_example_spec(feature_columns)
    if key in found:
        raise errors.InvalidValueError(f"label should not be used as feature. label_key: {key}, features: {found}")
    found[key] = label
    if weight_column is None:
        return found
    weight = numeric_column(weight_column) if isinstance(weight_column, str) else weight_column
    if not isinstance(weight, NumericColumn):
        raise errors.InvalidValueError(
            "weight_column should be an instance of tf.feature_column.numeric_column. Given type: "
            f"{type(weight).__name__} value: {weight}"
        )
    if weight.key in found:
        raise errors.InvalidValueError(
            f"weight_column should not be used as feature. weight_column: {weight.key}, features: {found}"
        )
    return found | weight.parse_example_spec
