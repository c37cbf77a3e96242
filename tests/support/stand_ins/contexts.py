"""Contexts for kernels that are called directly, outside a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext, Params
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.session_state import SessionState
from aexec.framework.waiting.cancellation import CancellationManager

__all__ = ["call", "context"]


def context(
    resources: ResourceManager | None = None,
    cancellation: CancellationManager | None = None,
    *,
    step_id: int = 1,
    frame_iter: tuple[int, int] = (0, 0),
    loop: Any = None,
    worker_pool: Any = None,
) -> OpKernelContext:
    """Return a context with managers of its own; loop and threads only if they are given."""
    params = Params(
        step_id=step_id,
        loop=loop,
        worker_pool=worker_pool,
        cancellation=cancellation or CancellationManager(),
        resources=resources or ResourceManager(),
        session_state=SessionState(None),
    )
    return OpKernelContext(params, frame_iter=frame_iter)


def call(kernel: BuiltKernel, inputs: Sequence[Any]) -> Any:
    """Return the result of a kernel for these inputs."""
    if kernel.takes_list:
        return kernel.compute(context(), list(inputs))
    return kernel.compute(*([context()] if kernel.wants_context else []), *inputs)
