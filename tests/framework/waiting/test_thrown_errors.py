"""Errors that are thrown into context managers keep no values."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from aexec.framework.waiting.thrown_errors import forget_frames
from tests.support.collector import no_collector

ROOT = Path(__file__).parents[3]
# Context managers that keep the frames of errors, and why.
KEEP_FRAMES = {
    "_all_or_nothing": "the frames of a library that failed to load tell its author where",
    "collecting": "the errors are of a definition: their frames hold no values",
    "managed_session": "the error says only that input has ended",
    "stop_on_exception": "the coordinator raises the error again",
}


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        forget_frames(error)
        raise KeyError("other") from None


def failing(made: list[weakref.ref[np.ndarray]]) -> None:
    values = np.ones(10)
    made.append(weakref.ref(values))
    with translated():
        try:
            raise TypeError("cause")
        except TypeError as error:
            raise ValueError("thrown") from error


def test_values_of_frames_that_an_error_has_passed_are_freed() -> None:
    made: list[weakref.ref[np.ndarray]] = []
    with no_collector():
        with pytest.raises(KeyError) as caught:
            failing(made)
        assert made[0]() is not None
        del caught
        assert made[0]() is None


def _catches(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.ExceptHandler]:
    """The handlers around a `yield` that do not raise the same error again."""
    for node in ast.walk(function):
        if isinstance(node, ast.Try) and any(isinstance(n, ast.Yield) for part in node.body for n in ast.walk(part)):
            for handler in node.handlers:
                last = handler.body[-1]
                if not (isinstance(last, ast.Raise) and last.exc is None):
                    yield handler


def test_context_managers_forget_the_frames_of_errors_that_they_catch() -> None:
    found, keeping = 0, set()
    for path in [*ROOT.glob("aexec/**/*.py"), *ROOT.glob("server/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not any("contextmanager" in ast.unparse(decorator) for decorator in node.decorator_list):
                continue
            for handler in _catches(node):
                found += 1
                if "forget_frames(" not in ast.unparse(handler):
                    keeping.add(node.name)
    assert keeping == KEEP_FRAMES.keys()
    assert found > len(keeping) + 5
