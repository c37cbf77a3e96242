"""Cases of strings in rows, transposed convolutions, labels of CTC, and messages.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2

__all__ = ["CASES"]

WORDS = ["aé", "", "日b"]
LABELS = np.array([[1, 1, 2, 2, 1], [3, 0, 0, 3, 3]], np.int32)
_rng = np.random.RandomState(5)
X1 = _rng.randn(2, 4, 3).astype(np.float32)
F1 = _rng.randn(3, 2, 3).astype(np.float32)
X2 = _rng.randn(1, 2, 3, 3).astype(np.float32)
F2 = _rng.randn(2, 3, 2, 3).astype(np.float32)


def rows(ragged: Any) -> list[Any]:
    """The values and the ends of the rows of a ragged tensor."""
    return [ragged.values, ragged.row_splits]


def described() -> bytes:
    """A message with a name and numbers, as `descriptor_source`."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="p.proto", package="p", syntax="proto2")
    message = file.message_type.add(name="P")
    message.field.add(name="name", number=1, type=9, label=1)
    message.field.add(name="number", number=2, type=5, label=3)
    return b"bytes://" + files.SerializeToString()


def messages(tf: Any) -> list[Any]:
    made = tf.io.encode_proto(
        [[1, 2], [0, 1]], [[["a"], ["b"]], [[1, -2], [3, 4]]], ["name", "number"], "p.P", described()
    )
    sizes, values = tf.io.decode_proto(made, "p.P", ["number", "name"], [tf.int64, tf.string], described())
    return [made, sizes, *values]


CASES: dict[str, Callable[[Any], Any]] = {
    "strings.bytes_split": lambda tf: [*rows(tf.strings.bytes_split(WORDS)), tf.strings.bytes_split("abc")],
    "strings.unicode_split": lambda tf: [
        *rows(tf.strings.unicode_split(WORDS, "UTF-8")),
        tf.strings.unicode_split("a日", input_encoding="UTF-8"),
        *(part for ragged in tf.strings.unicode_split_with_offsets(WORDS, "UTF-8") for part in rows(ragged)),
        *tf.strings.unicode_split_with_offsets(b"a\xffb", "UTF-8", replacement_char=63),
    ],
    "strings.unicode_decode_with_offsets": lambda tf: [
        *(part for ragged in tf.strings.unicode_decode_with_offsets(WORDS, "UTF-8") for part in rows(ragged)),
        *tf.strings.unicode_decode_with_offsets("a日", "UTF-8"),
    ],
    "strings.ngrams": lambda tf: [
        tf.strings.ngrams(["a", "b", "c"], 2),
        tf.strings.ngrams([["a", "b", "c"], ["d", "e", "f"]], [1, 3], separator="-"),
        tf.strings.ngrams(["a", "b"], 3, pad_values=("<", ">"), padding_width=1),
        tf.strings.ngrams(["a"], 3, pad_values="_"),
        tf.strings.ngrams(["a", "b"], 3, preserve_short_sequences=True),
        *rows(tf.strings.ngrams(tf.ragged.constant([["a", "b"], [], ["c"]]), 2, pad_values="_")),
    ],
    "conv1d_transpose": lambda tf: [
        tf.nn.conv1d_transpose(X1, F1, [2, 8, 2], 2),
        tf.nn.conv1d_transpose(X1, F1, [2, 6, 2], strides=[1], padding="VALID"),
    ],
    "conv_transpose": lambda tf: [
        tf.nn.conv_transpose(X1, F1, [2, 8, 2], 2),
        tf.nn.conv_transpose(X2, F2, [1, 4, 6, 2], [2, 2]),
        tf.nn.conv_transpose(X2, F2, tf.constant([1, 2, 6, 2]), [1, 1, 2, 1]),
        tf.nn.conv_transpose(X2[:, None], F2[None], [1, 1, 3, 5, 2], 1, padding="VALID"),
    ],
    "labels of CTC": lambda tf: [
        *tf.nn.collapse_repeated(LABELS, [5, 4]),
        *tf.nn.collapse_repeated(LABELS, [1, 0]),
        *tf.nn.ctc_unique_labels(LABELS),
    ],
    "messages": messages,
}
