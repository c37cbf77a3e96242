"""Files, folders, threads and records of a test.

Next to read: `arrays.py`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aexec.compat.v1.namespace import refuse

__all__ = ["CheckedThread", "TestResources"]

T = TypeVar("T")


class _Path:
    """Has the path of a file or folder, and may be given for it.

    Attributes:
        full_path: its path.
    """

    def __init__(self, path: str) -> None:
        self.full_path = path

    def __fspath__(self) -> str:
        return self.full_path


class TemporaryFile(_Path):
    """A file of a test."""

    def open_text(self, mode: str = "rt", encoding: str = "utf8", errors: str = "strict") -> Any:
        """The file, open for text.  Raises ValueError for a mode of bytes."""
        if "b" in mode:
            raise ValueError(f'Invalid mode {mode!r}: "b" flag not allowed when opening file in text mode')
        return open(self.full_path, mode, encoding=encoding, errors=errors)

    def open_bytes(self, mode: str = "rb") -> Any:
        """The file, open for bytes.  Raises ValueError for a mode of text."""
        if "t" in mode:
            raise ValueError(f'Invalid mode {mode!r}: "t" flag not allowed when opening file in binary mode')
        return open(self.full_path, mode if "b" in mode else mode + "b")

    def read_text(self, encoding: str = "utf8", errors: str = "strict") -> str:
        """All of its text."""
        return Path(self.full_path).read_text(encoding, errors)

    def read_bytes(self) -> bytes:
        """All of its bytes."""
        return Path(self.full_path).read_bytes()

    def write_text(self, text: str, mode: str = "w", encoding: str = "utf8", errors: str = "strict") -> None:
        """Write a text, over what is there unless the mode says otherwise."""
        with self.open_text(mode, encoding, errors) as file:
            file.write(text)

    def write_bytes(self, data: bytes, mode: str = "wb") -> None:
        """Write bytes, over what is there unless the mode says otherwise."""
        with self.open_bytes(mode) as file:
            file.write(data)


class TemporaryFolder(_Path):
    """A folder of a test."""

    def create_file(
        self,
        file_path: str | None = None,
        content: str | bytes | None = None,
        mode: str = "w",
        encoding: str = "utf8",
        errors: str = "strict",
    ) -> TemporaryFile:
        """A file with some content in the folder, by default of a new name."""
        if file_path:
            path = os.path.join(self.full_path, file_path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
        else:
            handle, path = tempfile.mkstemp(dir=self.full_path)
            os.close(handle)
        made = TemporaryFile(path)
        if isinstance(content, str):
            made.write_text(content, mode, encoding, errors)
        else:
            made.write_bytes(content or b"", mode if content else "wb")
        return made

    def mkdir(self, dir_path: str | None = None) -> TemporaryFolder:
        """A folder in the folder, by default of a new name."""
        path = os.path.join(self.full_path, dir_path) if dir_path else tempfile.mkdtemp(dir=self.full_path)
        os.makedirs(path, exist_ok=True)
        return TemporaryFolder(path)


class CheckedThread:
    """A thread of a test, whose error fails the test.

    Args:
        test: which fails, also if it ends before it has called `join`.
    """

    def __init__(
        self, test: unittest.TestCase, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._test = test
        self._call = partial(target, *args, **kwargs)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None
        self._is_joined = False

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self._error = error

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end.  Raises the test's failure if the thread raised an error."""
        self._is_joined = True
        self._thread.join()
        if self._error is not None:
            self._test.fail(f"Error in checkedThread: {self._error}")

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def check_termination(self) -> None:
        """Raise the test's failure unless `join` was called."""
        if not self._is_joined:
            self._test.fail("A checked thread was not joined.")


class CapturedWrites:
    """What was written to a stream."""

    def __init__(self, path: str) -> None:
        self.capture_location = path

    def contents(self) -> str:
        """All of it so far."""
        return Path(self.capture_location).read_text()


class _EnterContext:
    """`enter_context`, which a test and its class have."""

    def __get__(self, test: unittest.TestCase | None, kind: type[unittest.TestCase]) -> Callable[[Any], Any]:
        return kind.enterClassContext if test is None else test.enterContext


class TestResources(unittest.TestCase):
    """Files and folders last until the end of the test."""

    # pytest takes classes of this name for tests.
    __test__ = False

    enter_context = _EnterContext()

    def _folder(self) -> TemporaryFolder:
        """The folder of the test, the same one all along."""
        found: TemporaryFolder | None = self.__dict__.get("_own_folder")
        if found is None:
            path = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, path, ignore_errors=True)
            found = self.__dict__["_own_folder"] = TemporaryFolder(path)
        return found

    def get_temp_dir(self) -> str:
        """The folder of the test, which is deleted after it."""
        return self._folder().full_path

    def create_tempdir(self, name: str | None = None, cleanup: Any = None) -> TemporaryFolder:
        """A folder, which is deleted after the test: an empty one, even if one of that name was there."""
        refuse("create_tempdir", cleanup=cleanup)
        folder = self._folder()
        if name:
            shutil.rmtree(os.path.join(folder.full_path, name), ignore_errors=True)
        return folder.mkdir(name)

    def create_tempfile(
        self,
        file_path: str | None = None,
        content: str | bytes | None = None,
        mode: str = "w",
        encoding: str = "utf8",
        errors: str = "strict",
        cleanup: Any = None,
    ) -> TemporaryFile:
        """A file with some content, which is deleted after the test."""
        refuse("create_tempfile", cleanup=cleanup)
        return self._folder().create_file(file_path, content, mode, encoding, errors)

    @contextmanager
    def captureWritesToStream(self, stream: Any) -> Iterator[CapturedWrites]:
        """Catch what is written to a stream with a file descriptor of its own, by C code too."""
        stream.flush()
        descriptor = stream.fileno()
        file, path = tempfile.mkstemp(dir=self.get_temp_dir())
        kept = os.dup(descriptor)
        os.dup2(file, descriptor)
        try:
            yield CapturedWrites(path)
        finally:
            stream.flush()
            os.dup2(kept, descriptor)
            os.close(kept)
            os.close(file)

    def checkedThread(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> CheckedThread:
        """A thread, which the test has to start and to join, and whose error fails the test."""
        thread = CheckedThread(self, target, args or (), kwargs or {})
        self.addCleanup(thread.check_termination)
        return thread

    def record_property(self, property_name: str, property_value: Any) -> None:
        """Note something of the test, for `get_recorded_properties`."""
        self._properties(getattr(self, "_subtest", None))[property_name] = property_value

    def get_recorded_properties(self, subtest: Any = None) -> dict[str, Any]:
        """What was noted of a subtest; or else of the test, and of the subtest that runs."""
        if subtest:
            return dict(self._properties(subtest))
        running = getattr(self, "_subtest", None)
        return {**self._properties(None), **(self._properties(running) if running else {})}

    def _properties(self, subtest: Any) -> dict[str, Any]:
        recorded: dict[Any, dict[str, Any]] = self.__dict__.setdefault("_recorded_properties", {})
        return recorded.setdefault(subtest and subtest.id(), {})
