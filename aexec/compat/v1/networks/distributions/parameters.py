"""Parameters of distributions as tensors.

Next to read: `checks.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies, name_scope
from aexec.compat.v1.functions.array_ops import convert_to_tensor
from aexec.compat.v1.functions.check_ops import assert_near, assert_same_float_dtype
from aexec.compat.v1.functions.control_flow_ops import assert_less_equal, assert_non_negative
from aexec.compat.v1.networks.distributions.checks import after, check_event_size
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Node, Tensor
from aexec.nn.activations import softmax

__all__ = ["floats", "logits_and_probs", "next_seed", "shapes_of"]


def floats(checks: Sequence[Node], **values: Any) -> list[Tensor]:
    """Convert parameters to tensors, named by their keywords, that depend on `checks`.

    Raises:
        ValueError: the dtypes differ, or are not floating.
    """
    with control_dependencies(checks):
        found = [ops.identity(convert_to_tensor(value), name=name) for name, value in values.items()]
    assert_same_float_dtype(found)
    return found


def shapes_of(names: Iterable[str], sample_shape: Any) -> dict[str, Tensor]:
    """`_param_shapes` of a scalar distribution: each parameter has the shape of samples."""
    return dict.fromkeys(names, convert_to_tensor(sample_shape, dtypes.int32))


def _as_floats(name: str, value: Any) -> Tensor:
    found = convert_to_tensor(value, name=name)
    if not found.dtype.is_floating:
        raise errors.InvalidTypeError(f"{name} must having floating type.")
    return found


def logits_and_probs(logits: Any, probs: Any, of_classes: bool, validate_args: bool) -> tuple[Tensor, Tensor]:
    """Convert logits or probabilities to tensors, and compute the other of the two.

    Args:
        of_classes: True for a distribution over classes, [..., classes] (softmax); False for events [...] that happen
            or not (sigmoid).
        validate_args: check in each run that probabilities are in [0, 1] and sum to 1, and that there are two classes
            or more.

    Returns:
        Logits and probabilities, of the same shape and dtype.

    Raises:
        ValueError: both are given, or neither.
        TypeError: the given one is not floating.
    """
    if (logits is None) == (probs is None):
        raise errors.InvalidValueError("Must pass probs or logits, but not both.")
    if probs is None:
        made = _as_floats("logits", logits)
        if of_classes and validate_args:
            made = check_event_size(made)
        return made, softmax(made, name="probs") if of_classes else ops.sigmoid(made, name="probs")
    given = _as_floats("probs", probs)
    if validate_args:
        given = _checked_probs(given, of_classes)
    with name_scope("logits"):
        return ops.log(given) - ops.log1p(-given) if not of_classes else ops.log(given), given


def _checked_probs(probs: Tensor, of_classes: bool) -> Tensor:
    with name_scope("validate_probs"):
        checks = [assert_non_negative(probs)]
        if of_classes:
            probs = check_event_size(probs)
            checks.append(assert_near(ops.sum(probs, [-1]), 1.0, message="probs does not sum to 1."))
        else:
            checks.append(assert_less_equal(probs, 1.0, message="probs has components greater than 1."))
        return after(checks, probs)


def next_seed(seed: int | None, salt: str) -> int | None:
    """Derive the seed of a distribution's second random op, as TensorFlow does; None stays None."""
    if seed is None:
        return None
    return int(hashlib.md5(f"{seed}{salt}".encode(), usedforsecurity=False).hexdigest()[:8], 16) & 0x7FFFFFFF
