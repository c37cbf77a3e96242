"""`tf.parse_single_sequence_example`: features of an example, and of each step of its sequences.

Next to read: `../functions/io.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aexec import ops
from aexec.compat.v1.functions.io import FixedLenFeature, FixedLenSequenceFeature, VarLenFeature
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import errors
from aexec.framework.dtypes import as_dtype
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["parse_single_sequence_example"]


def _text(keys: Any) -> Any:
    return [np.array(key.encode(), object) for key in keys]


def _split(features: Mapping[str, Any] | None, fixed: type, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Features of a fixed shape, and those of any length."""
    given = dict(sorted((features or {}).items()))
    for key, feature in given.items():
        if not isinstance(feature, fixed | VarLenFeature):
            raise errors.InvalidValueError(f"{what} feature {key}: {type(feature).__name__} is not supported")
    dense = {key: feature for key, feature in given.items() if isinstance(feature, fixed)}
    return dense, {key: feature for key, feature in given.items() if key not in dense}


def _default(feature: FixedLenFeature) -> Any:
    dtype = as_dtype(feature.dtype)
    if feature.default_value is None:
        return convert_to_tensor(np.zeros(0, dtype.np), dtype)
    return ops.reshape(convert_to_tensor(feature.default_value, dtype), [int(size) for size in feature.shape])


def parse_single_sequence_example(
    serialized: Any,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_name: Any = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`tf.parse_single_sequence_example`: the context's features, and the sequences', by name.

    Args:
        serialized: a `SequenceExample`, one string.
        context_features: name → `FixedLenFeature` or `VarLenFeature`.
        sequence_features: name → `FixedLenSequenceFeature` or `VarLenFeature`.
    """
    if not (context_features or sequence_features):
        raise errors.InvalidValueError("Missing features.")
    context, context_sparse = _split(context_features, FixedLenFeature, "context")
    sequence, sequence_sparse = _split(sequence_features, FixedLenSequenceFeature, "sequence")
    missing = [key.encode() for key, feature in sequence.items() if feature.allow_missing]
    found = ops.parse_single_sequence_example(
        serialized,
        np.array(missing, object),
        _text(context_sparse),
        _text(context),
        _text(sequence_sparse),
        _text(sequence),
        [_default(feature) for feature in context.values()],
        np.array((example_name or "").encode(), object) if isinstance(example_name, str | None) else example_name,
        [as_dtype(feature.dtype) for feature in context_sparse.values()],
        [as_dtype(feature.dtype) for feature in sequence.values()],
        [list(feature.shape) for feature in context.values()],
        [as_dtype(feature.dtype) for feature in sequence_sparse.values()],
        [list(feature.shape) for feature in sequence.values()],
        name=name,
    )
    of_context: dict[str, Any] = dict(zip(context, found[3], strict=True))
    of_context |= {key: SparseTensor(*parts) for key, *parts in zip(context_sparse, *found[:3], strict=True)}
    of_sequence: dict[str, Any] = dict(zip(sequence, found[7], strict=True))
    of_sequence |= {key: SparseTensor(*parts) for key, *parts in zip(sequence_sparse, *found[4:7], strict=True)}
    return of_context, of_sequence
