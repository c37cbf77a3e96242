"""Programs of TensorFlow's own client, against a server: `grpc_check_programs.py TARGET FOLDER`.

Writes a line for each, `name<TAB>outcome`; files of checkpoints lie in the folder, which client and server share.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
_CANCELLED_STEPS = 1000
_LIMIT_SECONDS = 60


def variables(target: str, folder: Path) -> None:
    """Variables of both kinds keep their values from one run to the next."""
    for resource in (False, True):
        with tf.Graph().as_default():
            v = v1.get_variable("v", initializer=np.float32(1), use_resource=resource)
            add = v1.assign_add(v, 2.0)
            with v1.Session(target) as session:
                session.run(v1.global_variables_initializer())
                session.run(add)
                assert session.run(v) == 3.0


def queue_runners(target: str, folder: Path) -> None:
    """Threads of queue runners fill a queue while the program takes elements from it, until the last."""
    with tf.Graph().as_default():
        numbers = v1.train.range_input_producer(100, num_epochs=1, shuffle=False).dequeue()
        queue = v1.FIFOQueue(10, tf.int32, shapes=[[]])
        runner = v1.train.QueueRunner(queue, [queue.enqueue(numbers * 2)] * 2)
        v1.train.add_queue_runner(runner)
        taken = queue.dequeue_many(10)
        with v1.Session(target) as session:
            session.run(v1.local_variables_initializer())
            coordinator = v1.train.Coordinator()
            threads = v1.train.start_queue_runners(session, coordinator)
            seen: list[int] = []
            try:
                while True:
                    seen.extend(session.run(taken))
            except tf.errors.OutOfRangeError:
                coordinator.request_stop()
            coordinator.join(threads)
            assert sorted(seen) == [2 * i for i in range(100)]


def partial_run(target: str, folder: Path) -> None:
    """A step is fed and fetched in two parts."""
    with tf.Graph().as_default():
        a, b = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
        first = a + 1
        second = first * b
        with v1.Session(target) as session:
            handle = session.partial_run_setup([first, second], [a, b])
            assert session.partial_run(handle, first, {a: 1.0}) == 2.0
            assert session.partial_run(handle, second, {b: 3.0}) == 6.0


def make_callable(target: str, folder: Path) -> None:
    """A callable takes its feeds in order, again and again, after the graph has grown too."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None])
        with v1.Session(target) as session:
            double = session.make_callable(x * 2, [x])
            assert double([1.0, 2.0]).tolist() == [2.0, 4.0]
            assert session.run(x + 1, {x: [1.0]}).tolist() == [2.0]
            assert double([3.0]).tolist() == [6.0]


def timeout(target: str, folder: Path) -> None:
    """A step that waits ends at its timeout, and the session goes on."""
    with tf.Graph().as_default():
        queue = v1.FIFOQueue(1, tf.float32)
        waits, fine = queue.dequeue(), tf.constant(1.0) + 1.0
        with v1.Session(target) as session:
            try:
                session.run(waits, options=v1.RunOptions(timeout_in_ms=50))
            except tf.errors.DeadlineExceededError:
                pass
            else:
                raise AssertionError("the step has ended")
            assert session.run(fine) == 2.0


def reset(target: str, folder: Path) -> None:
    """`Session.reset` ends the sessions of the server; a new one begins with nothing."""
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=np.float32(1), use_resource=False)
        session = v1.Session(target)
        session.run(v1.global_variables_initializer())
        v1.Session.reset(target)
        for expected, one in ((tf.errors.AbortedError, session), (tf.errors.FailedPreconditionError, None)):
            try:
                (one or v1.Session(target)).run(v)
            except expected:
                continue
            raise AssertionError(f"expected {expected.__name__}")


