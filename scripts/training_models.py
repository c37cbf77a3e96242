"""Models that are trained, for `scripts/bench training`: a step is the loss, all gradients and Adam's updates.

Each is a graph that aexec builds, with an `init` node and a `train` node; TensorFlow runs the same graph, with the same
steps from the same initial values, so that the losses can be compared too. See `model_benchmarks.py`, which measures
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import aexec
from aexec import nn, ops

__all__ = ["TrainedModel", "training_zoo"]


@dataclass(frozen=True)
class TrainedModel:
    """A graph that is trained, and a batch to feed; has the interface of `models.Model` that the benchmark uses.

    Attributes:
        name: short, for the command line.
        title: for the table.
        loss: builds the graph up to the loss, from the placeholders.
        feeds: names of placeholders → a batch.
        initialize: the node that initialises all variables.
        targets: the node of a step.
    """

    name: str
    title: str
    loss: Callable[..., aexec.Tensor]
    feeds: Mapping[str, Any]
    outputs: tuple[str, ...] = ("loss",)
    initialize: str = "init"
    targets: tuple[str, ...] = ("train",)
    numpy: None = None
    brief: bool = False
    not_for: frozenset[str] = field(default=frozenset({"onnxruntime", "openvino", "delegate"}))

    @cached_property
    def graph_def(self) -> bytes:
        with aexec.Graph() as graph:
            aexec.set_random_seed(1)
            given = {
                name: aexec.placeholder(value.dtype, [None, *value.shape[1:]], name=name)
                for name, value in self.feeds.items()
            }
            loss = self.loss(**given)
            step = aexec.training.AdamOptimizer(0.001).minimize(loss)
            ops.identity(loss, name="loss")
            aexec.group(step, name="train")
            aexec.group(aexec.global_variables_initializer(), name="init")
        return graph.to_bytes()


def training_zoo(*, small: bool = False) -> list[TrainedModel]:
    """Return all models; `small` ones have the same ops on little data."""
    return [
        mlp(*((8, 12, 4) if small else (128, 784, 256))),
        cnn(*((4, 8, 2) if small else (64, 28, 32))),
        lstm(*((4, 5, 3, 4) if small else (32, 50, 32, 64))),
    ]


CLASSES = 10


def mlp(batch: int, width: int, hidden: int) -> TrainedModel:
    """A network with one hidden layer."""

    def loss(x: aexec.Tensor, labels: aexec.Tensor) -> aexec.Tensor:
        return _cross_entropy(_dense(ops.relu(_dense(x, width, hidden, "hidden")), hidden, CLASSES, "out"), labels)

    return TrainedModel("mlp", f"MLP {width}–{hidden}–{CLASSES}, batch {batch}", loss, _batch(batch, width))


def cnn(batch: int, size: int, channels: int) -> TrainedModel:
    """A network with two convolutions with pooling, and two dense layers."""

    def loss(x: aexec.Tensor, labels: aexec.Tensor) -> aexec.Tensor:
        for name, of, to in (("first", 1, channels), ("second", channels, 2 * channels)):
            filters = aexec.get_variable(f"{name}/filters", [5, 5, of, to])
            bias = aexec.get_variable(f"{name}/bias", [to], initializer=aexec.initializers.Zeros())
            x = nn.max_pool(ops.relu(nn.conv2d(x, filters, padding="SAME") + bias), 2, 2, "SAME")
        flat = (size // 4) ** 2 * 2 * channels
        hidden = ops.relu(_dense(ops.reshape(x, [-1, flat]), flat, 4 * channels, "hidden"))
        return _cross_entropy(_dense(hidden, 4 * channels, CLASSES, "out"), labels)

    title = f"CNN, two 5×5 convolutions of {channels} and {2 * channels} channels on {size}×{size}, batch {batch}"
    return TrainedModel("cnn", title, loss, _batch(batch, size, size, 1))


def lstm(batch: int, steps: int, width: int, units: int) -> TrainedModel:
    """A layer of LSTM cells in a loop, whose last output is classified."""

    def loss(x: aexec.Tensor, labels: aexec.Tensor) -> aexec.Tensor:
        kernel = aexec.get_variable("kernel", [width + units, 4 * units])
        bias = aexec.get_variable("bias", [4 * units], initializer=aexec.initializers.Zeros())
        inputs = aexec.TensorArray(aexec.float32, steps).unstack(ops.transpose(x, [1, 0, 2]))
        zeros = aexec.zeros([batch, units])

        def cell(i: Any, c: Any, h: Any) -> tuple[Any, Any, Any]:
            gates = nn.bias_add(ops.concat_v2([inputs.read(i), h], 1) @ kernel, bias)
            put, new, forget, out = ops.split(aexec.constant(1), gates, num_split=4)
            c = c * ops.sigmoid(forget + 1.0) + ops.sigmoid(put) * ops.tanh(new)
            return i + 1, c, ops.tanh(c) * ops.sigmoid(out)

        *_, h = aexec.while_loop(lambda i, c, h: i < steps, cell, (aexec.constant(0), zeros, zeros))
        return _cross_entropy(_dense(h, units, CLASSES, "out"), labels)

    title = f"LSTM of {units}, {steps} steps of {width}, batch {batch}"
    return TrainedModel("lstm", title, loss, _batch(batch, steps, width))


def _dense(x: Any, width: int, units: int, name: str) -> aexec.Tensor:
    weights = aexec.get_variable(f"{name}/weights", [width, units])
    bias = aexec.get_variable(f"{name}/bias", [units], initializer=aexec.initializers.Zeros())
    return nn.bias_add(x @ weights, bias)


def _cross_entropy(logits: aexec.Tensor, labels: aexec.Tensor) -> aexec.Tensor:
    return ops.mean(nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits), [0])


def _batch(batch: int, *shape: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, *shape), np.float32)
    return {"x": x, "labels": rng.integers(0, CLASSES, batch, np.int32)}
