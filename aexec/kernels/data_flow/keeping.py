"""Inputs that a kernel keeps for later steps: arrays that nothing else can write to, else copies.

A fed array remains its owner's, and a view may be of one.  Kernels that keep inputs ask for the list of them
(`OpKernelConstruction.take_list`), whose reference counts show the arrays without other references.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework.kernel_contract.op_kernel import OpKernelContext
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.tensor_buffer import buffer_of, measuring_ns
from aexec.framework.memory.unshared import is_unshared
from aexec.framework.state.tensor_cell import private_copy
from aexec.framework.waiting.loop_budget import COPY_NS, current_budget

__all__ = ["copy_and_count", "copy_shared", "keeping_ns", "may_keep", "own"]


def may_keep(inputs: list[Any], position: int) -> bool:
    """True if nothing else can write to this input."""
    if not isinstance(inputs[position], np.ndarray):
        return True
    if inputs[position].flags.writeable:
        return is_unshared(inputs, position)
    owner = inputs[position].base
    if owner is not None:
        owner = buffer_of(owner)
    return owner is None or type(owner) is bytes or (isinstance(owner, np.ndarray) and not owner.flags.writeable)


def keeping_ns(inputs: list[Any], positions: Sequence[int]) -> float:
    """Nanoseconds to copy the inputs that may not be kept, and to measure strings."""
    num_bytes: int = sum([inputs[position].nbytes for position in positions if not may_keep(inputs, position)])
    return COPY_NS * num_bytes + sum([measuring_ns(inputs[position]) for position in positions])


def copy_shared(inputs: list[Any], positions: Sequence[int]) -> None:
    """Replace inputs in the list that may not be kept by copies."""
    for position in positions:
        if not may_keep(inputs, position):
            inputs[position] = private_copy(inputs[position])


async def own(context: OpKernelContext, inputs: list[Any], positions: Sequence[int], kept: KeptMemory | None) -> None:
    """`copy_shared`, in a thread if it is much; the thread also counts the kept memory.

    Raises:
        ResourceExhaustedError: the session's limit of kept memory is reached.
    """
    if current_budget().allows(keeping_ns(inputs, positions)):
        copy_shared(inputs, positions)
    else:
        await context.worker_pool.run(copy_and_count, inputs, positions, kept)


def copy_and_count(inputs: list[Any], positions: Sequence[int], kept: KeptMemory | None, rows: int = 0) -> None:
    """`copy_shared`, then count the inputs as kept, cut into `rows` rows.

    Raises ResourceExhaustedError if the session's limit of kept memory is reached.
    """
    copy_shared(inputs, positions)
    if kept is not None:
        kept.keep([inputs[position] for position in positions], rows)
