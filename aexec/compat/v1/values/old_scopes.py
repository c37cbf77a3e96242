"""Scopes and switches that older programs use.

Next to read: `framework_ops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any

from aexec.client import building
from aexec.client.random_seed import get_seed as _get_seed

__all__ = [
    "UnconnectedGradients",
    "VariableAggregation",
    "VariableSynchronization",
    "control_flow_v2_enabled",
    "get_seed",
    "init_scope",
    "no_regularizer",
    "op_scope",
]


class UnconnectedGradients(Enum):
    """`tf.UnconnectedGradients`: the gradient with respect to a tensor that does not affect the result."""

    NONE = "none"
    ZERO = "zero"


class VariableSynchronization(Enum):
    """`tf.VariableSynchronization`: between replicas; variables of one process need none."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(Enum):
    """`tf.VariableAggregation`: between replicas; variables of one process need none."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
    ONLY_FIRST_TOWER = ONLY_FIRST_REPLICA  # TensorFlow's older name


def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """`tf.get_seed`: the graph and op seeds for a random op; (None, None) for a seed chosen at random."""
    found = _get_seed(op_seed)
    return (None, None) if found == (0, 0) else found


def no_regularizer(_: Any) -> None:
    """`tf.no_regularizer`: given to a variable, it overrides the regularizer of the scope."""


def control_flow_v2_enabled() -> bool:
    """`tf.control_flow_v2_enabled`: False, since loops and conditionals are nodes."""
    return False


def op_scope(values: Any, name: str | None, default_name: str | None = None) -> AbstractContextManager[str]:
    """`tf.op_scope`: `tf.name_scope`, with the values first."""
    return building.name_scope(default_name if name is None else name)


@contextmanager
def init_scope() -> Iterator[None]:
    """`tf.init_scope`: context manager that clears control dependencies, for nodes that initialise."""
    with building.control_dependencies(None):
        yield
