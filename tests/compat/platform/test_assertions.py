"""`tf.test.TestCase`: assertions pass and fail where absl's and TensorFlow's do; files, threads and properties."""

from __future__ import annotations

import os
import sys
import unittest
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf


class Case(tf.test.TestCase):  # type: ignore[misc]
    __test__ = False

    def runTest(self) -> None:  # noqa: N802
        """Lets the class be instantiated without the name of a test method."""


@dataclass
class Point:
    x: int
    y: int


NAN = np.array([1.0, np.nan])
INNER = {"a": [1, 2.5], "b": {"c": {3}}}
PASSING: dict[str, list[tuple[Any, ...]]] = {
    "assertAllGreater": [([1, 2], 0)],
    "assertAllGreaterEqual": [([1, 2], 1)],
    "assertAllLess": [([1, 2], 3)],
    "assertAllLessEqual": [([1, 2], 2)],
    "assertAllInRange": [([1, 2], 1, 2), ([1.5], 1, 2, True, True)],
    "assertAllInSet": [([[1, 2], [2, 1]], {1, 2, 3})],
    "assertNotAllEqual": [([1, 2], [1, 3]), ([1], [1, 1])],
    "assertNotAllClose": [([1.0], [1.1])],
    "assertAllCloseAccordingToType": [
        (np.float16([1.0]), np.float16([1.001])),
        (np.float32([1.0]), np.float32([1.1]), 1e-6, 1e-6, 0.2),
    ],
    "assertDTypeEqual": [(np.float32([1.0]), np.float32)],
    "assertDeviceEqual": [("/cpu:0", "/device:CPU:0"), ("/job:a/cpu:1", "/job:a/device:CPU:1")],
    "assertShapeEqual": [(np.zeros([2, 3]), np.ones([2, 3]))],
    "assertEmpty": [([],), ("",)],
    "assertNotEmpty": [([0],)],
    "assertLen": [([1, 2], 2)],
    "assertBetween": [(1, 1, 2), (2, 1, 2)],
    "assertTotallyOrdered": [([1], [2, 2], [3.0]), ()],
    "assertIsSubclass": [(bool, int), (bool, (str, int))],
    "assertNotIsSubclass": [(int, bool)],
    "assertContainsSubset": [({1}, [1, 2]), ([], [])],
    "assertNoCommonElements": [([1], [2])],
    "assertSameElements": [([1, 1, 2], [2, 1]), ([[1]], [[1], [1]])],
    "assertItemsEqual": [([1, 2], [2, 1])],
    "assertSequenceStartsWith": [([1], [1, 2]), (1, [1, 2]), ([], []), ("a", "ab")],
    "assertContainsSubsequence": [([1, 2, 3], [1, 3])],
    "assertContainsExactSubsequence": [([1, 2, 3], [2, 3]), ([1], [])],
    "assertSequenceAlmostEqual": [([1.0], [1.00000001]), ([1.0], [1.1], None, None, 0.2)],
    "assertMappingEqual": [({1: 2}, OrderedDict({1: 2}))],
    "assertDictAlmostEqual": [({1: 2.0, 2: "a"}, {1: 2.00000001, 2: "a"}), ({1: 2.0}, {1: 2.1}, None, None, 0.2)],
    "assertDataclassEqual": [(Point(1, 2), Point(1, 2))],
    "assertSameStructure": [(INNER, {"a": (1, 2.5), "b": {"c": {3}}})],
    "assertJsonEqual": [('{"a": [1]}', '{ "a":[ 1 ] }')],
    "assertStartsWith": [("ab", "a"), (b"ab", b"a")],
    "assertNotStartsWith": [("ab", "b")],
    "assertEndsWith": [("ab", "b")],
    "assertNotEndsWith": [("ab", "a")],
    "assertContainsInOrder": [(["a", "c"], "abc"), ("b", "abc")],
    "assertRegexMatch": [("abc", ["x", "b"]), ("abc", [b"b"]), (b"a\nb", ["^b"])],
    "assertUrlEqual": [("http://a/b?c=1&d=2#e", "http://a/b?d=2&c=1#e")],
    "assertCommandSucceeds": [([sys.executable, "-c", "print('well')"], ["well"]), ("true",)],
    "assertCommandFails": [([sys.executable, "-c", "raise SystemExit('no')"], [b"no"])],
}
FAILING: dict[str, list[tuple[Any, ...]]] = {
    "assertAllGreater": [([1, 2], 1)],
    "assertAllGreaterEqual": [([1, 2], 1.5)],
    "assertAllLess": [([1, 2], 2)],
    "assertAllLessEqual": [([1, 2], 1.5)],
    "assertAllInRange": [([1, 3], 1, 2), ([1], 1, 2, True), ([2], 1, 2, False, True), (NAN, 0, 2), (["a"], 0, 1)],
    "assertAllInSet": [([1, 4], {1, 2})],
    "assertNotAllEqual": [([1, 2], [1, 2])],
    "assertNotAllClose": [([1.0], [1.0000001])],
    "assertAllCloseAccordingToType": [(np.float32([1.0]), np.float32([1.001]))],
    "assertDTypeEqual": [(np.float32([1.0]), np.float64)],
    "assertDeviceEqual": [("/cpu:0", "/cpu:1")],
    "assertShapeEqual": [(np.zeros([2, 3]), np.ones([3, 2]))],
    "assertEmpty": [([0],), (0,)],
    "assertNotEmpty": [([],), (0,)],
    "assertLen": [([1, 2], 1), (3, 1)],
    "assertBetween": [(3, 1, 2)],
    "assertTotallyOrdered": [([1], [1]), ([2], [1]), ([1, 2],)],
    "assertIsSubclass": [(int, bool), (3, int)],
    "assertNotIsSubclass": [(bool, int), (3, int)],
    "assertContainsSubset": [({3}, [1, 2])],
    "assertNoCommonElements": [([1], [1, 2])],
    "assertSameElements": [([1], [2, 1]), ([1, 2], [1]), ("ab", "ba")],
    "assertItemsEqual": [([1, 1, 2], [2, 1])],
    "assertSequenceStartsWith": [([2], [1, 2]), ([], [1]), ([1, 2], [1]), ([1], {1: 2}), ([1], 1)],
    "assertContainsSubsequence": [([1, 2, 3], [3, 1])],
    "assertContainsExactSubsequence": [([1, 2, 3], [1, 3])],
    "assertSequenceAlmostEqual": [([1.0], [1.1]), ([1.0], [1.0, 1.0])],
    "assertMappingEqual": [({1: 2}, {1: 3}), ({1: 2}, {2: 2}), ([1], {}), ({}, [1])],
    "assertDictAlmostEqual": [({1: 2.0}, {1: 2.1}), ({1: "a"}, {1: "b"})],
    "assertDataclassEqual": [(Point(1, 2), Point(1, 3)), (Point, Point), (Point(1, 2), 3)],
    "assertSameStructure": [(INNER, {"a": [1, 2.5]}), ([1], [2]), ([1], "a"), ({1}, {2}), ([1], [1, 2]), (1, 1.0)],
    "assertJsonEqual": [("[1]", "[2]")],
    "assertStartsWith": [("ab", "b")],
    "assertNotStartsWith": [("ab", "a")],
    "assertEndsWith": [("ab", "a")],
    "assertNotEndsWith": [("ab", "b")],
    "assertContainsInOrder": [(["c", "a"], "abc"), ("d", "abc")],
    "assertRegexMatch": [("abc", ["x", "y"]), ("abc", "b"), ("abc", [])],
    "assertUrlEqual": [("http://a/b?c=1", "http://a/b?c=2"), ("http://a", "https://a")],
    "assertCommandSucceeds": [("false",), ("echo a", ["b"])],
    "assertCommandFails": [("true", [""]), ("echo a; exit 1", ["b"])],
}


