"""`scripts/bench data`: pipelines of tf.data, run by aexec and by TensorFlow by turns, from the same graphs and files.

TensorFlow writes the files and the graphs, in an environment of its own: `$TENSORFLOW_PYTHON` names one that has it.
Two processes stay alive, one for each runtime, and run a pipeline to its end when they are told to.  The table has the
median of the turns: elements a second, processor time for an element, and the growth of the process's memory.

    scripts/bench data [--turns N] [--records N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["PIPELINES", "Turn", "main", "row"]

PIPELINES = {
    "images, parsed one by one": "TFRecord → shuffle 10 000 → map: parse, decode, scale → batch 128 → prefetch",
    "images, parsed in batches": "TFRecord → shuffle 10 000 → batch 128 → map: parse, decode, scale → prefetch",
    "images, heavy function": "TFRecord → shuffle 10 000 → map: parse, resize to 96×96 → batch 128 → prefetch",
    "lines of text": "lines → shuffle 10 000 → map: lower case, bucket → batch 128 → prefetch",
}


class Turn(NamedTuple):
    """One pass through a pipeline.

    Attributes:
        elements: the images or lines.
        seconds, processor_seconds: of the pass.
        held_seconds: processor time for which aexec's event loop was held at a stretch, at most.
        memory_bytes: the most memory that the process has had until now, besides what it had before the first pass.
    """

    elements: int
    seconds: float
    processor_seconds: float
    held_seconds: float
    memory_bytes: int


# ---- In TensorFlow's environment


def _write_files(tf: Any, folder: Path, records: int) -> None:
    choose = np.random.default_rng(1)
    with tf.io.TFRecordWriter(str(folder / "images")) as writer:
        for number in range(records):
            image = choose.integers(0, 256, 784, np.uint8).tobytes()
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 10])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    words = ["Alpha", "beta", "Gamma", "delta", "epsilon", "ZETA", "eta", "Theta"]
    lines = (" ".join(choose.choice(words, 8)) for _ in range(records))
    (folder / "lines").write_text("\n".join(lines) + "\n")


def _pipeline(tf: Any, name: str, folder: Path) -> Any:
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def scaled(parsed: Any) -> Any:
        return tf.cast(tf.io.decode_raw(parsed["image"], tf.uint8), tf.float32) / 255.0, parsed["label"]

    def resized(text: Any) -> Any:
        image, label = scaled(tf.io.parse_single_example(text, features))
        return tf.image.resize(tf.reshape(image, [28, 28, 1]), [96, 96]), label

    if name == "lines of text":
        source = tf.data.TextLineDataset(str(folder / "lines"))
    else:
        source = tf.data.TFRecordDataset(str(folder / "images"))
    shuffled = source.shuffle(10_000, seed=1)
    if name == "images, parsed in batches":
        return shuffled.batch(128).map(lambda texts: scaled(tf.io.parse_example(texts, features))).prefetch(2)
    functions: dict[str, Callable[[Any], Any]] = {
        "images, parsed one by one": lambda text: scaled(tf.io.parse_single_example(text, features)),
        "images, heavy function": resized,
        "lines of text": lambda line: tf.strings.to_hash_bucket_fast(tf.strings.lower(line), 1000),
    }
    return shuffled.map(functions[name]).batch(128).prefetch(2)


def _write_graphs(tensorflow: Any, folder: Path) -> None:
    tf = tensorflow.compat.v1
    for number, name in enumerate(PIPELINES):
        with tf.Graph().as_default() as graph:
            iterator = tf.data.make_initializable_iterator(_pipeline(tf, name, folder))
            fetches = [tensor.name for tensor in tensorflow.nest.flatten(iterator.get_next())]
            (folder / f"{number}.pb").write_bytes(graph.as_graph_def().SerializeToString())
            facts = {"begin": iterator.initializer.name, "fetches": fetches}
            (folder / f"{number}.json").write_text(json.dumps(facts))


def _graph(folder: Path, name: str) -> tuple[bytes, str, list[str]]:
    number = list(PIPELINES).index(name)
    facts = json.loads((folder / f"{number}.json").read_text())
    return (folder / f"{number}.pb").read_bytes(), facts["begin"], facts["fetches"]


def _tensorflow_worker(folder: Path, records: int) -> None:
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    if not (folder / "lines").exists():
        _write_files(tf, folder, records)
        _write_graphs(tensorflow, folder)
    before = _memory()
    for name in _requests():
        text, begin, fetches = _graph(folder, name)
        graph_def = tf.GraphDef.FromString(text)
        with tf.Graph().as_default(), tf.Session() as session:
            tf.import_graph_def(graph_def, name="")
            session.run(begin)
            call = session.make_callable(fetches)
            elements, clock, processor = len(call()[0]), time.perf_counter(), time.process_time()
            first = elements
            try:
                while True:
                    elements += len(call()[0])
            except tf.errors.OutOfRangeError:
                pass
            seconds, used = time.perf_counter() - clock, time.process_time() - processor
        _answer(Turn(elements - first, seconds, used, 0.0, _memory() - before))


# ---- In aexec's environment


def _aexec_worker(folder: Path) -> None:
    import uvloop

    import aexec  # noqa: F401 (so that its own memory is not counted)

    before = _memory()
    for name in _requests():
        turn = uvloop.run(_aexec_turn(folder, name))
        _answer(turn._replace(memory_bytes=_memory() - before))


async def _aexec_turn(folder: Path, name: str) -> Turn:
    import aexec

    text, begin, fetches = _graph(folder, name)
    async with aexec.Session(aexec.Graph.from_bytes(text)) as session:
        await session.run([], targets=[begin])
        call = session.make_callable(fetches)
        elements = first = len((await call())[0])
        held = [0.0]
        watching = asyncio.create_task(_watch(held))
        clock, processor = time.perf_counter(), time.process_time()
        try:
            while True:
                elements += len((await call())[0])
        except aexec.errors.OutOfRangeError:
            pass
        seconds, used = time.perf_counter() - clock, time.process_time() - processor
        watching.cancel()
    return Turn(elements - first, seconds, used, held[0], 0)


async def _watch(held: list[float]) -> None:
    """Note the most processor time of the loop's thread between two turns of the loop, looking every few of them."""
    while True:
        await asyncio.sleep(0.005)
        before = time.thread_time()
        await asyncio.sleep(0)
        held[0] = max(held[0], time.thread_time() - before)


