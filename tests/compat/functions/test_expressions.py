"""Wrong calls raise errors of the classes that TensorFlow's Python raises; right ones raise none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import aexec
import aexec.compat.v1 as tf
from tests.compat.recorded.expressions import EXPRESSIONS, outcome

# Of TensorFlow 2.21; `record.py` wrote them.
RECORDED: dict[str, list[str] | None] = json.loads(
    (Path(__file__).parents[1] / "data" / "expressions.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("part", range(8))
def test_errors_are_of_tensorflows_classes(part: int) -> None:
    """Errors are also of aexec's classes; where TensorFlow raises no error, aexec raises none."""
    wrong = {}
    for expression in EXPRESSIONS[part::8]:
        ours, theirs = outcome(tf, expression), RECORDED[expression]
        if (ours is None) != (theirs is None) or not set(theirs or ()) <= set(ours or ()):
            wrong[expression] = (ours, theirs)
    assert not wrong


def test_each_expression_is_recorded() -> None:
    assert list(RECORDED) == EXPRESSIONS and len(EXPRESSIONS) > 400
    assert sum(theirs is not None for theirs in RECORDED.values()) > 300


def test_graph_building_modules_raise_python_errors() -> None:
    """They raise `errors.InvalidValueError` and its kin; the two exceptions check results of functions in a step."""
    folder = Path(aexec.__file__).parent
    building = "client nn layers variables control_flow optimizers training autodiff summary compat".split()
    paths = [path for name in building for path in (folder / name).rglob("*.py")]
    in_steps = {"user_op_outputs.py", "script_ops.py"}
    plain = re.compile(r"raise errors\.(?:InvalidArgumentError|FailedPreconditionError|UnimplementedError)\(")
    assert not [
        str(path) for path in paths if path.name not in in_steps and plain.search(path.read_text(encoding="utf-8"))
    ]