@pytest.mark.parametrize("assertion", PASSING)
def test_assertion_holds(assertion: str) -> None:
    for arguments in PASSING[assertion]:
        getattr(Case(), assertion)(*arguments)


@pytest.mark.parametrize("assertion", FAILING)
def test_assertion_fails(assertion: str) -> None:
    for arguments in FAILING[assertion]:
        with pytest.raises(AssertionError):
            getattr(Case(), assertion)(*arguments)


def test_failure_ends_with_what_the_test_says() -> None:
    with pytest.raises(AssertionError, match=r"\[1\] has length of 1, expected 2\. : too few"):
        Case().assertLen([1], 2, msg="too few")
    with pytest.raises(AssertionError, match=r"a\['x'\]\[1\] is 2 but b\['x'\]\[1\] is 3"):
        Case().assertSameStructure({"x": [1, 2]}, {"x": [1, 3]})
    with pytest.raises(AssertionError, match=r"1 of the 2 element\(s\) are outside the range \(0, 1\]"):
        Case().assertAllInRange([1, 2], 0, 1, open_lower_bound=True)
    with pytest.raises(AssertionError, match=r"y: 2 != 3"):
        Case().assertDataclassEqual(Point(1, 2), Point(1, 3))


def test_assertions_take_the_values_of_tensors() -> None:
    case = Case()
    with case.session():
        case.assertAllGreater(tf.constant([1, 2]), tf.constant(0))
        case.assertAllInSet(tf.constant([1, 2]), [1, 2])
        case.assertDTypeEqual(tf.constant([1, 2]), np.int32)
        case.assertNotAllEqual(tf.constant([1, 2]), [2, 1])
        case.assertShapeEqual(np.zeros([2]), tf.constant([1, 2]))


def _raise(error: Exception) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_errors_are_matched() -> None:
    case = Case()
    case.assertRaisesWithLiteralMatch(ValueError, "a.b", _raise(ValueError("a.b")))
    with case.assertRaisesWithLiteralMatch(ValueError, "a.b"):
        raise ValueError("a.b")
    with case.assertRaisesWithPredicateMatch(ValueError, lambda error: error.args == (1,)):
        raise ValueError(1)
    with case.assertRaisesOpError("one|two"):
        raise tf.errors.NotFoundError("two")
    with case.assertRaisesIncompatibleShapesError(ValueError):
        tf.constant([1, 2]) + tf.constant([1, 2, 3])


