"""`tf.contrib.learn.preprocessing`: texts as arrays of the numbers of their words, or of their bytes.

The numbers are TensorFlow 1's: words are counted from 1 in the order in which they came, 0 is the unknown word and what
fills a text that is too short.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from aexec.framework import errors

__all__ = ["ByteProcessor", "CategoricalVocabulary", "VocabularyProcessor", "tokenizer"]

# Words, parts of words in camel case, and abbreviations.
_TOKEN = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)


def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """The words of each text."""
    return (_TOKEN.findall(text) for text in iterator)


class CategoricalVocabulary:
    """Numbers of words.

    Args:
        unknown_token: what number 0 stands for.
        support_reverse: False refuses `reverse`.
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        self._unknown_token = unknown_token
        self._support_reverse = support_reverse
        self._numbers = {unknown_token: 0}
        self._counts: dict[str, int] = {}
        self._frozen = False

    def __len__(self) -> int:
        return len(self._numbers)

    def freeze(self, freeze: bool = True) -> None:
        """From now on words that are not in it have number 0, or numbers of their own again."""
        self._frozen = freeze

    def get(self, category: str) -> int:
        """The number of a word, which gets one if the vocabulary is not frozen."""
        if self._frozen:
            return self._numbers.get(category, 0)
        return self._numbers.setdefault(category, len(self._numbers))

    def add(self, category: str, count: int = 1) -> None:
        """Count a word."""
        if self.get(category):
            self._counts[category] = self._counts.get(category, 0) + count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Keep the words that were counted often, and number them anew: the most frequent is 1.

        Args:
            min_frequency: words that were counted so often, or less, are dropped.
            max_frequency: words that were counted so often, or more, are dropped; -1 for none.
        """
        counted = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        kept = {word: count for word, count in counted if count > min_frequency and not 0 < max_frequency <= count}
        self._numbers = {self._unknown_token: 0} | {word: number for number, word in enumerate(kept, 1)}
        self._counts = kept

    def reverse(self, class_id: int) -> str:
        """The word of a number.

        Raises:
            ValueError: the vocabulary was made without `support_reverse`.
        """
        if not self._support_reverse:
            raise errors.InvalidValueError(
                "This vocabulary wasn't initialized with support_reverse to support reverse() function."
            )
        return next(itertools.islice(self._numbers, int(class_id), None))

    def to_json(self) -> str:
        """Its words and their counts."""
        return json.dumps({"words": list(self._numbers), "counts": self._counts, "reverse": self._support_reverse})

    @classmethod
    def from_json(cls, text: str) -> CategoricalVocabulary:
        """A frozen vocabulary, as `to_json` wrote it.

        Raises:
            ValueError: the text is something else.
        """
        read = json.loads(text)
        words, counts = read["words"], read["counts"]
        made = cls(words[0], read["reverse"])
        made._numbers = {word: number for number, word in enumerate(words)}
        made._counts = counts
        made.freeze()
        return made


class VocabularyProcessor:
    """Texts as int64 arrays [max_document_length] of the numbers of their words.

    Args:
        max_document_length: later words are cut off; shorter texts end with zeros.
        min_frequency: `fit` drops words that it counted so often, or less; 0 keeps all.
        vocabulary: one to begin with.
        tokenizer_fn: gives the words of each text of an iterable.

    Attributes:
        vocabulary_: the vocabulary.
    """

    def __init__(
        self,
        max_document_length: int,
        min_frequency: int = 0,
        vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Callable[[Iterable[str]], Iterable[Iterable[str]]] | None = None,
    ) -> None:
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = CategoricalVocabulary() if vocabulary is None else vocabulary
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> VocabularyProcessor:
        """Number the words of all texts, and freeze the vocabulary."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents: Iterable[str], unused_y: Any = None) -> Iterator[Any]:
        """`fit`, then `transform`: texts that can be read only once are read once."""
        documents = list(raw_documents)
        return self.fit(documents).transform(documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[Any]:
        """The array of each text."""
        for words in self._tokenizer(raw_documents):
            numbers = np.zeros(self.max_document_length, np.int64)
            for place, word in enumerate(itertools.islice(words, self.max_document_length)):
                numbers[place] = self.vocabulary_.get(word)
            yield numbers

    def reverse(self, documents: Iterable[Iterable[int]]) -> Iterator[str]:
        """The words of each array, with spaces between them."""
        for numbers in documents:
            yield " ".join(map(self.vocabulary_.reverse, numbers))

    def save(self, filename: str | os.PathLike[str]) -> None:
        """Write the vocabulary and the two numbers to a file, as JSON; a tokenizer of one's own is not written."""
        settings = {"max_document_length": self.max_document_length, "min_frequency": self.min_frequency}
        text = json.dumps(settings | {"vocabulary": self.vocabulary_.to_json()})
        Path(filename).write_text(text, encoding="utf-8")

    @classmethod
    def restore(cls, filename: str | os.PathLike[str]) -> VocabularyProcessor:
        """A processor as `save` wrote it, with the usual tokenizer.

        Raises:
            DataLossError: the file is something else, as TensorFlow's own is, a pickle: pickles can run any code.
        """
        try:
            read = json.loads(Path(filename).read_bytes())
            vocabulary = CategoricalVocabulary.from_json(read["vocabulary"])
            return cls(int(read["max_document_length"]), int(read["min_frequency"]), vocabulary)
        except (KeyError, TypeError, ValueError) as error:
            raise errors.DataLossError(
                f"{os.fspath(filename)} is no vocabulary that VocabularyProcessor.save has written here ({error!r}); "
                "TensorFlow's are pickles, which are not read: fit the processor again"
            ) from None


class ByteProcessor:
    """Texts as uint8 arrays [max_document_length] of their bytes in UTF-8.

    Args:
        max_document_length: later bytes are cut off; shorter texts end with zeros.
    """

    def __init__(self, max_document_length: int) -> None:
        self.max_document_length = max_document_length

    def fit(self, x: Any) -> ByteProcessor:
        """Nothing is learned from texts."""
        return self

    def fit_transform(self, x: Iterable[str | bytes]) -> Iterator[Any]:
        """As `transform`."""
        return self.transform(x)

    def transform(self, x: Iterable[str | bytes]) -> Iterator[Any]:
        """The array of each text."""
        for text in x:
            data = text.encode() if isinstance(text, str) else text
            numbers = np.zeros(self.max_document_length, np.uint8)
            numbers[: len(data)] = np.frombuffer(data[: self.max_document_length], np.uint8)
            yield numbers

    def reverse(self, x: Iterable[Any]) -> Iterator[str]:
        """The text of each array, without what filled it; bytes that are no UTF-8 are left out."""
        for numbers in x:
            yield bytes(np.asarray(numbers, np.uint8)).rstrip(b"\0").decode(errors="ignore")
