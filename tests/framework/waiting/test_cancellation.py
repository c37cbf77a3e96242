"""Situations are those of TensorFlow's cancellation_test.cc, then ours: threads, the loop, a model."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from aexec.framework import errors
from aexec.framework.waiting.cancellation import (
    INVALID_TOKEN,
    CancellationManager,
    CancelReason,
    CancelSource,
    register_cancellation_callback,
    wait,
)


class Calls:
    """A callback that counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def register(manager: CancellationManager, callback) -> int:
    token = manager.get_cancellation_token()
    assert manager.register_callback(token, callback)
    return token


def test_new_manager_is_active():
    manager = CancellationManager()
    assert not manager.is_cancelled
    assert not manager.is_cancelling
    assert not manager.cancel_requested
    assert manager.status is None
    assert manager.reason is None


def test_tokens_count_up_and_never_are_the_invalid_one():
    manager = CancellationManager()
    assert [manager.get_cancellation_token() for _ in range(3)] == [0, 1, 2]
    assert INVALID_TOKEN == -1


def test_cancel_calls_every_callback_once():
    manager, calls = CancellationManager(), [Calls() for _ in range(5)]
    for call in calls:
        register(manager, call)
    assert manager.start_cancel()
    assert [c.count for c in calls] == [1] * 5
    assert manager.is_cancelled
    assert manager.cancel_requested
    assert not manager.is_cancelling


def test_only_the_first_cancel_acts():
    manager, call = CancellationManager(), Calls()
    register(manager, call)
    assert manager.start_cancel_with_status(errors.AbortedError("first"))
    assert not manager.start_cancel_with_status(errors.AbortedError("second"))
    assert call.count == 1
    assert manager.status is not None
    assert manager.status.message == "first"


def test_cancel_before_register_refuses_the_callback():
    manager, call = CancellationManager(), Calls()
    manager.start_cancel()
    assert not manager.register_callback(manager.get_cancellation_token(), call)
    assert call.count == 0


def test_token_takes_one_callback():
    manager = CancellationManager()
    token = register(manager, Calls())
    with pytest.raises(errors.InternalError, match="token 0 has a callback already"):
        manager.register_callback(token, Calls())


@pytest.mark.parametrize("method", ["deregister_callback", "try_deregister_callback"])
def test_deregistered_callbacks_are_not_called(method):
    manager, call = CancellationManager(), Calls()
    token = register(manager, call)
    assert getattr(manager, method)(token)
    manager.start_cancel()
    assert call.count == 0


@pytest.mark.parametrize("method", ["deregister_callback", "try_deregister_callback"])
def test_deregister_after_cancel_is_false(method):
    manager, call = CancellationManager(), Calls()
    token = register(manager, call)
    manager.start_cancel()
    assert not getattr(manager, method)(token)
    assert call.count == 1


def test_is_cancelled_only_when_all_callbacks_have_returned():
    manager, seen = CancellationManager(), []
    other = manager.get_cancellation_token()
    assert manager.register_callback(other, Calls())
    register(
        manager,
        lambda: seen.append(
            (
                manager.is_cancelling,
                manager.is_cancelled,
                manager.cancel_requested,
                manager.register_callback(99, Calls()),
                manager.try_deregister_callback(other),
                manager.start_cancel(),
            )
        ),
    )
    manager.start_cancel()
    assert seen == [(True, False, True, False, False, False)]
    assert manager.is_cancelled


def test_deregistering_within_a_callback_of_the_same_manager_is_an_error():
    manager, raised = CancellationManager(), []

    def callback() -> None:
        with pytest.raises(errors.InternalError, match="deregister_callback was called by a cancellation callback"):
            manager.deregister_callback(0)
        raised.append(True)

    register(manager, callback)
    manager.start_cancel()
    assert raised == [True]


def test_callback_that_raises_does_not_keep_others_from_being_called(caplog):
    manager, calls = CancellationManager(), [Calls(), Calls()]

    def broken() -> None:
        raise ValueError("callback broke")

    register(manager, calls[0])
    register(manager, broken)
    register(manager, calls[1])
    assert manager.start_cancel()
    assert [c.count for c in calls] == [1, 1]
    assert manager.is_cancelled
    assert "callback broke" in caplog.text


