"""Tests of modules marked `both_executors` run with the interpreter, with plans compiled at once, and with an executor
that shares nothing with these.

What one of them measures or shows of the interpreter alone is marked `default_executor`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from aexec.framework.device_contract.rendezvous import Rendezvous
from aexec.framework.waiting import loop_budget
from aexec.runtime.compiled import compiled_execution
from aexec.runtime.plans import compilation_policy
from aexec.runtime.session import run_explanation, session_steps
from tests.support.stand_ins.plain_executor import PlainExecution
from tests.support.waiting import assert_empty

KINDS = ["default", "compiled", "plain"]
if os.environ.get("AEXEC_SHUFFLE"):  # which neither of the others does, and by which nothing is compiled
    KINDS = ["default"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    if "both_executors" in marks and "default_executor" not in marks:
        metafunc.parametrize("executor", KINDS, indirect=True)


@pytest.fixture(autouse=True)
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that name no executor use the parameter's."""
    kind = getattr(request, "param", "default")
    if kind == "plain":
        monkeypatch.setattr(session_steps, "default_executor", lambda **_: PlainExecution)
    elif kind == "compiled":
        monkeypatch.setattr(compilation_policy, "COMPILE_AT", 1)


@pytest.fixture
def always_compiled(monkeypatch: pytest.MonkeyPatch, plans_compile: None) -> None:
    """Plans are compiled at their first run, and never given up, however long they hold the loop."""
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 1)
    monkeypatch.setattr(compilation_policy, "GIVE_UP_AT", 1 << 30)
    monkeypatch.setattr(compilation_policy, "OVERRUN", 1e9)
    # On a busy machine what is prepared on the loop may take long, and would be left to a later run.
    monkeypatch.setattr(loop_budget, "_ONCE_AT_MOST", 1e6)


@pytest.fixture
def made_rendezvous(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rendezvous]]:
    """All rendezvous that were made; none holds a value when its step has ended."""
    made: list[Rendezvous] = []
    original = Rendezvous.__init__

    def init(self: Rendezvous) -> None:
        original(self)
        made.append(self)

    monkeypatch.setattr(Rendezvous, "__init__", init)
    yield made
    assert_empty(made)


@pytest.fixture
def plans_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are compiled although AEXEC_DEBUG or AEXEC_SHUFFLE, which leave them to the interpreter, are set."""
    monkeypatch.delenv("AEXEC_SHUFFLE", raising=False)
    for module in (compiled_execution, run_explanation):
        monkeypatch.setattr(module, "DEBUG", 0)
