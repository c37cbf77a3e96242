"""Cases of feature columns: layers, whose variables are filled with known numbers before they run.

Next to read: `record.py`, which fills them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES", "RAISED", "outcome", "raised"]

FEATURES: dict[str, Any] = {
    "p": [[1.0], [2.5], [-3.0]],
    "p2": [[1.0, 2.0], [3.0, 4.0], [-5.0, 60.0]],
    "n": np.array([3, 1, 2], np.int32),
    "i": np.array([[0, 3], [2, -1], [-1, -1]], np.int64),
    "far": np.array([[7], [-5], [2]], np.int64),
    "s": [["red", "blue"], ["", "green"], ["red", "red"]],
    "t": ["a", "b", "a"],
    "w": [[0.5, 2.0], [0.0, 4.0], [1.0, -1.0]],
}


def features(tf: Any) -> dict[str, Any]:
    """Dense features, and sparse features under the same names with the suffix `_sparse`."""
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 1]], np.array([1, 3, 2], np.int64), [3, 2])
    words = tf.SparseTensor([[0, 0], [0, 1], [2, 2]], ["red", "blue", "black"], [3, 3])
    amounts = tf.SparseTensor([[0, 0], [0, 1], [2, 1]], [0.5, 2.0, 3.0], [3, 2])
    return {**FEATURES, "i_sparse": ids, "s_sparse": words, "w_sparse": amounts}


def layer(*build: Callable[[Any], Any], **settings: Any) -> Callable[[Any], Any]:
    """A case of `input_layer` over the columns that functions of `tf.feature_column` make."""
    return lambda tf: tf.feature_column.input_layer(
        features(tf), [column(tf.feature_column) for column in build], **settings
    )


def linear(*build: Callable[[Any], Any], **settings: Any) -> Callable[[Any], Any]:
    """A case of `linear_model`."""
    return lambda tf: tf.feature_column.linear_model(
        features(tf), [column(tf.feature_column) for column in build], **settings
    )


def both(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A case of a categorical column in an indicator, an embedding and a linear model."""

    def made(tf: Any) -> list[Any]:
        fc, given = tf.feature_column, features(tf)
        column = build(tf)
        return [
            fc.input_layer(given, [fc.indicator_column(column)]),
            fc.input_layer(given, [fc.embedding_column(column, 2, "sum")]),
            fc.linear_model(given, [column], units=2),
        ]

    return made


def p(fc: Any) -> Any:
    return fc.numeric_column("p")


def p2(fc: Any) -> Any:
    return fc.numeric_column("p2", 2)


def i(fc: Any) -> Any:
    return fc.categorical_column_with_identity("i", 4)


def identity_sparse(fc: Any) -> Any:
    return fc.categorical_column_with_identity("i_sparse", 4)


def weighted(fc: Any) -> Any:
    return fc.weighted_categorical_column(identity_sparse(fc), "w_sparse")


def buckets(fc: Any) -> Any:
    return fc.bucketized_column(p(fc), [0.0, 2.5])


def embedded(fc: Any) -> Any:
    return fc.embedding_column(i(fc), 2)


def _twice(tf: Any) -> list[Any]:
    fc, given = tf.feature_column, features(tf)
    first = fc.linear_model(given, [p(fc), i(fc)])
    layers = [fc.input_layer(given, [p(fc), embedded(fc)]) for _ in range(2)]
    return [first, *layers, fc.linear_model(given, [p(fc), i(fc)], units=2)]


def _within(tf: Any) -> list[Any]:
    fc, given, found = tf.feature_column, features(tf), []
    for _ in range(2):
        with tf.variable_scope("outer", reuse=tf.AUTO_REUSE):
            found += [fc.linear_model(given, [p(fc), i(fc)]), fc.input_layer(given, [embedded(fc)])]
    return found


def _in_parts(tf: Any) -> list[Any]:
    fc, given = tf.feature_column, features(tf)
    with tf.variable_scope("parts", partitioner=tf.fixed_size_partitioner(2)):
        return [fc.linear_model(given, [p2(fc), i(fc)], units=3), fc.input_layer(given, [embedded(fc)])]


