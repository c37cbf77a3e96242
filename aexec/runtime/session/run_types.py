"""Types of a run's arguments and results, for type checkers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar

import numpy as np
from google.protobuf.message import Message

from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node import Node, Tensor
from aexec.runtime.config import RunMetadata, RunOptions

__all__ = ["Feeds", "Fetched", "RunSettings", "Source", "T", "TargetsLike"]

# A fetched value.  A 0-d one is a NumPy scalar, which has an array's methods, or `bytes` for a string.
Fetched: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Feeds: TypeAlias = Mapping[Any, Any] | None
TargetsLike: TypeAlias = Iterable[str | Node] | Node
T = TypeVar("T", bound=str | Tensor)


class RunSettings(TypedDict, total=False):
    """Keyword arguments of runs."""

    options: RunOptions | Message | None
    metadata: RunMetadata | None
    fetch_devices: Mapping[Any, str] | None


class Model(Protocol):
    """A model that has a session class of its own, as a SavedModel has."""

    @property
    def session_class(self) -> type[Any]: ...


class TensorFlowGraph(Protocol):
    """A `tf.Graph`, recognised by its method."""

    def as_graph_def(self) -> Any: ...


# The values that `aexec.Session` takes for its graph.
Source: TypeAlias = (
    Graph
    | MetaGraph
    | Model
    | str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
    | Message
    | TensorFlowGraph
    | None
)