def test_interrupt_in_a_callback_is_raised_after_all_were_called():
    manager, calls = CancellationManager(), [Calls(), Calls()]

    def interrupted() -> None:
        raise KeyboardInterrupt

    register(manager, calls[0])
    register(manager, interrupted)
    register(manager, calls[1])
    with pytest.raises(KeyboardInterrupt):
        manager.start_cancel()
    assert [c.count for c in calls] == [1, 1]
    assert manager.is_cancelled


def test_error_logging_names_the_callback_and_the_status(caplog):
    manager, call = CancellationManager(), Calls()
    manager.register_callback_with_error_logging(manager.get_cancellation_token(), call, "my receive")
    with caplog.at_level(logging.WARNING):
        manager.start_cancel_with_status(errors.AbortedError("peer is gone"))
    assert call.count == 1
    assert "'my receive'" in caplog.text
    assert "peer is gone" in caplog.text


# Children


def test_children_are_cancelled_after_the_callbacks_with_the_same_status():
    parent = CancellationManager()
    child, order = CancellationManager(parent), []
    register(child, lambda: order.append("child"))
    register(parent, lambda: order.append("parent"))
    status = errors.DeadlineExceededError("late")
    parent.start_cancel_with_status(status)
    assert order == ["parent", "child"]
    assert child.is_cancelled
    assert child.status is status


def test_cancelling_a_child_leaves_the_parent_alone():
    parent = CancellationManager()
    child = CancellationManager(parent)
    child.start_cancel()
    assert not parent.cancel_requested


def test_grandchildren_are_cancelled():
    root = CancellationManager()
    grandchild = CancellationManager(CancellationManager(root))
    reason = CancelReason(CancelSource.SESSION_CLOSED)
    root.start_cancel(reason)
    assert grandchild.is_cancelled
    assert grandchild.reason is reason


@pytest.mark.parametrize("where", ["step", "first child", "second child", "nowhere"])
async def test_closing_a_session_names_the_operation_that_waited_wherever(where):
    session = CancellationManager()
    step = CancellationManager(session)
    children = [CancellationManager(step) for _ in range(2)]
    waits = dict(zip(("step", "first child", "second child"), (step, *children), strict=True))
    loop = asyncio.get_running_loop()
    waiting = [
        loop.create_task(wait(manager, loop.create_future(), "Dequeue operation was cancelled" if at == where else "x"))
        for at, manager in waits.items()
    ]
    await asyncio.sleep(0)
    closed = errors.CancelledError("Session has been closed.")
    session.start_cancel_with_status(closed, CancelReason(CancelSource.SESSION_CLOSED))
    await asyncio.wait(waiting)
    named = "" if where == "nowhere" else " Dequeue operation was cancelled"
    assert step.status is not None and step.status.message == f"Session has been closed.{named}"
    assert session.status is closed
    assert all(isinstance(task.exception(), errors.CancelledError) for task in waiting)


def test_child_of_a_cancelled_parent_is_born_cancelled():
    parent = CancellationManager()
    status = errors.CancelledError("gone")
    parent.start_cancel_with_status(status)
    child = CancellationManager(parent)
    assert child.is_cancelled
    assert child.status is status


def test_child_of_a_cancelling_parent_is_born_cancelled():
    parent, born = CancellationManager(), []
    register(parent, lambda: born.append(CancellationManager(parent).is_cancelled))
    parent.start_cancel()
    assert born == [True]


def test_close_unlinks_from_the_parent():
    parent, call = CancellationManager(), Calls()
    with CancellationManager(parent) as child:
        token = register(child, call)
        child.deregister_callback(token)
    parent.start_cancel()
    assert call.count == 0
    assert not child.is_cancelled
    assert "0 children" in repr(parent)


def test_close_with_callbacks_cancels_first():
    manager, call = CancellationManager(), Calls()
    register(manager, call)
    manager.close()
    assert call.count == 1
    assert manager.is_cancelled


def test_close_is_idempotent_and_refuses_callbacks_from_then_on():
    manager = CancellationManager()
    manager.close()
    manager.close()
    assert not manager.cancel_requested
    assert not manager.register_callback(0, Calls())
    assert not manager.start_cancel()


