"""What streams of events share: one description for all that follow the same, and a bound on the time of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aexec_server.handlers.live_states import Followed, LiveState, LiveStates, LookPace

from tests.support.virtual_clock import run_virtual


class Described:
    """Something that is followed; describing it takes `seconds` of the loop."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.times = 0
        self._seconds = seconds

    async def look(self, pace: LookPace) -> AsyncIterator[LiveState]:
        self.times += 1
        pace.seconds += self._seconds
        await pace.without(asyncio.sleep(0))
        yield LiveState("number", {"number": self.times}, self.times)


async def seen(followed: Followed) -> list[int]:
    return [state.mark for state in await followed.states()]


def test_followers_of_one_thing_share_descriptions() -> None:
    async def follow() -> None:
        described, states = Described(), LiveStates()
        with states.following("a", described.look) as one, states.following("a", Described().look) as other:
            assert one is other and len(states) == 1
            assert await asyncio.gather(*(seen(one) for _ in range(100))) == [[1]] * 100
            await asyncio.sleep(0.3)
            assert await seen(one) == [1]
            await asyncio.sleep(0.2)
            assert await asyncio.gather(*(seen(one) for _ in range(100))) == [[2]] * 100
        assert not len(states)

    run_virtual(follow())


def test_what_nobody_follows_any_more_is_described_anew() -> None:
    async def follow() -> None:
        first, second, states = Described(), Described(), LiveStates()
        with states.following("a", first.look) as followed:
            await seen(followed)
        with states.following("a", second.look) as followed:
            assert await seen(followed) == [1]
        assert (first.times, second.times) == (1, 1)

    run_virtual(follow())


@pytest.mark.parametrize(("things", "seconds"), [(1, 0.001), (200, 0.01), (3, 0.2)])
def test_descriptions_together_take_a_tenth_of_the_time(things: int, seconds: float) -> None:
    async def follow() -> float:
        states, described = LiveStates(), [Described(seconds) for _ in range(things)]

        async def go_on(number: int) -> None:
            with states.following(number, described[number].look) as followed:
                while True:
                    await followed.states()
                    await asyncio.sleep(0.5)

        following = [asyncio.create_task(go_on(number)) for number in range(things)]
        await asyncio.sleep(100)
        for one in following:
            one.cancel()
        await asyncio.wait(following)
        fewest, most = (chosen(one.times for one in described) for chosen in (min, max))
        assert most - fewest <= 1  # in their turn
        return sum(one.times for one in described) * seconds

    # Each rests for nine times its own time; the time that it takes itself is none on this clock.
    assert run_virtual(follow()) <= 100 / 9 + seconds


def test_follower_that_leaves_while_it_describes_leaves_it_to_the_next() -> None:
    async def follow() -> None:
        described, states = Described(), LiveStates()
        with states.following("a", described.look) as followed:
            first = asyncio.create_task(followed.states())
            await asyncio.sleep(0)
            first.cancel()
            assert await seen(followed) == [2]
            assert first.cancelled()

    run_virtual(follow())


def test_text_is_made_once() -> None:
    state = LiveState("number", {"number": 1}, 1)
    assert state.text == '{"number":1}' and state.text is state.text
