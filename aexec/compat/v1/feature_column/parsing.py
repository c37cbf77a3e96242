"""Which features columns read, as `tf.parse_example` takes them.

Next to read: `aexec/compat/v1/functions/io.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aexec.compat.v1.feature_column.column import FeatureColumn
from aexec.framework import errors

__all__ = ["make_parse_example_spec"]


def make_parse_example_spec(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """`tf.feature_column.make_parse_example_spec`: the features that columns read.

    Raises:
        ValueError: one is no column, or two read the same feature in different ways.
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
