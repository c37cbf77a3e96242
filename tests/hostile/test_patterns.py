"""Patterns that take forever where matching goes back: here they take as long as the text."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hostile.conftest import LIVE_WITHIN
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess


def matching(text: bytes, pattern: bytes) -> GraphBuilder:
    """`matches`, by a pattern that is an input."""
    g = GraphBuilder()
    g.const("text", np.array(text, object))
    g.const("pattern", np.array(pattern, object))
    g("matches", "RegexFullMatch", "text", "pattern")
    return g


@pytest.mark.parametrize("pattern", [b"(a*)*b", b"(.*)(.*)(.*)(.*)b", b"(?:a?){200}a{200}b"])
def test_pattern_that_goes_back_forever(server: ServerProcess, pattern: bytes) -> None:
    with server.watched() as watch:
        handle = server.create(matching(b"a" * 1000, pattern))
        answer = server.run(handle, fetches=["matches"])
        assert answer.status == 200 and answer.body["outputs"] == {"matches": False}
        server.delete(handle)
    assert watch.worst < LIVE_WITHIN and not watch.failures


@pytest.mark.parametrize("pattern", [rb"\pL" * 200, rb"(\pL{30}){30}"])
def test_pattern_that_is_too_large(server: ServerProcess, pattern: bytes) -> None:
    with server.watched() as watch:
        handle = server.create(matching(b"a", pattern))
        answer = server.run(handle, fetches=["matches"])
        assert answer.status == 400 and "pattern too large" in answer.body["error"]
        server.delete(handle)
    assert watch.worst < LIVE_WITHIN and not watch.failures
