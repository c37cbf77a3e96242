"""`tf.nest`: structures of lists, tuples, dicts and attributes.

Next to read: `aexec/control_flow/structure.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aexec.control_flow.structure import leaves_of, pack
from aexec.framework.errors import InvalidTypeError, InvalidValueError

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]


def is_nested(seq: Any) -> bool:
    """`tf.nest.is_nested`: True for a container."""
    return isinstance(seq, list | tuple | Mapping)


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """`tf.nest.flatten`: the leaves; dicts in the order of their keys."""
    return leaves_of(structure)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any], expand_composites: bool = False) -> Any:
    """`tf.nest.pack_sequence_as`: a structure of the same form with other leaves."""
    if not is_nested(flat_sequence):
        raise InvalidTypeError(f"Attempted to pack value {flat_sequence!r} into a structure: it is no sequence")
    count = len(flatten(structure))
    if count != len(flat_sequence):
        raise InvalidValueError(
            "Could not pack sequence. "
            f"Structure had {count} atoms, but flat_sequence had {len(flat_sequence)} items.  "
            f"Structure: {structure!r}, flat_sequence: {flat_sequence!r}."
        )
    return pack(structure, list(flat_sequence))


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """`tf.nest.assert_same_structure`.  Raises ValueError for different forms, TypeError for different containers."""
    if is_nested(nest1) != is_nested(nest2) or (is_nested(nest1) and len(nest1) != len(nest2)):
        raise InvalidValueError(
            f"The two structures don't have the same nested structure. First structure: {nest1!r}, "
            f"second structure: {nest2!r}"
        )
    if not is_nested(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise InvalidTypeError(f"The two structures don't have the same sequence type: {type(nest1)}, {type(nest2)}")
    keyed = isinstance(nest1, Mapping)
    if keyed and set(nest1) != set(nest2):
        raise InvalidValueError(f"The two dictionaries don't have the same set of keys: {set(nest1)}, {set(nest2)}")
    pairs = [(nest1[key], nest2[key]) for key in nest1] if keyed else list(zip(nest1, nest2, strict=True))
    for first, second in pairs:
        assert_same_structure(first, second, check_types)


def map_structure(func: Callable[..., Any], *structure: Any, check_types: bool = True, **kwargs: Any) -> Any:
    """`tf.nest.map_structure`: calls a function with the leaves at each position."""
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types)
    leaves = zip(*(flatten(one) for one in structure), strict=True)
    return pack_sequence_as(structure[0], [func(*each) for each in leaves])
