"""`tf.feature_column`: columns describe features, and `input_layer` and `linear_model` turn them into tensors.

::

    price = tf.feature_column.numeric_column("price")
    colour = tf.feature_column.categorical_column_with_vocabulary_list("colour", ["red", "blue"])
    columns = [price, tf.feature_column.embedding_column(colour, 2)]
    net = tf.feature_column.input_layer({"price": [[1.0]], "colour": [["red"]]}, columns)

Columns with a vocabulary need `tf.tables_initializer()` to be run.  Next to read: `column.py`.
"""

from aexec.compat.v1.namespace import namespace

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"feature_column.numeric:{name}" for name in ("bucketized_column", "numeric_column")},
        **{
            name: f"feature_column.categorical:{name}"
            for name in """categorical_column_with_hash_bucket categorical_column_with_identity
            weighted_categorical_column""".split()
        },
        **{
            name: f"feature_column.vocabulary:{name}"
            for name in ("categorical_column_with_vocabulary_file", "categorical_column_with_vocabulary_list")
        },
        "crossed_column": "feature_column.crossed:crossed_column",
        **{name: f"feature_column.embedding:{name}" for name in ("embedding_column", "shared_embedding_columns")},
        **{
            name: f"feature_column.sequences:{name}"
            for name in """sequence_categorical_column_with_hash_bucket sequence_categorical_column_with_identity
            sequence_categorical_column_with_vocabulary_file sequence_categorical_column_with_vocabulary_list
            sequence_numeric_column""".split()
        },
        "indicator_column": "feature_column.indicator:indicator_column",
        "input_layer": "feature_column.inputs:input_layer",
        "linear_model": "feature_column.linear:linear_model",
        "make_parse_example_spec": "feature_column.parsing:make_parse_example_spec",
    },
    {"shared_embeddings": "it is of TensorFlow 2: use shared_embedding_columns"},
)
