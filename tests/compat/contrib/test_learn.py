"""`tf.contrib.learn.preprocessing`, as programs that classify sentences use it."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors
from aexec.compat.v1.contrib import learn

preprocessing = learn.preprocessing
TEXTS = ["the cat sat", "the dog's bark isn't the cat's", "GPUs and MyWord"]


def test_words_are_numbered_in_their_order() -> None:
    processor = preprocessing.VocabularyProcessor(5)
    numbers = np.array(list(processor.fit_transform(iter(TEXTS))))
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [[1, 2, 3, 0, 0], [1, 4, 5, 6, 1], [8, 9, 10, 11, 12]]
    assert len(processor.vocabulary_) == 13
    assert [line.tolist() for line in processor.transform(["cat new the"])] == [[2, 0, 1, 0, 0]]
    assert list(processor.reverse(numbers[:1])) == ["the cat sat <UNK> <UNK>"]


def test_words_of_camel_case_are_parted() -> None:
    assert list(preprocessing.tokenizer(["MyWord is-one of HTTPServer NASA"])) == [
        ["My", "Word", "is-one", "of", "HTTP", "Server", "NASA"]
    ]


def test_rare_and_frequent_words_are_dropped() -> None:
    processor = preprocessing.VocabularyProcessor(4, min_frequency=1)
    processor.fit(["a b b c c c", "c b d"])
    assert processor.vocabulary_.reverse(1) == "c" and len(processor.vocabulary_) == 3
    assert next(processor.transform(["a b c d"])).tolist() == [0, 2, 1, 0]
    vocabulary = preprocessing.CategoricalVocabulary()
    for word in "a b b c c c".split():
        vocabulary.add(word)
    vocabulary.trim(0, max_frequency=3)
    assert [vocabulary.reverse(i) for i in range(3)] == ["<UNK>", "b", "a"]


def test_vocabulary_of_ones_own() -> None:
    vocabulary = preprocessing.CategoricalVocabulary("?", support_reverse=False)
    vocabulary.add("a", 3)
    assert (vocabulary.get("a"), vocabulary.get("b")) == (1, 2)
    vocabulary.freeze()
    assert vocabulary.get("c") == 0
    with pytest.raises(ValueError, match="support_reverse"):
        vocabulary.reverse(1)
    processor = preprocessing.VocabularyProcessor(2, vocabulary=vocabulary, tokenizer_fn=lambda texts: map(list, texts))
    assert [line.tolist() for line in processor.transform(["ab", "zab"])] == [[1, 2], [0, 1]]


def test_processor_is_saved_and_restored(tmp_path: Path) -> None:
    processor = preprocessing.VocabularyProcessor(4, min_frequency=1).fit(["ä b ä b c"])
    processor.save(tmp_path / "vocabulary")
    restored = preprocessing.VocabularyProcessor.restore(tmp_path / "vocabulary")
    assert (restored.max_document_length, restored.min_frequency) == (4, 1)
    assert next(restored.transform(["b ä d"])).tolist() == next(processor.transform(["b ä d"])).tolist() == [1, 2, 0, 0]


@pytest.mark.parametrize("data", [pickle.dumps([1]), b"{}", b"[]", b'{"vocabulary": "[1]"}'])
def test_other_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "vocabulary").write_bytes(data)
    with pytest.raises(errors.DataLossError, match="pickles, which are not read"):
        preprocessing.VocabularyProcessor.restore(tmp_path / "vocabulary")


def test_bytes_of_texts() -> None:
    processor = tf.contrib.learn.preprocessing.ByteProcessor(4)
    numbers = list(processor.fit(["x"]).fit_transform(["ab", "äöü", b"xyz"]))
    assert [line.tolist() for line in numbers] == [[97, 98, 0, 0], [195, 164, 195, 182], [120, 121, 122, 0]]
    assert list(processor.reverse(numbers)) == ["ab", "äö", "xyz"]
