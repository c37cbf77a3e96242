"""Fetch structures: what `run` is asked for, flattened to names, and rebuilt around the values.

A fetch is a tensor or its name (`y:0`), or an operation or its name (`train`), which
gives None; or a list, tuple, namedtuple, dict or dataclass of fetches, nested at will.
Other types can be registered with `register_fetch_type`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aexec.framework import errors
from aexec.graph.node import Node, Tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["FetchMapper", "register_fetch_type", "to_values"]

# Type → (value → its component fetches, component values → result).
Expansion = tuple[Callable[[Any], Sequence[Any]], Callable[[Sequence[Any]], Any]]
_expansions: dict[type, Expansion] = {}

Rebuild = Callable[[Sequence[Any]], Any]


def register_fetch_type(
    cls: type, expand: Callable[[Any], Sequence[Any]], contract: Callable[[Sequence[Any]], Any]
) -> None:
    """Allow instances of `cls` as fetches.

    Args:
        expand: the fetches that an instance stands for.
        contract: makes the result from their values.
    """
    _expansions[cls] = (expand, contract)


def to_values(results: Iterable[Any]) -> list[Any]:
    """What users get for fetched tensors: arrays, and what is in those of no dimension."""
    return [tensor if tensor.ndim else tensor[()] for tensor in results]


class FetchMapper:
    """A flattened fetch structure.

    Attributes:
        names: unique tensor names, in order of first appearance.
        targets: names of operations to run.
        elements: the tensors and operations that were not given by name; they must be of the graph.
        flat: it is a fetch, or a list or tuple of fetches, with no structure inside.
    """

    __slots__ = ("_index", "_rebuild", "elements", "flat", "names", "targets")

    def __init__(self, fetches: Any) -> None:
        self.names: list[str] = []
        self.targets: list[str] = []
        self.elements: list[Tensor | Node] = []
        self._index: dict[str, int] = {}
        parts = fetches if type(fetches) in (list, tuple) else (fetches,)
        self.flat = all(type(part) in (str, Tensor, Node) for part in parts)
        self._rebuild = self._map(fetches)

    def build(self, values: Sequence[Any]) -> Any:
        """The structure with each fetch replaced by its value (None for operations)."""
        return self._rebuild(values)

    def _map(self, fetch: Any) -> Rebuild:
        if isinstance(fetch, str):
            return self._map_name(fetch)
        if isinstance(fetch, Tensor):
            self.elements.append(fetch)
            return self._tensor(fetch.name)
        if isinstance(fetch, Node):
            self.elements.append(fetch)
            return self._operation(fetch.name)
        if isinstance(fetch, TensorProxy):
            return self._map(fetch.element)
        expansion = _expansions.get(type(fetch))
        if expansion is not None:
            expand, contract = expansion
            parts = [self._map(f) for f in expand(fetch)]
            return lambda values: contract([part(values) for part in parts])
        if isinstance(fetch, Mapping):
            keys, rebuild = list(fetch), [self._map(f) for f in fetch.values()]
            return lambda values: {k: part(values) for k, part in zip(keys, rebuild, strict=True)}
        if isinstance(fetch, list | tuple):
            return self._map_sequence(fetch)
        if dataclasses.is_dataclass(fetch) and not isinstance(fetch, type):
            fields = {f.name: self._map(getattr(fetch, f.name)) for f in dataclasses.fields(fetch)}
            return lambda values: dataclasses.replace(fetch, **{k: part(values) for k, part in fields.items()})
        raise errors.InvalidArgumentError(
            f"Fetch argument {fetch!r} has invalid type {type(fetch).__name__}, must be a tensor, an operation, "
            "the name of one, or a list, tuple, dict or dataclass of these"
        )

    def _map_sequence(self, fetch: list[Any] | tuple[Any, ...]) -> Rebuild:
        parts = [self._map(f) for f in fetch]
        if isinstance(fetch, list):
            return lambda values: [part(values) for part in parts]
        if hasattr(fetch, "_fields"):
            make = type(fetch)
            return lambda values: make(*(part(values) for part in parts))
        return lambda values: tuple(part(values) for part in parts)

    def _map_name(self, name: str) -> Rebuild:
        port = name.rpartition(":")[2]
        return self._tensor(name) if ":" in name and port.isdigit() else self._operation(name)

    def _tensor(self, name: str) -> Rebuild:
        index = self._index.setdefault(name, len(self.names))
        if index == len(self.names):
            self.names.append(name)
        return lambda values: values[index]

    def _operation(self, name: str) -> Rebuild:
        self.targets.append(name)
        return lambda values: None
