from __future__ import annotations

import asyncio

from aexec.framework.futures import complete_on_loop


async def test_on_its_own_loop_a_future_is_completed_at_once():
    future = asyncio.get_running_loop().create_future()
    complete_on_loop(future, lambda f: f.set_result(1))
    assert future.result() == 1


async def test_from_another_thread_it_is_completed_by_the_loop():
    future = asyncio.get_running_loop().create_future()
    await asyncio.to_thread(complete_on_loop, future, lambda f: f.set_result(1))
    assert await future == 1


async def test_from_another_loop_it_is_completed_by_its_own():
    future = asyncio.get_running_loop().create_future()

    async def elsewhere() -> None:
        complete_on_loop(future, lambda f: f.set_result(1))

    await asyncio.to_thread(asyncio.run, elsewhere())
    assert await future == 1


async def test_a_done_future_is_left_alone():
    future, late = asyncio.get_running_loop().create_future(), []
    future.cancel()
    complete_on_loop(future, lambda f: f.set_result(1), lambda: late.append(1))
    await asyncio.to_thread(complete_on_loop, future, lambda f: f.set_result(1), lambda: late.append(2))
    await asyncio.sleep(0)
    assert late == [1, 2]


def test_a_closed_loop_is_too_late():
    loop, late = asyncio.new_event_loop(), []
    future = loop.create_future()
    loop.close()
    complete_on_loop(future, lambda f: f.set_result(1), lambda: late.append(1))
    assert late == [1]
