"""What steps take by TensorFlow's own client, on two servers by turns: `grpc_check_times.py OURS THEIRS`.

Writes one line of JSON: by measurement, the milliseconds of each server in the order of the arguments.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
_ROUNDS, _RUNS = 9, 200
_CANCELS = 5
_LIMIT_SECONDS = 60.0


def small_step(targets: list[str]) -> list[float]:
    """The median of a step of three ops on four numbers, in rounds by turns."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [4])
        y = tf.nn.relu(x * 2.0 + 1.0)
        calls = [v1.Session(target).make_callable(y, [x]) for target in targets]
    return in_turns([lambda call=call: call(np.ones(4, np.float32)) for call in calls], _RUNS)


def large_step(targets: list[str]) -> list[float]:
    """The same of a step that takes 8 MB and gives 8 MB."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2 * 2**20])
        y = x + 1.0
        calls = [v1.Session(target).make_callable(y, [x]) for target in targets]
    value = np.ones(2 * 2**20, np.float32)
    return in_turns([lambda call=call: call(value) for call in calls], 5)


def in_turns(calls: list[Any], runs: int) -> list[float]:
    """The median of the rounds' medians, in ms."""
    medians: list[list[float]] = [[] for _ in calls]
    for _ in range(_ROUNDS):
        for call, found in zip(calls, medians, strict=True):
            call()
            found.append(statistics.median(timed(call) for _ in range(runs)))
    return [statistics.median(found) * 1e3 for found in medians]


def timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def cancelled(targets: list[str], build: Any) -> list[float]:
    """From the closing of a session until its step has ended, the median of some: ms; -1 if it does not end."""
    return [statistics.median(closing(target, build) for _ in range(_CANCELS)) * 1e3 for target in targets]


def closing(target: str, build: Any) -> float:
    with tf.Graph().as_default():
        step = build()
        session = v1.Session(target)

        def run() -> None:
            with contextlib.suppress(tf.errors.OpError):
                session.run(step)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        time.sleep(0.3)
        began = time.perf_counter()
        closer = threading.Thread(target=session.close, daemon=True)
        closer.start()
        thread.join(_LIMIT_SECONDS)
        closer.join(_LIMIT_SECONDS)
        return -1e-3 if thread.is_alive() or closer.is_alive() else time.perf_counter() - began


def waiting() -> Any:
    """A step that waits for an element of a queue."""
    return v1.FIFOQueue(1, tf.float32).dequeue()


def looping() -> Any:
    """A step of a loop of small ops, without an end in sight."""
    return tf.while_loop(lambda i: i < 2**62, lambda i: i + 1, [tf.constant(0, tf.int64)])


def computing() -> Any:
    """A step within one product of large matrices, which takes seconds."""
    large = tf.fill([5000, 5000], v1.placeholder_with_default(1.0, []))
    return tf.reduce_sum(tf.matmul(large, large))


def main() -> None:
    """See the module."""
    v1.disable_eager_execution()
    v1.disable_control_flow_v2()
    targets = sys.argv[1:]
    found = {
        "a step of three ops on 4 numbers, ms": small_step(targets),
        "a step that takes and gives 8 MB, ms": large_step(targets),
        "from closing the session to the end of a step that waits, ms": cancelled(targets, waiting),
        "… of a step that loops, ms": cancelled(targets, looping),
        "… of a step within a product of two 5000×5000 matrices, ms": cancelled(targets, computing),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