def test_callback_may_close_its_own_manager():
    parent = CancellationManager()
    child = CancellationManager(parent)
    register(parent, child.close)
    register(parent, parent.close)
    parent.start_cancel()
    assert parent.is_cancelled


# Reasons


@pytest.mark.parametrize(
    ("reason", "error", "text", "derived"),
    [
        (CancelReason(CancelSource.API), errors.CancelledError, "cancelled by its caller", False),
        (CancelReason(CancelSource.CLIENT_LEFT), errors.CancelledError, "the client left", False),
        (CancelReason(CancelSource.SESSION_CLOSED, words="bye"), errors.CancelledError, "was closed: bye", False),
        (CancelReason(CancelSource.DEADLINE), errors.DeadlineExceededError, "Timed out waiting", False),
        (CancelReason(CancelSource.DEADLINE, words="after 2 s"), errors.DeadlineExceededError, "(after 2 s)", False),
        (CancelReason(CancelSource.SIBLING_FAILED, "q/enqueue"), errors.CancelledError, "{{node q/enqueue}}", True),
    ],
)
def test_reason_becomes_the_status(reason, error, text, derived):
    manager = CancellationManager()
    manager.start_cancel(reason)
    assert type(manager.status) is error
    assert text in manager.status.message
    assert manager.status.derived is derived
    assert manager.reason is reason


def test_repr_tells_phase_contents_and_reason():
    manager = CancellationManager()
    child = CancellationManager(manager)
    token = register(manager, Calls())
    assert repr(manager) == "<CancellationManager active, 1 callbacks, 1 children>"
    manager.deregister_callback(token)
    child.close()
    manager.start_cancel(CancelReason(CancelSource.API, words="enough"))
    assert repr(manager) == (
        "<CancellationManager cancelled, 0 callbacks, 0 children, cancelled by its caller: enough>"
    )


# The helper for managers that may be absent


def test_registering_with_no_manager_is_a_no_op():
    call = Calls()
    deregister = register_cancellation_callback(None, call)
    deregister()
    assert call.count == 0


def test_registering_with_a_cancelled_manager_raises():
    manager = CancellationManager()
    manager.start_cancel()
    with pytest.raises(errors.CancelledError, match="Operation was cancelled"):
        register_cancellation_callback(manager, Calls())


def test_registering_returns_what_deregisters():
    manager, call = CancellationManager(), Calls()
    register_cancellation_callback(manager, call)()
    manager.start_cancel()
    assert call.count == 0


# Threads


def in_thread(call) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_deregister_in_another_thread_waits_until_all_callbacks_have_returned():
    manager = CancellationManager()
    running, gate, deregistering = threading.Event(), threading.Event(), threading.Event()
    outcome = []

    def callback() -> None:
        running.set()
        assert gate.wait(60)

    def deregister() -> None:
        deregistering.set()
        outcome.append((manager.deregister_callback(token), manager.is_cancelled))

    token = register(manager, callback)
    canceller = in_thread(manager.start_cancel)
    assert running.wait(60)
    assert not manager.try_deregister_callback(token)
    waiter = in_thread(deregister)
    assert deregistering.wait(60)
    waiter.join(0.005)
    assert outcome == []
    gate.set()
    waiter.join(10)
    canceller.join(10)
    # The lock is handed over once the phase is set, so the waiter sees the end of cancelling.
    assert outcome == [(False, True)]


def test_close_in_another_thread_waits_until_all_callbacks_have_returned():
    manager = CancellationManager()
    running, gate, closed = threading.Event(), threading.Event(), threading.Event()

    def callback() -> None:
        running.set()
        assert gate.wait(60)

    def close() -> None:
        manager.close()
        closed.set()

    register(manager, callback)
    canceller = in_thread(manager.start_cancel)
    assert running.wait(60)
    closer = in_thread(close)
    assert not closed.wait(0.005)
    gate.set()
    assert closed.wait(60)
    canceller.join(10)
    closer.join(10)


