"""Forwarding: a call writes its output over an input that nobody else needs.

The executor asks when it runs a node while large values are about (small ones cost less than the question), at the
only moment at which it can be told: the inputs are out of their argument slots, and in one list.  Why that is safe,
also where the call is then made in a thread, and given up by a cancellation: `framework/memory/unshared.py`.
With AEXEC_DEBUG the input is made unusable instead, after the call: who wrongly still had it does not get far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aexec.framework.memory.unshared import forwardable
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.plans.plan import PlanNode

__all__ = ["forwarding"]


def forwarding(node: PlanNode, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A node's compute callable for this call: one that writes over an input if one can be had.

    Args:
        node: with `forwards`.
        inputs: the call's, which the executor refers to through this sequence alone.
    """
    out = forwardable(inputs, node.forwards)
    if out is None:
        return node.compute
    return partial(_call_and_poison, node.compute, out) if DEBUG else partial(node.compute, out=out)


def _call_and_poison(compute: Callable[..., Any], dead: Any, *inputs: Any) -> Any:
    result = compute(*inputs)
    if not any(np.may_share_memory(dead, output) for output in (result if type(result) is tuple else (result,))):
        dead.view("u1").fill(0xFF)  # NaN, or -1
    return result
