"""`tf.contrib.feature_column`: columns of sequences, and `sequence_input_layer`.

Next to read: `aexec/compat/v1/feature_column/sequence_layer.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"feature_column.sequences:{name}"
            for name in """sequence_categorical_column_with_hash_bucket sequence_categorical_column_with_identity
            sequence_categorical_column_with_vocabulary_file sequence_categorical_column_with_vocabulary_list
            sequence_numeric_column""".split()
        },
        "sequence_input_layer": "feature_column.sequence_layer:sequence_input_layer",
    },
)
