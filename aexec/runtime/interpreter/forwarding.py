"""Forwarding: a call writes its output over an input that nothing else needs.

The executor asks for it when it runs a node with large inputs; copying small ones costs less than the question.  It
asks when the inputs have left their argument slots and are in one list, because only then do reference counts tell.
Why that is safe, even for a call in a thread that a cancellation abandons: `framework/memory/unshared.py`.
With AEXEC_DEBUG the call gets fresh memory, and the input is overwritten with NaNs after it: code that wrongly still
uses the input then fails.
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
    """The compute callable for this call of a node: one that writes over an input, if an input is free.

    Args:
        node: with `forwards`.
        inputs: the call's inputs; the executor must have no other reference to them.
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
