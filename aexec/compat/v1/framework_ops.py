"""Scopes with TensorFlow's arguments, and functions of a graph that is given.

Next to read: `aexec/client/building.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from aexec import training
from aexec.client import building
from aexec.compat.v1.tensors import get_default_graph
from aexec.graph.graph import Graph
from aexec.variables.variable import Variable

__all__ = [
    "control_dependencies",
    "create_global_step",
    "device",
    "get_global_step",
    "get_or_create_global_step",
    "name_scope",
]


def name_scope(
    name: str | None = None, default_name: str | None = None, values: Any = None
) -> AbstractContextManager[str]:
    """`tf.name_scope`."""
    return building.name_scope(default_name if name is None else name)


def device(device_name_or_function: Any) -> AbstractContextManager[None]:
    """`tf.device`."""
    return building.device(device_name_or_function)


def control_dependencies(control_inputs: Iterable[Any] | None) -> AbstractContextManager[None]:
    """`tf.control_dependencies`."""
    return building.control_dependencies(control_inputs)


def get_global_step(graph: Graph | None = None) -> Variable | None:
    """`tf.train.get_global_step`."""
    with graph or get_default_graph():
        return training.get_global_step()


def create_global_step(graph: Graph | None = None) -> Variable:
    """`tf.train.create_global_step`."""
    with graph or get_default_graph():
        return training.create_global_step()


def get_or_create_global_step(graph: Graph | None = None) -> Variable:
    """`tf.train.get_or_create_global_step`."""
    with graph or get_default_graph():
        return training.get_or_create_global_step()
