"""`tf.raw_ops`: each op by its name, with its own arguments as keywords: `tf.raw_ops.MatMul(a=a, b=b)`.

Next to read: `aexec/ops/`.
"""

from __future__ import annotations

import inspect as _inspect
import sys as _sys
import typing as _typing

from aexec import ops as _ops
from aexec.graph.op_functions import function_names as _function_names
from aexec.graph.op_functions import snake_case as _snake_case

# Names here must not begin with a letter, since they would hide ops: there is one called Any.
__all__: list[str] = []

# Arguments that TensorFlow's Python names differently from the op: the op's name → the other one, and the ops.
_OTHERWISE = {
    "reduction_indices": ("axis", "All Any EuclideanNorm Max Mean Min Prod Sum"),
    "split_dim": ("axis", "Split SplitV"),
    "dim": ("axis", "ExpandDims"),
    "squeeze_dims": ("axis", "Squeeze"),
    "input": ("condition", "Where"),
    "t": ("x", "Select"),
    "e": ("y", "Select"),
}


def __getattr__(name: str) -> _typing.Any:
    function = _snake_case(name)
    if _function_names().get(function) != name:
        raise AttributeError(f"aexec has no op {name!r}", name=name)
    made = _named_only(getattr(_ops, function), name)
    setattr(_sys.modules[__name__], name, made)
    return made


def __dir__() -> list[str]:
    return sorted(_function_names().values())


def _named_only(function: _typing.Callable[..., _typing.Any], op: str) -> _typing.Callable[..., _typing.Any]:
    """The function of an op, with TensorFlow's argument names, as keywords only."""
    given = _inspect.signature(function)
    ours = {theirs: name for name, (theirs, of) in _OTHERWISE.items() if op in of.split()}
    names = {name: theirs for theirs, name in ours.items()}
    shown = _inspect.Signature(
        [p.replace(name=names.get(n, n), kind=_inspect.Parameter.KEYWORD_ONLY) for n, p in given.parameters.items()]
    )

    def call(**named: _typing.Any) -> _typing.Any:
        if not names.keys().isdisjoint(named):
            other = next(name for name in named if name in names)
            raise TypeError(f"{op}(): {other} is called {names[other]}; signature: {op}{shown}")
        return function(**{ours.get(name, name): value for name, value in named.items()})

    call.__name__ = call.__qualname__ = op
    call.__doc__ = function.__doc__
    call.__signature__ = shown  # type: ignore[attr-defined]
    return call
