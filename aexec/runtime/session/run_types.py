"""What type checkers are told of runs: what may be given, and what comes back for which fetches."""

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

# What a fetched tensor gives.  A 0-d one is a NumPy scalar, which has an array's methods, or `bytes` for a string.
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
    """What brings its own kind of session, as a SavedModel does."""

    @property
    def session_class(self) -> type[Any]: ...


class TensorFlowGraph(Protocol):
    """A `tf.Graph`, known by its looks."""

    def as_graph_def(self) -> Any: ...


# What `aexec.Session` takes.
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