def _shared(tf: Any) -> list[Any]:
    fc, given = tf.feature_column, features(tf)
    columns = fc.shared_embedding_columns([weighted(fc), i(fc)], 2, "sum")
    return [fc.input_layer(given, columns), fc.input_layer(given, columns[:1]), fc.linear_model(given, columns)]


def _by_columns(tf: Any) -> list[Any]:
    fc, of_layer, of_model, parts = tf.feature_column, {}, {}, {}
    columns = [embedded(fc), buckets(fc)]
    fc.input_layer(features(tf), columns, ["mine"], False, of_layer, parts)
    fc.linear_model(features(tf), columns, weight_collections=["mine"], cols_to_vars=of_model)
    listed = [[getattr(key, "name", key), *(v.name for v in of[key])] for of in (of_layer, of_model) for key in of]
    mine = [v.name for key in ("mine", "model_variables", "trainable_variables") for v in tf.get_collection(key)]
    return [tf.constant(["|".join(words) for words in [*listed, mine]]), *(parts[column] for column in columns)]


def _unknown_rank(tf: Any) -> list[Any]:
    fc = tf.feature_column
    found = []
    for values in ([1.0, 2.0], [[1.0], [2.0]]):
        given = tf.placeholder_with_default(np.array(values, np.float32), None)
        found.append(fc.input_layer({"p": given}, [p(fc)]))
    return found


def _of_examples(tf: Any) -> list[Any]:
    fc = tf.feature_column
    columns = [
        fc.numeric_column("x", 2, default_value=3.0),
        fc.embedding_column(fc.categorical_column_with_hash_bucket("word", 5), 2),
        fc.indicator_column(fc.crossed_column(["word", fc.categorical_column_with_identity("id", 3)], 4)),
    ]
    full, empty = tf.train.Example(), tf.train.Example()
    full.features.feature["x"].float_list.value[:] = [1.0, 2.0]
    full.features.feature["word"].bytes_list.value[:] = [b"one", b"two"]
    full.features.feature["id"].int64_list.value[:] = [2]
    spec = fc.make_parse_example_spec(columns)
    serialized = [full.SerializeToString(), empty.SerializeToString()]
    return [fc.input_layer(tf.parse_example(serialized, spec), columns)]


