"""`SharedTurn`: executions of one step that exchange values go on in one turn of the loop.

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

# A started node, its iteration, and when it started, by `perf_counter`.
Started = tuple[PlanNode, IterationState, float]


class Member(Protocol):
    """One of the executions that share a turn.

    Attributes:
        idle: True while it waits, or has nothing left to do in the present turn.
    """

    environment: StepEnvironment
    idle: bool

    def open_slice(self) -> float:
        """The end of the slice of the present turn, by `perf_counter`."""

    def go_on_inline(self, end: float) -> None:
        """Run ready nodes until `end`."""

    def has_to_do(self) -> bool:
        """True if it has something to do now, besides waiting."""
        raise NotImplementedError

    def can_go_on(self) -> bool:
        """True if something can happen to it besides the end of a call that it awaits."""
        raise NotImplementedError

    def awaited(self) -> Iterable[Started]:
        """The calls that it awaits."""
        raise NotImplementedError

    def wake(self) -> None:
        """Give it a turn."""

    def give_up(self, entry: Started) -> None:
        """Stop waiting for this value, which never comes."""

    def finish(self) -> None:
        """End it: none of the values that it awaits will come."""

    def held_open(self) -> Iterable[int]:
        """Like `PropagatorState.held_open`."""
        raise NotImplementedError


class SharedTurn:
    """A turn that executions share: the one that has it lets the others go on in it.

    Attributes:
        members: the executions that have not ended.
        given: idle members that have received what they waited for.
        under_way: True while one of them has its turn.
        given_up: the number of values that will never be received.
    """

    __slots__ = ("given", "given_up", "members", "under_way")

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.given: deque[Member] = deque()
        self.under_way = False
        self.given_up = 0

    def take(self, member: Member) -> None:
        """Run the turn of a member, and of the members that receive values from it."""
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
        """If the step only waits for values that no member will send, give up these Recvs.

        This is as within one execution: a node whose inputs never come does not run, and a frame ends when nothing in
        it can run.  A loop gets there if its predicate lets it continue although all inputs of the next iteration are
        dead.  The end of a frame may let other nodes run, so only frames that nothing holds open are given up.
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
