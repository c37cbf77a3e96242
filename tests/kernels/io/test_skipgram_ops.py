"""Pairs of near words: TensorFlow's, to the last number, and refusals."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from tests.kernels.harness import build, in_tensorflow, registered

COUNTS = [90, 61, 40, 22, 9, 4, 2]


def corpus(folder: Path) -> str:
    """A text of 228 words, `w0` to `w6`, which are less and less frequent."""
    words = list(itertools.chain.from_iterable([f"w{number}"] * count for number, count in enumerate(COUNTS)))
    mixed = [words[(place * 37) % len(words)] for place in range(len(words))]
    path = folder / "corpus"
    path.write_text(" ".join(mixed[:100]) + "\n\t" + "  ".join(mixed[100:]) + "\n")
    return str(path)


def made(path: str, **attrs: Any) -> Any:
    """A call of the kernel, which keeps its place between calls."""
    built, _, _ = build("Skipgram", [], filename=path.encode(), **attrs)
    return lambda: built.compute()


def test_registrations_are_tensorflows() -> None:
    assert registered("Skipgram") == in_tensorflow("Skipgram")


def checksum(numbers: Any) -> int:
    return int((numbers.astype(np.int64) * np.arange(1, numbers.size + 1)).sum())


# TensorFlow 2.21's: window, subsample, min_count; then of three batches of 1400 the epoch, the words that were seen,
# the first examples and labels, and their checksums.
RECORDED = [
    ((1, 0.0, 3), (8, 1502), [1, 1, 1, 1, 1, 2, 2, 2, 2, 3], [1, 1, 1, 1, 2, 1, 2, 2, 3, 2], (2100321, 2100320)),
    ((1, 0.0, 3), (8, 1502), [2, 3, 3, 4, 4, 1, 1, 1, 1, 2], [3, 2, 4, 3, 1, 4, 1, 1, 2, 1], (2098914, 2098915)),
    ((1, 0.0, 3), (17, 3004), [1, 2, 2, 3, 3, 4, 4, 1, 1, 1], [2, 1, 3, 2, 4, 3, 1, 4, 1, 1], (2107885, 2107885)),
    ((4, 0.0, 3), (4, 596), [1, 1, 1, 1, 1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 2, 1, 2, 1, 2, 2], (2147318, 2105983)),
    ((4, 0.0, 3), (4, 596), [2, 2, 2, 2, 2, 2, 2, 2, 2, 2], [1, 1, 2, 3, 4, 5, 1, 1, 2, 3], (2096903, 2120169)),
    ((4, 0.0, 3), (8, 1193), [3, 3, 3, 4, 4, 4, 4, 4, 4, 4], [4, 1, 1, 1, 1, 2, 3, 1, 1, 1], (2178227, 2105164)),
    ((3, 0.0, 1), (4, 745), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 2, 2, 1, 1, 2, 2], (2166165, 2137358)),
    ((3, 0.0, 1), (4, 745), [1, 1, 1, 1, 1, 1, 1, 1, 2, 2], [5, 1, 3, 5, 1, 2, 2, 3, 1, 2], (2209121, 2093806)),
    ((3, 0.0, 1), (8, 1485), [5, 5, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 3, 5, 1, 2, 3, 5, 1, 2], (2194738, 2161701)),
    ((5, 0.05, 5), (6, 503), [1, 2, 2, 3, 3, 0, 0, 0, 0, 0], [2, 1, 3, 2, 0, 1, 2, 3, 2, 2], (2297979, 2250395)),
    ((5, 0.05, 5), (6, 503), [1, 1, 1, 1, 1, 2, 2, 2, 2, 2], [3, 0, 2, 2, 5, 3, 3, 0, 1, 2], (2322172, 2306456)),
    ((5, 0.05, 5), (13, 1004), [1, 1, 1, 1, 1, 2, 2, 2, 2, 3], [4, 2, 3, 0, 2, 4, 1, 3, 0, 1], (2253187, 2320194)),
    ((2, 0.001, 5), (118, 1008), [2, 5, 5, 5, 1, 1, 0, 0, 0, 0], [5, 2, 1, 0, 5, 0, 1, 0, 0, 3], (2241428, 2240604)),
    ((2, 0.001, 5), (118, 1008), [3, 3, 1, 1, 2, 2, 4, 4, 4, 4], [2, 1, 3, 2, 1, 4, 1, 2, 1, 3], (2196026, 2159786)),
    ((2, 0.001, 5), (177, 2021), [1, 1, 5, 5, 4, 4, 1, 1, 1, 1], [5, 5, 1, 4, 5, 1, 5, 4, 2, 2], (2200374, 2273173)),
]


@pytest.mark.parametrize("settings", list(dict.fromkeys(row[0] for row in RECORDED)))
def test_pairs_are_tensorflows(tmp_path: Path, settings: tuple[int, float, int]) -> None:
    window, subsample, least = settings
    run = made(corpus(tmp_path), batch_size=1400, window_size=window, subsample=subsample, min_count=least)
    for _, place, examples, labels, sums in (row for row in RECORDED if row[0] == settings):
        words, counts, size, epoch, seen, found, near = run()
        kept = [count for count in COUNTS if count >= least]
        assert words.tolist() == [b"UNK", *(b"w%d" % number for number in range(len(kept)))]
        assert counts.dtype == np.int32 and counts.tolist() == [228 - sum(kept), *kept]
        assert (size, epoch, seen) == (228, *place)
        assert found[:10].tolist() == examples and near[:10].tolist() == labels
        assert (checksum(found), checksum(near)) == sums
        assert found.dtype == near.dtype == np.int32


def test_batches_of_any_size_are_parts_of_one_sequence(tmp_path: Path) -> None:
    path = corpus(tmp_path)
    (*_, examples, labels) = made(path, batch_size=7000, window_size=3)()
    run = made(path, batch_size=700, window_size=3)
    parts = [run()[-2:] for _ in range(10)]
    assert np.array_equal(np.concatenate([part[0] for part in parts]), examples)
    assert np.array_equal(np.concatenate([part[1] for part in parts]), labels)
    assert made(path, batch_size=0)()[-1].shape == (0,)


@pytest.mark.parametrize(
    ("attrs", "error", "message"),
    [
        ({"batch_size": 2, "window_size": 30}, errors.InvalidArgumentError, "contains too little data: 228 words"),
        ({"batch_size": 2, "filename": b"/none"}, errors.NotFoundError, "No such file"),
        ({"batch_size": -1}, errors.InvalidArgumentError, "batch_size must not be negative"),
        ({"batch_size": 1, "window_size": 0}, errors.InvalidArgumentError, "window_size must be positive"),
    ],
)
def test_refused(tmp_path: Path, attrs: dict[str, Any], error: Any, message: str) -> None:
    attrs = {"filename": corpus(tmp_path).encode(), **attrs}
    with pytest.raises(error, match=message):
        build("Skipgram", [], **attrs)[0].compute()


async def test_graph_of_a_version_that_had_it(tmp_path: Path) -> None:
    message = proto.GraphDef()
    message.versions.producer = 18
    node = message.node.add(name="s", op="Skipgram")
    node.attr["filename"].s = corpus(tmp_path).encode()
    node.attr["batch_size"].i = 4
    graph = aexec.Graph.from_graph_def(message)
    assert [tuple(tensor.static_shape) for tensor in graph.node("s").outputs] == [(None,)] * 2 + [()] * 3 + [(4,)] * 2
    async with aexec.Session(graph) as session:
        first, second = [await session.run("s:5") for _ in range(2)]
    assert first.shape == second.shape == (4,)
