"""`tf.test`: `unittest` cases that compare arrays, and run in sessions.

Next to read: `testing/`, which has its assertions.
"""

from __future__ import annotations

import tempfile
import unittest
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from aexec.compat.v1.namespace import namespace, refuse
from aexec.compat.v1.platform.testing.arrays import ArrayAssertions
from aexec.compat.v1.platform.testing.containers import ContainerAssertions
from aexec.compat.v1.platform.testing.files import TestResources
from aexec.compat.v1.platform.testing.texts import TextAssertions
from aexec.compat.v1.running.session import Session
from aexec.compat.v1.values.tensors import reset_default_graph

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


class TestCase(ArrayAssertions, ContainerAssertions, TextAssertions, TestResources):
    """`tf.test.TestCase`: each test has its own default graph."""

    __test__ = True

    def setUp(self) -> None:
        super().setUp()
        if self._testMethodName == "test_session":
            self.skipTest("It is a method that tests call.")
        reset_default_graph()

    @contextmanager
    def session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = True, force_gpu: bool = False
    ) -> Iterator[Session]:
        """A session, by default of the default graph."""
        refuse("session", force_gpu=force_gpu)
        with Session(graph=graph, config=config) as session:
            yield session

    @contextmanager
    def cached_session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = True, force_gpu: bool = False
    ) -> Iterator[Session]:
        """The session of the test, the same one at each call, so that variables keep their values.

        Raises:
            ValueError: another call of the test gave another graph or configuration.
        """
        refuse("cached_session", force_gpu=force_gpu)
        given = graph, config
        if "_cached" not in self.__dict__:
            self.__dict__["_cached"] = given, Session(graph=graph, config=config)
            self.addCleanup(self.__dict__["_cached"][1].close)
        first, session = self.__dict__["_cached"]
        for name, one, other in zip(("graph", "config"), given, first, strict=True):
            if one is not other:
                raise ValueError(
                    f"The {name} used to get the cached session is different than the one that was used to create "
                    "the session. Maybe create a new session with self.session()"
                )
        with session.graph.as_default(), session.as_default():
            yield session

    def _session_of_test(
        self, graph: Any = None, config: Any = None, use_gpu: bool = True, force_gpu: bool = False
    ) -> AbstractContextManager[Session]:
        """`cached_session`; or of a graph, `session`."""
        make = self.cached_session if graph is None else self.session
        return make(graph, config, use_gpu, force_gpu)

    test_session = _session_of_test


__getattr__, __dir__ = namespace(
    __name__,
    {name: f"platform.gradient_checker:{name}" for name in ("compute_gradient", "compute_gradient_error")},
    {
        "Benchmark": "use timeit",
        "create_local_cluster": "see docs/distributed.md",
    },
)
