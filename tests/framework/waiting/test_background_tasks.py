"""The tasks of a session that go on between its steps."""

from __future__ import annotations

import asyncio

from aexec.framework.waiting.background_tasks import BackgroundTasks
from aexec.framework.waiting.cancellation import CancellationManager


async def test_close_waits_until_cancelled_tasks_have_ended() -> None:
    tasks = BackgroundTasks(CancellationManager(), lambda manager: manager)
    begun, ended = asyncio.Event(), []

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    task = tasks.start(work(), "work")
    await begun.wait()
    assert (len(tasks), task.get_name(), repr(tasks)) == (1, "work", "<BackgroundTasks 1 running>")
    await tasks.close()
    assert (len(tasks), ended, task.cancelled()) == (0, [True], True)


async def test_manager_of_params_is_cancelled_with_the_sessions() -> None:
    session = CancellationManager()
    made = BackgroundTasks(session, lambda manager: manager).new_params()
    assert not made.cancel_requested
    session.start_cancel()
    assert made.cancel_requested


async def test_task_that_is_ending_is_not_cancelled_again() -> None:
    tasks = BackgroundTasks(CancellationManager(), lambda manager: manager)
    begun, closed = asyncio.Event(), []

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            closed.append(True)

    task = tasks.start(work(), "work")
    await begun.wait()
    task.cancel()
    await tasks.close()
    assert closed == [True]