# ---- Both


def _memory() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _requests() -> Iterator[str]:
    print("ready", flush=True)
    for line in sys.stdin:
        yield line.rstrip("\n")


def _answer(turn: Turn) -> None:
    print(json.dumps(turn), flush=True)


class _Worker:
    """A process that runs pipelines when it is told to."""

    def __init__(self, command: list[str]) -> None:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with {self._process.wait()}")
        return line

    def turn(self, name: str) -> Turn:
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return Turn(*json.loads(self._read()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def _worker(*command: str) -> Iterator[_Worker]:
    worker = _Worker([*command])
    try:
        yield worker
    finally:
        worker.close()


def _rate(turn: Turn) -> float:
    return turn.elements / turn.seconds


def row(name: str, ours: list[Turn], theirs: list[Turn]) -> str:
    """The line of the table, in Markdown, from pairs of turns."""
    rates = statistics.median(_rate(turn) for turn in ours), statistics.median(_rate(turn) for turn in theirs)
    ratio = statistics.median(_rate(a) / _rate(b) for a, b in zip(ours, theirs, strict=True))
    processor = [
        statistics.median(turn.processor_seconds / turn.elements for turn in turns) * 1e6 for turns in (ours, theirs)
    ]
    memory = [max(turn.memory_bytes for turn in turns) / 2**20 for turns in (ours, theirs)]
    held = statistics.median(turn.held_seconds for turn in ours) * 1e3
    return (
        f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {ratio:.2f} | {processor[0]:.1f} / {processor[1]:.1f} "
        f"| {memory[0]:.0f} / {memory[1]:.0f} | {held:.1f} |"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--only", default="", help="a part of the name of the pipelines to run")
    options = parser.parse_args(arguments)
    tensorflow = os.environ.get("TENSORFLOW_PYTHON")
    if tensorflow is None:
        parser.error("set TENSORFLOW_PYTHON to a Python that has TensorFlow")
    names = [name for name in PIPELINES if options.only in name]
    print("| pipeline | aexec, elements/s | TensorFlow | ratio | µs of processor for an element | MiB | held, ms |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        script = str(Path(__file__).resolve())
        for name in names:  # in new processes, as the most memory of a process never falls
            with (
                _worker(tensorflow, script, "tensorflow", folder, str(options.records)) as theirs,
                _worker(sys.executable, script, "aexec", folder) as ours,
            ):
                turns = [(ours.turn(name), theirs.turn(name)) for _ in range(options.turns)]
            print(row(name, [a for a, _ in turns], [b for _, b in turns]), flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["tensorflow"]:
        _tensorflow_worker(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["aexec"]:
        _aexec_worker(Path(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