def monitored_training(target: str, folder: Path) -> None:
    """A MonitoredTrainingSession trains, writes checkpoints, and goes on from the last one."""
    for steps in (20, 40):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, [None, 2])
            weights = v1.get_variable("w", [2, 1])
            step = v1.train.get_or_create_global_step()
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - 1.0))
            train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
            hooks = [v1.train.StopAtStepHook(last_step=steps)]
            with v1.train.MonitoredTrainingSession(
                master=target, checkpoint_dir=str(folder / "train"), hooks=hooks, save_checkpoint_steps=10
            ) as session:
                assert session.run(step) == steps - 20
                while not session.should_stop():
                    _, value = session.run([train, loss], {x: [[1.0, 0.0], [0.0, 1.0]]})
    assert value < 0.5
    assert v1.train.latest_checkpoint(str(folder / "train")).endswith("-40")


def cancelled_steps(target: str, folder: Path) -> None:
    """A thousand steps that wait are cancelled by their timeouts, eight at a time; the session goes on."""
    with tf.Graph().as_default():
        queue = v1.FIFOQueue(1, tf.float32)
        waits, fine = queue.dequeue(), tf.constant(1.0) + 1.0
        ended: list[str] = []
        with v1.Session(target) as session:

            def run() -> None:
                for _ in range(_CANCELLED_STEPS // 8):
                    try:
                        session.run(waits, options=v1.RunOptions(timeout_in_ms=5))
                    except tf.errors.OpError as error:
                        ended.append(type(error).__name__)

            threads = [threading.Thread(target=run) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert set(ended) == {"DeadlineExceededError"} and len(ended) == _CANCELLED_STEPS
            assert session.run(fine) == 2.0


def errors(target: str, folder: Path) -> None:
    """An error is of TensorFlow's class, and the client names the node and where the program has made it."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.int32, [], name="divisor")
        quotient = tf.math.floordiv(tf.constant(1), x, name="quotient")
        with v1.Session(target) as session:
            try:
                session.run(quotient, {x: 0})
            except tf.errors.InvalidArgumentError as error:
                node = error.op
            else:
                raise AssertionError("no error")
    assert node is not None and node.name == "quotient"


def closed_session(target: str, folder: Path) -> None:
    """Closing a session ends the steps that wait in it."""
    with tf.Graph().as_default():
        waits = v1.FIFOQueue(1, tf.float32).dequeue()
        session = v1.Session(target)
        ended: list[Exception] = []

        def run() -> None:
            try:
                session.run(waits)
            except tf.errors.OpError as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.2)
        session.close()
        thread.join(10)
        assert ended and isinstance(ended[0], tf.errors.CancelledError), ended


def metadata(target: str, folder: Path) -> None:
    """A traced run tells what its nodes took, and the graph as it was run."""
    with tf.Graph().as_default():
        total = tf.reduce_sum(v1.placeholder_with_default(np.ones(10, np.float32), [10]), name="total")
        told = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
        with v1.Session(target) as session:
            session.run(total, options=options, run_metadata=told)
        assert any("total" in node.node_name for device in told.step_stats.dev_stats for node in device.node_stats)
        assert told.partition_graphs


PROGRAMS: list[Callable[[str, Path], None]] = [
    variables, queue_runners, partial_run, make_callable, timeout, reset, monitored_training, errors,
    closed_session, metadata, cancelled_steps,
]  # fmt: skip


def outcome(program: Callable[[str, Path], None], target: str, folder: Path) -> str:
    """How a program ended, or that it has not."""
    found = f"does not end within {_LIMIT_SECONDS} s"

    def run() -> None:
        nonlocal found
        began = time.perf_counter()
        try:
            program(target, folder)
            found = f"passes in {time.perf_counter() - began:.2f} s"
        except Exception as error:
            found = f"fails: {type(error).__name__} {' '.join(str(error).split())[:100]}"

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_LIMIT_SECONDS)
    return found


def main() -> None:
    """See the module."""
    v1.disable_eager_execution()
    target, folder = sys.argv[1], Path(sys.argv[2])
    for program in PROGRAMS:
        print(f"{program.__name__.replace('_', ' ')}\t{outcome(program, target, folder)}", flush=True)
    os._exit(0)  # whatever threads still wait


if __name__ == "__main__":
    main()
