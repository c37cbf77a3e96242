"""Regularizers with the arguments of `tf.contrib.layers`, over `aexec.variables.regularizers`.

Next to read: `layers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import constant, name_scope
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import require_graph
from aexec.variables import regularizers
from aexec.variables.regularizers import Regularizer

__all__ = ["apply_regularization", "l1_regularizer", "l2_regularizer", "sum_regularizer"]


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """A function from a tensor w to `scale × Σ|w|`; to None if `scale` is 0."""
    return _scoped(regularizers.l1_regularizer(scale), scope)


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """A function from a tensor w to `scale × Σw² / 2`; to None if `scale` is 0."""
    return _scoped(regularizers.l2_regularizer(scale), scope)


def _scoped(regularizer: Regularizer, scope: str | None) -> Regularizer:
    if scope is None:
        return regularizer

    def scoped(weights: Any) -> Tensor | None:
        with name_scope(scope):
            return regularizer(weights)

    return scoped


def sum_regularizer(regularizer_list: Sequence[Regularizer | None], scope: str | None = None) -> Regularizer | None:
    """A regularizer that sums several, without those that are None; None if none is left."""
    kept = [one for one in regularizer_list if one is not None]
    if not kept:
        return None

    def total(weights: Any) -> Tensor | None:
        with name_scope(scope or "sum_regularizer"):
            terms = [term for term in (one(weights) for one in kept) if term is not None]
            return ops.add_n(terms) if terms else None

    return total


def apply_regularization(regularizer: Callable[[Any], Any], weights_list: Iterable[Any] | None = None) -> Tensor:
    """Apply a regularizer to weights, by default those in `GraphKeys.WEIGHTS`; return the sum.

    The sum is added to `GraphKeys.REGULARIZATION_LOSSES`.

    Raises:
        ValueError: there are no weights.
    """
    weights = list(require_graph().collections.get("weights") if weights_list is None else weights_list)
    if not weights:
        raise errors.InvalidValueError("No weights to regularize.")
    with name_scope("get_regularization_penalty"):
        terms = [constant(0.0) if term is None else term for term in map(regularizer, weights)]
        total = terms[0] if len(terms) == 1 else ops.add_n(terms)
    require_graph().collections.add(GraphKeys.REGULARIZATION_LOSSES, total)
    return total
