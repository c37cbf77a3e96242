"""`tf.raw_ops`: each op by its name, with its own arguments: `tf.raw_ops.MatMul(a=a, b=b)`.

Next to read: `aexec/ops/`.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.graph.op_functions import function_names, snake_case

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    function = snake_case(name)
    if function_names().get(function) != name:
        raise AttributeError(f"aexec has no op {name!r}", name=name)
    return getattr(ops, function)


def __dir__() -> list[str]:
    return sorted(function_names().values())
