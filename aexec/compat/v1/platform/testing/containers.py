"""The assertions of absl's TestCase on lists, sets, mappings and nested structures.

Next to read: `texts.py`.
"""

from __future__ import annotations

import dataclasses
import json
import unittest
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set, Sized
from itertools import combinations
from typing import Any

__all__ = ["ContainerAssertions"]


class ContainerAssertions(unittest.TestCase):
    """Assertions on containers.  `msg`, the test's own message, comes first in the message of a failure."""

    def fail(self, msg: Any = None, user_msg: Any = None) -> Any:
        """Fail with a message, followed by `user_msg`."""
        super().fail(self._formatMessage(user_msg, msg))

    assertItemsEqual = unittest.TestCase.assertCountEqual  # noqa: N815

    # Sizes

    def _size(self, container: Any, msg: Any) -> int:
        if not isinstance(container, Sized):
            self.fail(f"Expected a Sized object, got: {type(container).__name__!r}", msg)
        return len(container)

    def assertEmpty(self, container: Any, msg: Any = None) -> None:
        """Fail unless a container has no elements."""
        if size := self._size(container, msg):
            self.fail(f"{container!r} has length of {size}.", msg)

    def assertNotEmpty(self, container: Any, msg: Any = None) -> None:
        """Fail if a container has no elements."""
        if not self._size(container, msg):
            self.fail(f"{container!r} has length of 0.", msg)

    def assertLen(self, container: Any, expected_len: int, msg: Any = None) -> None:
        """Fail unless a container has `expected_len` elements."""
        if (size := self._size(container, msg)) != expected_len:
            self.fail(f"{container!r:.200} has length of {size}, expected {expected_len}.", msg)

    # Order and kind

    def assertBetween(self, value: Any, minv: Any, maxv: Any, msg: Any = None) -> None:
        """Fail unless minv <= value <= maxv."""
        if not minv <= value <= maxv:
            self.fail(f"{value!r} unexpectedly not between {minv!r} and {maxv!r}", msg)

    def assertTotallyOrdered(self, *groups: Iterable[Any], **kwargs: Any) -> None:
        """Check the comparison operators of a class.

        Fail unless all operators agree that the elements of a group are equal, and less than those of later groups.

        Raises:
            TypeError: a keyword argument other than `msg` is given.
        """
        msg = kwargs.pop("msg", None)
        if kwargs:
            raise TypeError(f"assertTotallyOrdered() got unexpected keyword arguments {sorted(kwargs)}")
        placed = [(number, element) for number, group in enumerate(groups) for element in group]
        for (one, small), (other, big) in combinations(placed, 2):
            if one == other and not _are_equal(small, big):
                self.fail(f"{small!r} is unexpectedly not equal to {big!r}", msg)
            if one != other and not _is_less(small, big):
                self.fail(f"{small!r} is unexpectedly not less than {big!r}", msg)

    def assertIsSubclass(self, cls: Any, superclass: Any, msg: Any = None) -> None:
        """Fail unless `cls` is a subclass of a class, or of one of a tuple of classes."""
        if not isinstance(cls, type):
            self.fail(f"{cls!r} is not a class", msg)
        if not issubclass(cls, superclass):
            self.fail(f"{cls!r} is not a subclass of {superclass!r}", msg)

    def assertNotIsSubclass(self, cls: Any, superclass: Any, msg: Any = None) -> None:
        """Fail if `cls` is a subclass of a class, or of one of a tuple of classes."""
        if not isinstance(cls, type):
            self.fail(f"{cls!r} is not a class", msg)
        if issubclass(cls, superclass):
            self.fail(f"{cls!r} is a subclass of {superclass!r}", msg)

    # Elements

    def assertContainsSubset(self, expected_subset: Any, actual_set: Any, msg: Any = None) -> None:
        """Fail unless `actual_set` contains all elements of `expected_subset`."""
        if missing := set(expected_subset) - set(actual_set):
            self.fail(f"Missing elements {missing}\nExpected: {expected_subset}\nActual: {actual_set}", msg)

    def assertNoCommonElements(self, expected_seq: Any, actual_seq: Any, msg: Any = None) -> None:
        """Fail if two collections have an element in common."""
        if common := set(expected_seq) & set(actual_seq):
            self.fail(f"Common elements {common}\nExpected: {expected_seq}\nActual: {actual_seq}", msg)

    def assertSameElements(self, expected_seq: Any, actual_seq: Any, msg: Any = None) -> None:
        """Fail unless two collections have the same elements, regardless of order and repetitions."""
        if isinstance(expected_seq, str | bytes) or isinstance(actual_seq, str | bytes):
            self.fail("Passing string/bytes to assertSameElements is usually a bug. Did you mean to use assertEqual?")
        missing = [element for element in expected_seq if element not in actual_seq]
        unexpected = [element for element in actual_seq if element not in expected_seq]
        parts = {"Expected, but missing": missing, "Unexpected, but present": unexpected}
        if missing or unexpected:
            self.fail("\n".join(f"{what}:\n  {those!r}" for what, those in parts.items() if those), msg)

    # Sequences

    def assertSequenceStartsWith(self, prefix: Any, whole: Any, msg: Any = None) -> None:
        """Fail unless `whole` begins with `prefix`, a sequence or a single element."""
        first = list(prefix) if isinstance(prefix, Collection) else [prefix]
        if isinstance(whole, Mapping | Set) or not isinstance(whole, Collection):
            self.fail(f"For whole: a sequence is expected, found type: {type(whole)}", msg)
        elements = list(whole)
        if not first and elements:
            self.fail(f"Prefix length is 0 but whole length is {len(elements)}: {whole}", msg)
        if len(first) > len(elements):
            self.fail(f"Prefix length ({len(first)}) is longer than whole length ({len(elements)}).", msg)
        if first != elements[: len(first)]:
            self.fail(f"prefix: {first} not found at start of whole: {whole}.", msg)

    def assertContainsSubsequence(self, container: Any, subsequence: Any, msg: Any = None) -> None:
        """Fail unless `container` has the elements of `subsequence` in order, with others between them or not."""
        rest: Iterator[Any] = iter(container)
        for element in subsequence:
            if element not in rest:  # `in` also advances the iterator to the element
                self.fail(f"{subsequence} not a subsequence of {container}. First non-matching element: {element}", msg)

    def assertContainsExactSubsequence(self, container: Any, subsequence: Any, msg: Any = None) -> None:
        """Fail unless `container` has the elements of `subsequence` in order, without others between them."""
        whole, part = list(container), list(subsequence)
        if not any(whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1)):
            self.fail(f"{part} not an exact subsequence of {whole}.", msg)

    def assertSequenceAlmostEqual(
        self,
        expected_seq: Any,
        actual_seq: Any,
        places: int | None = None,
        msg: Any = None,
        delta: float | None = None,
    ) -> None:
        """Fail unless two sequences have the same length and `assertAlmostEqual` holds for each pair of elements."""
        if len(expected_seq) != len(actual_seq):
            self.fail(f"Sequence size mismatch: {len(expected_seq)} vs {len(actual_seq)}", msg)
        problems = []
        for index, (expected, actual) in enumerate(zip(expected_seq, actual_seq, strict=True)):
            if problem := self._unlike(expected, actual, places, delta):
                problems.append(f"At index {index}: {problem}")
        if problems:
            self.fail("\n".join([*problems[:30], *["..."] * (len(problems) > 30)]), msg)

    def _unlike(self, a: Any, b: Any, places: Any, delta: Any) -> str | None:
        """The message of `assertAlmostEqual` if it fails for two numbers, else None."""
        try:
            self.assertAlmostEqual(a, b, places=places, delta=delta)
        except self.failureException as failure:
            return str(failure)
        return None

    # Mappings and structures

    def assertMappingEqual(
        self,
        a: Any,
        b: Any,
        msg: Any = None,
        mapping_type: type = Mapping,
        check_values_equality: Callable[[Any, Any], tuple[Any, Any]] = lambda x, y: (x == y, None),
    ) -> None:
        """Fail unless two mappings have the same keys, with equal values.

        Args:
            check_values_equality: (value of a, value of b) → (whether they are equal, message or None).
        """
        for name, mapping in (("a", a), ("b", b)):
            if not isinstance(mapping, mapping_type):
                self.fail(f"{name} should be a {mapping_type.__name__}, found type: {type(mapping).__name__}", msg)
        if a == b:
            return
        lines = [f"Unexpected, but present: {key!r}: {b[key]!r}" for key in b if key not in a]
        lines += [f"Missing: {key!r}: {a[key]!r}" for key in a if key not in b]
        for key in a:
            if key in b:
                equal, said = check_values_equality(a[key], b[key])
                if not equal:
                    lines.append(f"{key!r}: {said or f'{a[key]!r} != {b[key]!r}'}")
        if lines:
            self.fail("\n".join([f"{a!r} != {b!r}", *lines]), msg)

    def assertDictAlmostEqual(
        self, a: Any, b: Any, places: int | None = None, msg: Any = None, delta: float | None = None
    ) -> None:
        """Fail unless two dicts have the same keys and equal values; numbers are compared by `assertAlmostEqual`.

        Raises:
            ValueError: both `places` and `delta` are given.
        """
        if places is not None and delta is not None:
            raise ValueError("specify delta or places not both\n")

        def compare(one: Any, other: Any) -> tuple[bool, str | None]:
            if isinstance(one, int | float | complex) and isinstance(other, int | float | complex):
                problem = self._unlike(one, other, places, delta)
                return problem is None, problem
            return one == other, None

        self.assertMappingEqual(a, b, msg, dict, compare)

    def assertDataclassEqual(self, first: Any, second: Any, msg: Any = None) -> None:
        """Fail unless two instances of a dataclass are equal, with a message that lists the fields that differ."""
        for place, value in (("First", first), ("Second", second)):
            if not dataclasses.is_dataclass(value) or isinstance(value, type):
                self.fail(f"{place} argument {value!r} is not a dataclass instance.")
        if first == second:
            return
        if type(first) is not type(second):
            self.fail(f"Found different dataclass types: {type(first)} != {type(second)}", msg)
        names = [field.name for field in dataclasses.fields(first) if field.compare]
        pairs = {name: (getattr(first, name), getattr(second, name)) for name in names}
        differing = [f"{name}: {one!r} != {other!r}" for name, (one, other) in pairs.items() if one != other]
        self.fail("\n".join([f"{first!r} != {second!r}", "Fields that differ:", *differing]), msg)

    def assertSameStructure(self, a: Any, b: Any, aname: str = "a", bname: str = "b", msg: Any = None) -> None:
        """Fail unless two structures of mappings, sets and sequences are equal; the message lists the differences."""
        if problems := list(self._differences(a, b, aname, bname)):
            self.fail("; ".join(problems), msg)

    def assertJsonEqual(self, first: str, second: str, msg: Any = None) -> None:
        """Fail unless two texts are equal as JSON.  Raises ValueError for a text that is not JSON."""
        try:
            one, other = json.loads(first), json.loads(second)
        except ValueError as error:
            raise ValueError(self._formatMessage(msg, f"could not decode JSON: {error}")) from error
        self.assertSameStructure(one, other, "first", "second", msg)

    def _differences(self, a: Any, b: Any, aname: str, bname: str) -> Iterator[str]:
        if type(a) is not type(b) and not _are_alike(a, b):
            yield f"{aname} is a {type(a)!r} but {bname} is a {type(b)!r}"
        elif isinstance(a, Set):
            yield from (f"{aname} has {element!r} but {bname} does not" for element in a if element not in b)
            yield from (f"{aname} lacks {element!r} but {bname} has it" for element in b if element not in a)
        elif isinstance(a, Mapping):
            yield from self._parts(a, b, list(a), list(b), aname, bname)
        elif isinstance(a, Sequence) and not isinstance(a, str | bytes):
            yield from self._parts(a, b, range(len(a)), range(len(b)), aname, bname)
        else:
            try:
                self.assertEqual(a, b)
            except self.failureException as failure:
                yield f"{aname} is {a!r} but {bname} is {b!r}: {failure}"

    def _parts(self, a: Any, b: Any, of_a: Sequence[Any], of_b: Sequence[Any], aname: str, bname: str) -> Iterator[str]:
        for key in of_a:
            if key in of_b:
                yield from self._differences(a[key], b[key], f"{aname}[{key!r}]", f"{bname}[{key!r}]")
            else:
                yield f"{aname} has [{key!r}] with value {a[key]!r} but {bname} does not"
        yield from (
            f"{aname} lacks [{key!r}] but {bname} has it with value {b[key]!r}" for key in of_b if key not in of_a
        )


def _are_equal(a: Any, b: Any) -> bool:
    """Whether all comparison operators and the hashes agree that two values are equal."""
    holds = [a == b, b == a, a <= b, b <= a, a >= b, b >= a, hash(a) == hash(b)]
    return all(holds) and not any([a != b, b != a, a < b, b < a, a > b, b > a])


def _is_less(a: Any, b: Any) -> bool:
    """Whether all comparison operators agree that a < b."""
    holds = [a < b, a <= b, b > a, b >= a, a != b, b != a]
    return all(holds) and not any([a == b, b == a, b < a, b <= a, a > b, a >= b])


def _are_alike(a: Any, b: Any) -> bool:
    """Whether two values of different types can be compared: both ints, or both sequences, sets or mappings."""
    if isinstance(a, str | bytes) or isinstance(b, str | bytes):
        return False
    return any(isinstance(a, kind) and isinstance(b, kind) for kind in (int, Sequence, Set, Mapping))
