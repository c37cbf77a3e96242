"""`tf.contrib.slim.utils` and `tf.contrib.layers.utils`: collect layers' outputs by name, and read sizes.

Next to read: `layer_scopes.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from aexec.compat.v1.contrib.layer_scopes import finished, name_of
from aexec.control_flow.cond import cond
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph

__all__ = ["collect_named_outputs", "convert_collection_to_dict", "last_dimension", "smart_cond"]


def collect_named_outputs(collections: Any, alias: str, outputs: Tensor) -> Tensor:
    """Add outputs to collections under a name; return the outputs."""
    return finished(outputs, alias, collections)


def convert_collection_to_dict(collection: str, clear_collection: bool = False) -> OrderedDict[str, Tensor]:
    """The outputs in a collection by the name of their layer, in order of creation."""
    kept = require_graph().collections.get_ref(collection)
    found = OrderedDict((name_of(outputs), outputs) for outputs in kept)
    if clear_collection:
        del kept[:]
    return found


def last_dimension(shape: Any, min_rank: int = 1) -> Any:
    """The last size of a shape.  Raises ValueError if there are fewer than `min_rank` sizes."""
    sizes = list(shape)
    if len(sizes) < min_rank:
        raise ValueError(f"rank of shape must be at least {min_rank} not: {len(sizes)}")
    return sizes[-1]


def smart_cond(pred: Any, fn1: Callable[[], Any], fn2: Callable[[], Any], name: str | None = None) -> Any:
    """`fn1()` if `pred` is true, else `fn2()`; a `tf.cond` if `pred` is only known in a run."""
    if isinstance(pred, bool | int):
        return fn1() if pred else fn2()
    return cond(convert_to_tensor(pred), fn1, fn2, name)
