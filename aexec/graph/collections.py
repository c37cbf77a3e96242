"""Collections: named lists of objects that belong to a graph.

The front end keeps variables, queue runners, summaries and losses in them, and MetaGraphs store them.
Next to read: `aexec/variables/variable.py`, whose variables are the most common items.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

__all__ = ["Collections", "GraphKeys"]


class GraphKeys:
    """Names of the standard collections, spelled as in TensorFlow.

    A program may use any other name for a collection of its own.
    """

    GLOBAL_VARIABLES = "variables"
    VARIABLES = "variables"  # TensorFlow's older name for GLOBAL_VARIABLES
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

    Any hashable value names a collection.  A name that is not a string, or that begins with `__`, is private: `get`
    finds its list, but `keys` leaves it out, and it is not exported.
    """

    def __init__(self) -> None:
        self._items: dict[Hashable, list[Any]] = {}

    def add(self, name: Hashable, value: Any) -> None:
        """Append an item, even if the collection has it already."""
        self._items.setdefault(name, []).append(value)

    def add_to_each(self, names: Iterable[Hashable] | str, value: Any) -> None:
        """Append an item to each of several collections; a name that is given twice counts once."""
        for name in dict.fromkeys([names] if isinstance(names, str) else names):
            self.add(name, value)

    def get(self, name: Hashable, scope: str | None = None) -> list[Any]:
        """Return a copy of a collection, empty if nothing was added.

        Args:
            scope: a regular expression; return only items whose `name` matches it from its start.  Items without a
                name are left out then.
        """
        items = self._items.get(name, [])
        if scope is None:
            return list(items)
        begins = re.compile(scope).match
        return [item for item in items if isinstance(named := getattr(item, "name", None), str) and begins(named)]

    def get_ref(self, name: Hashable) -> list[Any]:
        """Return the collection's own list; changes to it change the collection."""
        return self._items.setdefault(name, [])

    def clear(self, name: Hashable) -> None:
        """Remove all items of a collection."""
        self._items.pop(name, None)

    @property
    def keys(self) -> list[str]:
        """Return the names of the collections that are neither private nor empty."""
        return [
            name for name, items in self._items.items() if items and isinstance(name, str) and not name.startswith("__")
        ]

    def __repr__(self) -> str:
        return f"<Collections {', '.join(f'{name} ({len(self._items[name])})' for name in self.keys)}>"
