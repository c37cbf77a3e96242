"""Building graphs from Python, beside TensorFlow: `scripts/bench building`.

A graph of many operations, and the gradients of a deep network, are built by aexec and, where it can be imported, by
TensorFlow's graph mode, by turns in this process.  What is printed are medians, and their ratio.  To compare, run it
with an interpreter that has TensorFlow and aexec's dependencies:

    PYTHONPATH=.:server path/to/python scripts/benchmarks.py building

Next to read: `model_benchmarks.py`, which runs and trains.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aexec
from aexec import ops

__all__ = ["Aexec", "TensorFlow", "main", "measure"]

# Limits: seconds, and time relative to TensorFlow's.
TARGETS = {"operations": (8.0, 0.6), "gradients": (3.0, 0.6)}
# Operations per layer of the network whose gradients are built.
_OPS_OF_LAYER = 3
_UNITS = 8


class Aexec:
    """Builds with aexec."""

    name = "aexec"

    @contextmanager
    def graph(self) -> Iterator[None]:
        with aexec.Graph():
            yield

    def operations(self, count: int) -> None:
        """Build a chain of two alternating ops."""
        x = first = aexec.placeholder("float32", [None, 4])
        for number in range(count - 1):
            x = ops.add_v2(x, first) if number % 2 else ops.mul(x, first)

    def network(self, layers: int) -> tuple[Any, list[Any]]:
        x = aexec.placeholder("float32", [None, _UNITS])
        weights = [aexec.placeholder("float32", [_UNITS, _UNITS]) for _ in range(layers)]
        bias = aexec.placeholder("float32", [_UNITS])
        for weight in weights:
            x = ops.relu(ops.bias_add(ops.mat_mul(x, weight), bias))
        return x, weights

    def gradients(self, y: Any, xs: list[Any]) -> None:
        aexec.gradients(y, xs)


class TensorFlow:
    """Builds with `tf.compat.v1`."""

    name = "tensorflow"

    def __init__(self) -> None:
        import tensorflow

        self._tf = tensorflow.compat.v1

    @contextmanager
    def graph(self) -> Iterator[None]:
        with self._tf.Graph().as_default():
            yield

    def operations(self, count: int) -> None:
        tf = self._tf
        x = first = tf.placeholder(tf.float32, [None, 4])
        for number in range(count - 1):
            x = tf.add(x, first) if number % 2 else tf.multiply(x, first)

    def network(self, layers: int) -> tuple[Any, list[Any]]:
        tf = self._tf
        x = tf.placeholder(tf.float32, [None, _UNITS])
        weights = [tf.placeholder(tf.float32, [_UNITS, _UNITS]) for _ in range(layers)]
        bias = tf.placeholder(tf.float32, [_UNITS])
        for weight in weights:
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weight), bias))
        return x, weights

    def gradients(self, y: Any, xs: list[Any]) -> None:
        self._tf.gradients(y, xs)


def measure(builder: Any, operations: int, of_network: int) -> dict[str, float]:
    """Return the seconds for `operations` operations, and for the gradients of a network of `of_network` operations."""
    with builder.graph():
        took = {"operations": _seconds(lambda: builder.operations(operations))}
    with builder.graph():
        y, weights = builder.network(of_network // _OPS_OF_LAYER)
        took["gradients"] = _seconds(lambda: builder.gradients(y, weights))
    return took


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    command = argparse.ArgumentParser(prog="scripts/bench building", description=__doc__.split("\n\n")[0])
    command.add_argument("--operations", type=int, default=100_000, help="of the graph (%(default)s)")
    command.add_argument("--network", type=int, default=10_000, help="operations of the network (%(default)s)")
    command.add_argument("--repeats", type=int, default=3, help="turns of each (%(default)s)")
    arguments = command.parse_args(argv)
    builders: list[Any] = [Aexec()]
    if importlib.util.find_spec("tensorflow") is not None:
        builders.append(TensorFlow())
    taken: dict[str, list[dict[str, float]]] = {builder.name: [] for builder in builders}
    for _ in range(arguments.repeats):
        for builder in builders:
            taken[builder.name].append(measure(builder, arguments.operations, arguments.network))
    for what, (most, share) in TARGETS.items():
        medians = {name: statistics.median(one[what] for one in every) for name, every in taken.items()}
        of = arguments.operations if what == "operations" else arguments.network
        line = f"{what} ({of}): " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in medians.items())
        if len(medians) == 2:
            ours, theirs = medians.values()
            line += f"; ratio {ours / theirs:.2f} (aim {share})"
        print(f"{line}; aim {most} s")
    return 0
