"""Pairs of near words of a text, for word2vec.

The words and the random numbers are TensorFlow's, which begin with the same seed in each process.  Words that are
equally frequent are numbered in the order in which the text has them first.
Next to read: `aexec/numerics/philox.py`.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import Growth, announce_scratch
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.waiting.abandoned_calls import check_wanted, finishing
from aexec.io.files import read_file, text_path
from aexec.kernels.common.files import blocking
from aexec.numerics.philox import Philox, unit_floats

__all__: list[str] = []

# TensorFlow's: words of which the pairs are made together, and pairs that are made ahead.
_SENTENCE, _AHEAD = 1000, 3000
# Bytes of a text whose words are counted at a time, at least.
_PIECE = 1 << 20
# Random numbers that are made at a time.
_WORDS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class _Corpus:
    """A text as numbers of words.

    Attributes:
        words, counts: of the vocabulary: first `UNK`, which stands for rare words; then from the most frequent on.
        ids: int32, for each word of the text its place in the vocabulary.
    """

    words: Any
    counts: Any
    ids: Any


def _pieces(data: bytes) -> Iterator[list[bytes]]:
    """The words of a text, in pieces, none of which ends within a word."""
    start = 0
    while start < len(data):
        end = min(start + _PIECE, len(data))
        while end < len(data) and not data[end : end + 1].isspace():
            end += 1
        yield data[start:end].split()
        start = end


def _read(path: str, min_count: int, window: int) -> _Corpus:
    data = read_file(path)
    announce_scratch(len(data))
    numbers, ids, growth = dict[bytes, int](), array("i"), Growth()
    for piece in _pieces(data):
        check_wanted()
        known = len(numbers)
        ids.extend([numbers.setdefault(word, len(numbers)) for word in piece])
        growth.add(4 * len(piece) + (len(numbers) - known) * (STRING_BYTES + 64))
    if len(ids) < window * 10:
        raise errors.InvalidArgumentError(f"The text file {path} contains too little data: {len(ids)} words")
    found = np.frombuffer(ids, np.int32)
    counts = np.bincount(found, minlength=len(numbers))
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count]
    places = np.zeros(len(numbers), np.int32)
    places[order] = np.arange(1, len(order) + 1)
    every = list(numbers)
    words = np.array([b"UNK", *(every[number] for number in order.tolist())], object)
    kept = counts[order]
    return _Corpus(words, np.array([len(ids) - kept.sum(), *kept], np.int32), places[found])


class _RandomWords:
    """TensorFlow's `SimplePhilox` of a generator without a seed: 32-bit numbers one after the other."""

    def __init__(self) -> None:
        self._generator = Philox(0, 0)
        self._ahead = np.empty(0, np.uint32)

    def peek(self, count: int) -> Any:
        """The next numbers, uint32, which are still the next ones after this."""
        if self._ahead.size < count:
            blocks = max(_WORDS_AT_ONCE, count) // 4 + 1
            more = self._generator.words(0, blocks).reshape(-1)
            self._generator = self._generator.skip(blocks)
            self._ahead = np.concatenate([self._ahead, more])
        return self._ahead[:count]

    def skip(self, count: int) -> None:
        """Use up numbers that were looked at."""
        self._ahead = self._ahead[count:]

    def below(self, limit: int, count: int) -> Any:
        """Numbers from 0 to `limit - 1`, all as likely: int64 [count]."""
        rejected = 0 if limit & (limit - 1) == 0 else (2**32 - 1) % limit + 1
        found = np.empty(0, np.int64)
        while found.size < count:
            words = self.peek(count - found.size)
            found = np.concatenate([found, words[words >= rejected].astype(np.int64) % limit])
            self.skip(words.size)
        return found


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of near words, and how far in the text they are.

    Attributes:
        examples, labels: int32 [pairs].
        seen: words of the text of which pairs were made, with those of each pair: int64 [pairs].
        epoch: how often the text was read to its end before.
    """

    examples: Any
    labels: Any
    seen: Any
    epoch: int


class _Skipgrams:
    """The pairs of a text, in TensorFlow's order.

    Attributes:
        corpus: the text.
        epoch, seen: of the last pair that was made ahead.
    """

    def __init__(self, corpus: _Corpus, window: int, subsample: float) -> None:
        self.corpus = corpus
        self.epoch, self.seen = -1, 0
        self._window = window
        self._random = _RandomWords()
        self._kept_share = self._share_that_is_kept(np.float32(subsample)) if subsample > 0 else None
        self._visited = self._sentences = 0
        self._rest: _Pairs | None = None
        self._ahead: list[tuple[Any, Any]] = []
        self._ready = 0

    def _share_that_is_kept(self, subsample: np.float32) -> Any:
        """Of each word of the vocabulary, float32: Mikolov et al. 2013, equation 5."""
        counts = self.corpus.counts.astype(np.float32)
        whole = subsample * np.float32(self.corpus.ids.size)
        with np.errstate(divide="ignore", invalid="ignore"):  # no rare words: UNK is never asked for
            return (np.sqrt(counts / whole) + np.float32(1)) * whole / counts

    def _sentence(self) -> Any:
        """The next words, frequent ones thinned out: int32 [_SENTENCE]."""
        ids, parts, lacking = self.corpus.ids, [], _SENTENCE
        while lacking:
            check_wanted()
            words = ids[np.arange(self._visited, self._visited + lacking) % ids.size]
            if self._kept_share is not None:
                kept = ~(unit_floats(self._random.peek(lacking)) > self._kept_share[words])
                self._random.skip(lacking)
                words = words[kept]
            self._visited += lacking
            parts.append(words)
            lacking -= words.size
        return np.concatenate(parts)

    def _pairs(self) -> _Pairs:
        """All pairs of the next sentence."""
        sentence = self._sentence()
        reach = 1 + self._random.below(self._window, _SENTENCE)
        places = np.arange(_SENTENCE)
        first, last = np.maximum(places - reach, 0), np.minimum(places + reach, _SENTENCE - 1)
        number = last - first + 1
        at = np.repeat(places, number)
        other = np.arange(at.size) - np.repeat(np.cumsum(number) - number, number) + first[at]
        differ = other != at
        at, other = at[differ], other[differ]
        begun = self._sentences * _SENTENCE + 1
        self._sentences += 1
        return _Pairs(sentence[at], sentence[other], at + begun, -1 - (-self._visited // self.corpus.ids.size))

    def _make_ahead(self) -> tuple[Any, Any]:
        """The next `_AHEAD` pairs."""
        examples, labels, lacking = [], [], _AHEAD
        while lacking:
            pairs = self._pairs() if self._rest is None else self._rest
            examples.append(pairs.examples[:lacking])
            labels.append(pairs.labels[:lacking])
            taken = examples[-1].size
            lacking -= taken
            self.epoch, self.seen = pairs.epoch, int(pairs.seen[taken - 1])
            left = _Pairs(pairs.examples[taken:], pairs.labels[taken:], pairs.seen[taken:], pairs.epoch)
            self._rest = left if left.examples.size else None
        return np.concatenate(examples), np.concatenate(labels)

    def take(self, count: int) -> tuple[Any, Any]:
        """The next pairs, each int32 [count].  Others are made ahead, if no pair is left then, as TensorFlow does."""
        while self._ready <= count:
            self._ahead.append(self._make_ahead())
            self._ready += _AHEAD
        with finishing():
            examples, labels = (np.concatenate(parts) for parts in zip(*self._ahead, strict=True))
            self._ahead = [(examples[count:], labels[count:])]
            self._ready -= count
        return examples[:count], labels[:count]


@kernel("Skipgram", cost=blocking)
def skipgram(c: OpKernelConstruction) -> Compute:
    """Return the vocabulary of a text and how often it has each word, how far it was read, and the next pairs."""
    path, batch, window = text_path(c.attr("filename")), c.attr("batch_size"), c.attr("window_size")
    min_count, subsample = c.attr("min_count"), c.attr("subsample")
    if batch < 0 or window < 1:
        raise errors.InvalidArgumentError(
            f"batch_size must not be negative and window_size must be positive, got {batch} and {window}"
        )
    lock, made = threading.Lock(), list[_Skipgrams]()

    def compute() -> Any:
        with lock:
            if not made:
                made.append(_Skipgrams(_read(path, min_count, window), window, subsample))
            pairs = made[0]
            announce_scratch(16 * batch)
            examples, labels = pairs.take(batch)
            size = np.int64(pairs.corpus.ids.size)
            return (
                pairs.corpus.words,
                pairs.corpus.counts,
                size,
                np.int32(pairs.epoch),
                np.int64(pairs.seen),
                examples,
                labels,
            )

    return compute
