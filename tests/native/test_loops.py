"""The loops in C: a kernel gives the same with them and with NumPy, and no loop reads or writes beyond its arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import expit

from aexec import native
from aexec.framework.waiting.intra_op import HelperThreads
from aexec.kernels.common.choosing import choose
from aexec.kernels.common.scattering import accumulate
from aexec.kernels.training.optimizers import OPTIMISERS
from aexec.numerics.philox import Philox
from tests.kernels.harness import build, run_op

needs_loops = pytest.mark.skipif(native.loops is None, reason="aexec was installed without a C compiler")
SIZES = st.integers(1, 9)
PADDINGS = st.sampled_from(["SAME", "VALID"])
SEEDS = st.integers(0, 2**32 - 1)
# float32 has 24 bits; sums are taken in another order.
NEAR = {"rtol": 2e-5, "atol": 2e-5}


@contextmanager
def without_loops() -> Iterator[None]:
    loops, native.loops = native.loops, None
    try:
        yield
    finally:
        native.loops = loops


def random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def computed(op: str, *arrays: Any) -> Any:
    """What the kernel makes of these very arrays, of which `run_op` would make contiguous copies."""
    built, _, _ = build(op, list(arrays))
    with np.errstate(all="ignore"):
        return built.compute(*arrays)


def assert_both_agree(op: str, inputs: list[Any], *, exact: bool = False, **attrs: Any) -> None:
    got = run_op(op, inputs, **attrs)
    with without_loops():
        wanted = run_op(op, inputs, **attrs)
    pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, **({"rtol": 0, "atol": 0} if exact else NEAR))


@needs_loops
@given(SEEDS, st.tuples(SIZES, SIZES), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(1, 40), PADDINGS,
       st.integers(1, 3), st.integers(1, 2), st.sampled_from([None, "Relu", "Relu6", "GeluExact", "Elu"]))  # fmt: skip
def test_depthwise_convolution_is_that_of_numpy(
    seed: int, image: tuple[int, int], window: tuple[int, int], depth: int, padding: str, stride: int, dilation: int,
    activation: str | None,
) -> None:  # fmt: skip
    reach = [(size - 1) * dilation + 1 for size in window]
    if padding == "VALID" and any(n < r for n, r in zip(image, reach, strict=True)):
        return
    x, weights = random(seed, 2, *image, depth), random(seed + 1, *window, depth, 1)
    attrs = {"strides": [1, stride, stride, 1], "dilations": [1, dilation, dilation, 1], "padding": padding}
    assert_both_agree("DepthwiseConv2dNative", [x, weights], **attrs)
    ops = ["BiasAdd"] if activation is None else ["BiasAdd", activation]
    fused = {"num_args": 1, "fused_ops": [op.encode() for op in ops]}
    assert_both_agree("_FusedDepthwiseConv2dNative", [x, weights, [random(seed + 2, depth)]], **attrs, **fused)


@needs_loops
@given(SEEDS, st.tuples(SIZES, SIZES), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(1, 80), PADDINGS,
       st.integers(1, 3), st.booleans())  # fmt: skip
def test_max_pool_and_its_gradient_are_those_of_numpy(
    seed: int, image: tuple[int, int], window: tuple[int, int], depth: int, padding: str, stride: int, nan: bool
) -> None:
    if padding == "VALID" and any(n < size for n, size in zip(image, window, strict=True)):
        return
    x = np.round(random(seed, 2, *image, depth))  # with equal numbers
    if nan:
        x[random(seed + 1, *x.shape) > 1] = np.nan
    attrs = {"ksize": [1, *window, 1], "strides": [1, stride, stride, 1], "padding": padding}
    assert_both_agree("MaxPool", [x], exact=True, **attrs)
    pooled = run_op("MaxPool", [x], **attrs)
    assert_both_agree("MaxPoolGrad", [x, pooled, random(seed + 2, *pooled.shape)], **attrs)


@needs_loops
@given(SEEDS, st.integers(1, 3), st.tuples(st.integers(1, 20), st.integers(1, 20)),
       st.tuples(st.integers(1, 4), st.integers(2, 5)), st.integers(8, 90), st.integers(1, 70), PADDINGS,
       st.integers(1, 2), st.integers(1, 2))  # fmt: skip
def test_convolution_and_its_gradients_are_those_of_numpy(
    seed: int, images: int, image: tuple[int, int], window: tuple[int, int], depth: int, filters: int, padding: str,
    stride: int, dilation: int,
) -> None:  # fmt: skip
    reach = [(size - 1) * dilation + 1 for size in window]
    if padding == "VALID" and any(n < r for n, r in zip(image, reach, strict=True)):
        return
    x, weights = random(seed, images, *image, depth), random(seed + 1, *window, depth, filters)
    # Whole numbers, so that no sum is rounded.
    x, weights = np.round(2 * x), np.round(2 * weights)
    attrs = {"strides": [1, stride, stride, 1], "dilations": [1, dilation, dilation, 1], "padding": padding}
    assert_both_agree("Conv2D", [x, weights], exact=True, **attrs)
    grad = np.round(2 * random(seed + 2, *run_op("Conv2D", [x, weights], **attrs).shape))
    sizes = [np.array(array.shape, np.int32) for array in (x, weights)]
    assert_both_agree("Conv2DBackpropInput", [sizes[0], weights, grad], exact=True, **attrs)
    assert_both_agree("Conv2DBackpropFilter", [x, sizes[1], grad], exact=True, **attrs)


@needs_loops
@pytest.mark.parametrize(
    ("shape", "size", "filters"),
    [((3, 64, 60, 32), 3, 16), ((1, 64, 60, 32), 5, 16), ((40, 14, 14, 8), 5, 12), ((70, 2, 2, 16), 2, 8)],
)
def test_gradient_of_the_input_is_made_in_pieces(shape: tuple[int, ...], size: int, filters: int) -> None:
    """Some rows of an image at a time, or several images; threads change nothing."""
    weights = np.round(2 * random(1, size, size, shape[3], filters))
    attrs = {"strides": [1, 2, 2, 1], "padding": "SAME"}
    grad = np.round(2 * random(2, shape[0], -(-shape[1] // 2), -(-shape[2] // 2), filters))
    inputs = [np.array(shape, np.int32), weights, grad]
    assert_both_agree("Conv2DBackpropInput", inputs, exact=True, **attrs)
    helpers = HelperThreads(3)
    try:
        with helpers.for_kernel():
            shared = run_op("Conv2DBackpropInput", inputs, **attrs)
    finally:
        for thread in helpers.close():
            thread.join()
    assert np.array_equal(shared, run_op("Conv2DBackpropInput", inputs, **attrs))


@needs_loops
@given(SEEDS, st.integers(1, 20), st.integers(1, 70), st.sampled_from([1.0, 50.0, np.inf]))
def test_cross_entropies_are_those_of_numpy(seed: int, rows: int, classes: int, scale: float) -> None:
    logits = random(seed, rows, classes)
    if np.isinf(scale):
        logits[random(seed + 3, rows, classes) > 1.5] = -np.inf
    else:
        logits *= np.float32(scale)
    labels = np.abs(random(seed + 1, rows, classes))
    assert_both_agree("SoftmaxCrossEntropyWithLogits", [logits, labels / labels.sum(axis=1, keepdims=True)])
    assert_both_agree("SoftmaxCrossEntropyWithLogits", [logits[:1], labels])
    for dtype in (np.int32, np.int64):
        numbers = np.random.default_rng(seed + 2).integers(0, classes, rows).astype(dtype)
        assert_both_agree("SparseSoftmaxCrossEntropyWithLogits", [logits, numbers])


@needs_loops
def test_error_function_is_that_of_numpy() -> None:
    x = np.concatenate([np.linspace(-6, 6, 5001), [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40]]).astype(np.float32)
    assert_both_agree("Erf", [x])


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 104.0, -104.0, 89.0, -89.0]


@needs_loops
@pytest.mark.parametrize("size", [1, 5001, 200_000])
def test_sigmoid_is_that_of_numpy(size: int) -> None:
    x = np.concatenate([np.linspace(-120, 120, size), SPECIAL]).astype(np.float32)
    assert_both_agree("Sigmoid", [x])
    np.testing.assert_allclose(run_op("Sigmoid", [x]), expit(x.astype(np.float64)), rtol=5e-7, atol=1e-37)


@needs_loops
@pytest.mark.parametrize("size", [1, 5001, 200_000])
def test_tanh_is_that_of_numpy(size: int) -> None:
    small = np.geomspace(1e-44, 1e-2, 2000)
    x = np.concatenate([np.linspace(-12, 12, size), small, -small, SPECIAL]).astype(np.float32)
    assert_both_agree("Tanh", [x])
    got = run_op("Tanh", [x])
    np.testing.assert_allclose(got, np.tanh(x.astype(np.float64)), rtol=6e-7, atol=0)
    assert np.array_equal(np.signbit(got[: -len(SPECIAL)]), np.signbit(x[: -len(SPECIAL)]))


@needs_loops
@pytest.mark.parametrize("op", ["Sigmoid", "Tanh"])
@pytest.mark.parametrize("shape", [(20, 100), (3, 200, 300)])
def test_arrays_with_gaps_have_the_bits_of_others(op: str, shape: tuple[int, ...]) -> None:
    """A gate is one of several columns of a product."""
    x = random(3, *shape[:-1], 2 * shape[-1])[..., : shape[-1]]
    wanted = computed(op, x.copy())
    assert computed(op, x).tobytes() == wanted.tobytes()
    assert computed(op, x.T).T.tobytes() == wanted.tobytes()


@needs_loops
@pytest.mark.parametrize("size", [1, 77, 200_000])
@pytest.mark.parametrize("op", ["SigmoidGrad", "TanhGrad"])
def test_gradients_of_gates_are_those_of_numpy(op: str, size: int) -> None:
    results, slopes = [0.0, -0.0, 1.0, -1.0, 0.5, np.nan], [np.nan, np.inf, -np.inf, 0.0, 2.0, -3e38]
    y = np.concatenate([np.tanh(random(1, size)), np.repeat(results, 6)]).astype(np.float32)
    dy = np.concatenate([random(2, size), np.tile(slopes, 6)]).astype(np.float32)
    assert_both_agree(op, [y, dy])
    with without_loops():
        wanted = computed(op, y[::-1], dy)
    assert computed(op, y[::-1], dy).tobytes() == wanted.tobytes()


@needs_loops
@pytest.mark.parametrize("size", [1, 77, 200_000])
def test_gradient_of_relu_is_that_of_numpy(size: int) -> None:
    some = np.array(SPECIAL, np.float32)
    grad = np.concatenate([random(1, size), np.repeat(some, len(some))])
    x = np.concatenate([random(2, size), np.tile(some, len(some))])
    assert_both_agree("ReluGrad", [grad, x], exact=True)
    assert_both_agree("ReluGrad", [grad, x[::-1]], exact=True)  # not contiguous


@needs_loops
@given(SEEDS, st.integers(1, 30), st.integers(0, 50), st.integers(1, 40))
def test_rows_are_added_in_order(seed: int, of: int, count: int, width: int) -> None:
    index, rows = np.random.default_rng(seed).integers(0, of, count), random(seed, count, width)
    got, wanted = random(seed + 1, of, width), random(seed + 1, of, width)
    accumulate(np.add, got, index, rows)
    with without_loops():
        accumulate(np.add, wanted, index, rows)
    np.testing.assert_array_equal(got, wanted)


SCALARS = {
    "GradientDescent": {"alpha": 0.1},
    "Momentum": {"lr": 0.1, "momentum": 0.9, "use_nesterov": False},
    "Adam": {"beta1_power": 0.5, "beta2_power": 0.9, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6,
             "use_nesterov": False},
    "RMSProp": {"lr": 0.1, "rho": 0.9, "momentum": 0.8, "epsilon": 1e-6},
    "Adagrad": {"lr": 0.1, "update_slots": True},
}  # fmt: skip


@needs_loops
@pytest.mark.parametrize("name", [name for name, optimiser in OPTIMISERS.items() if optimiser.loop])
@pytest.mark.parametrize("flag", [False, True])
def test_update_is_that_of_the_formula(name: str, flag: bool) -> None:
    optimiser = OPTIMISERS[name]
    known = {
        key: flag if isinstance(value, bool) else np.array(value, np.float32) for key, value in SCALARS[name].items()
    }
    grad = random(0, 7, 11)
    got = [np.abs(random(i + 1, 7, 11)) + 0.1 for i in range(1 + len(optimiser.slots))]
    wanted = [array.copy() for array in got]
    optimiser.update(np, *got, grad=grad, **known)
    optimiser.formula(np, *wanted, grad=grad, **known)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, **NEAR)


@needs_loops
def test_update_of_an_array_that_is_no_row_of_memory_takes_the_formula() -> None:
    var, grad = np.zeros((4, 4), np.float32), random(0, 4, 4)
    OPTIMISERS["GradientDescent"].update(np, var.T, grad=grad, alpha=np.float32(1))
    np.testing.assert_array_equal(var, -grad.T)


@needs_loops
@given(SEEDS, st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 5)), st.integers(1, 70), st.booleans())
def test_batch_normalisation_is_that_of_numpy(
    seed: int, shape: tuple[int, int, int], channels: int, training: bool
) -> None:
    x, grad = 3 * random(seed, *shape, channels) + np.float32(5), random(seed + 1, *shape, channels)
    scale, offset, mean, variance = random(seed + 2, 4, channels)
    variance = np.abs(variance) + np.float32(0.5)
    attrs: dict[str, Any] = {"is_training": training, "epsilon": 0.01}
    assert_both_agree("FusedBatchNormV3", [x, scale, offset, mean, variance], **attrs)
    if training:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2)) + np.float32(0.1)
    reserved = np.zeros((), np.float32)
    assert_both_agree("FusedBatchNormGradV3", [grad, x, scale, mean, variance, reserved], **attrs)


@needs_loops
def test_variance_of_numbers_far_from_zero_is_exact() -> None:
    x = random(0, 4, 50, 50, 3) + np.float32([1e4, -1e5, 0])
    nothing = np.zeros(0, np.float32)
    ones = np.ones(3, np.float32)
    y, mean, _, _, variance, _ = run_op("FusedBatchNormV3", [x, ones, 0 * ones, nothing, nothing], epsilon=1e-3)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean((0, 1, 2)), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(variance, exact.var((0, 1, 2)), rtol=1e-5)
    wanted = (exact - exact.mean((0, 1, 2))) / np.sqrt(exact.var((0, 1, 2)) + 1e-3)
    np.testing.assert_allclose(y, wanted, atol=1e-2)  # the mean itself has a rounding of 0.004


@needs_loops
@given(SEEDS, st.integers(512, 200_000), st.sampled_from(["f", "i", "d", "q", "F"]), st.sampled_from([0, 1, 2, 3]))
def test_choice_has_the_bits_of_numpy(seed: int, size: int, kind: str, single: int) -> None:
    rng = np.random.default_rng(seed)
    condition = rng.random(size) < 0.5
    words = rng.integers(0, 2**63, (2, size), np.uint64)
    one, other = (row.astype(np.uint32).view(kind) if np.dtype(kind).itemsize == 4 else row.view(kind) for row in words)
    one, other = (one[0:1].reshape(()) if single & 1 else one), (other[0:1].reshape(()) if single & 2 else other)
    got = choose(condition, one, other)
    wanted = np.where(condition, one, other)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert got.tobytes() == wanted.tobytes()


@needs_loops
@pytest.mark.parametrize("bad", [(6, 3, 1, 0), (-1, 4, 1, 0), (7, 4, 1, 0), (2**62, 4, 1, 0)])
def test_choice_refuses_sizes_that_are_wrong(bad: tuple[int, ...]) -> None:
    mask, one, other, out = made(CALLS["choose"])[:4]
    with pytest.raises(ValueError, match="bytes"):
        native.loops.choose(mask, one, other, out, *bad)  # type: ignore[union-attr]


@needs_loops
@given(SEEDS, st.tuples(SIZES, SIZES), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(1, 40), PADDINGS,
       st.integers(1, 3), st.integers(1, 2))  # fmt: skip
def test_gradients_of_depthwise_convolution_are_those_of_numpy(
    seed: int, image: tuple[int, int], window: tuple[int, int], depth: int, padding: str, stride: int, dilation: int
) -> None:
    x, weights = random(seed, 3, *image, depth), random(seed + 1, *window, depth, 1)
    attrs: dict[str, Any] = {
        "strides": [1, stride, stride, 1],
        "padding": padding,
        "dilations": [1, dilation, dilation, 1],
    }
    if padding == "VALID":
        assume(all(n > (k - 1) * dilation for n, k in zip(image, window, strict=True)))
    assume(stride == 1 or dilation == 1)
    grad = random(seed + 2, *run_op("DepthwiseConv2dNative", [x, weights], **attrs).shape)
    sizes = [np.array(array.shape, np.int32) for array in (x, weights)]
    assert_both_agree("DepthwiseConv2dNativeBackpropFilter", [x, sizes[1], grad], **attrs)
    assert_both_agree("DepthwiseConv2dNativeBackpropInput", [sizes[0], weights, grad], **attrs)


# One call of each loop, with the sizes that it needs: windows over 4 x 5 pixels of 3 channels, 2 x 2 taps, stride 1.
WINDOWS = (4, 5, 2, 2, 1, 1, 1, 1, 4, 0, 0)
SCRATCH = ("f", getattr(native.loops, "WINDOW_SCRATCH", 0))
# Two images of 5 x 6 pixels and 3 channels, to 5 filters; each has two rows of two tiles.
TILES = (2, 5, 6, 3, 5, 6, 5, 1, 1, 6)
TILES_SCRATCH = ("f", native.loops.winograd_scratch(TILES, 3) if native.loops else 0)
CALLS: dict[str, tuple[Any, ...]] = {
    "erfs": (("f", 6), ("f", 6)),
    "sigmoids": (("f", 6), ("f", 6)),
    "tanhs": (("f", 6), ("f", 6)),
    "sigmoid_grads": (("f", 6), ("f", 6), ("f", 6)),
    "tanh_grads": (("f", 6), ("f", 6), ("f", 6)),
    "relu_grads": (("f", 6), ("f", 6), ("f", 6)),
    "relu6_grads": (("f", 6), ("f", 6), ("f", 6)),
    "choose": (("?", 6), ("f", 6), ("f", 6), ("f", 6), 6, 4, 1, 1),
    "finish": (("f", 6), ("f", 3), ("f", 6), 2, 3, 0.0, 6.0),
    "centred_sums": (("f", 6), ("f", 6), ("f", 3), ("d", 6), 2, 3),
    "normalise": (("f", 6), ("f", 6), ("f", 12), ("f", 6), 2, 3),
    "depthwise": (("f", 60), ("f", 12), ("f", 36), WINDOWS, 3, 0, 3),
    "depthwise_gradient": (("f", 60), ("f", 36), ("f", 12), WINDOWS, 3, 0, 3),
    "convolve": (("f", 60), ("f", 60), ("f", 60), SCRATCH, WINDOWS, 3, 5, 0, 3),
    "filter_gradient": (("f", 60), ("f", 60), ("f", 60), SCRATCH, WINDOWS, 3, 5, 0, 3),
    "add_windows": (("f", 144), ("f", 60), WINDOWS, 3, 0, 3),
    "winograd": (("f", 180), ("f", 540), ("f", 300), TILES_SCRATCH, ("f", 36), ("f", 24), TILES, 1, 3),
    "winograd_gradient": (("f", 180), ("f", 300), ("f", 540), TILES_SCRATCH, ("f", 36), ("f", 24), TILES, 1, 3),
    "max_pool": (("f", 60), ("f", 36), WINDOWS, 3, 0, 3),
    "max_pool_grad": (("f", 60), ("f", 36), ("f", 60), WINDOWS, 3, 0, 3),
    "cross_entropy": (("f", 6), ("f", 6), ("f", 2), ("f", 6), 2, 3),
    "sparse_cross_entropy": (("f", 6), ("q", 2), ("f", 2), ("f", 6), 2, 3),
    "add_rows": (("f", 12), ("q", 2), ("f", 6), 4, 2, 3),
    "philox": (("I", 8), ("Q", 2), 1, 2, 3, 2),
    "gradient_descent": (("f", 6), ("f", 6), 0.1),
    "momentum": (("f", 6), ("f", 6), ("f", 6), 0.1, 0.9, False),
    "adam": (("f", 6), ("f", 6), ("f", 6), ("f", 6), 0.1, 0.1, 0.1, 0.1),
    "rms_prop": (("f", 6), ("f", 6), ("f", 6), ("f", 6), 0.1, 0.1, 0.1, 0.1),
    "adagrad": (("f", 6), ("f", 6), ("f", 6), 0.1),
    "lstm": (("f", 48), ("f", 16), ("f", 6), ("f", 6), ("f", 12), ("f", 24), 2, 3, 2, 1.0, (0, 1, 2, 3)),
    "gru": (("f", 24), ("f", 12), ("f", 8), ("f", 4), ("f", 6), ("f", 12), ("f", 24), 2, 3, 2),
}


def made(arguments: tuple[Any, ...], short: int | None = None) -> list[Any]:
    """The arguments, with arrays made; the one in place `short` lacks its last element."""
    return [
        np.zeros(a[1] - (i == short), a[0]) if isinstance(a, tuple) and isinstance(a[0], str) else a
        for i, a in enumerate(arguments)
    ]


@needs_loops
@pytest.mark.parametrize("name", CALLS)
def test_loop_refuses_arrays_of_another_size(name: str) -> None:
    loop, arguments = getattr(native.loops, name), CALLS[name]
    loop(*made(arguments))
    arrays = [i for i, a in enumerate(arguments) if isinstance(a, tuple) and isinstance(a[0], str)]
    for short in arrays:
        with pytest.raises(ValueError, match="bytes"):
            loop(*made(arguments, short))
    for at in arrays:
        wrong = made(arguments)
        wrong[at] = np.zeros((arguments[at][1], 2), arguments[at][0])[:, 0]
        with pytest.raises((ValueError, BufferError)):
            loop(*wrong)


@needs_loops
@pytest.mark.parametrize("order", [(0, 1, 2, 4), (-1, 1, 2, 3), (0, 1, 2)])
def test_lstm_refuses_gates_that_are_not_there(order: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        native.loops.lstm(*made(CALLS["lstm"])[:-1], order)  # type: ignore[union-attr]


@needs_loops
def test_loops_have_all_a_call_in_these_tests() -> None:
    loops = {name for name in dir(native.loops) if callable(getattr(native.loops, name)) and name[0] != "_"}
    assert loops == {*CALLS, "gelu", "winograd_scratch"}


@needs_loops
@pytest.mark.parametrize("at", range(len(WINDOWS)))
@pytest.mark.parametrize("value", [-(2**62), -1, 0, 2**31, 2**62])
def test_windows_beyond_the_image_are_refused_or_stay_inside(at: int, value: int) -> None:
    windows = tuple(value if i == at else number for i, number in enumerate(WINDOWS))
    image, out = np.zeros(60, np.float32), np.zeros(36, np.float32)
    try:
        native.loops.max_pool(image, out, windows, 3, 0, 3)  # type: ignore[union-attr]
    except ValueError:
        return
    assert set(out.tolist()) <= {0.0, float(np.finfo(np.float32).min)}


@needs_loops
@pytest.mark.parametrize("at", range(len(TILES) + 2))
@pytest.mark.parametrize("value", [-(2**62), -1, 2**29, 2**31, 2**62])
def test_tiles_beyond_the_images_are_refused(at: int, value: int) -> None:
    *arrays, sizes, row, rows = made(CALLS["winograd"])
    numbers = [*sizes, row, rows]
    numbers[at] = value
    with pytest.raises(ValueError):
        native.loops.winograd(*arrays, tuple(numbers[: len(TILES)]), *numbers[len(TILES) :])  # type: ignore[union-attr]


@needs_loops
@pytest.mark.parametrize("index", [-1, 4])
def test_index_out_of_bounds_is_refused(index: int) -> None:
    assert native.loops is not None
    rows, bad = np.zeros(6, np.float32), np.array([0, index])
    with pytest.raises(IndexError):
        native.loops.add_rows(np.zeros(12, np.float32), bad, rows, 4, 2, 3)
    with pytest.raises(IndexError):
        native.loops.sparse_cross_entropy(np.zeros(8, np.float32), bad, rows[:2], np.zeros(8, np.float32), 2, 4)


@needs_loops
@pytest.mark.parametrize("counter", [0, 5, 2**64 - 3, 2**96 + 2**64 - 1, 2**128 - 2], ids=hex)
@pytest.mark.parametrize("blocks", [0, 1, 31, 32, 33, 100])
def test_random_words_are_those_of_numpy(counter: int, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the counter passes the end of its lower half, and of all its bits."""
    generator = Philox(0x123456789ABCDEF0, counter)
    places = np.arange(blocks, dtype=np.uint64)[::-1] * np.uint64(2**60)
    found = [generator.words(3, blocks), generator.words_at(places), Philox(2**64 - 1, counter).words(0, blocks)]
    monkeypatch.setattr(native, "loops", None)
    wanted = [generator.words(3, blocks), generator.words_at(places), Philox(2**64 - 1, counter).words(0, blocks)]
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(one, other)


def test_extension_of_another_revision_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout whose sources were changed, and that was not installed again."""
    old = ModuleType("aexec.native._loops")
    monkeypatch.setitem(sys.modules, "aexec.native._loops", old)
    with pytest.warns(RuntimeWarning, match="install aexec again"):
        assert native._found("_loops") is None
    old.REVISION = native._REVISIONS["_loops"]  # type: ignore[attr-defined]
    assert native._found("_loops") is old
    monkeypatch.setenv("AEXEC_NATIVE", "0")
    assert native._found("_loops") is None


@needs_loops
def test_sources_have_the_revision_that_is_needed() -> None:
    assert native.loops is not None and native._REVISIONS["_loops"] == native.loops.REVISION
