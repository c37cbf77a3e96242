"""What `nn` has besides windows: values, gradients and names of TensorFlow; and whether anything is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import nn, ops
from aexec.autodiff.aggregation import as_dense
from aexec.framework import errors
from tests.support.marks import mark

# Of TensorFlow 2.21, in graph mode: names, values, and what stands for the gradient of each input.
RECORDED = json.loads((Path(__file__).parent / "data" / "functions.json").read_text())

_rng = np.random.default_rng(9)


def _normal(*shape: int) -> Any:
    return _rng.standard_normal(shape).astype(np.float32)


ROWS, WEIGHTS, BIASES = _normal(4, 3), _normal(3, 2), _normal(2)
IMAGES = _normal(2, 3, 4, 6)
TABLE = _normal(6, 2)
COUNTS = np.array([[0, 1, 2], [3, 0.5, 4]], np.float32)
LOGS = _normal(2, 3)
FREQUENCIES = np.array([[1.0], [0.0], [2.0], [0.5]], np.float32)
SHARES = np.array([0.2, 0.9, 0.4, 1.5, 0.3], np.float32)
LOGITS = _normal(6, 3, 5)
LENGTHS = np.array([6, 4, 5], np.int32)
PATHS = np.array([[1, 1, 2, 2, 1], [3, 3, 3, 4, 4], [5, 6, 7, 8, 9]], np.int64)


def sparse(indices: Any, values: Any, shape: Any) -> aexec.SparseTensor[Any]:
    kinds = np.int64, None, np.int64
    made = [aexec.constant(np.array(part, kind)) for part, kind in zip((indices, values, shape), kinds, strict=True)]
    return aexec.SparseTensor(*made)


def ids() -> aexec.SparseTensor[Any]:
    return sparse([[0, 0], [0, 2], [1, 0], [2, 1], [2, 2]], np.array([1, 3, 3, 0, 5]), [3, 4])


def of_ids(values: Any) -> aexec.SparseTensor[Any]:
    return ids()._replace(values=values)


def some_ids() -> aexec.SparseTensor[Any]:
    places = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0], [1, 1, 2]]
    return sparse(places, np.array([1, 3, -1, 0, 5]), [2, 2, 3])


def labels() -> aexec.SparseTensor[Any]:
    places = [[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [2, 1]]
    return sparse(places, np.array([1, 1, 2, 3, 0, 2], np.int32), [3, 3])


def parts(table: Any) -> list[Any]:
    return [table[0:2], table[2:4], table[4:5], table[5:6]]


class Saver:
    """Keeps states in the graph, for one run."""

    def __init__(self) -> None:
        self.saved: list[Any] = []

    def state(self, name: str) -> Any:
        return aexec.constant(np.full((4, 2), 0.1 if name == "one" else 0.2, np.float32))

    def save_state(self, name: str, value: Any) -> Any:
        self.saved.append(aexec.identity(value, name=f"saved_{name}"))
        return self.saved[-1]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "xw_plus_b": (nn.xw_plus_b, (ROWS, WEIGHTS, BIASES)),
    "relu_layer": (nn.relu_layer, (ROWS, WEIGHTS, BIASES)),
    "silu": (nn.silu, (ROWS,)),
    "poisson": (lambda x, z: nn.log_poisson_loss(z, x), (LOGS, COUNTS)),
    "poisson in full": (lambda x: nn.log_poisson_loss(COUNTS, x, compute_full_loss=True), (LOGS,)),
    "lrn": (lambda x: nn.local_response_normalization(x, depth_radius=2, bias=1.5, alpha=0.5, beta=0.7), (IMAGES,)),
    "global batch norm": (
        lambda t, m, v, b, g: nn.batch_norm_with_global_normalization(t, m, v, b, g, 1e-3, True),
        (IMAGES[..., :2], BIASES, BIASES**2, BIASES, BIASES),
    ),
    "space to depth": (lambda x: nn.space_to_depth(x[:, :2], 2), (IMAGES,)),
    "depth to space": (lambda x: nn.depth_to_space(x[..., :4], 2), (IMAGES,)),
    "space to batch": (lambda x: nn.space_to_batch(x, [1, 2], [[0, 0], [1, 1]]), (IMAGES,)),
    "sums": (lambda x: list(nn.sufficient_statistics(x, [0, 2])[:3]), (IMAGES,)),
    "shifted sums": (lambda x: list(nn.sufficient_statistics(x, [0], shift=0.5, keep_dims=True)), (ROWS,)),
    "of sums": (lambda m, v: list(nn.normalize_moments(4.0, m, v, 0.5)), (BIASES, BIASES**2)),
    "weighted": (lambda x, w: list(nn.weighted_moments(x, [0], w)), (ROWS, FREQUENCIES)),
    "zeros": (nn.zero_fraction, (np.maximum(ROWS, 0),)),
    "largest": (lambda x: nn.top_k(x, 2)[0], (ROWS,)),
    "falling": (lambda x: nn.isotonic_regression(x)[0], (LOGS,)),
    "rising": (lambda x: nn.isotonic_regression(x, decreasing=False, axis=0)[0], (ROWS,)),
    "sparse mean": (lambda t: nn.embedding_lookup_sparse(t, ids(), None), (TABLE,)),
    "sparse sum": (lambda t: nn.embedding_lookup_sparse(t, ids(), None, combiner="sum", max_norm=0.8), (TABLE,)),
    "sparse root": (lambda t: nn.embedding_lookup_sparse(t, ids(), None, combiner="sqrtn"), (TABLE,)),
    **{
        f"weighted {how}": (
            lambda t, w, how=how: nn.embedding_lookup_sparse(t, ids(), of_ids(w), combiner=how),
            (TABLE, SHARES),
        )
        for how in ("mean", "sum", "sqrtn")
    },
    "sparse of parts": (lambda t: nn.embedding_lookup_sparse(parts(t), ids(), None, "div"), (TABLE,)),
    "safe": (lambda t: nn.safe_embedding_lookup_sparse(t, some_ids()), (TABLE,)),
    "safe, with a default": (
        lambda t, w: nn.safe_embedding_lookup_sparse(
            t, some_ids(), some_ids()._replace(values=w), combiner="sqrtn", default_id=2
        ),
        (TABLE, SHARES - 0.25),
    ),
    "ctc": (lambda x: nn.ctc_loss(labels(), x, LENGTHS), (LOGITS,)),
    "ctc by batch": (
        lambda x: nn.ctc_loss(labels(), x, LENGTHS[:3], time_major=False, ctc_merge_repeated=False),
        (LOGITS.transpose(1, 0, 2),),
    ),
    "ctc, another blank": (
        lambda x: nn.ctc_loss(labels()._replace(values=labels().values + 1), x, LENGTHS, blank_index=0),
        (LOGITS,),
    ),
    "ctc greedy": (lambda x: nn.ctc_greedy_decoder(x, LENGTHS)[1], (LOGITS,)),
}


def test_every_recorded_case_is_compared() -> None:
    assert [name for name in RECORDED if name not in OTHERS] == list(CASES)


@pytest.mark.parametrize("name", CASES)
async def test_functions_agree_with_tensorflow(name: str) -> None:
    build, arguments = CASES[name]
    recorded = RECORDED[name]
    with aexec.Graph() as graph:
        xs = [aexec.placeholder("float32", value.shape) for value in arguments]
        made = build(*xs)
        made = made if isinstance(made, list) else [made]
        losses = [ops.sum(ops.sin(y), list(range(y.shape.rank))) for y in made]
        slopes = aexec.gradients(ops.add_n(losses), xs)
        kept = [as_dense(slope) for slope in slopes if slope is not None]
    async with aexec.Session(graph) as session:
        values, gradients = await session.run([made, kept], dict(zip(xs, arguments, strict=True)))
    assert [list(value.shape) for value in values] == recorded["shapes"]
    for value, expected in zip(values, recorded["values"], strict=True):
        np.testing.assert_allclose(value.ravel(), expected, rtol=1e-4, atol=1e-5)
    assert [slope is not None for slope in slopes] == [slope is not None for slope in recorded["slopes"]]
    expected_slopes = [slope for slope in recorded["slopes"] if slope is not None]
    np.testing.assert_allclose([mark(slope) for slope in gradients], expected_slopes, rtol=1e-3, atol=1e-4)


# Those without gradients: as recorded, in one list of numbers.
OTHERS: dict[str, Callable[[], list[Any]]] = {
    "in top": lambda: [nn.in_top_k(ROWS, np.array([0, 1, 2, 1], np.int32), 2)],
    "where largest": lambda: [nn.top_k(ROWS, 2)[1]],
    "segments": lambda: [nn.isotonic_regression(SHARES)[1]],
    "collapsed": lambda: list(nn.collapse_repeated(PATHS, np.array([5, 4, 3], np.int64))),
    "unique labels": lambda: list(nn.ctc_unique_labels(PATHS)),
    "greedy": lambda: list(nn.ctc_greedy_decoder(LOGITS, LENGTHS)[0][0]),
    "greedy, another blank": lambda: list(
        nn.ctc_greedy_decoder(LOGITS, LENGTHS, merge_repeated=False, blank_index=0)[0][0]
    ),
    "beam": lambda: [
        *nn.ctc_beam_search_decoder(LOGITS, LENGTHS, beam_width=10, top_paths=2)[0][1],
        nn.ctc_beam_search_decoder(LOGITS, LENGTHS, beam_width=10, top_paths=2)[1],
    ],
    "uniform": lambda: list(nn.uniform_candidate_sampler([[1, 2]], 2, 3, True, 9, seed=4)),
    "learned": lambda: list(nn.learned_unigram_candidate_sampler([[1, 2]], 2, 3, False, 9, seed=4)),
    "fixed": lambda: list(
        nn.fixed_unigram_candidate_sampler([[1, 2]], 2, 3, True, 4, unigrams=[1.0, 2.0, 3.0, 4.0], seed=4)
    ),
    "all": lambda: list(nn.all_candidate_sampler([[1, 2]], 2, 3, True, seed=4)),
    "hits": lambda: list(nn.compute_accidental_hits([[1, 2]], [2, 7, 1], 2)),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_functions_without_gradients_agree_with_tensorflow(name: str) -> None:
    with aexec.Graph() as graph:
        made = OTHERS[name]()
    async with aexec.Session(graph) as session:
        found = await session.run(made)
    for value, expected in zip(found, RECORDED[name], strict=True):
        np.testing.assert_allclose(np.ravel(value).astype(np.float64), expected, rtol=1e-5)


def emitting(cell: Any, steps: int) -> Callable[..., Any]:
    """A loop function that feeds a cell its own outputs; the how-manieth example stops after so many moments more."""

    def loop(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        finished = ops.greater_equal(time + ops.range(0, 4, 1), steps)
        if output is None:
            return finished, aexec.constant(ROWS[:, :2]), cell.zero_state(4, "float32"), None, aexec.constant(0)
        return finished, output, state, output, loop_state + 2

    return loop


RECURRENT: dict[str, Callable[[], Any]] = {}


def recurrent(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(build: Callable[[], Any]) -> Callable[[], Any]:
        RECURRENT[name] = build
        return build

    return register


@recurrent("raw")
def _raw() -> Any:
    cell = nn.GRUCell(2)
    emitted, state, loop_state = nn.raw_rnn(cell, emitting(cell, 5))
    return [emitted.stack(), state, ops.cast(loop_state, DstT="float32")]


@recurrent("static both ways")
def _both() -> Any:
    steps = [aexec.constant(LOGITS[at]) for at in range(4)]
    cells = nn.BasicLSTMCell(2), nn.GRUCell(3)
    outputs, one, other = nn.static_bidirectional_rnn(
        *cells, steps, dtype="float32", sequence_length=np.array([4, 2, 3])
    )
    return [*outputs, *one, other]


@recurrent("state saving")
def _saving() -> Any:
    saver = Saver()
    cell = nn.DeviceWrapper(nn.BasicLSTMCell(2), "/device:CPU:0")
    outputs, state = nn.static_state_saving_rnn(cell, [aexec.constant(ROWS)] * 2, saver, ("one", "other"))
    return [*outputs, *state, *saver.saved]


OTHERS_OF_NETWORKS = json.loads((Path(__file__).parent / "data" / "raw_networks.json").read_text())


@pytest.mark.parametrize("name", RECURRENT)
async def test_networks_that_are_not_usual(name: str) -> None:
    recorded = OTHERS_OF_NETWORKS[name]
    with aexec.Graph() as graph:
        aexec.set_random_seed(5)
        made = RECURRENT[name]()
        variables = aexec.trainable_variables()
        loss = ops.add_n([ops.sum(ops.sin(ops.reshape(y, [-1])), [0]) for y in made])
        slopes = aexec.gradients(loss, variables)
        init = aexec.global_variables_initializer()
    assert {variable.name: list(variable.shape) for variable in variables} == recorded["variables"]
    async with aexec.Session(graph) as session:
        await session.run(init)
        values, gradients = await session.run([made, slopes])
    for value, expected in zip(values, recorded["values"], strict=True):
        np.testing.assert_allclose(np.ravel(value), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose([mark(slope) for slope in gradients], recorded["slopes"], rtol=1e-3, atol=1e-5)


# Names of TensorFlow's module that there are not here, and why.
ABSENT = {
    **dict.fromkeys(
        ["fractional_avg_pool", "fractional_max_pool", "approx_max_k", "approx_min_k"], "there is no kernel of its op"
    ),
    **dict.fromkeys(
        ["quantized_avg_pool", "quantized_conv2d", "quantized_max_pool", "quantized_relu_x"],
        "there is no kernel of its op: quantized models are computed in floats",
    ),
    **dict.fromkeys(["compute_average_loss", "scale_regularization_loss"], "of distribution strategies"),
    **dict.fromkeys(["experimental", "rnn_cell"], "a module; the cells are in `nn` itself"),
    "avg_pool_v2": "`avg_pool`",
    "avg_pool2d": "`avg_pool`",
    "max_pool_v2": "`max_pool`",
    "max_pool2d": "`max_pool`",
    "conv3d_backprop_filter_v2": "`conv3d_backprop_filter`",
    "ctc_beam_search_decoder_v2": "`ctc_beam_search_decoder`",
    "ctc_loss_v2": "`ctc_loss` with `blank_index`",
    "depthwise_conv2d_native": "`depthwise_conv2d`",
    "depthwise_conv2d_native_backprop_filter": "`depthwise_conv2d_backprop_filter`",
    "depthwise_conv2d_native_backprop_input": "`depthwise_conv2d_backprop_input`",
    "lrn": "`local_response_normalization`",
    "softmax_cross_entropy_with_logits_v2": "`softmax_cross_entropy_with_logits`",
}


def test_names_missing_from_nn_are_the_listed_ones() -> None:
    names = (Path(__file__).parent / "data" / "names.txt").read_text().split()
    missing = [name for name in names if not hasattr(nn, name)]
    print(f"tf.compat.v1.nn has {len(names)} names; not in aexec.nn: {', '.join(missing)}")
    assert missing == sorted(ABSENT)


def test_invalid_arguments_are_refused() -> None:
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("combiner must be one of", lambda: nn.embedding_lookup_sparse(TABLE, ids(), None, combiner="max")),  # type: ignore[arg-type]
        ("must have the same shape", lambda: nn.log_poisson_loss(COUNTS, ROWS)),
        (
            "state_name has 1 names, and the state of the cell 2 parts",
            lambda: nn.static_state_saving_rnn(nn.BasicLSTMCell(2), [ROWS], Saver(), ("one",)),
        ),
        (
            "last dimension of query must be known",
            lambda: nn.dot_product_attention(aexec.placeholder("float32", [2, None]), ROWS, ROWS),
        ),
    ]
    for message, build in refused:
        with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match=message):
            build()
