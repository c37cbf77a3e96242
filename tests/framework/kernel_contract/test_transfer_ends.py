"""The two ends of a transfer by their parts, as an executor uses them; as kernels see `test_sendrecv_ops.py`."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np

from aexec.devices.simulated_device import SimulatedDevice
from aexec.framework.device_contract.rendezvous import Received, Rendezvous
from aexec.framework.kernel_contract.transfer_ends import RecvEnd, SendEnd

X = np.ones(2, np.float32)
SIM = "/job:localhost/replica:0/task:0/device:SIM:0"


def ends(rendezvous: Rendezvous, made_on: Any = None, wanted_on: Any = None) -> tuple[SendEnd, RecvEnd]:
    def meet(params: Any) -> Rendezvous:
        return rendezvous

    def key_in(frame_iter: tuple[int, int]) -> str:
        return f"a;1;b;edge;{frame_iter[0]}:{frame_iter[1]}"

    return SendEnd(meet, key_in, made_on), RecvEnd(meet, key_in, wanted_on, "node")


def test_sent_value_is_received() -> None:
    send, receive = ends(Rendezvous())
    context: Any = SimpleNamespace(params=None, loop=None, frame_iter=(3, 1))
    send(context, X)
    assert receive(context) is X


def test_dead_value_is_none() -> None:
    _, receive = ends(Rendezvous())
    assert receive.take(Received(None, is_dead=True)) is None


async def test_value_copied_to_the_host_is_pending() -> None:
    device = SimulatedDevice(SIM)
    _, receive = ends(Rendezvous())
    copied = receive.take(Received(device.copy_in(X, node="x"), send_args=device))
    assert isinstance(copied, Future)
    np.testing.assert_array_equal(await receive.in_time(copied, asyncio.get_running_loop()), X)
    await device.close()


async def test_value_already_on_its_device_is_not_copied() -> None:
    device = SimulatedDevice(SIM)
    _, receive = ends(Rendezvous(), device, device)
    value = device.copy_in(X, node="x")
    assert receive.take(Received(value, send_args=device)) is value
    await device.close()
