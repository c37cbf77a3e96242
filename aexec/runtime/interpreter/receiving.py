"""A waiting Recv, as the executor records it.  It needs no future, because only the executor waits for it.

Next to read: `node_runner.py`, which makes them, and `aexec/framework/kernel_contract/transfer_ends.py`.
"""

from __future__ import annotations

from asyncio import _get_running_loop
from contextlib import suppress
from time import perf_counter
from typing import Protocol

from aexec.framework import errors
from aexec.framework.device_contract.rendezvous import Received
from aexec.runtime.interpreter.executor import StepEnvironment
from aexec.runtime.interpreter.propagator_state import IterationState
from aexec.runtime.plans.plan import PlanNode

__all__ = ["Receiving"]


class Receiver(Protocol):
    """The execution to which the Recv belongs.

    Attributes:
        environment: of its step.
        idle: True while it waits, so that its state may be changed at once.
    """

    environment: StepEnvironment
    idle: bool

    def received(self, receiving: Receiving, outcome: Received | errors.OpError) -> None:
        """Account for the outcome.  Ignores a Recv that was given up."""

    def receives(self, receiving: Receiving, outcome: Received | errors.OpError) -> None:
        """Call `received` in its next turn."""

    def wake(self) -> None:
        """Give it a turn."""


class Receiving:
    """The receiver of a value: the rendezvous calls it, on any thread, with the value or the error that ends the wait.

    Attributes:
        started: the waiting node, its iteration, and since when: see `shared_turn.Started`.
    """

    __slots__ = ("_receiver", "started")

    def __init__(self, receiver: Receiver, node: PlanNode, iteration: IterationState) -> None:
        self._receiver = receiver
        self.started = (node, iteration, perf_counter())

    def __call__(self, outcome: Received | errors.OpError) -> None:
        receiver = self._receiver
        loop = receiver.environment.loop
        if _get_running_loop() is not loop:
            with suppress(RuntimeError):  # the loop has closed, so nothing waits
                loop.call_soon_threadsafe(self, outcome)
        elif receiver.idle and type(outcome) is Received:
            # In the middle of the sender's turn, in which it then goes on.
            receiver.received(self, outcome)
            receiver.wake()
        else:
            receiver.receives(self, outcome)
