# ruff: noqa: E501 (an expression a line)
"""Pipelines of datasets drawn at random, as expressions in the language of `pipelines.py`, and a recorder of them.

In an environment with TensorFlow 2.21, from the root of the repository,
`python -m tests.kernels.datasets.random_pipelines FILE FIRST COUNT` records the pipelines of the seeds FIRST, FIRST + 1,
… into a file, and without arguments those of the test, into `random_pipelines.json.xz`.  With a file alone, and without
TensorFlow, it runs the pipelines of the file here, and prints those that differ.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kernels.datasets.pipelines import passes_of

__all__ = ["COUNT", "RECORDED_RANDOM", "drawn", "read"]

RECORDED_RANDOM = Path(__file__).resolve().parent / "random_pipelines.json.xz"
# The test has the pipelines of the seeds 0, 1, … below this.
COUNT = 150

# A step takes an expression of elements of some kind, and gives one of elements of some kind.
_Step = Callable[[random.Random, str], tuple[str, str]]
_SCALAR, _VECTOR, _MATRIX = "scalar", "vector", "matrix"


def _same(*templates: str, kind: str = _SCALAR) -> list[_Step]:
    """A step for each template, in which `{d}` is the dataset, and `{a}`, `{b}`, `{c}` are small numbers."""

    def step(template: str) -> _Step:
        def apply(choose: random.Random, dataset: str) -> tuple[str, str]:
            numbers = {"a": choose.randint(1, 5), "b": choose.randint(0, 4), "c": choose.randint(1, 9)}
            return template.format(d=dataset, **numbers), kind

        return apply

    return [step(template) for template in templates]


_ANY = (
    "{d}.shuffle({c}, seed={b} + 1)",
    "{d}.shuffle({a}, seed={c}, reshuffle_each_iteration=False)",
    "{d}.repeat({a})",
    "{d}.repeat().take({c} + 11)",
    "{d}.take({c} + 3)",
    "{d}.skip({b})",
    "{d}.shard({a}, 0)",
    "{d}.prefetch({b})",
    "{d}.cache()",
    "{d}.cache().repeat(2)",
    "{d}.concatenate({d}.take({b}))",
    "{d}.apply(e.shuffle_and_repeat({a}, count=2, seed={c}))",
    "{d}.apply(e.ignore_errors())",
    "{d}.enumerate({b}).filter(lambda i, x: i % 2 < {a}).map(lambda i, x: x)",
    "d.zip(({d}, {d}.skip({b}))).map(lambda x, y: x)",
    "e.sample_from_datasets([{d}, {d}.take({c})], weights=[0.25, 0.75], seed={c})",
    "e.choose_from_datasets([{d}, {d}.skip(1)], d.range({c}).map(lambda i: i % 2).repeat(2))",
    "{d}.interleave(lambda x: d.from_tensors(x).repeat({a}), cycle_length={a}, block_length={b} + 1)",
    "{d}.window({a}, shift={c}, drop_remainder=False).flat_map(lambda w: w)",
)
_OF_SCALARS = (
    "{d}.map(lambda x: x * {a} + {b})",
    "{d}.map(lambda x: x * x - {c}, num_parallel_calls={a})",
    "{d}.map(lambda x: tf.where(x % 2 > 0, x, x // {a}), num_parallel_calls=-1)",
    "{d}.filter(lambda x: x % {c} != {b})",
    "{d}.flat_map(lambda x: d.range(tf.abs(x) % {a}))",
    "{d}.flat_map(lambda x: d.from_tensors(x).concatenate(d.range({b})))",
    "{d}.interleave(lambda x: d.range(tf.abs(x) % {c}), cycle_length={a}, block_length={b} + 1)",
    "{d}.interleave(lambda x: d.range(tf.abs(x) % {c}), cycle_length={a}, block_length={b} + 1, num_parallel_calls=2)",
    "{d}.apply(e.scan(tf.constant({b}, tf.int64), lambda s, x: (s * 3 % 97 + x, s + x)))",
    "{d}.apply(e.take_while(lambda x: x % 23 != {c}))",
    "{d}.apply(e.unique())",
    "{d}.apply(e.group_by_reducer(lambda x: x % {a}, e.Reducer(lambda k: tf.constant(0, tf.int64), "
    "lambda s, x: s + x, lambda s: s)))",
    "{d}.map(lambda x: 60 // (x % {a})).apply(e.ignore_errors())",
    "{d}.apply(e.map_and_batch(lambda x: x - {b}, {a})).unbatch()",
    "d.zip(({d}, d.range({c}))).map(lambda x, y: x + y)",
    "{d}.apply(e.bucket_by_sequence_length(lambda x: tf.cast(tf.abs(x) % 7, tf.int32), [{a}], [2, 3])).unbatch()",
)
_SCALARS_TO_VECTORS = (
    "{d}.batch({a})",
    "{d}.batch({c}, drop_remainder=True)",
    "{d}.map(lambda x: tf.fill([tf.abs(x) % {a}], x))",
    "{d}.apply(e.map_and_batch(lambda x: x + {b}, {a}, num_parallel_calls=2))",
    "{d}.window({a}, shift={c}, stride={b} + 1, drop_remainder=False).flat_map(lambda w: w.batch({c}))",
    "{d}.apply(e.group_by_window(lambda x: x % {a}, lambda k, w: w.batch({c}), window_size={c}))",
)
_OF_VECTORS = ("{d}.map(lambda x: x[:{a}] + {b})", "{d}.filter(lambda x: tf.size(x) != {a})")
_VECTORS_TO_SCALARS = (
    "{d}.map(lambda x: tf.reduce_sum(x))",
    "{d}.map(lambda x: tf.cast(tf.size(x), tf.int64))",
    "{d}.flat_map(lambda x: d.from_tensor_slices(x))",
)
_UNBATCHED = ("{d}.unbatch()",)
_PADDED = (
    "{d}.padded_batch({a}, padded_shapes=[None])",
    "{d}.padded_batch({c}, padded_shapes=[None], drop_remainder=True)",
)
_OF_MATRICES = ("{d}.map(lambda x: x * {a})",)
_MATRICES_TO_VECTORS = ("{d}.unbatch()", "{d}.map(lambda x: tf.reduce_sum(x, 0))")

_STEPS: dict[str, list[_Step]] = {
    _SCALAR: [
        *_same(*_ANY),
        *_same(*_OF_SCALARS),
        *_same(*_OF_SCALARS),
        *_same(*_SCALARS_TO_VECTORS, kind=_VECTOR),
    ],
    _VECTOR: [
        *_same(*_ANY, kind=_VECTOR),
        *_same(*_OF_VECTORS, kind=_VECTOR),
        *_same(*_VECTORS_TO_SCALARS, *_UNBATCHED, *_UNBATCHED),
        *_same(*_PADDED, kind=_MATRIX),
    ],
    _MATRIX: [
        *_same(*_ANY, kind=_MATRIX),
        *_same(*_OF_MATRICES, kind=_MATRIX),
        *_same(*_MATRICES_TO_VECTORS, kind=_VECTOR),
    ],
}
_SOURCES = (
    "d.range({c} * 3)",
    "d.range({b}, {c} * 4, {a})",
    "d.from_tensor_slices(tf.range({c} * 2, dtype=tf.int64) * 7 % 11)",
    "d.from_tensors(tf.constant({c}, tf.int64))",
)


def drawn(seed: int) -> str:
    """A pipeline of two to six transformations."""
    choose = random.Random(seed)
    dataset, kind = choose.choice(_same(*_SOURCES))(choose, "")
    for _ in range(choose.randint(2, 6)):
        dataset, kind = choose.choice(_STEPS[kind])(choose, dataset)
    return dataset


def read(path: Path) -> dict[str, Any]:
    """The recorded pipelines of a file, by their seeds."""
    cases: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return cases


def _record(path: Path, first: int, count: int) -> None:
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    cases = {}
    for seed in range(first, first + count):
        source = drawn(seed)
        cases[str(seed)] = {"source": source, **passes_of(tensorflow, tf, tensorflow.nest, source, one_shot=False)}
    path.write_bytes(lzma.compress(json.dumps(cases, separators=(",", ":"), sort_keys=True).encode(), preset=9))
    print(f"{len(cases)} pipelines, {path.stat().st_size} bytes", file=sys.stderr)


async def _compare(path: Path) -> int:
    from tests.kernels.datasets.recorded_pipelines import difference

    differ = 0
    for seed, case in read(path).items():
        found = await difference(case)
        if found:
            differ += 1
            print(f"{seed}: {case['source']}\n{found}")
    print(f"{differ} differ")
    return int(differ > 0)


def _main(arguments: list[str]) -> int:
    if len(arguments) == 1:
        return asyncio.run(_compare(Path(arguments[0])))
    path, first, count = (Path(arguments[0]), *map(int, arguments[1:])) if arguments else (RECORDED_RANDOM, 0, COUNT)
    _record(path, first, count)
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
