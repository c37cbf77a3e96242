"""The members of TensorFlow's public classes that aexec's classes lack, each with a reason.

`data/members.json` lists methods, properties and class attributes of TensorFlow 2.21's `compat.v1`, by class.
`python -m tests.compat.test_members` prints what is missing.
"""

from __future__ import annotations

import dis
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.compat.recorded.names import resolve
from tests.support.reasons import Reasons

RECORDED: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "data" / "members.json").read_text(encoding="utf-8")
)

# The first pattern that `Class.member` matches says why it is not there.
REASONS = {
    "types for tracing Python functions": """*.cast *.experimental_as_proto *.experimental_from_proto
    *.experimental_type_proto *.flatten *.from_tensors *.is_subtype_of *.most_specific_common_supertype
    *.most_specific_compatible_type *.placeholder_value *.to_tensors *.experimental_set_type TensorSpec.*""",
    "for TensorFlow's own use": """*.OVERLOADABLE_OPERATORS OpError.experimental_payloads Graph.Dismantle
    Graph.switch_to_thread_local Graph.prevent_* Graph.create_op Graph.get Graph.new_operations Graph.num_operations
    Graph.operations Graph.op_def_for_type Operation.from_node_def""",
    "eager execution": "*.as_numpy_iterator",
    "sessions of other processes: docs/distributed.md": "Session.reset train.Server.*",
    "known and unknown sizes are of classes of their own, which have them": "Dimension.*",
    "what says whether a model is ready is refused by name": """train.Scaffold.local_init_feed_dict
    train.Scaffold.ready_for_local_init_op train.Supervisor.ready* train.Supervisor.session_manager""",
    "options that change no result": "data.Options.* data.ThreadingOptions.*",
    "rare transformations of datasets": "data.*.counter data.*.fingerprint data.*.ragged_batch",
    "files of tests are deleted after them": "test.TestCase.tempfile_cleanup",
    "parts of absl's flags that programs do not name": "flags.*",
    "members that programs seldom use": "linalg.*",
}
WHY = Reasons(REASONS)


def set_on_instances(kind: type) -> Iterator[str]:
    """Names of attributes that methods of a class assign."""
    for base in inspect.getmro(kind):
        for method in vars(base).values():
            function = inspect.unwrap(method) if callable(method) else None
            if inspect.isfunction(function):
                yield from (code.argval for code in dis.get_instructions(function) if code.opname == "STORE_ATTR")
        yield from getattr(base, "__annotations__", ())
        yield from getattr(base, "__slots__", ())


def missing() -> list[str]:
    found = []
    for name, members in RECORDED.items():
        try:
            kind: Any = resolve(name)
        except AttributeError:
            continue  # tests/compat/test_missing_names.py
        if isinstance(kind, type):
            there = {*dir(kind), *set_on_instances(kind)}
            found += [f"{name}.{member}" for member in members if member not in there]
    return found


def test_each_missing_member_has_a_reason() -> None:
    assert not WHY.unexplained(missing())


def test_each_reason_is_that_of_a_missing_member() -> None:
    assert not WHY.unused(missing())


def main() -> None:
    """Print what is missing, by its reason."""
    WHY.show(missing())


if __name__ == "__main__":
    main()
