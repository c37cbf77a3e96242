"""Kills a writer at each of its writes, to test what a crash of the process leaves on disk."""

from __future__ import annotations

import builtins
import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

CRASHED = 77

# Functions of `os` that change the disk, besides writing to an open file.
_CALLS = ("replace", "unlink", "rmdir", "makedirs", "fsync")


def crash_at_every_write(work: Callable[[], object]) -> Iterator[int]:
    """Run `work` in a child process that dies at its first write, then in one that dies at its second, and so on.

    Yields the number of the write after each death, so that the caller can check what is left; ends when `work` runs to
    its end. A write to a file gets half of its bytes to the disk.
    """
    for number in itertools.count():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
            child = os.fork()
        if child == 0:
            status = 1
            try:
                _die_at(number)
                work()
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            return
        assert status == CRASHED, f"the work itself failed with status {status}"
        yield number


def _die_at(number: int) -> None:
    count = itertools.count()

    def before(act: Callable[[], object] = lambda: None) -> None:
        if next(count) == number:
            act()
            os._exit(CRASHED)

    for name in _CALLS:
        original = getattr(os, name)

        def call(*args: Any, original: Any = original, **kwargs: Any) -> Any:
            before()
            return original(*args, **kwargs)

        setattr(os, name, call)
    original_open = builtins.open

    def open_counting(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        file = original_open(path, mode, *args, **kwargs)
        return _Dying(file, before) if set(mode) & set("wxa+") else file

    builtins.open = open_counting  # type: ignore[assignment]


class _Dying:
    """A file that counts its writes."""

    def __init__(self, file: Any, before: Callable[..., None]) -> None:
        self._file = file
        self._before = before

    def write(self, data: Any) -> int:
        def half() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._before(half)
        return int(self._file.write(data))

    def writelines(self, parts: Any) -> None:
        for part in parts:
            self.write(part)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Dying:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()
