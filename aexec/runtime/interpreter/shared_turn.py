"""`SharedTurn`: executions of one step that give values to one another go on in one turn on the loop.

Next to read: `partitioned_execution.py`, which makes one for the partitions of a plan, and `execution.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from aexec.runtime.interpreter.executor import StepEnvironment
from aexec.runtime.interpreter.propagator_state import IterationState
from aexec.runtime.plans.plan import PlanNode

__all__ = ["SharedTurn", "Started"]

# What was started, where, and when by `perf_counter`.
Started = tuple[PlanNode, IterationState, float]


class Member(Protocol):
    """One of the executions.

    Attributes:
        idle: it waits, or has nothing left to do in a turn that is under way.
    """

    environment: StepEnvironment
    idle: bool

    def open_slice(self) -> float:
        """When the slice that a turn is in is over, by `perf_counter`."""

    def go_on_inline(self, end: float) -> None:
        """Do what there is to do, until then."""

    def has_to_do(self) -> bool:
        """Is there more to do than to wait for what comes?"""
        raise NotImplementedError

    def can_go_on(self) -> bool:
        """Is there anything to happen to it but the end of what it awaits?"""
        raise NotImplementedError

    def awaited(self) -> Iterable[Started]:
        """What it awaits."""
        raise NotImplementedError

    def wake(self) -> None:
        """It is to have a turn."""

    def give_up(self, entry: Started) -> None:
        """What it awaits there never comes."""

    def finish(self) -> None:
        """Nothing of what it awaits ever comes."""

    def held_open(self) -> Iterable[int]:
        """As `PropagatorState.held_open`."""
        raise NotImplementedError


class SharedTurn:
    """Whichever of some executions has its turn lets the others go on in it.

    Attributes:
        members: those that have not ended.
        given: those that waited for nothing but what they have been given by now.
        under_way: one of them has its turn.
        given_up: how many values will never be received.
    """

    __slots__ = ("given", "given_up", "members", "under_way")

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.given: deque[Member] = deque()
        self.under_way = False
        self.given_up = 0

    def take(self, member: Member) -> None:
        """The turn of a member, and of those that are given something by it."""
        given = self.given
        self.under_way = True
        try:
            end = member.open_slice()
            member.go_on_inline(end)
            member.idle = not member.has_to_do()
            while given:
                other = given.popleft()
                other.go_on_inline(end)
                other.idle = not other.has_to_do()
                if not other.idle:
                    other.wake()  # for what it cannot do in another's turn
        finally:
            member.idle = self.under_way = False
            while given:  # after an error
                given.popleft().wake()
        self.give_up_if_stuck()

    def give_up_if_stuck(self) -> None:
        """If all that is left of the step is to receive what none of them sends any more, that never runs.

        So it is where one execution runs all: a node whose inputs never come does not run, and a frame is over when
        nothing in it can.  A loop comes to that whose predicate lets it go on, although what enters the next iteration
        is dead.  What leaves a frame when it is over may let others go on, so that the rest waits for that.
        """
        if any(member.can_go_on() for member in self.members):
            return
        started = [(member, *entry) for member in self.members for entry in member.awaited()]
        if not started or not all(node.transfers for _, node, _, _ in started):
            return
        rendezvous = started[0][0].environment.transfers
        if not rendezvous.is_local or len(started) + self.given_up != rendezvous.keys_awaited:
            return  # some are on their way
        held_open = {frame for member in self.members for frame in member.held_open()}
        oldest: dict[int, int] = {}
        for _, _, iteration, _ in started:
            frame, number = iteration.frame_iter
            if frame not in held_open:
                oldest[frame] = min(number, oldest.get(frame, number))
        if not oldest:
            for member in self.members:
                member.finish()
        for member, node, iteration, since in started:
            frame, number = iteration.frame_iter
            if oldest.get(frame) == number:
                self.given_up += 1
                member.give_up((node, iteration, since))
