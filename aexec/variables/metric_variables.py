"""What metrics count with: local variables, and the collections that their values and updates are in.

Next to read: `aexec/metrics.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import require_graph
from aexec.variables.initializers import Zeros
from aexec.variables.variable import Variable

__all__ = ["Metric", "collected_metric", "metric_variable"]

Metric = tuple[Tensor, Tensor]


def metric_variable(name: str, shape: Sequence[int] = (), dtype: DType = dtypes.float32) -> Variable:
    """A count, which begins at zero, in the collections of local variables and of metrics."""
    collections = [GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES]
    return Variable(lambda: Zeros()(list(shape), dtype), trainable=False, collections=collections, name=name)


def collected_metric(
    value: Tensor, update: Tensor, metrics_collections: Iterable[str] | None, updates_collections: Iterable[str] | None
) -> Metric:
    """The value and the update of a metric, which are added to these collections."""
    collections = require_graph().collections
    collections.add_to_each(list(metrics_collections or ()), value)
    collections.add_to_each(list(updates_collections or ()), update)
    return value, update
