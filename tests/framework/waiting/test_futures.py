from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from aexec.framework.waiting.futures import PromptOutputs, complete_from, complete_on_loop


async def test_future_is_completed_at_once_on_its_own_loop():
    future = asyncio.get_running_loop().create_future()
    complete_on_loop(future, lambda f: f.set_result(1))
    assert future.result() == 1


async def test_future_is_completed_by_its_loop_from_another_thread():
    future = asyncio.get_running_loop().create_future()
    await asyncio.to_thread(complete_on_loop, future, lambda f: f.set_result(1))
    assert await future == 1


async def test_future_is_completed_by_its_own_loop_from_another_loop():
    future = asyncio.get_running_loop().create_future()

    async def elsewhere() -> None:
        complete_on_loop(future, lambda f: f.set_result(1))

    await asyncio.to_thread(asyncio.run, elsewhere())
    assert await future == 1


async def test_done_future_is_left_alone():
    future, late = asyncio.get_running_loop().create_future(), []
    future.cancel()
    complete_on_loop(future, lambda f: f.set_result(1), lambda: late.append(1))
    await asyncio.to_thread(complete_on_loop, future, lambda f: f.set_result(1), lambda: late.append(2))
    await asyncio.sleep(0)
    assert late == [1, 2]


def test_closed_loop_is_too_late():
    loop, late = asyncio.new_event_loop(), []
    future = loop.create_future()
    loop.close()
    complete_on_loop(future, lambda f: f.set_result(1), lambda: late.append(1))
    assert late == [1]


async def test_future_is_completed_as_its_source():
    loop = asyncio.get_running_loop()
    for source in (Future(), loop.create_future()):
        future = loop.create_future()
        complete_from(source, future)
        source.set_result(1)
        assert await future == 1
    source, future = Future(), loop.create_future()
    complete_from(source, future)
    await asyncio.to_thread(source.set_exception, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await future


async def test_future_and_source_do_not_cancel_each_other():
    loop = asyncio.get_running_loop()
    source, future = loop.create_future(), loop.create_future()
    complete_from(source, future)
    source.cancel()
    await asyncio.sleep(0)
    assert not future.done()
    given_up = loop.create_future()
    source = Future()
    complete_from(source, given_up)
    given_up.cancel()
    source.set_result(1)
    assert source.result() == 1


@pytest.mark.parametrize("end", ["set_result", "set_exception", "cancel"])
async def test_prompt_outputs_call_back_though_they_ended_before_anybody_asked(end: str) -> None:
    """A copy to the host may be there before whoever started it looks, and its step waited for it without end."""
    outputs, called = PromptOutputs(loop=asyncio.get_running_loop()), []
    outputs.when_ended(lambda _: called.append("before"))
    getattr(outputs, end)(*{"set_result": (1,), "set_exception": (ValueError(),)}.get(end, ()))
    outputs.when_ended(lambda _: called.append("after"))
    assert called == ["before", "after"]
    assert outputs.cancelled() or outputs.exception() is None or end == "set_exception"
