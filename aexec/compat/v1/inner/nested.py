"""`tensorflow.python.util.nest`: structures that are read to the depth of another.

Next to read: `aexec/compat/v1/platform/nest.py`, which has the public part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aexec.compat.v1.platform.nest import flatten, is_nested, pack_sequence_as
from aexec.framework.errors import InvalidTypeError, InvalidValueError

__all__ = [
    "assert_shallow_structure",
    "flatten_dict_items",
    "flatten_up_to",
    "flatten_with_joined_string_paths",
    "flatten_with_tuple_paths",
    "is_sequence",
    "is_sequence_or_composite",
    "map_structure_up_to",
    "map_structure_with_paths",
]

is_sequence = is_sequence_or_composite = is_nested


def assert_shallow_structure(shallow_tree: Any, input_tree: Any, check_types: bool = True) -> None:
    """Raises ValueError or TypeError unless a structure has the form of another down to the leaves of that."""
    if not is_nested(shallow_tree):
        return
    if not is_nested(input_tree):
        raise InvalidTypeError(
            f"If shallow structure is a sequence, input must also be a sequence. Input has type: {type(input_tree)}."
        )
    if check_types and type(shallow_tree) is not type(input_tree):
        raise InvalidTypeError(
            f"The two structures don't have the same sequence type. Input structure has type {type(input_tree)}, "
            f"while shallow structure has type {type(shallow_tree)}."
        )
    if isinstance(shallow_tree, Mapping):
        absent = sorted(set(shallow_tree) - set(input_tree))
        if absent:
            raise InvalidValueError(
                "The shallow_tree's keys are not a subset of the input_tree's keys. The shallow_tree has the following "
                f"keys that are not in the input_tree: {absent}."
            )
    elif len(shallow_tree) != len(input_tree):
        raise InvalidValueError(
            "The two structures don't have the same sequence length. Input structure has length "
            f"{len(input_tree)}, while shallow structure has length {len(shallow_tree)}."
        )
    for key, below in _items(shallow_tree):
        assert_shallow_structure(below, input_tree[key], check_types)


def _items(structure: Any) -> list[tuple[Any, Any]]:
    """Keys and elements, in the order of `flatten`."""
    return sorted(structure.items()) if isinstance(structure, Mapping) else list(enumerate(structure))


def flatten_up_to(shallow_tree: Any, input_tree: Any, check_types: bool = True) -> list[Any]:
    """What a structure has where another has its leaves.  Raises as `assert_shallow_structure`."""
    assert_shallow_structure(shallow_tree, input_tree, check_types)
    return list(_up_to(shallow_tree, input_tree))


def _up_to(shallow: Any, tree: Any) -> Iterator[Any]:
    if not is_nested(shallow):
        yield tree
        return
    for key, below in _items(shallow):
        yield from _up_to(below, tree[key])


def map_structure_up_to(shallow_tree: Any, func: Callable[..., Any], *inputs: Any, check_types: bool = True) -> Any:
    """Call a function with what several structures have where another has its leaves; return its form of results."""
    parts = [flatten_up_to(shallow_tree, each, check_types) for each in inputs]
    return pack_sequence_as(shallow_tree, [func(*each) for each in zip(*parts, strict=True)])


def flatten_with_tuple_paths(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves, each with the keys that lead to it."""
    return list(_with_paths(structure, ()))


def _with_paths(structure: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if not is_nested(structure):
        yield path, structure
        return
    named = getattr(structure, "_fields", None)
    for key, below in _items(structure):
        yield from _with_paths(below, (*path, key if named is None else named[key]))


def flatten_with_joined_string_paths(structure: Any, separator: str = "/") -> list[tuple[str, Any]]:
    """The leaves, each with the keys that lead to it as one word."""
    return [(separator.join(map(str, path)), leaf) for path, leaf in flatten_with_tuple_paths(structure)]


def map_structure_with_paths(func: Callable[..., Any], *structure: Any) -> Any:
    """Call a function with the joined keys and the leaves of each position."""
    paths = [path for path, _ in flatten_with_joined_string_paths(structure[0])]
    leaves = (flatten_up_to(structure[0], each) for each in structure)
    return pack_sequence_as(structure[0], [func(*each) for each in zip(paths, *leaves, strict=True)])


def flatten_dict_items(dictionary: Mapping[Any, Any]) -> dict[Any, Any]:
    """A dictionary by the leaves of its keys, with the leaves of its values.  Raises ValueError for other forms."""
    found: dict[Any, Any] = {}
    for key, value in dictionary.items():
        keys, values = flatten(key), flatten(value)
        if len(keys) != len(values):
            raise InvalidValueError(f"Could not flatten dictionary. Key had {len(keys)} elements, value {len(values)}.")
        for one, of in zip(keys, values, strict=True):
            if one in found:
                raise InvalidValueError(f"Could not flatten dictionary: key {one} is not unique.")
            found[one] = of
    return found
