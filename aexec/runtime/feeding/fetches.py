"""Fetch structures: flattens what `run` is asked for to names, and rebuilds it around the values.

A fetch is a tensor or its name (`y:0`); an operation or its name (`train`), whose value is None; or a list, tuple,
namedtuple, dict or dataclass of fetches, nested at will.  `register_fetch_type` adds types.  A value of such a type
stands for several tensors, as a fetch and as a key of feeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.tensor_proxy import TensorProxy
from aexec.runtime.feeding.type_patterns import Pattern, TypePatterns

__all__ = ["FetchMapper", "feed_keys", "flat_feeds", "register_fetch_type", "to_values"]

# Types of keys of feeds that stand for one tensor.
_SIMPLE = frozenset({str, Tensor})


class _Expansion(NamedTuple):
    """The functions registered for a type that stands for several tensors."""

    expand: Callable[[Any], Sequence[Any]]
    contract: Callable[[Sequence[Any]], Any]
    split: Callable[[Any], Sequence[Any]] | None


_expansions: TypePatterns[_Expansion] = TypePatterns()

Rebuild = Callable[[Sequence[Any]], Any]


def register_fetch_type(
    pattern: Pattern,
    expand: Callable[[Any], Sequence[Any]],
    contract: Callable[[Sequence[Any]], Any],
    split: Callable[[Any], Sequence[Any]] | None = None,
    *,
    exact: bool = False,
) -> None:
    """Let values of some types be fetches and keys of feeds, each of which stands for several tensors.

    If several patterns match a value, the last registered one counts.

    Args:
        pattern, exact: as for `register_feed_type`.
        expand: returns the fetches that a value stands for, which may be of registered types themselves.
        contract: returns the result, given their values.
        split: returns what is fed for each of these fetches, given what is fed for the value.  Without it the value
            cannot be fed.  A callable takes one argument for each fetch.

    Raises:
        InvalidArgumentError: `pattern` is no pattern.
    """
    _expansions.register(pattern, _Expansion(expand, contract, split), exact=exact)


def feed_keys(keys: Iterable[Any]) -> list[Any]:
    """Keys of feeds, with each key that stands for several tensors replaced by these.

    Raises:
        InvalidArgumentError: a key stands for several tensors and cannot be fed.
    """
    flat: list[Any] = []
    for key in keys:
        expansion = _expansion_of_key(key)
        flat += [key] if expansion is None else feed_keys(expansion.expand(key))
    return flat


def flat_feeds(feeds: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Feeds whose keys are single tensors or their names; `feeds` itself if they are so already.

    Raises:
        InvalidArgumentError: a key cannot be fed, a tensor is fed twice, or values do not fit their key.
    """
    if not any(map(_expansion_of_key, feeds)):
        return feeds
    flat: dict[Any, Any] = {}
    for key, value in feeds.items():
        for tensor, part in _parts(key, value):
            if tensor in flat:
                raise errors.InvalidArgumentError(f'Endpoint "{getattr(tensor, "name", tensor)}" fed more than once.')
            flat[tensor] = part
    return flat


def _parts(key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    expansion = _expansion_of_key(key)
    if expansion is None:
        yield key, value
        return
    keys = expansion.expand(key)
    assert expansion.split is not None
    values = expansion.split(value)
    if len(keys) != len(values):
        raise errors.InvalidArgumentError(
            f"{key!r} stands for {len(keys)} tensors, and was fed {len(values)} values: {value!r:.200}"
        )
    for one, part in zip(keys, values, strict=True):
        yield from _parts(one, part)


def _expansion_of_key(key: Any) -> _Expansion | None:
    if type(key) in _SIMPLE or isinstance(key, TensorProxy):
        return None
    expansion = _expansions.find(key)
    if expansion is None and isinstance(key, tuple):
        return _STRUCTURE
    if expansion is not None and expansion.split is None:
        raise errors.InvalidArgumentError(
            f"{key!r} can be fetched but not fed: its type {type(key).__name__} was registered without `split`"
        )
    return expansion


def _elements(value: Any) -> list[Any]:
    """The parts of a structure that is fed for a structure."""
    return list(value) if isinstance(value, list | tuple) else [value]


# For a tuple, such as the state of an LSTM, a structure of the same form is fed.
_STRUCTURE = _Expansion(_elements, tuple, _elements)


def _of_slices(slices: IndexedSlices[Any]) -> list[Any]:
    """The tensors of an IndexedSlices, without the dense shape if that is unknown."""
    return [part for part in slices if part is not None]


register_fetch_type(IndexedSlices, _of_slices, lambda parts: IndexedSlices(*parts), _of_slices)


def to_values(results: Iterable[Any]) -> list[Any]:
    """Fetched tensors as users get them: arrays, and scalars for arrays of no dimension."""
    return [tensor if tensor.ndim else tensor[()] for tensor in results]


class FetchMapper:
    """A flattened fetch structure.

    Attributes:
        names: unique tensor names, in order of first appearance.
        targets: names of operations to run.
        elements: the tensors and operations that were not given by name; they must belong to the graph.
        flat: True for a single fetch, and for a list or tuple of single fetches.
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
        expansion = _expansions.find(fetch)
        if expansion is not None:
            contract = expansion.contract
            parts = [self._map(f) for f in expansion.expand(fetch)]
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