def test_racing_registrations_are_either_called_or_refused():
    for _ in range(30):
        manager, start = CancellationManager(), threading.Barrier(3)
        outcomes: list[tuple[bool, Calls]] = []

        def registrar(manager=manager, start=start, outcomes=outcomes) -> None:
            start.wait()
            for _ in range(50):
                call = Calls()
                outcomes.append((manager.register_callback(manager.get_cancellation_token(), call), call))

        threads = [in_thread(registrar) for _ in range(2)]
        start.wait()
        manager.start_cancel()
        for thread in threads:
            thread.join()
        assert all(call.count == int(accepted) for accepted, call in outcomes)
        assert "0 callbacks" in repr(manager)


def test_racing_deregistrations_tell_whether_the_callback_was_called():
    for _ in range(30):
        manager, start = CancellationManager(), threading.Barrier(2)
        calls = {register(manager, call): call for call in (Calls() for _ in range(100))}
        canceller = in_thread(lambda start=start, manager=manager: (start.wait(), manager.start_cancel()))
        start.wait()
        outcomes = [(manager.deregister_callback(token), call.count) for token, call in calls.items()]
        canceller.join()
        assert set(outcomes) <= {(True, 0), (False, 1)}
        assert [count for _, count in outcomes] == [call.count for call in calls.values()]


def test_racing_children_are_all_cancelled():
    for _ in range(30):
        parent, start = CancellationManager(), threading.Barrier(2)
        children: list[CancellationManager] = []

        def breed(parent=parent, start=start, children=children) -> None:
            start.wait()
            children.extend(CancellationManager(parent) for _ in range(50))

        thread = in_thread(breed)
        start.wait()
        parent.start_cancel()
        thread.join()
        assert all(child.cancel_requested for child in children)


def test_one_of_racing_cancels_acts():
    manager, start, won = CancellationManager(), threading.Barrier(8), []

    def cancel() -> None:
        start.wait()
        won.append(manager.start_cancel())

    threads = [in_thread(cancel) for _ in range(8)]
    for thread in threads:
        thread.join()
    assert sum(won) == 1


# On the event loop


async def test_wait_returns_what_the_future_gets():
    manager = CancellationManager()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(manager, future))
    await asyncio.sleep(0)
    future.set_result(7)
    assert await waiting == 7
    assert "0 callbacks" in repr(manager)


async def test_wait_raises_what_the_future_gets():
    future = asyncio.get_running_loop().create_future()
    future.set_exception(errors.OutOfRangeError("closed"))
    with pytest.raises(errors.OutOfRangeError):
        await wait(CancellationManager(), future)


async def test_wait_without_a_manager():
    future = asyncio.get_running_loop().create_future()
    future.set_result(1)
    assert await wait(None, future) == 1


async def test_cancelling_ends_a_wait_and_completes_its_future_at_once():
    manager = CancellationManager()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(manager, future, "Dequeue operation was cancelled"))
    await asyncio.sleep(0)
    manager.start_cancel()
    assert future.done()
    with pytest.raises(errors.CancelledError, match="Dequeue operation was cancelled") as caught:
        await waiting
    assert not caught.value.derived


async def test_wait_on_a_cancelled_manager_raises_and_completes_the_future():
    manager = CancellationManager()
    manager.start_cancel()
    future = asyncio.get_running_loop().create_future()
    with pytest.raises(errors.CancelledError) as caught:
        await wait(manager, future, derived=True)
    assert caught.value.derived
    assert future.done()


async def test_done_future_wins_over_a_cancelled_manager():
    manager = CancellationManager()
    manager.start_cancel()
    future = asyncio.get_running_loop().create_future()
    future.set_result("taken")
    assert await wait(manager, future) == "taken"


async def test_result_delivered_before_the_cancel_is_returned():
    manager = CancellationManager()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(manager, future))
    await asyncio.sleep(0)
    future.set_result("delivered")
    manager.start_cancel()
    assert await waiting == "delivered"


async def test_cancelling_from_another_thread_ends_a_wait():
    manager = CancellationManager()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(manager, future))
    await asyncio.sleep(0)
    await asyncio.to_thread(manager.start_cancel)
    with pytest.raises(errors.CancelledError):
        await waiting


async def test_cancelling_the_waiting_task_deregisters():
    manager = CancellationManager()
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(manager, future))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert future.cancelled()
    assert "0 callbacks" in repr(manager)


