"""Gives each test here its own default graph, and removes it afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aexec.compat.v1 as tf
from aexec.graph.graph import set_default_graph

set_default_graph(None)  # Importing the package has made one.


@pytest.fixture(autouse=True)
def default_graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    set_default_graph(None)
