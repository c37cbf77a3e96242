"""Collections: lists of things that belong to a graph, by names that programs and files agree on.

The front end keeps its variables in them, queue runners, summaries, losses; MetaGraphs carry them.
Next to read: `aexec/variables/variable.py`, whose items they hold most often.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

__all__ = ["Collections", "GraphKeys"]


class GraphKeys:
    """Names of the collections that are known, as TensorFlow spells them.

    Whoever needs one of his own takes any other name.
    """

    GLOBAL_VARIABLES = "variables"
    VARIABLES = "variables"  # TensorFlow's older name of it.
    LOCAL_VARIABLES = "local_variables"
    METRIC_VARIABLES = "metric_variables"
    MODEL_VARIABLES = "model_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    TRAINABLE_RESOURCE_VARIABLES = "trainable_resource_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    CONCATENATED_VARIABLES = "concatenated_variables"
    GLOBAL_STEP = "global_step"
    LOSSES = "losses"
    REGULARIZATION_LOSSES = "regularization_losses"
    ACTIVATIONS = "activations"
    WEIGHTS = "weights"
    BIASES = "biases"
    UPDATE_OPS = "update_ops"
    TRAIN_OP = "train_op"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    SUMMARIES = "summaries"
    SUMMARY_OP = "summary_op"
    QUEUE_RUNNERS = "queue_runners"
    TABLE_INITIALIZERS = "table_initializer"
    ASSET_FILEPATHS = "asset_filepaths"
    SAVERS = "savers"
    SAVEABLE_OBJECTS = "saveable_objects"
    RESOURCES = "resources"
    LOCAL_RESOURCES = "local_resources"
    COND_CONTEXT = "cond_context"
    WHILE_CONTEXT = "while_context"
    EVAL_STEP = "eval_step"
    VARIABLE_STORE = "__variable_store"
    VARIABLE_SCOPE_STORE = "__varscope"


class Collections:
    """The collections of one graph.

    Any hashable value names a collection.  A name that is no string, or begins with `__`, is private: its list is there
    for whoever knows it, is not among the `keys`, and is not exported.
    """

    def __init__(self) -> None:
        self._items: dict[Hashable, list[Any]] = {}

    def add(self, name: Hashable, value: Any) -> None:
        """Append an item; it may be there already."""
        self._items.setdefault(name, []).append(value)

    def add_to_each(self, names: Iterable[Hashable] | str, value: Any) -> None:
        """Append an item to each of some collections, given once or several times."""
        for name in dict.fromkeys([names] if isinstance(names, str) else names):
            self.add(name, value)

    def get(self, name: Hashable, scope: str | None = None) -> list[Any]:
        """A copy of a collection, empty if nothing was added.

        Args:
            scope: a regular expression; only items whose `name` begins with a match of it.  Items without a name
                are left out then.
        """
        items = self._items.get(name, [])
        if scope is None:
            return list(items)
        begins = re.compile(scope).match
        return [item for item in items if isinstance(named := getattr(item, "name", None), str) and begins(named)]

    def get_ref(self, name: Hashable) -> list[Any]:
        """The collection itself, which may be changed."""
        return self._items.setdefault(name, [])

    def clear(self, name: Hashable) -> None:
        """Forget a collection."""
        self._items.pop(name, None)

    @property
    def keys(self) -> list[str]:
        """Names of the collections that are not private and not empty."""
        return [
            name for name, items in self._items.items() if items and isinstance(name, str) and not name.startswith("__")
        ]

    def __repr__(self) -> str:
        return f"<Collections {', '.join(f'{name} ({len(self._items[name])})' for name in self.keys)}>"
