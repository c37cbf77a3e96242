"""Sends and receives by hand: keys, order, dead values, waiting, and the end of a step."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.waiting.futures import PendingOutputs
from tests.kernels.harness import build
from tests.support.stand_ins.contexts import context

TASK = "/job:localhost/replica:0/task:0/device:"
ENDS = {"send_device": f"{TASK}CPU:0", "send_device_incarnation": 255, "recv_device": f"{TASK}CPU:1"}
KEY = f"{TASK}CPU:0;00000000000000ff;{TASK}CPU:1;edge_7_c;"
X = np.ones(3, np.float32)


def sender(op: str = "_Send") -> Any:
    built, _, _ = build(op, [X], tensor_name="edge_7_c", **ENDS)
    assert built.wants_context
    return built.compute


def receiver(op: str = "_Recv") -> Any:
    built, _, _ = build(op, [], tensor_name="edge_7_c", tensor_type=dtypes.float32, **ENDS)
    return built.compute


def in_loop(given: OpKernelContext, frame_iter: tuple[int, int]) -> OpKernelContext:
    return OpKernelContext(given.params, frame_iter=frame_iter)


@pytest.mark.parametrize(("send", "receive"), [("_Send", "_Recv"), ("_HostSend", "_HostRecv"), ("Send", "Recv")])
def test_sent_values_are_received(send: str, receive: str) -> None:
    step = context()
    assert sender(send)(step, X) is None
    assert receiver(receive)(step) is X
    assert step.rendezvous.statistics().values == 0


def test_key_names_devices_edge_frame_and_iteration() -> None:
    step = context()
    sender()(step, X)
    sender()(in_loop(step, (12, 3)), 2 * X)
    assert step.rendezvous.recv_nowait(f"{KEY}12:3").value[0] == 2  # type: ignore[union-attr]
    assert step.rendezvous.recv_nowait(f"{KEY}0:0").value is X  # type: ignore[union-attr]


def test_dead_value_travels() -> None:
    step = context()
    sender()(step, None)
    assert receiver()(step) is None


async def test_receive_waits_for_its_value() -> None:
    step = context(loop=asyncio.get_running_loop())
    live, dead = receiver()(step), receiver()(in_loop(step, (1, 1)))
    assert isinstance(live, PendingOutputs) and not live.done()
    sender()(step, X)
    sender()(in_loop(step, (1, 1)), None)
    assert await live is X
    assert await dead is None


async def test_receive_ends_with_the_step() -> None:
    step = context(loop=asyncio.get_running_loop())
    waiting = receiver()(step)
    step.cancellation.start_cancel_with_status(errors.InvalidArgumentError("the cause"))
    with pytest.raises(errors.InvalidArgumentError, match="the cause") as caught:
        await waiting
    assert caught.value.derived
    for kernel in (lambda: sender()(step, X), lambda: receiver()(step)):
        with pytest.raises(errors.InvalidArgumentError, match="the cause"):
            kernel()


@pytest.mark.parametrize(("op", "inputs", "access"), [("_Arg", [], "GetArg"), ("_Retval", [X], "SetRetval")])
def test_argument_outside_of_a_function_fails_its_step_alone(op: str, inputs: list[Any], access: str) -> None:
    built, _, _ = build(op, inputs, T=dtypes.float32, index=3)
    with pytest.raises(errors.InvalidArgumentError, match=rf"{access} 3 is not within \[0, 0\)"):
        built.compute(*inputs)
