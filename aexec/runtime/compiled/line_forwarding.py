"""Forwarding in compiled plans: which variable a call writes its output over is known when the plan is written.

    v1 = c1(f0, k1)  # add (AddV2)
    v2 = c2(v1, v1)  # y (Tanh)

A value may be overwritten by a call if nobody can have its memory but the call:

* It comes from a kernel that asks for forwarding itself, and such a kernel gives a fresh array, or the `out` that it
  was given, never an input as it is (`OpKernelConstruction.forward_inputs`): so neither what is fed, constant or a
  variable's, nor a view.
* The call is the only one that reads it, and reads it once; being fetched, going on through an Identity, Switch or
  Merge, and going round in a loop are counted.
* Both are in the same block, so that the value is made anew for each call; what a loop makes once for all of its
  iterations is not.

Shape inference says that the output has its shape, and that it is an array, no number; where it does not know, large
values are looked at.  Where the interpreter takes over, it needs the value no more: its only consumer is done.  A call
that cannot go on inline raises before it writes.
Even of small values it saves the allocation.  Next to read: `interpreter/forwarding.py`, for the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework.memory.unshared import fits
from aexec.runtime.plans.inferred_shapes import Dims, fully_known, is_built_in
from aexec.runtime.plans.plan import PlanNode

__all__ = ["fitting", "has_shape_of_output", "is_fresh", "written_over"]


def is_fresh(node: PlanNode, output: int) -> bool:
    """Does an output come as memory that only its consumers have?"""
    return bool(node.forwards and output == 0 and is_built_in(node.op))


def has_shape_of_output(shape: Dims, shapes: Sequence[Dims]) -> bool:
    """Is `shape`, one of `shapes`, that of an array, and are all broadcast to it, whatever is fed?"""
    if len(shapes) == 1:
        return bool(shape)
    known = fully_known(shape)
    others = [fully_known(other) for other in shapes]
    if not known or None in others:
        return False
    try:
        return np.broadcast_shapes(*[other for other in others if other is not None]) == known
    except ValueError:
        return False


def fitting(over: Any, *inputs: Any) -> Any:
    """`over`, if it is an array to whose shape all inputs are broadcast; else None."""
    return over if over.ndim and fits(over.shape, inputs, range(len(inputs))) else None


def written_over(compute: Callable[..., Any], name: str) -> str:
    """The last argument of a call of `compute` that writes over this variable."""
    by_position = isinstance(compute, np.ufunc) and compute not in (np.maximum, np.minimum)
    return f", {name}" if by_position else f", out={name}"  # the former is faster
