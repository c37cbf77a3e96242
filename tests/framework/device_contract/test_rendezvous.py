"""Situations are those of TensorFlow's rendezvous_test.cc, then ours: the loop, threads, a model."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aexec.framework import errors
from aexec.framework.device_contract.device_name import LOCAL_CPU
from aexec.framework.device_contract.rendezvous import Received, Rendezvous, create_key, parse_key
from aexec.framework.types import FrameAndIter
from aexec.framework.waiting.cancellation import CancellationManager

CPU1 = "/job:localhost/replica:0/task:0/device:CPU:1"
KEY = create_key(LOCAL_CPU, 1, CPU1, "edge_7_c")
OTHER = create_key(LOCAL_CPU, 1, CPU1, "edge_8_c")


# Keys


def test_key_is_made_of_five_parts():
    assert f"{LOCAL_CPU};0000000000000001;{CPU1};edge_7_c;0:0" == KEY
    key = create_key(LOCAL_CPU, 0xABCDEF, CPU1, "e", FrameAndIter(12, 3))
    assert key == f"{LOCAL_CPU};0000000000abcdef;{CPU1};e;12:3"


def test_key_is_parsed_into_its_parts():
    parsed = parse_key(create_key(LOCAL_CPU, 255, CPU1, "edge_7_c", (4, 5)))
    assert (parsed.src_device, parsed.dst_device) == (LOCAL_CPU, CPU1)
    assert (str(parsed.src), str(parsed.dst)) == (LOCAL_CPU, CPU1)
    assert (parsed.src_incarnation, parsed.edge_name, parsed.frame_iter) == (255, "edge_7_c", "4:5")


@pytest.mark.parametrize(
    "key",
    [
        "",
        ";;;;",
        "foo",
        f"{LOCAL_CPU};1;{CPU1};edge",
        f"{LOCAL_CPU};1;{CPU1};edge;0:0;more",
        f"{LOCAL_CPU};;{CPU1};edge;0:0",
        f"{LOCAL_CPU};xyz;{CPU1};edge;0:0",
        f"{LOCAL_CPU};-1;{CPU1};edge;0:0",
        f"{LOCAL_CPU};1;{CPU1};;0:0",
        f"/nonsense;1;{CPU1};edge;0:0",
        f"{LOCAL_CPU};1;/task:x;edge;0:0",
    ],
)
def test_invalid_key_is_refused(key):
    with pytest.raises(errors.InvalidArgumentError, match="Invalid rendezvous key"):
        parse_key(key)


# Sending and receiving


async def test_send_then_recv():
    rendezvous = Rendezvous()
    rendezvous.send(KEY, "hello", send_args="context")
    assert await rendezvous.recv(KEY) == Received("hello", False, "context")


async def test_recv_then_send():
    rendezvous = Rendezvous()
    receiving = asyncio.ensure_future(rendezvous.recv(KEY))
    await asyncio.sleep(0)
    assert not receiving.done()
    rendezvous.send(KEY, "hello")
    assert (await receiving).value == "hello"


async def test_dead_values_travel_like_live_ones():
    rendezvous = Rendezvous()
    rendezvous.send(KEY, None, is_dead=True)
    assert (await rendezvous.recv(KEY)).is_dead


async def test_values_of_a_key_come_in_the_order_they_were_sent():
    rendezvous = Rendezvous()
    for i in range(3):
        rendezvous.send(KEY, i)
    assert [(await rendezvous.recv(KEY)).value for _ in range(3)] == [0, 1, 2]


async def test_receivers_of_a_key_are_served_in_the_order_they_came():
    rendezvous = Rendezvous()
    receiving = [asyncio.ensure_future(rendezvous.recv(KEY)) for _ in range(3)]
    await asyncio.sleep(0)
    for i in range(3):
        rendezvous.send(KEY, i)
    assert [r.value for r in await asyncio.gather(*receiving)] == [0, 1, 2]


async def test_keys_are_apart():
    rendezvous = Rendezvous()
    rendezvous.send(KEY, 1)
    assert rendezvous.recv_nowait(OTHER) is None
    assert rendezvous.recv_nowait(KEY) == Received(1)
    assert rendezvous.recv_nowait(KEY) is None


def test_channels_that_are_empty_are_dropped():
    rendezvous = Rendezvous()
    rendezvous.send(KEY, 1)
    rendezvous.send(OTHER, 2)
    assert rendezvous.statistics().channels == 2
    rendezvous.recv_nowait(KEY)
    s = rendezvous.statistics()
    assert (s.channels, s.values, s.receivers, s.sent, s.received, s.aborted) == (1, 1, 0, 2, 1, False)
    assert repr(rendezvous) == "<Rendezvous 1 values, 0 receivers waiting>"


# Aborting


async def test_abort_ends_waits_and_refuses_what_comes_later():
    rendezvous = Rendezvous()
    receiving = asyncio.ensure_future(rendezvous.recv(KEY))
    await asyncio.sleep(0)
    rendezvous.send(OTHER, "dropped")
    rendezvous.start_abort(errors.AbortedError("step failed"))
    for attempt in (
        lambda: receiving,
        lambda: rendezvous.recv(KEY),
        lambda: rendezvous.recv(OTHER),
        lambda: asyncio.to_thread(rendezvous.send, KEY, 1),
        lambda: asyncio.to_thread(rendezvous.recv_nowait, KEY),
    ):
        with pytest.raises(errors.AbortedError, match="step failed") as caught:
            await attempt()
        assert caught.value.derived
    assert rendezvous.statistics().aborted


def test_first_abort_wins():
    rendezvous = Rendezvous()
    first = errors.AbortedError("first")
    rendezvous.start_abort(first)
    rendezvous.start_abort(errors.InternalError("second"))
    assert rendezvous.status is first
    assert not first.derived
    assert "first" in repr(rendezvous)


async def test_closing_with_something_left_aborts():
    with Rendezvous() as rendezvous:
        rendezvous.send(KEY, 1)
    with pytest.raises(errors.CancelledError):
        await rendezvous.recv(KEY)


def test_closing_an_empty_one_does_nothing():
    rendezvous = Rendezvous()
    rendezvous.close()
    assert rendezvous.status is None


# Cancelling


async def test_cancelling_removes_the_waiter():
    rendezvous, manager = Rendezvous(), CancellationManager()
    receiving = asyncio.ensure_future(rendezvous.recv(KEY, manager))
    await asyncio.sleep(0)
    manager.start_cancel()
    with pytest.raises(errors.CancelledError, match=r"RecvAsync is cancelled\.") as caught:
        await receiving
    assert caught.value.derived
    rendezvous.send(KEY, 1)
    assert (await rendezvous.recv(KEY)).value == 1


async def test_cancelled_manager_refuses_to_wait():
    rendezvous, manager = Rendezvous(), CancellationManager()
    manager.start_cancel()
    with pytest.raises(errors.CancelledError, match="RecvAsync is cancelled"):
        await rendezvous.recv(KEY, manager)
    assert rendezvous.statistics().channels == 0


async def test_cancelled_manager_does_not_keep_a_value_that_is_there():
    rendezvous, manager = Rendezvous(), CancellationManager()
    manager.start_cancel()
    rendezvous.send(KEY, 1)
    assert (await rendezvous.recv(KEY, manager)).value == 1


async def test_completed_receive_deregisters():
    rendezvous, manager = Rendezvous(), CancellationManager()
    receiving = asyncio.ensure_future(rendezvous.recv(KEY, manager))
    await asyncio.sleep(0)
    rendezvous.send(KEY, 1)
    await receiving
    assert "0 callbacks" in repr(manager)


async def test_aborted_receive_deregisters():
    rendezvous, manager = Rendezvous(), CancellationManager()
    receiving = asyncio.ensure_future(rendezvous.recv(KEY, manager))
    await asyncio.sleep(0)
    rendezvous.start_abort(errors.AbortedError("x"))
    assert "0 callbacks" in repr(manager)
    with pytest.raises(errors.AbortedError):
        await receiving


async def test_cancelled_task_leaves_the_line():
    rendezvous, manager = Rendezvous(), CancellationManager()
    first, second = (asyncio.ensure_future(rendezvous.recv(KEY, manager)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert "1 callbacks" in repr(manager)
    rendezvous.send(KEY, 1)
    assert (await second).value == 1


async def test_value_delivered_to_a_cancelled_task_goes_to_the_next_in_line():
    rendezvous = Rendezvous()
    first, second = (asyncio.ensure_future(rendezvous.recv(KEY)) for _ in range(2))
    await asyncio.sleep(0)
    rendezvous.send(KEY, 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await second).value == 1


async def test_value_delivered_to_a_cancelled_task_keeps_its_place():
    rendezvous = Rendezvous()
    first = asyncio.ensure_future(rendezvous.recv(KEY))
    await asyncio.sleep(0)
    rendezvous.send(KEY, 1)
    rendezvous.send(KEY, 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert [(await rendezvous.recv(KEY)).value for _ in range(2)] == [1, 2]


async def test_value_sent_by_a_thread_to_a_cancelled_task_is_not_lost():
    rendezvous = Rendezvous()
    receiving = asyncio.ensure_future(rendezvous.recv(KEY))
    await asyncio.sleep(0)
    sender = threading.Thread(target=rendezvous.send, args=(KEY, 1))
    sender.start()
    sender.join()
    # The value is on its way to the loop; the task is cancelled before the loop gets to it.
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    await asyncio.sleep(0)
    assert rendezvous.recv_nowait(KEY) == Received(1)


# Callbacks and threads


def test_recv_async_calls_once_with_the_value():
    rendezvous, outcomes = Rendezvous(), []
    rendezvous.recv_async(KEY, outcomes.append)
    assert outcomes == []
    rendezvous.send(KEY, 1)
    rendezvous.start_abort(errors.AbortedError("x"))
    assert outcomes == [Received(1)]


def test_callbacks_may_call_the_rendezvous():
    rendezvous, outcomes = Rendezvous(), []
    rendezvous.recv_async(KEY, lambda _: rendezvous.recv_async(KEY, outcomes.append))
    rendezvous.send(KEY, 1)
    rendezvous.send(KEY, 2)
    assert outcomes == [Received(2)]


def test_recv_blocking_gets_what_another_thread_sends():
    rendezvous = Rendezvous()
    sender = threading.Thread(target=rendezvous.send, args=(KEY, 1))
    sender.start()
    assert rendezvous.recv_blocking(KEY, timeout=10).value == 1
    sender.join()


def test_recv_blocking_gives_up_in_time():
    rendezvous = Rendezvous()
    with pytest.raises(errors.DeadlineExceededError, match="Timed out waiting for notification"):
        rendezvous.recv_blocking(KEY, timeout=0.001)
    assert rendezvous.statistics().receivers == 0


def test_recv_blocking_learns_of_an_abort():
    rendezvous = Rendezvous()
    rendezvous.start_abort(errors.AbortedError("x"))
    with pytest.raises(errors.AbortedError):
        rendezvous.recv_blocking(KEY)


async def test_many_threads_send_and_the_loop_receives_all():
    rendezvous = Rendezvous()
    keys = [KEY, OTHER]
    receiving = [asyncio.ensure_future(rendezvous.recv(keys[i % 2])) for i in range(60)]
    await asyncio.sleep(0)

    def send(start: int) -> None:
        for i in range(start, start + 20):
            rendezvous.send(keys[i % 2], i)

    await asyncio.gather(*(asyncio.to_thread(send, start) for start in (0, 20, 40)))
    values = [r.value for r in await asyncio.gather(*receiving)]
    assert sorted(values) == list(range(60))
    assert all(v % 2 == i % 2 for i, v in enumerate(values))


def test_exactly_one_of_cancel_send_and_abort_in_threads_completes():
    for _ in range(50):
        rendezvous, manager, outcomes = Rendezvous(), CancellationManager(), []
        start = threading.Barrier(3)
        rendezvous.recv_async(KEY, outcomes.append, manager)

        def race(act, start=start) -> None:
            start.wait()
            act()

        def send(rendezvous=rendezvous) -> None:
            with contextlib.suppress(errors.AbortedError):
                rendezvous.send(KEY, 1)

        acts = [send, manager.start_cancel, lambda r=rendezvous: r.start_abort(errors.AbortedError("x"))]
        threads = [threading.Thread(target=race, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 1


class RendezvousModel(RuleBasedStateMachine):
    """Any sequence of sends and receives, compared with two queues per key."""

    keys = st.sampled_from(["a", "b"])

    def __init__(self) -> None:
        super().__init__()
        self.rendezvous = Rendezvous()
        self.values: dict[str, deque[int]] = defaultdict(deque)
        self.waiting: dict[str, deque[tuple[list, CancellationManager]]] = defaultdict(deque)
        self.counter = 0

    @rule(key=keys)
    def send(self, key):
        self.counter += 1
        self.rendezvous.send(key, self.counter)
        if self.waiting[key]:
            outcomes, _ = self.waiting[key].popleft()
            assert [o.value for o in outcomes] == [self.counter]
        else:
            self.values[key].append(self.counter)

    @rule(key=keys)
    def recv(self, key):
        outcomes, manager = [], CancellationManager()
        self.rendezvous.recv_async(key, outcomes.append, manager)
        if self.values[key]:
            assert [o.value for o in outcomes] == [self.values[key].popleft()]
        else:
            assert outcomes == []
            self.waiting[key].append((outcomes, manager))

    @rule(key=keys, data=st.data())
    def cancel(self, key, data):
        if self.waiting[key]:
            position = data.draw(st.integers(0, len(self.waiting[key]) - 1))
            outcomes, manager = self.waiting[key][position]
            del self.waiting[key][position]
            manager.start_cancel()
            assert [o.message for o in outcomes] == ["RecvAsync is cancelled."]

    @invariant()
    def agrees_with_the_model(self):
        statistics = self.rendezvous.statistics()
        assert statistics.values == sum(map(len, self.values.values()))
        assert statistics.receivers == sum(map(len, self.waiting.values()))
        assert all(not (self.values[key] and self.waiting[key]) for key in "ab")
        assert statistics.channels == sum(bool(self.values[k]) + bool(self.waiting[k]) for k in "ab")
        assert statistics.received == statistics.sent - statistics.values


RendezvousModel.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestRendezvousModel = RendezvousModel.TestCase


def test_recv_or_wait_takes_a_value_or_waits_for_it() -> None:
    rendezvous, came = Rendezvous(), []
    rendezvous.send(KEY, 1)
    assert rendezvous.recv_or_wait(KEY, came.append) == Received(1)
    assert rendezvous.recv_or_wait(KEY, came.append) is None
    assert rendezvous.keys_awaited == 1
    rendezvous.send(KEY, 2)
    assert came == [Received(2)]
    rendezvous.start_abort(errors.AbortedError("over"))
    with pytest.raises(errors.AbortedError, match="over"):
        rendezvous.recv_or_wait(KEY, came.append)
