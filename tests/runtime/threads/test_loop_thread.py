"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

import pytest

from aexec import errors
from aexec.runtime.threads import loop_thread
from aexec.runtime.threads.loop_thread import LoopThread
from tests.support.signals import interruptible


async def name_of_thread() -> str:
    return threading.current_thread().name


class Endless:
    """A coroutine that ends when it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    async def run(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_loop_thread_runs_coroutines_and_stops() -> None:
    thread = LoopThread("aexec-test")
    assert thread.wait(name_of_thread()) == "aexec-test"
    called = threading.Event()
    thread.call_soon(called.set)
    assert called.wait(60)
    thread.stop()
    thread.stop()
    thread.call_soon(called.clear)
    assert called.is_set()
    with pytest.raises(errors.FailedPreconditionError, match="has stopped"):
        thread.wait(name_of_thread())


def test_loop_thread_refuses_to_wait_for_itself() -> None:
    thread = LoopThread("aexec-test")

    async def wait_within() -> None:
        thread.wait(name_of_thread())

    with pytest.raises(errors.FailedPreconditionError, match="its own thread"):
        thread.wait(wait_within())
    thread.stop()


def test_running_coroutine_is_cancelled_on_stop() -> None:
    thread = LoopThread("aexec-test")
    endless = Endless()
    thread.call_soon(lambda: asyncio.ensure_future(endless.run()))
    assert endless.begun.wait(60)
    thread.stop()
    assert endless.ended.is_set()


def test_interrupt_before_the_wait_cancels_the_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coroutine may run before the call that submits it has returned, and be interrupted there."""
    thread = LoopThread("aexec-test")
    endless = Endless()
    submit = thread._submit

    def interrupted(*arguments: Any) -> None:
        submit(*arguments)
        assert endless.begun.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(thread, "_submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.wait(endless.run())
    assert endless.ended.wait(60)
    thread.stop()


def test_interrupt_that_wakes_nobody_is_noticed() -> None:
    """The interrupt comes just before the thread sleeps: the handler has run, and the wait goes on."""
    thread = LoopThread("aexec-test")
    endless = Endless()

    def interrupt() -> None:
        assert endless.begun.wait(60)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    with interruptible():
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            thread.wait(endless.run())
        interrupting.join()
    assert endless.ended.wait(60)
    thread.stop()


def test_coroutine_may_outlast_a_look_and_raise_timeout_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "_LOOK_SECONDS", 0)
    thread = LoopThread("aexec-test")

    async def late(outcome: BaseException | int) -> int:
        await asyncio.sleep(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    assert thread.wait(late(3)) == 3
    with pytest.raises(TimeoutError, match="own"):
        thread.wait(late(TimeoutError("own")))
    thread.stop()


def test_unreferenced_loop_thread_stops() -> None:
    thread = LoopThread("aexec-test")
    (worker,) = [t for t in threading.enumerate() if t.name == "aexec-test"]
    del thread
    worker.join(60)
    assert not worker.is_alive()


async def test_calling_thread_keeps_its_loop() -> None:
    thread = LoopThread("aexec-test")
    assert asyncio.get_event_loop() is asyncio.get_running_loop()
    thread.stop()