@pytest.mark.parametrize(
    "check",
    [
        lambda case: case.assertRaisesWithLiteralMatch(ValueError, "a.b", _raise(ValueError("acb"))),
        lambda case: case.assertRaisesWithLiteralMatch(ValueError, "a", dict),
        lambda case: _inside(case.assertRaisesWithPredicateMatch(ValueError, "a"), ValueError("b")),
        lambda case: _inside(case.assertRaisesWithPredicateMatch(ValueError, "a"), KeyError("a")),
        lambda case: _inside(case.assertRaisesWithPredicateMatch(ValueError, "not raised"), None),
    ],
)
def test_other_error_fails(check: Callable[[Any], None]) -> None:
    with pytest.raises(AssertionError):
        check(Case())


def _inside(context: Any, error: Exception | None) -> None:
    with context:
        if error is not None:
            raise error


def test_messages_of_graphs_are_compared_with_their_version() -> None:
    graph = tf.GraphDef()
    graph.versions.producer = 7
    graph.node.add(name="a", op="NoOp")
    Case().assertProtoEqualsVersion('node { name: "a" op: "NoOp" }', graph, producer=7)
    with pytest.raises(AssertionError):
        Case().assertProtoEqualsVersion('node { name: "a" op: "NoOp" }', graph)


def ran(body: Callable[[Any], None]) -> unittest.TestResult:
    """Run a test with this body; return its result."""
    test = type("Test", (tf.test.TestCase,), {"__test__": False, "test": body})("test")
    result = unittest.TestResult()
    test.run(result)
    return result


def test_files_of_a_test_are_deleted_after_it() -> None:
    seen: list[str] = []

    def body(case: Any) -> None:
        folder = case.create_tempdir("here")
        file = folder.create_file("a/b.txt", "words")
        other = case.create_tempfile(content=b"bytes")
        assert (file.read_text(), other.read_bytes()) == ("words", b"bytes")
        file.write_text(" more", mode="a")
        with open(file) as opened:
            assert opened.read() == "words more"
        assert os.path.join(folder, "a", "b.txt") == file.full_path
        assert os.path.isdir(folder.mkdir())
        assert os.listdir(case.create_tempdir("here")) == []
        assert case.get_temp_dir() == case.get_temp_dir()
        with pytest.raises(ValueError):
            other.open_text("rb")
        seen.extend([folder.full_path, other.full_path])

    assert ran(body).wasSuccessful()
    assert not any(map(os.path.exists, seen))


def test_keeping_files_is_refused() -> None:
    with pytest.raises(tf.errors.UnimplementedError, match="cleanup"):
        Case().create_tempfile(cleanup="off")


def test_error_in_a_thread_fails_the_test() -> None:
    def fails(case: Any) -> None:
        thread = case.checkedThread(case.fail, args=("of its own",))
        thread.start()
        thread.join()

    def never_joins(case: Any) -> None:
        case.checkedThread(dict, kwargs={"a": 1}).start()

    def joins(case: Any) -> None:
        thread = case.checkedThread(target=dict)
        thread.start()
        thread.join()
        assert not thread.is_alive()

    assert "of its own" in ran(fails).failures[0][1]
    assert "was not joined" in ran(never_joins).failures[0][1]
    assert ran(joins).wasSuccessful()


def test_writes_to_a_stream_are_captured(tmp_path: Path) -> None:
    def body(case: Any) -> None:
        with open(tmp_path / "stream", "w") as stream:
            with case.captureWritesToStream(stream) as captured:
                os.write(stream.fileno(), b"from below")
            stream.write("later")
        assert captured.contents() == "from below"

    assert ran(body).wasSuccessful()
    assert (tmp_path / "stream").read_text() == "later"


def test_cached_session_keeps_values() -> None:
    def body(case: Any) -> None:
        x = tf.Variable(1)
        with case.cached_session() as first:
            first.run(x.assign(2))
        with case.test_session() as second:
            assert case.evaluate(x) == 2
        assert first is second
        with pytest.raises(ValueError, match="different than the one"), case.cached_session(graph=tf.Graph()):
            pass
        with case.session() as other:
            assert other is not first

    result = ran(body)
    assert result.wasSuccessful(), result.errors + result.failures


def test_properties_are_recorded() -> None:
    def body(case: Any) -> None:
        case.record_property("a", 1)
        with case.subTest("inner"):
            case.record_property("b", 2)
            assert case.get_recorded_properties() == {"a": 1, "b": 2}
        assert case.get_recorded_properties() == {"a": 1}

    assert ran(body).wasSuccessful()


def test_entered_context_ends_with_the_test() -> None:
    ended: list[int] = []

    class Closed:
        def close(self) -> None:
            ended.append(1)

    def body(case: Any) -> None:
        case.enter_context(closing(Closed()))
        case.assertEmpty(ended)

    assert ran(body).wasSuccessful()
    assert ended == [1]
