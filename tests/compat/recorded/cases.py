"""Cases that TensorFlow and `aexec.compat.v1` build with the same code: a name, and a function of the module `tf`.

TensorFlow's values are in `data/values.json`; `record.py` writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.compat.recorded.distribution_cases import CASES as DISTRIBUTIONS
from tests.compat.recorded.metric_cases import CASES as METRICS
from tests.compat.recorded.names_cases import CASES as NAMES
from tests.compat.recorded.numeric_cases import CASES as NUMERIC
from tests.compat.recorded.operator_cases import CASES as OPERATORS
from tests.compat.recorded.rare_cases import CASES as RARE
from tests.compat.recorded.sparse_cases import CASES as SPARSE
from tests.compat.recorded.sparse_cases import parts as _parts
from tests.compat.recorded.text_cases import CASES as TEXT
from tests.compat.recorded.training_cases import CASES as TRAINING

__all__ = ["CASES"]

_rng = np.random.RandomState(3)
A = _rng.randn(3, 4).astype(np.float32)
B = _rng.randn(4, 2).astype(np.float32)
C = _rng.randn(2, 3, 4).astype(np.float32)
D = _rng.rand(2, 6, 6, 3).astype(np.float32)
S = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)
I = np.array([[3, 1, 2], [0, 5, 1]], np.int32)  # noqa: E741
BYTES = (D * 255).astype(np.uint8)
IDS = np.array([0, 2, 2, 1], np.int32)
WORDS = np.array([b"a b", b"c", b"d e f"], object)
MASK = np.array([[True, False, True, True], [False, False, True, False], [True, True, True, True]])

CASES: dict[str, Callable[[Any], Any]] = {
    # Shapes
    "boolean_mask": lambda tf: tf.boolean_mask(A, MASK),
    "boolean_mask of rows": lambda tf: tf.boolean_mask(C, [True, False], axis=0),
    "cast": lambda tf: tf.cast(A, tf.int32),
    "to_float": lambda tf: tf.to_float(I),
    "concat": lambda tf: tf.concat([A, A], axis=1),
    "expand_dims": lambda tf: tf.expand_dims(A, dim=1),
    "eye": lambda tf: tf.eye(2, 3, batch_shape=[2]),
    "gather": lambda tf: tf.gather(A, [2, 0], axis=1),
    "gather in batches": lambda tf: tf.gather(C, [[0, 2], [1, 1]], batch_dims=1),
    "batch_gather": lambda tf: tf.batch_gather(C, [[0, 2], [1, 1]]),
    "gather_nd": lambda tf: tf.gather_nd(A, [[0, 1], [2, 3]]),
    "linspace": lambda tf: tf.linspace(0.0, 1.0, 5),
    "meshgrid": lambda tf: tf.meshgrid([1, 2, 3], [4, 5]),
    "meshgrid by index": lambda tf: tf.meshgrid([1, 2, 3], [4, 5], indexing="ij"),
    "one_hot": lambda tf: tf.one_hot(IDS, 3),
    "one_hot of ints": lambda tf: tf.one_hot(IDS, 3, on_value=5, off_value=-1, axis=0),
    "pad": lambda tf: tf.pad(A, [[1, 0], [0, 2]], constant_values=7),
    "pad reflected": lambda tf: tf.pad(A, [[1, 0], [0, 2]], "REFLECT"),
    "range": lambda tf: [tf.range(5), tf.range(1, 2, 0.25), tf.range(10, 0, -3)],
    "repeat": lambda tf: tf.repeat(A, 2, axis=1),
    "reverse": lambda tf: tf.reverse(A, axis=[1]),
    "reverse_sequence": lambda tf: tf.reverse_sequence(A, [2, 4, 1], seq_axis=1, batch_axis=0),
    "scatter_nd": lambda tf: tf.scatter_nd([[1], [3]], [5.0, 6.0], [5]),
    "sequence_mask": lambda tf: [tf.sequence_mask([1, 3]), tf.sequence_mask([1, 3], 5, tf.float32)],
    "shape": lambda tf: [tf.shape(A), tf.shape(A, out_type=tf.int64), tf.size(A), tf.rank(A)],
    "lists with tensors in them": lambda tf: [
        tf.reshape(A, [tf.size(A), 1]),
        tf.stack([[1, tf.constant(2)], [3, 4]]),
        tf.reduce_sum([tf.constant(1.0), 2.0]),
        tf.zeros([tf.constant(2), 3]),
    ],
    "rows as a whole": lambda tf: tf.reduce_sum(
        tf.gradients(tf.gather(v := tf.get_variable("v", initializer=A), [1, 1]), v)[0], 1
    ),
    "strided_slice": lambda tf: [tf.strided_slice(A, [0, 1], [2, 3]), tf.strided_slice(A, [2], [0], [-1])],
    "slice": lambda tf: tf.slice(A, [1, 0], [-1, 2]),
    "split": lambda tf: tf.split(A, 2, axis=1),
    "split by sizes": lambda tf: tf.split(A, [1, 3], 1),
    "squeeze": lambda tf: tf.squeeze(A[None], axis=0),
    "stack": lambda tf: tf.stack([A, A], axis=1),
    "unstack": lambda tf: tf.unstack(A, axis=1),
    "tile": lambda tf: tf.tile(A, [1, 2]),
    "transpose": lambda tf: [tf.transpose(A), tf.transpose(C, [1, 0, 2])],
    "unique": lambda tf: list(tf.unique(IDS)),
    "unique_with_counts": lambda tf: list(tf.unique_with_counts(IDS)),
    "where": lambda tf: [tf.where(MASK), tf.where(MASK, A, -A)],
    "zeros_like": lambda tf: [tf.zeros_like(A, dtype=tf.int32), tf.ones_like(I)],
    "slicing": lambda tf: [tf.constant(A)[1:, ::2], tf.constant(A)[..., None], tf.constant(C)[-1]],
    "dynamic_partition": lambda tf: tf.dynamic_partition(A, [0, 1, 0], 2),
    # Arithmetic
    "operators": lambda tf: tf.constant(A) * 2 - 1 / (tf.abs(A) + 1) + A**2,
    "add and subtract": lambda tf: [tf.add(A, 1), tf.subtract(A, 1), tf.multiply(A, 2), tf.negative(A)],
    "divide": lambda tf: [tf.divide(7, 2), tf.div(7, 2), tf.div(-7.0, 2.0), tf.floordiv(-7, 2), tf.mod(-7, 3)],
    "truediv": lambda tf: tf.truediv(I, 2),
    "pow": lambda tf: tf.pow(A, 3),
    "functions": lambda tf: [tf.exp(A), tf.log1p(tf.abs(A)), tf.sqrt(tf.square(A)), tf.sign(A), tf.round(A)],
    "more functions": lambda tf: [tf.erf(A), tf.lgamma(tf.abs(A)), tf.sigmoid(A), tf.tanh(A), tf.floor(A), tf.ceil(A)],
    "comparisons": lambda tf: [tf.equal(I, 1), tf.not_equal(I, 1), tf.less(A, 0), tf.greater_equal(A, 0.5)],
    "logic": lambda tf: [tf.logical_and(MASK, True), tf.logical_xor(MASK, True), tf.logical_not(MASK)],
    "matmul": lambda tf: [tf.matmul(A, B), tf.matmul(A, A, transpose_b=True), tf.matmul(A, A, adjoint_a=True)],
    "matmul of many": lambda tf: tf.matmul(C, C, transpose_b=True),
    "tensordot": lambda tf: [tf.tensordot(C, B, 1), tf.tensordot(C, C, [[0, 1], [0, 1]])],
    "einsum": lambda tf: tf.einsum("bij,jk->bik", C, B),
    "add_n": lambda tf: [tf.add_n([A, A, A]), tf.accumulate_n([A, A])],
    "argmax": lambda tf: [tf.argmax(A), tf.argmax(A, 1), tf.argmin(A, axis=1, output_type=tf.int32)],
    "reduce": lambda tf: [
        tf.reduce_sum(C),
        tf.reduce_mean(C, 1),
        tf.reduce_max(C, axis=[0, 2], keepdims=True),
        tf.reduce_min(C, reduction_indices=[1]),
        tf.reduce_prod(C, -1, keep_dims=True),
    ],
    "reduce of bools": lambda tf: [tf.reduce_all(MASK, 1), tf.reduce_any(MASK, 0)],
    "reduce_logsumexp": lambda tf: [tf.reduce_logsumexp(A), tf.reduce_logsumexp(A, 1, keepdims=True)],
    "variance": lambda tf: [tf.math.reduce_variance(A), tf.math.reduce_std(A, 1)],
    "count_nonzero": lambda tf: tf.count_nonzero(I, 1),
    "cumsum": lambda tf: [tf.cumsum(A, 1, exclusive=True), tf.cumprod(A, reverse=True)],
    "norm": lambda tf: [tf.norm(A), tf.norm(A, 1, axis=1), tf.norm(A, np.inf, axis=0), tf.norm(A, 3, axis=1)],
    "segments": lambda tf: [tf.segment_sum(A, [0, 0, 1]), tf.unsorted_segment_max(A, [1, 0, 1], 2)],
    "sorting": lambda tf: [
        tf.sort(A),
        tf.sort(I, 0, "DESCENDING"),
        tf.sort(tf.constant(I), axis=1),
        tf.argsort(A, axis=0),
        tf.argsort(IDS),
        tf.searchsorted([1, 3, 5], [2, 3, 9], side="right"),
        tf.searchsorted([[1.0, 3.0], [0.0, 1.0]], [[2.0], [2.0]]),
        tf.nn.top_k(A).indices,
    ],
    "bincount": lambda tf: [tf.math.bincount(IDS), tf.math.bincount(IDS, minlength=5)],
    "confusion_matrix": lambda tf: tf.confusion_matrix([0, 1, 2, 2], [0, 2, 2, 1]),
    "clip": lambda tf: [tf.clip_by_value(A, -0.5, 0.5), tf.clip_by_norm(A, 1.0), tf.global_norm([A, B])],
    "complex": lambda tf: [tf.real(tf.complex(A, A)), tf.imag(tf.conj(tf.complex(A, A)))],
    "abs": lambda tf: [tf.abs(A), tf.abs(tf.complex(A, A)), abs(tf.complex(A, A)), tf.real(A), tf.conj(A)],
    "strings and whole numbers": lambda tf: [tf.add("a", WORDS), tf.round(I), tf.add(1, tf.constant(2))],
    "xdivy": lambda tf: tf.math.xdivy([0.0, 1.0], [0.0, 2.0]),
    "log_sigmoid": lambda tf: tf.math.log_sigmoid(A),
    # Matrices
    "matrix": lambda tf: [tf.matrix_inverse(S), tf.matrix_determinant(S), tf.cholesky(S), tf.trace(S)],
    "matrix_solve": lambda tf: [tf.matrix_solve(S, S), tf.matrix_triangular_solve(S, S, lower=True)],
    "svd": lambda tf: tf.svd(A, compute_uv=False),
    "self_adjoint_eig": lambda tf: [tf.self_adjoint_eigvals(S), tf.abs(tf.self_adjoint_eig(S)[1])],
    "matrix_transpose": lambda tf: [tf.matrix_transpose(C), tf.linalg.adjoint(A), tf.matrix_diag([1.0, 2.0])],
    "band": lambda tf: tf.linalg.band_part(S, 0, -1),
    # Networks
    "softmax": lambda tf: [tf.nn.softmax(A), tf.nn.softmax(A, axis=0), tf.nn.log_softmax(A)],
    "activations": lambda tf: [tf.nn.relu(A), tf.nn.elu(A), tf.nn.leaky_relu(A), tf.nn.crelu(A), tf.nn.swish(A)],
    "cross entropies": lambda tf: [
        tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(A), logits=A),
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.nn.softmax(A), logits=A),
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 3, 1], logits=A),
        tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.sigmoid(A), logits=A),
        tf.nn.weighted_cross_entropy_with_logits(targets=tf.sigmoid(A), logits=A, pos_weight=2.0),
    ],
    "l2_loss": lambda tf: tf.nn.l2_loss(A),
    "conv2d": lambda tf: tf.nn.conv2d(D, np.ones((3, 3, 3, 2), np.float32), strides=[1, 2, 2, 1], padding="SAME"),
    "conv1d": lambda tf: tf.nn.conv1d(C, np.ones((2, 4, 3), np.float32), stride=1, padding="VALID"),
    "conv2d_transpose": lambda tf: tf.nn.conv2d_transpose(
        D, np.ones((2, 2, 1, 3), np.float32), [2, 12, 12, 1], strides=[1, 2, 2, 1]
    ),
    "depthwise_conv2d": lambda tf: tf.nn.depthwise_conv2d(
        D, np.ones((2, 2, 3, 1), np.float32), [1, 1, 1, 1], "VALID", rate=[2, 2]
    ),
    "separable_conv2d": lambda tf: tf.nn.separable_conv2d(
        D, np.ones((2, 2, 3, 1), np.float32), np.ones((1, 1, 3, 2), np.float32), strides=[1, 1, 1, 1], padding="SAME"
    ),
    "pools": lambda tf: [
        tf.nn.max_pool(D, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
        tf.nn.avg_pool(D, ksize=[1, 3, 3, 1], strides=[1, 1, 1, 1], padding="VALID"),
    ],
    "moments": lambda tf: list(tf.nn.moments(C, [0, 1])) + list(tf.nn.moments(C, [2], keep_dims=True)),
    "batch_normalization": lambda tf: tf.nn.batch_normalization(A, 0.1, 2.0, 0.5, 3.0, 1e-3),
    "fused_batch_norm": lambda tf: list(tf.nn.fused_batch_norm(D, [1.0, 2.0, 3.0], [0.0, 1.0, 2.0]))[:1],
    "l2_normalize": lambda tf: [tf.nn.l2_normalize(A, 1), tf.nn.l2_normalize(A, dim=0)],
    "lrn": lambda tf: tf.nn.lrn(D, depth_radius=1),
    "embedding_lookup": lambda tf: tf.nn.embedding_lookup(A, [[2, 0], [1, 1]]),
    "embedding_lookup_sparse": lambda tf: [
        tf.nn.embedding_lookup_sparse(A, _ids(tf, [0, 2, 1]), None),
        tf.nn.embedding_lookup_sparse(A, _ids(tf, [0, 2, 1]), _ids(tf, [1.0, 2.0, 0.5]), combiner="sqrtn"),
        tf.nn.safe_embedding_lookup_sparse(A, _ids(tf, [0, -1, 1]), combiner="sum"),
    ],
    "raw_rnn": lambda tf: _raw_rnn(tf),
    "static_bidirectional_rnn": lambda tf: _in_both_directions(tf),
    "weighted_moments": lambda tf: [
        *tf.nn.weighted_moments(A, [0], [[1.0], [2.0], [3.0]]),
        *tf.nn.normalize_moments(*tf.nn.sufficient_statistics(A, [0, 1])[:3], shift=None),
    ],
    "log_poisson_loss": lambda tf: tf.nn.log_poisson_loss(tf.exp(A), A, compute_full_loss=True),
    "batch_norm_with_global_normalization": lambda tf: tf.nn.batch_norm_with_global_normalization(
        D, *map(tf.constant, ([0.1, 0.2, 0.3], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0], [1.0, 1.5, 2.0])), 1e-3, True
    ),
    "xw_plus_b": lambda tf: tf.nn.xw_plus_b(A, B, [1.0, 2.0]),
    "relu_layer": lambda tf: tf.nn.relu_layer(A, B, [1.0, 2.0]),
    "zero_fraction": lambda tf: tf.nn.zero_fraction(I),
    "top_k": lambda tf: list(tf.nn.top_k(A, 2)),
    "in_top_k": lambda tf: tf.nn.in_top_k(A, [0, 1, 2], 2),
    "layers.flatten": lambda tf: tf.layers.flatten(D),
    "layers.max_pooling2d": lambda tf: tf.layers.max_pooling2d(D, 2, 2),
    "layers.dense": lambda tf: tf.layers.dense(A, 2, kernel_initializer=tf.constant_initializer(0.5), name="d"),
    "losses": lambda tf: [
        tf.losses.mean_squared_error(A, -A),
        tf.losses.absolute_difference(A, -A, weights=2.0),
        tf.losses.huber_loss(A, -A),
        tf.losses.sigmoid_cross_entropy(MASK, A, label_smoothing=0.1),
        tf.losses.get_total_loss(),
    ],
    # Control flow
    "cond": lambda tf: tf.cond(tf.constant(True), lambda: tf.constant(1), lambda: tf.constant(2)),
    "case": lambda tf: tf.case([(tf.constant(False), lambda: tf.constant(1))], default=lambda: tf.constant(3)),
    "while_loop": lambda tf: tf.while_loop(lambda i, s: i < 5, lambda i, s: [i + 1, s + i], [0, 10]),
    "while_loop of one": lambda tf: tf.while_loop(lambda i: i < 5, lambda i: i + 1, [tf.constant(0)]),
    "map_fn": lambda tf: tf.map_fn(lambda row: row * 2, A),
    "scan": lambda tf: tf.scan(lambda total, row: total + row, A),
    "fold": lambda tf: [tf.foldl(lambda total, row: total - row, A), tf.foldr(lambda total, row: total - row, A)],
    "gradients": lambda tf: tf.gradients(tf.reduce_sum(tf.square(x := tf.constant(A))), [x]),
    "hessians": lambda tf: tf.hessians(tf.reduce_sum((x := tf.constant([1.0, 2.0])) ** 3), x),
    "py_func": lambda tf: tf.py_func(lambda x: x + 1, [A], tf.float32),
    "py_func of several": lambda tf: tf.py_func(lambda x: (x.sum(), x.max()), [A], [tf.float32, tf.float32]),
    "TensorArray": lambda tf: tf.TensorArray(tf.float32, size=3).unstack(A).stack(),
    # Random
    "random_uniform": lambda tf: tf.random_uniform([3], -1, 1, seed=5),
    "random_normal": lambda tf: tf.random_normal([3], stddev=2.0, seed=5),
    "truncated_normal": lambda tf: tf.truncated_normal([3], seed=5),
    "random_shuffle": lambda tf: tf.random_shuffle([1, 2, 3, 4, 5], seed=5),
    "multinomial": lambda tf: tf.multinomial(A, 4, seed=5),
    "stateless": lambda tf: [
        tf.random.stateless_uniform([3], [1, 2], -1, 1),
        tf.random.stateless_normal([3], [1, 2], 3.0, 2.0),
    ],
    "graph seed": lambda tf: [tf.set_random_seed(1), tf.random_uniform([2], seed=2)][1:],
    # Images
    "resize": lambda tf: [tf.image.resize_images(D, [3, 4]), tf.image.resize_images(D[0], [9, 9], method=1)],
    "total_variation": lambda tf: [
        tf.image.total_variation(tf.constant(D)),
        tf.image.total_variation(tf.constant(D[0])),
    ],
    "resize_bilinear": lambda tf: tf.image.resize_bilinear(D, [4, 4], align_corners=True),
    "flips": lambda tf: [tf.image.flip_left_right(D[0]), tf.image.flip_up_down(D), tf.image.transpose_image(D[0])],
    "per_image_standardization": lambda tf: tf.image.per_image_standardization(D[0]),
    "convert_image_dtype": lambda tf: [
        tf.image.convert_image_dtype(BYTES, tf.float32),
        tf.image.convert_image_dtype(D, tf.uint8),
    ],
    "brightness": lambda tf: [tf.image.adjust_brightness(D, 0.1), tf.image.adjust_brightness(BYTES, 0.25)],
    "contrast": lambda tf: tf.image.adjust_contrast(D, 2.0),
    "grayscale": lambda tf: [tf.image.rgb_to_grayscale(D), tf.image.grayscale_to_rgb(tf.constant(D[..., :1]))],
    "crops": lambda tf: [
        tf.image.crop_to_bounding_box(D, 1, 2, 3, 4),
        tf.image.pad_to_bounding_box(D, 1, 2, 9, 9),
        tf.image.central_crop(D, 0.5),
    ],
    "non_max_suppression": lambda tf: tf.image.non_max_suppression(
        [[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 1.1], [2.0, 2.0, 3.0, 3.0]], [0.5, 0.9, 0.7], 3
    ),
    # Strings
    "string_join": lambda tf: [tf.string_join(["a", WORDS], "-"), tf.strings.reduce_join(WORDS, separator="+")],
    "string_split": lambda tf: _parts(tf.string_split(WORDS)),
    "string_to_number": lambda tf: tf.string_to_number(["1.5", "2"]),
    "as_string": lambda tf: tf.as_string(A, precision=2),
    "substr": lambda tf: tf.substr(["hello"], 1, 3),
    "hash": lambda tf: tf.string_to_hash_bucket_fast(WORDS, 10),
    "format": lambda tf: tf.strings.format("{} and {}", [tf.constant(1), tf.constant(2)]),
    # Sparse
    "sparse_tensor_dense_matmul": lambda tf: tf.sparse_tensor_dense_matmul(
        tf.SparseTensor([[0, 1], [2, 3]], [1.0, 2.0], [3, 4]), B
    ),
    "sparse_tensor_to_dense": lambda tf: tf.sparse_tensor_to_dense(tf.SparseTensor([[0, 1], [2, 3]], [1, 2], [3, 4])),
    "sparse_to_dense": lambda tf: tf.sparse_to_dense([1, 3], [5], 1.0),
    "sparse_reduce_sum": lambda tf: tf.sparse_reduce_sum(tf.SparseTensor([[0, 1], [0, 3]], [1, 2], [3, 4]), 1),
    "edit_distance": lambda tf: tf.edit_distance(
        tf.SparseTensor([[0, 0]], [1], [1, 1]), tf.SparseTensor([[0, 0], [0, 1]], [1, 2], [1, 2])
    ),
    "ctc": lambda tf: [
        tf.nn.ctc_loss(tf.SparseTensor([[0, 0], [0, 1]], [0, 1], [1, 2]), C[:, :1], [2]),
        tf.nn.ctc_loss(tf.SparseTensor([[0, 0], [1, 0]], [1, 2], [2, 2]), C, [3, 2], time_major=False),
        *_parts(tf.nn.ctc_greedy_decoder(C, [2, 1, 2])[0][0]),
    ],
    # Files
    "decode_raw": lambda tf: tf.decode_raw([b"\x01\x02\x03\x04"], tf.int16),
    "decode_csv": lambda tf: tf.decode_csv(["1,a,2.5", "3,,4"], [0, "x", 1.0]),
    "parse_example": lambda tf: _parsed(tf),
    # Schedules
    "schedules": lambda tf: [
        tf.train.exponential_decay(0.1, 7, 5, 0.5, staircase=True),
        tf.train.polynomial_decay(0.1, 3, 10, 0.01, power=2.0),
        tf.train.piecewise_constant(7, [5, 10], [1.0, 0.5, 0.1]),
        tf.train.cosine_decay(0.1, 3, 10),
        tf.train.inverse_time_decay(0.1, 3, 10, 0.5),
    ],
    "initializers": lambda tf: [
        tf.zeros_initializer()([2]),
        tf.constant_initializer([1, 2], dtype=tf.int32)([2]),
        tf.truncated_normal_initializer(stddev=0.1, seed=3)([2, 2]),
        tf.glorot_uniform_initializer(seed=3)([2, 2]),
        tf.initializers.he_normal(seed=3)([2, 2]),
        tf.random_uniform_initializer(-1, 1, seed=3)([2], tf.float64),
        tf.variance_scaling_initializer(2.0, "fan_out", seed=4)([3, 2]),
    ],
    "seed of the graph alone": lambda tf: _of_graph_seed(tf),
    **NAMES,
    **NUMERIC,
    **OPERATORS,
    **SPARSE,
    **TRAINING,
    **METRICS,
    **RARE,
    **TEXT,
    **DISTRIBUTIONS,
}


def _of_graph_seed(tf: Any) -> list[Any]:
    tf.set_random_seed(7)
    uniform = tf.random_uniform([3])
    variable = tf.get_variable("of_graph_seed", [2, 3])
    own = tf.random_normal([2], seed=3)
    dropped = tf.nn.dropout(tf.ones([5]), rate=0.5)
    return [uniform, variable, own, dropped, tf.truncated_normal([2]), tf.random_shuffle([1, 2, 3, 4])]


def _ids(tf: Any, values: list[Any]) -> Any:
    return tf.SparseTensor([[0, 0], [0, 1], [1, 0]], values, [2, 2])


def _cell(tf: Any) -> Any:
    return tf.nn.rnn_cell.BasicRNNCell(2)


def _raw_rnn(tf: Any) -> list[Any]:
    inputs = tf.TensorArray(tf.float32, size=2).unstack(tf.constant(C))
    cell = _cell(tf)

    def step(time: Any, output: Any, state: Any, _: Any) -> tuple[Any, ...]:
        after = cell.zero_state(3, tf.float32) if output is None else state
        over = time >= tf.constant([2, 1, 2])
        now = tf.cond(tf.reduce_all(over), lambda: tf.zeros([3, 4]), lambda: inputs.read(time))
        now.set_shape([3, 4])
        return over, now, after, output, None

    with tf.variable_scope("raw", initializer=tf.constant_initializer(0.3)):
        emitted, state, _ = tf.nn.raw_rnn(cell, step)
    return [emitted.stack(), state]


def _in_both_directions(tf: Any) -> list[Any]:
    with tf.variable_scope("both", initializer=tf.constant_initializer(0.3)):
        outputs, there, back = tf.nn.static_bidirectional_rnn(
            _cell(tf), _cell(tf), [tf.constant(C[0]), tf.constant(C[1])], dtype=tf.float32, sequence_length=[2, 1, 2]
        )
    return [*outputs, there, back]


def _parsed(tf: Any) -> list[Any]:
    def feature(**kinds: Any) -> Any:
        return tf.train.Feature(**kinds)

    features = {
        "a": feature(float_list=tf.train.FloatList(value=[1.0, 2.0])),
        "b": feature(int64_list=tf.train.Int64List(value=[3])),
        "c": feature(bytes_list=tf.train.BytesList(value=[b"x", b"y"])),
    }
    data = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    spec = {
        "a": tf.FixedLenFeature([2], tf.float32),
        "b": tf.FixedLenFeature([], tf.int64),
        "c": tf.VarLenFeature(tf.string),
        "d": tf.FixedLenFeature([1], tf.float32, default_value=7.0),
    }
    one = tf.parse_single_example(data, spec)
    many = tf.parse_example([data, data], spec)
    return [one["a"], one["b"], *_parts(one["c"]), one["d"], many["a"], *_parts(many["c"])]
