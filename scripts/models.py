"""The model zoo of `scripts/bench models`: architectures with random weights, described once for every runtime.

Nothing is downloaded or kept in files: weights come from a seed, drawn such that activations keep their size from layer
to layer.  `zoo` lists the models; `model_writers.py` makes a GraphDef or an ONNX model of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from model_writers import (
    Array,
    ModelWriter,
    Recurrence,
    Value,
    lstm_cell,
    write_graph_def,
    write_onnx,
)

__all__ = ["Model", "zoo"]

SEED = 20
# For models without inputs, and with thousands of small nodes, which OpenVINO compiles for minutes.
OPENVINO = frozenset({"openvino", "delegate"})


@dataclass(frozen=True)
class Model:
    """A model and its feeds.

    Attributes:
        name: short, for the command line.
        title: for the table.
        write: describes it to a writer.
        feeds: names of inputs → values.
        outputs: names of outputs.
        numpy: the same computation in plain NumPy, if a program would be written so; takes the feeds.
        brief: True if the fixed cost of a run is a visible part of its time.
        not_for: contenders that cannot run it.
        initialize: a node to run before anything else.
        targets: nodes to run besides the outputs.
    """

    name: str
    title: str
    write: Callable[[ModelWriter], None]
    feeds: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    numpy: Callable[..., Any] | None = None
    brief: bool = False
    not_for: frozenset[str] = frozenset()
    initialize: str = ""
    targets: tuple[str, ...] = ()

    @cached_property
    def graph_def(self) -> bytes:
        return write_graph_def(self.write)

    @cached_property
    def onnx(self) -> bytes:
        return write_onnx(self.write)


def zoo(*, small: bool = False) -> list[Model]:
    """All models; `small` ones have the same ops, few of them and on little data."""
    size = 32 if small else 224
    return [
        empty(),
        *(chain(n) for n in ((1, 5) if small else (1, 100, 1000))),
        fan(10 if small else 2000),
        counting_loop(5 if small else 1000),
        mobilenet_v2(size, MOBILENET_BLOCKS[:3] if small else MOBILENET_BLOCKS),
        resnet50(size, (1, 1) if small else (3, 4, 6, 3)),
        transformer(*((1, 16, 32) if small else (4, 128, 256))),
        detector(64 if small else 300, 0.35, 3 if small else 10),
        gru(*((5, 4, 8) if small else (49, 10, 154))),
        lstm(*((5, 4, 8) if small else (50, 32, 64))),
        unrolled(4 if small else 620, 4 if small else 16),
    ]


# Small nodes


def empty() -> Model:
    """A constant: measures the fixed cost of a run."""

    def write(w: ModelWriter) -> None:
        w.output("y", w.constant(np.float32([1])))

    return Model("empty", "empty run (a constant)", write, brief=True, not_for=OPENVINO)


def chain(length: int) -> Model:
    """Alternating Maximum and Minimum on 4×4, which no optimiser merges, unlike additions of constants."""
    low, high = np.full((4, 4), -1, np.float32), np.full((4, 4), 1, np.float32)

    def write(w: ModelWriter) -> None:
        y, bounds = w.input("x", [4, 4]), (w.constant(low), w.constant(high))
        for i in range(length):
            y = w.binary(("Maximum", "Minimum")[i % 2], y, bounds[i % 2])
        w.output("y", y)

    def numpy(x: Array) -> Array:
        for i in range(length):
            x = np.minimum(x, high) if i % 2 else np.maximum(x, low)
        return x

    title, not_for = f"chain of {length} on 4×4", OPENVINO if length >= 1000 else frozenset()
    return Model(f"chain-{length}", title, write, {"x": _normal(4, 4)}, numpy=numpy, brief=True, not_for=not_for)


def fan(width: int) -> Model:
    """Many nodes with the same input, each with another constant, and their sum."""
    constants = np.linspace(0, 1, width, dtype=np.float32)

    def write(w: ModelWriter) -> None:
        x = w.input("x", [4, 4])
        w.output("y", w.add_n([w.binary("Mul", x, w.constant(c)) for c in constants]))

    def numpy(x: Array) -> Array:
        total = x * constants[0]
        for c in constants[1:]:
            total = total + x * c
        return total

    return Model(f"fan-{width}", f"fan of {width} and AddN", write, {"x": _normal(4, 4)}, numpy=numpy, not_for=OPENVINO)


def counting_loop(count: int) -> Model:
    def numpy(n: Array) -> Any:
        i, a, one, step = np.int32(0), np.float32(0), np.int32(1), np.float32(1)
        while np.less(i, n):
            i, a = np.add(i, one), np.add(a, step)
        return a

    def write(w: ModelWriter) -> None:
        w.output("y", w.count_up(w.input("n", [], "int32")))

    title = f"while loop, {count} iterations, 2 variables"
    return Model(f"loop-{count}", title, write, {"n": np.array(count, np.int32)}, numpy=numpy)


# Vision

# (expansion, channels, repeats, stride) of the blocks of MobileNetV2
MOBILENET_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class _Layers:
    """Layers for one writer, with random weights."""

    def __init__(self, writer: ModelWriter) -> None:
        self.w = writer
        self.draw = np.random.default_rng(SEED)

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        return (scale * self.draw.standard_normal(shape)).astype(np.float32)

    def filters(self, height: int, width: int, inputs: int, outputs: int, *, rectified: bool) -> Array:
        """Return filters that keep the variance of their input; a rectified input has lost half of it."""
        return self.normal(height, width, inputs, outputs, scale=((1 + rectified) / (height * width * inputs)) ** 0.5)

    def conv(self, x: Value, size: int, inputs: int, outputs: int, stride: int = 1, *, rectified: bool = True) -> Value:
        return self.w.conv(x, self.filters(size, size, inputs, outputs, rectified=rectified), stride)

    def norm(self, x: Value, channels: int, activation: str | None = None) -> Value:
        """Batch normalisation with statistics close to those of the data."""
        variance = self.draw.uniform(0.8, 1.2, channels).astype(np.float32)
        scale = self.draw.uniform(0.8, 1.2, channels).astype(np.float32)
        offset, mean = self.normal(channels, scale=0.1), self.normal(channels, scale=0.1)
        y = self.w.batch_norm(x, scale, offset, mean, variance)
        return y if activation is None else self.w.unary(activation, y)

    def dense(self, x: Value, inputs: int, outputs: int) -> Value:
        return self.w.dense(x, self.normal(inputs, outputs, scale=inputs**-0.5), self.normal(outputs, scale=0.1))

    def layer_norm(self, x: Value, width: int) -> Value:
        """Layer normalisation as separate ops, as graphs have it."""
        w = self.w
        centred = w.binary("Sub", x, w.row_mean(x))
        variance = w.row_mean(w.unary("Square", centred))
        inverse = w.unary("Rsqrt", w.binary("Add", variance, w.constant(np.float32(1e-6))))
        scaled = w.binary("Mul", w.binary("Mul", centred, inverse), w.constant(1 + self.normal(width, scale=0.1)))
        return w.binary("Add", scaled, w.constant(self.normal(width, scale=0.1)))


def _round(channels: float) -> int:
    return max(8, int(channels + 4) // 8 * 8)


def _mobilenet_body(
    layers: _Layers, x: Value, size: int, blocks: tuple[tuple[int, int, int, int], ...], alpha: float
) -> tuple[Value, int, list[tuple[Value, int]]]:
    """Write the blocks; return the last map, its channels, and the expanded maps before each stride of 2."""
    w, before_strides = layers.w, []
    channels, side = _round(32 * alpha), -(-size // 2)
    y = layers.norm(layers.conv(x, 3, 3, channels, 2, rectified=False), channels, "Relu6")
    rectified = True
    for expansion, wanted, repeats, first_stride in blocks:
        for repeat in range(repeats):
            stride, outputs = (first_stride if repeat == 0 else 1), _round(wanted * alpha)
            shortcut, inner = y, channels
            if expansion > 1:
                inner = channels * expansion
                y = layers.norm(layers.conv(y, 1, channels, inner, rectified=rectified), inner, "Relu6")
            if stride == 2:
                before_strides.append((y, inner))
                y = w.pad_map(y, side % 2, 1)
                side = -(-side // 2)
            filters = layers.normal(3, 3, inner, 1, scale=(2 / 9) ** 0.5)
            y = layers.norm(w.depthwise(y, filters, stride, "VALID" if stride == 2 else "SAME"), inner, "Relu6")
            y = layers.norm(layers.conv(y, 1, inner, outputs), outputs)
            if stride == 1 and channels == outputs and repeat:
                y = w.binary("Add", shortcut, y)
            channels, rectified = outputs, False
    return y, channels, before_strides


def mobilenet_v2(size: int, blocks: tuple[tuple[int, int, int, int], ...]) -> Model:
    def write(w: ModelWriter) -> None:
        layers = _Layers(w)
        y, channels, _ = _mobilenet_body(layers, w.image("x", [1, size, size, 3]), size, blocks, 1.0)
        y = layers.norm(layers.conv(y, 1, channels, 1280, rectified=False), 1280, "Relu6")
        w.output("y", w.unary("Softmax", layers.dense(w.map_mean(y), 1280, 1000)))

    return Model("mobilenet-v2", f"MobileNetV2 {size}", write, {"x": _normal(1, size, size, 3)})


def resnet50(size: int, blocks: tuple[int, ...]) -> Model:
    def block(layers: _Layers, x: Value, inputs: int, width: int, stride: int) -> Value:
        w, outputs = layers.w, 4 * width
        shortcut = x
        if inputs != outputs or stride != 1:
            shortcut = layers.norm(layers.conv(x, 1, inputs, outputs, stride), outputs)
        y = layers.norm(layers.conv(x, 1, inputs, width, stride), width, "Relu")
        y = layers.norm(layers.conv(y, 3, width, width), width, "Relu")
        y = layers.norm(layers.conv(y, 1, width, outputs), outputs)
        # Scale the sum of two terms of equal size back to that size.
        return w.unary("Relu", w.binary("Mul", w.binary("Add", shortcut, y), w.constant(np.float32(0.7))))

    def write(w: ModelWriter) -> None:
        layers, channels = _Layers(w), 64
        x = w.image("x", [1, size, size, 3])
        filters = layers.filters(7, 7, 3, 64, rectified=False)
        y = layers.norm(w.conv(w.pad_map(x, 3, 3), filters, 2, "VALID"), 64, "Relu")
        y = w.max_pool(w.pad_map(y, 1, 1), 3, 2)
        for stage, repeats in enumerate(blocks):
            for repeat in range(repeats):
                stride = 2 if stage and repeat == 0 else 1
                y = block(layers, y, channels, 64 << stage, stride)
                channels = 4 * (64 << stage)
        w.output("y", w.unary("Softmax", layers.dense(w.map_mean(y), channels, 1000)))

    return Model("resnet50", f"ResNet50 {size}", write, {"x": _normal(1, size, size, 3)})


def detector(size: int, alpha: float, classes: int) -> Model:
    """SSD: MobileNetV2, maps from 19 × 19 down to 1 × 1, boxes decoded from anchors, suppression class by class."""

    def write(w: ModelWriter) -> None:
        layers = _Layers(w)
        x = w.image("x", [1, size, size, 3])
        last, channels, before = _mobilenet_body(layers, x, size, MOBILENET_BLOCKS, alpha)
        maps = [before[-1], (last, channels)]
        sides = [-(-size // 16), -(-size // 32)]
        while sides[-1] > 1:
            y, inputs = maps[-1]
            y = w.unary("Relu6", w.bias(layers.conv(y, 1, inputs, 64), layers.normal(64, scale=0.1)))
            y = w.unary("Relu6", w.bias(layers.conv(y, 3, 64, 128, 2), layers.normal(128, scale=0.1)))
            maps.append((y, 128))
            sides.append(-(-sides[-1] // 2))
        places, labels, count = [], [], 0
        for number, ((y, inputs), side) in enumerate(zip(maps, sides, strict=True)):
            anchors = 3 if number == 0 else 6
            for found, width in ((places, 4), (labels, classes)):
                of_map = w.bias(layers.conv(y, 3, inputs, anchors * width), layers.normal(anchors * width, scale=0.1))
                found.append(w.map_rows(of_map, [side * side * anchors, width]))
            count += side * side * anchors
        boxes = _decoded(layers, w.concat(places, 0), count)
        scores = w.unary("Sigmoid", w.binary("Sub", w.concat(labels, 0), w.constant(np.float32(2.5))))
        found = w.best_boxes(boxes, scores, classes, keep=100, overlap=0.6, threshold=0.3)
        for name, value in zip(("boxes", "scores", "labels"), found, strict=True):
            w.output(name, value)

    title = f"detector {size}, NonMaxSuppression, {classes} classes"
    outputs = ("boxes", "scores", "labels")
    return Model("detector", title, write, {"x": _normal(1, size, size, 3)}, outputs)


def _decoded(layers: _Layers, offsets: Value, count: int) -> Value:
    """Return the corners of boxes given as offsets from `count` random anchors."""
    w, draw = layers.w, layers.draw
    centres = draw.uniform(0.1, 0.9, (count, 2)).astype(np.float32)
    sizes = draw.uniform(0.05, 0.3, (count, 2)).astype(np.float32)
    shift, stretch = w.split(offsets, 2, 1)
    centre = w.binary("Add", w.binary("Mul", shift, w.constant(sizes / 10)), w.constant(centres))
    half = w.binary("Mul", w.unary("Exp", w.binary("Mul", stretch, w.constant(np.float32(0.2)))), w.constant(sizes / 2))
    corners = w.concat([w.binary("Sub", centre, half), w.binary("Add", centre, half)], 1)
    return w.binary("Minimum", w.binary("Maximum", corners, w.constant(np.float32(0))), w.constant(np.float32(1)))


# Text and sound


def transformer(blocks: int, length: int, width: int, heads: int = 4) -> Model:
    def attention(layers: _Layers, x: Value) -> Value:
        w, each = layers.w, width // heads

        def project() -> Value:
            y = w.reshape(layers.dense(x, width, width), [1, length, heads, each])
            return w.transpose(y, [0, 2, 1, 3])

        query, key, value = project(), project(), project()
        scores = w.binary("Mul", w.batch_product(query, key, transpose_y=True), w.constant(np.float32(each**-0.5)))
        mixed = w.batch_product(w.unary("Softmax", scores), value)
        return layers.dense(w.reshape(w.transpose(mixed, [0, 2, 1, 3]), [length, width]), width, width)

    def gelu(w: ModelWriter, x: Value) -> Value:
        half = w.binary("Mul", x, w.constant(np.float32(0.5)))
        erf = w.unary("Erf", w.binary("Mul", x, w.constant(np.float32(2**-0.5))))
        return w.binary("Mul", half, w.binary("Add", erf, w.constant(np.float32(1))))

    def write(w: ModelWriter) -> None:
        layers = _Layers(w)
        y = w.reshape(w.input("x", [1, length, width]), [length, width])
        for _ in range(blocks):
            y = w.binary("Add", y, attention(layers, layers.layer_norm(y, width)))
            hidden = gelu(w, layers.dense(layers.layer_norm(y, width), width, 4 * width))
            y = w.binary("Add", y, layers.dense(hidden, 4 * width, width))
        w.output("y", w.reshape(layers.layer_norm(y, width), [1, length, width]))

    title = f"transformer {blocks} layers {length}×{width}"
    return Model("transformer", title, write, {"x": _normal(1, length, width)})


def gru(steps: int, inputs: int, units: int) -> Model:
    weights = _cells(inputs, units, gates=2, candidate=True)

    def numpy(x: Array) -> Array:
        return _plain_gru(x, weights)

    return _recurrent("gru", f"GRU-{units}, while loop of {steps} steps", steps, weights, numpy)


def lstm(steps: int, inputs: int, units: int) -> Model:
    weights = _cells(inputs, units, gates=4, candidate=False)

    def numpy(x: Array) -> Array:
        return _plain_lstm(x, weights)

    return _recurrent("lstm", f"LSTM-{units}, while loop of {steps} steps", steps, weights, numpy)


def _recurrent(name: str, title: str, steps: int, weights: Recurrence, numpy: Callable[..., Any]) -> Model:
    def write(w: ModelWriter) -> None:
        w.output("y", w.recurrent(w.input("x", [steps, 1, weights.inputs]), steps, weights))

    return Model(name, title, write, {"x": _normal(steps, 1, weights.inputs)}, numpy=numpy)


def unrolled(steps: int, units: int) -> Model:
    """LSTM cells written out one after another: 16 small nodes each."""
    weights = _cells(units, units, gates=4, candidate=False)
    shifts = np.linspace(0, 1, steps, dtype=np.float32)

    def write(w: ModelWriter) -> None:
        x = w.input("x", [1, units])
        constants, state = [w.constant(weights.gates), w.constant(weights.gates_bias)], [x, x]
        for shift in shifts:
            state = lstm_cell(w, w.binary("Add", x, w.constant(shift)), state, constants)
        w.output("y", state[1])

    def numpy(x: Array) -> Array:
        return _plain_lstm([x + shift for shift in shifts], weights, x)

    title = f"LSTM-{units} unrolled {steps} times"
    return Model("unrolled", title, write, {"x": _normal(1, units)}, numpy=numpy, not_for=OPENVINO)


def _cells(inputs: int, units: int, *, gates: int, candidate: bool) -> Recurrence:
    draw, scale = np.random.default_rng(SEED), (inputs + units) ** -0.5

    def weights(columns: int) -> tuple[Array, Array]:
        matrix = scale * draw.standard_normal((inputs + units, columns))
        return matrix.astype(np.float32), np.full(columns, 0.5, np.float32)

    return Recurrence(*weights(gates * units), *(weights(units) if candidate else (None, None)))


def _sigmoid(x: Array) -> Array:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def _plain_gru(x: Array, weights: Recurrence) -> Array:
    h = np.zeros((1, weights.units), np.float32)
    for row in x:
        reset, update = np.split(_sigmoid(np.concatenate([row, h], 1) @ weights.gates + weights.gates_bias), 2, 1)
        new = np.tanh(np.concatenate([row, reset * h], 1) @ weights.candidate + weights.candidate_bias)
        h = update * (h - new) + new
    return h


def _plain_lstm(x: Any, weights: Recurrence, start: Array | None = None) -> Array:
    c = h = np.zeros((1, weights.units), np.float32) if start is None else start
    for row in x:
        i, new, forget, out = np.split(np.concatenate([row, h], 1) @ weights.gates + weights.gates_bias, 4, 1)
        c = _sigmoid(forget) * c + _sigmoid(i) * np.tanh(new)
        h = _sigmoid(out) * np.tanh(c)
    return h


def _normal(*shape: int) -> Array:
    return np.random.default_rng(SEED + 1).standard_normal(shape, np.float32)
