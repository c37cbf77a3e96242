"""`tf.test`: `unittest` cases that compare arrays, and run in sessions.

Next to read: Python's own `unittest`.
"""

from __future__ import annotations

import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from aexec.compat.v1.namespace import namespace
from aexec.compat.v1.running.session import Session
from aexec.compat.v1.values.tensors import reset_default_graph
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = [
    "TestCase",
    "get_temp_dir",
    "gpu_device_name",
    "is_built_with_cuda",
    "is_built_with_gpu_support",
    "is_built_with_rocm",
    "is_built_with_xla",
    "is_gpu_available",
    "main",
    "mock",
]

main = unittest.main


def get_temp_dir() -> str:
    """`tf.test.get_temp_dir`: a new folder for tests."""
    return tempfile.mkdtemp()


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Any = None) -> bool:
    """`tf.test.is_gpu_available`: False, since sessions have only the CPU by default."""
    return False


def gpu_device_name() -> str:
    """`tf.test.gpu_device_name`: empty, as `is_gpu_available` is False."""
    return ""


def is_built_with_cuda() -> bool:
    """`tf.test.is_built_with_cuda`: False; CuPy is built with it."""
    return False


is_built_with_gpu_support = is_built_with_rocm = is_built_with_xla = is_built_with_cuda


class TestCase(unittest.TestCase):
    """`tf.test.TestCase`: each test has its own default graph."""

    def setUp(self) -> None:
        super().setUp()
        if self._testMethodName == "test_session":
            self.skipTest("It is a method that tests call.")
        reset_default_graph()

    def get_temp_dir(self) -> str:
        """A new folder, which is deleted after the test."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    @contextmanager
    def session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = True, force_gpu: bool = False
    ) -> Iterator[Session]:
        """A session, by default of the default graph."""
        with Session(graph=graph, config=config) as session:
            yield session

    cached_session = test_session = session

    def evaluate(self, tensors: Any) -> Any:
        """Values, in the session of the `with` block."""
        from aexec.compat.v1.values.default_session import default_session

        return default_session().run(tensors)

    def assertAllClose(  # noqa: N802
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """Fail unless two structures of numbers are close."""
        if isinstance(a, dict):
            self.assertEqual(set(a), set(b), msg)  # noqa: PT009
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, msg)
            return
        one, other = self._array(a), self._array(b)
        self.assertEqual(one.shape, other.shape, msg)  # noqa: PT009
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=msg or "")

    def _array(self, value: Any) -> Any:
        """An array of numbers, or of a tensor's value in the session of the `with` block."""
        return np.asarray(self.evaluate(value) if isinstance(value, Tensor | TensorProxy) else value)

    def assertAllCloseAccordingToType(  # noqa: N802
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, **settings: Any
    ) -> None:
        """Like `assertAllClose`, with larger tolerances for narrow types."""
        half = np.float16 in (np.asarray(a).dtype, np.asarray(b).dtype)
        self.assertAllClose(a, b, max(rtol, 1e-3 if half else 0), max(atol, 1e-3 if half else 0))

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:  # noqa: N802
        """Fail unless two arrays are equal."""
        one, other = self._array(a), self._array(b)
        self.assertEqual(one.shape, other.shape, msg)  # noqa: PT009
        np.testing.assert_array_equal(one, other, err_msg=msg or "")

    def assertNotAllClose(self, a: Any, b: Any, **settings: Any) -> None:  # noqa: N802
        """Fail if two arrays are close."""
        with self.assertRaises(AssertionError):  # noqa: PT027
            self.assertAllClose(a, b, **settings)

    def assertArrayNear(self, farray1: Any, farray2: Any, err: float, msg: str | None = None) -> None:  # noqa: N802
        """Fail if any numbers differ by more than `err`."""
        np.testing.assert_allclose(farray1, farray2, rtol=0, atol=err, err_msg=msg or "")

    def assertStartsWith(self, actual: str, expected_start: str, msg: str | None = None) -> None:  # noqa: N802
        """Fail unless a text starts with another one."""
        self.assertTrue(actual.startswith(expected_start), msg or f"{actual!r} starts not with {expected_start!r}")  # noqa: PT009

    def assertNDArrayNear(  # noqa: N802
        self, ndarray1: Any, ndarray2: Any, err: float, msg: str | None = None
    ) -> None:
        """Fail if the norm of the difference of two arrays is `err` or more."""
        self.assertLess(float(np.linalg.norm(np.asarray(ndarray1) - np.asarray(ndarray2))), err, msg)  # noqa: PT009

    def assertProtoEquals(  # noqa: N802
        self, expected_message_maybe_ascii: Any, message: Any, msg: str | None = None
    ) -> None:
        """Fail unless two messages are equal; the first one may be its text."""
        from google.protobuf import text_format

        expected = expected_message_maybe_ascii
        if isinstance(expected, str):
            expected = text_format.Parse(expected, type(message)())
        self.assertEqual(text_format.MessageToString(expected), text_format.MessageToString(message), msg)  # noqa: PT009

    def assertNear(self, f1: float, f2: float, err: float, msg: str | None = None) -> None:  # noqa: N802
        """Fail if two numbers differ by more than `err`."""
        self.assertAlmostEqual(f1, f2, delta=err, msg=msg)  # noqa: PT009

    def assertShapeEqual(self, np_array: Any, tf_tensor: Any, msg: str | None = None) -> None:  # noqa: N802
        """Fail unless an array has the static shape of a tensor."""
        self.assertEqual(list(np.shape(np_array)), tf_tensor.shape.as_list(), msg)  # noqa: PT009

    def assertRaisesOpError(self, expected_err_re_or_predicate: Any) -> Any:  # noqa: N802
        """Fail unless the block raises an OpError whose message matches."""
        return self.assertRaisesRegex(errors.OpError, expected_err_re_or_predicate)  # noqa: PT027


__getattr__, __dir__ = namespace(
    __name__,
    {name: f"platform.gradient_checker:{name}" for name in ("compute_gradient", "compute_gradient_error")},
    {
        "Benchmark": "use timeit",
        "create_local_cluster": "see docs/distributed.md",
    },
)