def sequences(tf: Any) -> dict[str, Any]:
    """Sparse features of three examples, with sequences of length 2, 0 and 1."""

    def sparse(indices: Any, values: Any, shape: Any) -> Any:
        return tf.SparseTensor(indices, values, shape)

    return {
        "i": sparse([[0, 0], [0, 1], [2, 0]], np.array([1, 3, 2], np.int64), [3, 3]),
        "several": sparse([[0, 0, 0], [0, 0, 1], [0, 1, 0], [2, 0, 1]], np.array([1, 3, 2, 0], np.int64), [3, 3, 2]),
        "dense": np.array([[0, 3, -1], [-1, -1, -1], [1, -1, -1]], np.int64),
        "s": sparse([[0, 0], [0, 1], [2, 0]], ["red", "black", "blue"], [3, 3]),
        "p": sparse([[0, 0], [0, 1], [2, 0]], [1.0, 2.0, 3.0], [3, 3]),
        "pairs": sparse([[0, 0], [0, 1], [0, 2], [2, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0, 5.0], [3, 6]),
        "rows": sparse([[0, 0, 0], [0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], [3, 3, 2]),
    }


def sequence(*build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A case of `sequence_input_layer`."""
    return lambda tf: list(
        tf.contrib.feature_column.sequence_input_layer(sequences(tf), [column(tf.feature_column) for column in build])
    )


def ids_of(key: str) -> Callable[[Any], Any]:
    return lambda fc: fc.embedding_column(fc.sequence_categorical_column_with_identity(key, 4), 2)


def counts_of(key: str) -> Callable[[Any], Any]:
    return lambda fc: fc.indicator_column(fc.sequence_categorical_column_with_identity(key, 4))


def _shared_by_sequences(tf: Any) -> list[Any]:
    fc = tf.feature_column
    ids = [fc.sequence_categorical_column_with_identity(key, 4) for key in ("several", "i")]
    return list(tf.contrib.feature_column.sequence_input_layer(sequences(tf), fc.shared_embedding_columns(ids, 2)))


CASES: dict[str, Callable[[Any], Any]] = {
    "numbers in the order of names": layer(p2, p, lambda fc: fc.numeric_column("n")),
    "a function of numbers": layer(lambda fc: fc.numeric_column("p2", [2], normalizer_fn=lambda x: x * 2 - 1)),
    "numbers of an unknown rank": _unknown_rank,
    "buckets": layer(buckets, lambda fc: fc.bucketized_column(p2(fc), [2, 4, 50])),
    "buckets in a linear model": linear(buckets, lambda fc: fc.bucketized_column(p2(fc), [2, 4, 50]), units=2),
    "ids": both(lambda tf: i(tf.feature_column)),
    "sparse ids": both(lambda tf: identity_sparse(tf.feature_column)),
    "ids out of range": both(lambda tf: tf.feature_column.categorical_column_with_identity("far", 4, 1)),
    "hashes": both(lambda tf: tf.feature_column.categorical_column_with_hash_bucket("s", 7)),
    "hashes of a vector": both(lambda tf: tf.feature_column.categorical_column_with_hash_bucket("t", 5)),
    "hashes of integers": both(lambda tf: tf.feature_column.categorical_column_with_hash_bucket("far", 6, tf.int64)),
    "words of a list": both(
        lambda tf: tf.feature_column.categorical_column_with_vocabulary_list("s_sparse", ["blue", "red"])
    ),
    "words of a list, and others": both(
        lambda tf: tf.feature_column.categorical_column_with_vocabulary_list("s", ["blue", "red"], num_oov_buckets=3)
    ),
    "words of a list, with a default": both(
        lambda tf: tf.feature_column.categorical_column_with_vocabulary_list("s", ["blue", "red"], default_value=0)
    ),
    "integers of a list": both(
        lambda tf: tf.feature_column.categorical_column_with_vocabulary_list("n", [2, 3], tf.int32, num_oov_buckets=2)
    ),
    "weighted ids": both(lambda tf: weighted(tf.feature_column)),
    "weighted words, dense": both(
        lambda tf: tf.feature_column.weighted_categorical_column(
            tf.feature_column.categorical_column_with_hash_bucket("s", 7), "w"
        )
    ),
    "crossed words": both(lambda tf: tf.feature_column.crossed_column(["s", "t"], 11)),
    "crossed with integers": both(lambda tf: tf.feature_column.crossed_column(["t", "n", "s_sparse"], 100)),
    "crossed columns": both(
        lambda tf: tf.feature_column.crossed_column(
            [
                tf.feature_column.crossed_column(["t", i(tf.feature_column)], 5),
                buckets(tf.feature_column),
                tf.feature_column.categorical_column_with_vocabulary_list("s", ["blue", "red"]),
            ],
            23,
            hash_key=5,
        )
    ),
    "rows that are averaged": layer(embedded, lambda fc: fc.embedding_column(weighted(fc), 3, "sqrtn")),
    "rows of a largest norm": layer(lambda fc: fc.embedding_column(i(fc), 2, max_norm=0.5)),
    "rows of examples that all have an id": layer(
        lambda fc: fc.embedding_column(fc.categorical_column_with_identity("n", 4), 2, use_safe_embedding_lookup=False)
    ),
    "dense columns in a linear model": linear(embedded, p2, lambda fc: fc.indicator_column(i(fc)), units=2),
    "averaged weights of a linear model": linear(i, weighted, sparse_combiner="mean"),
    "layers made twice": _twice,
    "layers in a scope that is used again": _within,
    "layers whose variables have parts": _in_parts,
    "shared rows": _shared,
    "what columns have": _by_columns,
    "columns of examples": _of_examples,
    "sequences": sequence(ids_of("i"), ids_of("several"), ids_of("dense"), lambda fc: fc.sequence_numeric_column("p")),
    "sequences of counts": sequence(counts_of("i"), counts_of("several"), counts_of("dense")),
    "sequences of pairs of numbers": sequence(
        lambda fc: fc.sequence_numeric_column("pairs", 2, -1.0, normalizer_fn=lambda x: x * 2.0),
        lambda fc: fc.sequence_numeric_column("rows", [2], 9.0),
    ),
    "sequences of numbers whose last is missing": sequence(lambda fc: fc.sequence_numeric_column("p", [3])),
    "sequences of words": sequence(
        lambda fc: fc.indicator_column(
            fc.sequence_categorical_column_with_vocabulary_list("s", ["red", "blue"], num_oov_buckets=1)
        ),
    ),
    "sequences of hashes": sequence(
        lambda fc: fc.embedding_column(fc.sequence_categorical_column_with_hash_bucket("s", 5), 2)
    ),
    "rows that sequences share": _shared_by_sequences,
    "sequences in a linear model": lambda tf: tf.feature_column.linear_model(
        sequences(tf), [tf.feature_column.sequence_categorical_column_with_identity(key, 4) for key in ("i", "several")]
    ),
}

N = "tf.feature_column.numeric_column('p')"
H = "tf.feature_column.categorical_column_with_hash_bucket('h', 5)"
IDS = "tf.feature_column.categorical_column_with_identity('i', 4)"
SEQUENCE = "tf.feature_column.sequence_categorical_column_with_identity('i', 4)"
FC = "tf.feature_column."

# What raises an error: its words are recorded.
RAISED = [
    f"{FC}numeric_column('p', (2, 2), 1.5, tf.int64)",
    f"{FC}numeric_column('p', [2], [1.0, 2.0, 3.0])",
    f"{FC}numeric_column('p', 0)",
    f"{FC}numeric_column('p', 2.5)",
    f"{FC}numeric_column('p', dtype=tf.string)",
    f"{FC}numeric_column('p', normalizer_fn=3)",
    f"{FC}numeric_column('p', default_value='x')",
    f"{FC}numeric_column(3)",
    f"{FC}bucketized_column({N}, [2, 1])",
    f"{FC}bucketized_column({N}, [])",
    f"{FC}bucketized_column({N}, 3)",
    f"{FC}bucketized_column({H}, [1])",
    f"{FC}bucketized_column({FC}numeric_column('p', (2, 2)), [1])",
    f"{FC}categorical_column_with_hash_bucket('h', 0)",
    f"{FC}categorical_column_with_hash_bucket('h', None)",
    f"{FC}categorical_column_with_hash_bucket('h', 3, tf.float32)",
    f"{FC}categorical_column_with_identity('i', 0)",
    f"{FC}categorical_column_with_identity('i', 4, 4)",
    f"{FC}categorical_column_with_vocabulary_list('v', [])",
    f"{FC}categorical_column_with_vocabulary_list('v', ['a', 'a'])",
    f"{FC}categorical_column_with_vocabulary_list('v', ['a'], default_value=0, num_oov_buckets=1)",
    f"{FC}categorical_column_with_vocabulary_list('v', ['a'], num_oov_buckets=-1)",
    f"{FC}categorical_column_with_vocabulary_list('v', [1.5])",
    f"{FC}categorical_column_with_vocabulary_list('v', ['a'], dtype=tf.int64)",
    f"{FC}categorical_column_with_vocabulary_file('v', '')",
    f"{FC}categorical_column_with_vocabulary_file('v', '/not/there')",
    f"{FC}categorical_column_with_vocabulary_file('v', 'x', 0)",
    f"{FC}categorical_column_with_vocabulary_file('v', 'x', 3, 1, 2)",
    f"{FC}categorical_column_with_vocabulary_file('v', 'x', 3, dtype=tf.float32)",
    f"{FC}crossed_column(['b'], 7)",
    f"{FC}crossed_column(['b', 'a'], 0)",
    f"{FC}crossed_column(['b', {H}], 7)",
    f"{FC}crossed_column(['b', {N}], 7)",
    f"{FC}weighted_categorical_column({H}, 'w', tf.string)",
    f"{FC}indicator_column({N})",
    f"{FC}embedding_column({H}, 0)",
    f"{FC}embedding_column({H}, 2, ckpt_to_load_from='x')",
    f"{FC}embedding_column({H}, 2, initializer=3)",
    f"{FC}shared_embedding_columns([{H}, {IDS}], 2)",
    f"{FC}shared_embedding_columns([{IDS}, {FC}categorical_column_with_identity('j', 5)], 2)",
    f"{FC}make_parse_example_spec([{N}, {FC}numeric_column('p', 2)])",
    f"{FC}make_parse_example_spec([3])",
    f"{FC}input_layer({{}}, [{H}])",
    f"{FC}input_layer({{}}, [])",
    f"{FC}input_layer({{}}, {{'p': {N}}})",
    f"{FC}input_layer({{}}, [3])",
    f"{FC}input_layer({{'q': [1.0]}}, [{N}])",
    f"{FC}input_layer({{'p': 1.0}}, [{N}])",
    f"{FC}input_layer({{'p': [1.0]}}, [{N}, {N}])",
    f"{FC}input_layer({{'p': [1.0], 'q': [1.0, 2.0]}}, [{N}, {FC}numeric_column('q')])",
    f"{FC}input_layer({{'p': [[1.0, 2.0]]}}, [{N}])",
    f"{FC}input_layer({{'p': tf.SparseTensor([[0, 0]], [1.0], [1, 1])}}, [{N}])",
    f"{FC}input_layer({{'i': [1.0]}}, [{FC}indicator_column({IDS})])",
    f"{FC}input_layer({{'h': [1.0]}}, [{FC}indicator_column({H})])",
    f"{FC}input_layer({{'h': [1]}}, [{FC}indicator_column({H})])",
    f"{FC}input_layer({{'h': ['a'], 'w': [1]}}, [{FC}indicator_column({FC}weighted_categorical_column({H}, 'w'))])",
    f"{FC}linear_model({{'p': [1.0], 'q': [1.0, 2.0]}}, [{N}, {FC}numeric_column('q')])",
    f"{FC}linear_model({{'i': [1]}}, [{IDS}], sparse_combiner='max')",
    f"{FC}linear_model({{}}, [])",
    f"{FC}sequence_numeric_column('p', dtype=tf.string)",
    f"{FC}sequence_numeric_column('p', normalizer_fn=3)",
    f"{FC}sequence_numeric_column('p', 0)",
    f"{FC}input_layer({{'i': [[1]]}}, [{FC}indicator_column({SEQUENCE})])",
    f"{FC}input_layer({{'i': [[1]]}}, [{FC}embedding_column({SEQUENCE}, 2)])",
]


def outcome(tf: Any, case: Callable[[Any], Any], as_data: Callable[[Any], Any]) -> dict[str, Any]:
    """Run a case; return its values, and the shapes of its variables by name.

    The variables are filled with consecutive numbers in the order of their names.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        found = case(tf)
        fetched = list(found) if isinstance(found, list | tuple) else [found]
        variables = sorted(tf.global_variables(), key=lambda variable: variable.name)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        first = 0
        for variable in variables:
            shape = variable.shape.as_list()
            size = int(np.prod(shape))
            variable.load((np.arange(first, first + size, dtype=np.float32) / 10).reshape(shape), session)
            first += size
        return {
            "variables": {variable.name: variable.shape.as_list() for variable in variables},
            "shapes": [tensor.shape.as_list() for tensor in fetched],
            "values": [as_data(value) for value in session.run(fetched)],
        }


def raised(tf: Any, expression: str) -> list[str]:
    """Evaluate an expression that raises an error; return the name of the error's class and its message."""
    with tf.Graph().as_default():
        try:
            eval(expression, {"tf": tf})
        except (ValueError, TypeError) as error:
            return ["TypeError" if isinstance(error, TypeError) else "ValueError", str(error)]
    raise AssertionError(f"{expression} raises nothing")