async def test_result_that_the_cancelled_task_cannot_take_is_given_back():
    manager, given_back = CancellationManager(), []
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(manager, future, give_back=given_back.append))
    await asyncio.sleep(0)
    future.set_result("item")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert given_back == ["item"]


async def test_error_that_the_cancelled_task_cannot_take_is_dropped_quietly():
    manager, given_back = CancellationManager(), []
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(manager, future, give_back=given_back.append))
    await asyncio.sleep(0)
    manager.start_cancel()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert given_back == []


def test_loop_that_has_closed_is_no_obstacle_to_cancelling():
    manager = CancellationManager()
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    waiting = wait(manager, future)
    waiting.send(None)
    loop.close()
    assert manager.start_cancel()
    assert manager.is_cancelled
    waiting.close()


async def test_wait_cancelled_returns_when_cancellation_begins():
    manager = CancellationManager()
    waiting = asyncio.ensure_future(manager.wait_cancelled())
    await asyncio.sleep(0)
    assert not waiting.done()
    manager.start_cancel()
    await waiting
    await manager.wait_cancelled()


# Against a model


class CancellationModel(RuleBasedStateMachine):
    """Any sequence of calls on a forest of managers, compared with sets of what should have been called."""

    managers = Bundle("managers")

    def __init__(self) -> None:
        super().__init__()
        self.parent: dict[CancellationManager, CancellationManager | None] = {}
        self.phase: dict[CancellationManager, str] = {}
        self.registered: dict[CancellationManager, dict[int, Calls]] = {}
        self.expected: dict[Calls, int] = {}

    def model_cancel(self, manager: CancellationManager) -> None:
        if self.phase[manager] != "active":
            return
        self.phase[manager] = "cancelled"
        for call in self.registered[manager].values():
            self.expected[call] = 1
        for child, parent in self.parent.items():
            if parent is manager:
                self.model_cancel(child)

    def add(self, manager: CancellationManager, parent: CancellationManager | None) -> CancellationManager:
        self.parent[manager] = parent
        self.phase[manager] = "active" if parent is None or self.phase[parent] == "active" else "cancelled"
        self.registered[manager] = {}
        return manager

    @rule(target=managers)
    def make_root(self) -> CancellationManager:
        return self.add(CancellationManager(), None)

    @rule(target=managers, parent=managers)
    def make_child(self, parent: CancellationManager) -> CancellationManager:
        return self.add(CancellationManager(parent), parent)

    @rule(manager=managers)
    def register(self, manager: CancellationManager) -> None:
        call, token = Calls(), manager.get_cancellation_token()
        self.expected[call] = 0
        accepted = manager.register_callback(token, call)
        assert accepted is (self.phase[manager] == "active")
        if accepted:
            self.registered[manager][token] = call

    @rule(manager=managers, data=st.data(), method=st.sampled_from(["deregister_callback", "try_deregister_callback"]))
    def deregister(self, manager: CancellationManager, data: st.DataObject, method: str) -> None:
        if self.registered[manager]:
            token = data.draw(st.sampled_from(sorted(self.registered[manager])))
            removed = getattr(manager, method)(token)
            assert removed is (self.phase[manager] == "active")
            if removed:
                del self.registered[manager][token]

    @rule(manager=managers)
    def cancel(self, manager: CancellationManager) -> None:
        assert manager.start_cancel() is (self.phase[manager] == "active")
        self.model_cancel(manager)

    @rule(manager=managers)
    def close(self, manager: CancellationManager) -> None:
        manager.close()
        if self.registered[manager] or manager in [p for c, p in self.parent.items() if self.phase[c] == "active"]:
            self.model_cancel(manager)
        self.parent[manager] = None
        if self.phase[manager] == "active":
            self.phase[manager] = "closed"

    @invariant()
    def agrees_with_the_model(self) -> None:
        for manager, phase in self.phase.items():
            assert manager.is_cancelled is (phase == "cancelled"), manager
            assert not manager.is_cancelling
        for call, count in self.expected.items():
            assert call.count == count


CancellationModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestCancellationModel = CancellationModel.TestCase
