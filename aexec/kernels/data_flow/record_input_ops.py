"""RecordInput: batches of the records of many files, in an order at random, again and again.

The order depends on the seed only: TensorFlow's also depends on the time that its threads take.
Next to read: `aexec/kernels/io/reader_ops.py`.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import Growth
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.io.files import reporting, text_path
from aexec.io.matching import matching_files
from aexec.io.record import RecordReader
from aexec.kernels.common.files import blocking

__all__: list[str] = []


class _Records:
    """The records of files, in epochs: each begins when all records of the one before were taken.

    Args:
        patterns: of names of files, between commas.
        shift: the part of the shuffled files that is moved to the end.
        ahead: records that are read ahead, of which one is taken at random.
        parallelism: files that are read in turns.
    """

    def __init__(
        self, patterns: str, seed: int, shift: float, ahead: int, parallelism: int, compression: bytes
    ) -> None:
        self._patterns = patterns
        self._seed, self._random = seed, random.Random(seed)
        self._shift, self._ahead, self._parallelism = shift, ahead, parallelism
        self._compression = compression
        self._ready: list[bytes] = []
        self._epochs = itertools.count(1)
        self._reading: Iterator[bytes] | None = None

    def _files(self, epoch: int) -> list[str]:
        """The files of an epoch in its order.  Raises NotFoundError if there is none."""
        found: list[str] = []
        for pattern in self._patterns.split(","):
            with reporting(pattern):
                found.extend(sorted(matching_files(pattern)))
        if not found:
            raise errors.NotFoundError(f"Found no files at {self._patterns}")
        random.Random(f"{self._seed} {epoch}").shuffle(found)
        moved = int(self._shift * len(found)) if 0 <= self._shift < 1 else 0
        return found[moved:] + found[:moved]

    def _in_turns(self, files: list[str]) -> Iterator[bytes]:
        """The records of files, of which several are open and take turns."""
        waiting = iter(files)
        open_files = [self._of_file(name) for name in itertools.islice(waiting, self._parallelism)]
        try:
            while open_files:
                for place, records in enumerate(open_files):
                    record = next(records, None)
                    if record is not None:
                        yield record
                        continue
                    if (name := next(waiting, None)) is not None:
                        open_files[place] = self._of_file(name)
                    else:
                        del open_files[place]
                        break
        finally:
            for records in open_files:
                records.close()

    def _of_file(self, name: str) -> Generator[bytes]:
        with reporting(name), RecordReader(name, self._compression) as reader:
            yield from reader

    def _fill(self) -> None:
        """Read until enough records are ready, or the epoch is at its end; begin an epoch if none is ready.

        Raises:
            NotFoundError: there are no files.
            FailedPreconditionError: the files have no records.
        """
        while True:
            if self._reading is None and not self._ready:
                self._reading = self._in_turns(self._files(next(self._epochs)))
                begun = True
            else:
                begun = False
            while self._reading is not None and len(self._ready) < self._ahead:
                check_wanted()
                record = self._next()
                if record is not None:
                    self._ready.append(record)
            if self._ready:
                return
            if begun:
                raise errors.FailedPreconditionError(f"the files of {self._patterns} have no records")

    def _next(self) -> bytes | None:
        """The next record; None at the end of the epoch.  An error ends the epoch: the next call begins another."""
        assert self._reading is not None
        try:
            record = next(self._reading, None)
        except BaseException:
            self._reading = None
            raise
        if record is None:
            self._reading = None
        return record

    def take(self, count: int) -> list[bytes]:
        """The next records.  If it is left by an error, the ones before are there again."""
        taken, growth = list[bytes](), Growth()
        try:
            for _ in range(count):
                self._fill()
                place = self._random.randrange(len(self._ready))
                self._ready[place], self._ready[-1] = self._ready[-1], self._ready[place]
                taken.append(self._ready.pop())
                growth.add(len(taken[-1]) + STRING_BYTES)
        except BaseException:
            self._ready.extend(taken)
            raise
        return taken


@kernel("RecordInput", cost=blocking)
def record_input(c: OpKernelConstruction) -> Compute:
    """Return the next `batch_size` records of the files that match the patterns: [batch_size]."""
    batch, ahead, parallelism = c.attr("batch_size"), c.attr("file_buffer_size"), c.attr("file_parallelism")
    if batch < 0 or ahead < 1 or parallelism < 1:
        raise errors.InvalidArgumentError(
            "batch_size must not be negative, file_buffer_size and file_parallelism must be positive, got "
            f"{batch}, {ahead} and {parallelism}"
        )
    records = _Records(
        text_path(c.attr("file_pattern")),
        c.attr("file_random_seed"),
        c.attr("file_shuffle_shift_ratio"),
        ahead,
        parallelism,
        c.attr("compression_type"),
    )
    lock = threading.Lock()

    def compute() -> Any:
        with lock:
            taken = records.take(batch)
        return np.fromiter(taken, object, len(taken))

    return compute
