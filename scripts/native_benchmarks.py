"""The group `native`: what the loops in C of `aexec/native` gain, kernel by kernel.

Each call is made with the loops and without them, by turns, on one thread.  The shapes are those of layers of
MobileNetV2, ResNet50 and a transformer, and of the models of `training_models.py`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmark_figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from aexec import native
from aexec.kernels.common.scattering import accumulate
from aexec.kernels.training.optimizers import OPTIMISERS
from aexec.kernels.training.training_ops import apply_in_parts
from aexec.runtime.threads.worker_pool import limit_blas_threads
from tests.kernels.harness import build

__all__ = ["cases", "figures"]

_SCALARS = {
    "Adam": {"beta1_power": 0.9, "beta2_power": 0.99, "lr": 1e-3, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8,
             "use_nesterov": False},
    "Momentum": {"lr": 1e-3, "momentum": 0.9, "use_nesterov": False},
    "RMSProp": {"lr": 1e-3, "rho": 0.9, "momentum": 0.0, "epsilon": 1e-8},
}  # fmt: skip
_CHANNELS_LAST = {"padding": "SAME"}


def _random(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def _call(op: str, inputs: list[Any], **attrs: Any) -> Callable[[], object]:
    built, arrays, _ = build(op, inputs, **attrs)
    return lambda: built.compute(*arrays)


def _strided(op: str, x: Any) -> Callable[[], object]:
    """A call with this very array, of which `_call` would make a contiguous copy."""
    built, _, _ = build(op, [x])
    return lambda: built.compute(x)


def _convolution(images: int, side: int, depth: int, filters: int, size: int, stride: int = 1) -> dict[str, Any]:
    """The inputs of a convolution and its gradients."""
    x, weights = _random(images, side, side, depth), _random(size, size, depth, filters)
    return {
        "x": x,
        "weights": weights,
        "grad": _random(images, -(-side // stride), -(-side // stride), filters),
        "attrs": {"strides": [1, stride, stride, 1], **_CHANNELS_LAST},
    }


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """Names of kernels with their shapes, and calls."""
    for side, depth, stride in ((112, 32, 1), (56, 144, 1), (14, 576, 1)):
        inputs = [_random(1, side, side, depth), _random(3, 3, depth, 1), [_random(depth)]]
        attrs = {"strides": [1, stride, stride, 1], "num_args": 1, "fused_ops": [b"BiasAdd", b"Relu6"]}
        name = f"depthwise 3×3, bias and Relu6, {side}×{side}×{depth}"
        yield name, _call("_FusedDepthwiseConv2dNative", inputs, **attrs, **_CHANNELS_LAST)
    layers = (64, 14, 32, 64, 5, 1), (1, 56, 128, 128, 3, 2), (64, 14, 32, 64, 5, 1), (16, 28, 64, 64, 3, 1)
    for number, (images, side, depth, filters, size, stride) in enumerate(layers):
        given = _convolution(images, side, depth, filters, size, stride)
        name = f"{size}×{size}, stride {stride}, {images}×{side}×{side}×{depth} to {filters}"
        sizes = [np.array(given[key].shape, np.int32) for key in ("x", "weights")]
        if number > 1:
            name += ", Winograd"
            given["attrs"]["_winograd"] = True
        yield f"convolution {name}", _call("Conv2D", [given["x"], given["weights"]], **given["attrs"])
        arguments = [given["x"], sizes[1], given["grad"]]
        yield f"gradient of the filter {name}", _call("Conv2DBackpropFilter", arguments, **given["attrs"])
    given = _convolution(64, 28, 32, 64, 5, 2)
    arguments = [np.array(given["x"].shape, np.int32), given["weights"], given["grad"]]
    yield (
        "gradient of the input 5×5, stride 2, 64×28×28×32 to 64",
        _call("Conv2DBackpropInput", arguments, **given["attrs"]),
    )
    x, pool = _random(64, 28, 28, 32), {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], **_CHANNELS_LAST}
    yield "max pool 2×2, 64×28×28×32", _call("MaxPool", [x], **pool)
    pooled = _random(64, 14, 14, 32)
    yield "gradient of the max pool", _call("MaxPoolGrad", [x, pooled, pooled], **pool)
    slope = _random(64, 28, 28, 32)
    yield "ReluGrad of 64×28×28×32", _call("ReluGrad", [slope, x])
    yield "Sigmoid of 32×64", _call("Sigmoid", [_random(32, 64)])
    product = _random(32, 256)
    yield "Sigmoid of 32×64, one of four gates", _strided("Sigmoid", product[:, 64:128])
    yield "Tanh of 32×64", _call("Tanh", [_random(32, 64)])
    yield "TanhGrad of 32×64", _call("TanhGrad", [_random(32, 64), _random(32, 64)])
    yield "Erf of 128×1024", _call("Erf", [_random(128, 1024)])
    for classes in (10, 1000):
        labels = np.arange(128) % classes
        name = f"sparse softmax cross entropy 128×{classes}"
        yield name, _call("SparseSoftmaxCrossEntropyWithLogits", [_random(128, classes), labels])
    table, rows, index = _random(50_000, 128), _random(1000, 128), np.arange(0, 50_000, 50)
    yield "1000 rows of 128 added to a table", lambda: accumulate(np.add, table, index, rows)
    for name, scalars in _SCALARS.items():
        yield f"{name} of a million", _update(name, scalars)


def _update(name: str, scalars: dict[str, Any]) -> Callable[[], object]:
    optimiser, grad = OPTIMISERS[name], _random(1_000_000)
    arrays = [np.abs(_random(1_000_000)) for _ in range(1 + len(optimiser.slots))]
    known = {key: value if isinstance(value, bool) else np.float32(value) for key, value in scalars.items()}
    return lambda: apply_in_parts(np, optimiser.update, arrays, grad, known)


def figures(repeats: int) -> Iterator[Figure]:
    """Milliseconds of each call with the loops beside those without them: medians of turns."""
    loops = native.loops
    if loops is None:
        return
    limit_blas_threads(1)
    for name, call in cases():
        with_loops, without = [], []
        try:
            for _ in range(repeats):
                for chosen, times in ((loops, with_loops), (None, without)):
                    native.loops = chosen
                    began = time.perf_counter()
                    call()
                    times.append((time.perf_counter() - began) * 1e3)
        finally:
            native.loops = loops
        value, baseline = statistics.median(with_loops), statistics.median(without)
        yield Figure(name, value, "ms", baseline)
