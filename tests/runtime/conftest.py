"""Tests of modules marked `both_executors` run with the default executor, and with one that shares nothing with it.

What one of them measures or shows of the default alone is marked `default_executor`.
"""

from __future__ import annotations

import pytest

from aexec.runtime import session
from tests.support.plain_executor import PlainExecution


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    if "both_executors" in marks and "default_executor" not in marks:
        metafunc.parametrize("executor", ["default", "plain"], indirect=True)


@pytest.fixture(autouse=True)
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that name no executor use the parameter's."""
    if getattr(request, "param", "default") == "plain":
        monkeypatch.setattr(session, "default_executor", lambda: PlainExecution)
