"""Tests replace functions of a library for the module they test, never for all threads of the process."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from aexec.compat.v1.running import session_manager
from tests.support.stand_ins.replacing import replace_in

_TESTS = Path(__file__).parent
_SHARED = re.compile(r"setattr\(\w+\.(asyncio|np|os|random|socket|sys|threading|time), ")


def test_others_keep_the_real_function(monkeypatch: pytest.MonkeyPatch) -> None:
    real, waits = time.sleep, list[float]()
    replace_in(monkeypatch, session_manager, "time", sleep=waits.append)
    session_manager.time.sleep(5)  # type: ignore[attr-defined]
    assert waits == [5] and time.sleep is real
    assert session_manager.time.monotonic is time.monotonic  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert session_manager.time is time  # type: ignore[attr-defined]


def test_no_library_is_changed_through_a_module_that_imports_it() -> None:
    found = [
        f"{path.relative_to(_TESTS)}: {line.strip()}"
        for path in sorted(_TESTS.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if _SHARED.search(line)
    ]
    assert not found, "use replace_in:\n" + "\n".join(found)
