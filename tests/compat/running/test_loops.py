"""Loops of a program with a supervisor: steps, and functions in threads of their own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec import errors
from aexec.compat.v1.running import loops
from tests.support.stand_ins.replacing import replace_in


class Counting(tf.train.LooperThread):
    """Counts its calls, and stops its coordinator after three."""

    def __init__(self, coord: Any, seconds: float | None) -> None:
        super().__init__(coord, seconds)
        self.coord, self.notes = coord, list[str]()

    def start_loop(self) -> None:
        self.notes.append("start")

    def run_loop(self) -> None:
        self.notes.append("run")
        if self.notes.count("run") == 3:
            self.coord.request_stop()

    def stop_loop(self) -> None:
        self.notes.append("stop")


@pytest.mark.parametrize("seconds", [None, 0.001])
def test_looper_calls_until_the_stop(seconds: float | None) -> None:
    coord = tf.train.Coordinator()
    looper = Counting(coord, seconds)
    looper.start()
    coord.join()  # it waits for the thread, which is registered
    assert looper.notes == ["start", "run", "run", "run", "stop"] and not looper.is_alive()


def test_looper_waits_from_the_time_when_the_last_call_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits, coord = [50.0], list[float](), tf.train.Coordinator()
    replace_in(monkeypatch, loops, "time", monotonic=lambda: now[0])

    def wait(timeout: float) -> bool:
        waits.append(timeout)
        now[0] += timeout
        return len(waits) == 4

    monkeypatch.setattr(coord, "wait_for_stop", wait)

    def call() -> None:
        now[0] += 3.0 if len(waits) == 2 else 0.5

    tf.train.LooperThread(coord, 2.0, call).run()
    assert waits == [0.0, 1.5, 0.0, 0.5]


def test_error_of_a_looper_is_raised_by_join() -> None:
    coord = tf.train.Coordinator()

    def fail(message: str, *, more: str) -> None:
        raise KeyError(message + more)

    tf.train.LooperThread.loop(coord, None, fail, ["mi"], {"more": "ne"})
    with pytest.raises(KeyError, match="mine"):
        coord.join()
    with pytest.raises(ValueError, match="must be a Coordinator"):
        tf.train.LooperThread(None, None)  # type: ignore[arg-type]  # the error is asked for
    with pytest.raises(ValueError, match="also pass 'target'"):
        tf.train.LooperThread(coord, None, args=[1])


def test_basic_loop_begins_again_after_an_aborted_step(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    more = step.assign_add(1)
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0)
    sessions: list[Any] = []

    def train(session: Any, last: int, *, word: str) -> None:
        assert word == "given"
        if session not in sessions:
            sessions.append(session)
            if len(sessions) == 1:
                raise errors.AbortedError("a server was restarted")
        if session.run(more) == last:
            supervisor.request_stop()

    tf.train.basic_train_loop(supervisor, train, [3], {"word": "given"})
    assert len(sessions) == 2


def test_other_error_of_a_step_ends_the_basic_loop() -> None:
    def fail(session: Any) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        tf.train.basic_train_loop(tf.train.Supervisor(), fail)


def test_supervisor_runs_functions_in_threads() -> None:
    total = tf.get_variable("total", initializer=0.0)
    more = total.assign_add(1.0)
    supervisor = tf.train.Supervisor()
    done = threading.Event()
    with supervisor.managed_session() as session:

        def call(last: float) -> None:
            if session.run(more) == last:
                done.set()

        looper = supervisor.loop(None, call, [3.0])
        assert done.wait(60)
    assert not looper.is_alive() and supervisor.should_stop()
