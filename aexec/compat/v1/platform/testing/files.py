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
    """A path-like object: functions of `os` and `open` accept it.

    Attributes:
        full_path: the path.
    """

    def __init__(self, path: str) -> None:
        self.full_path = path

    def __fspath__(self) -> str:
        return self.full_path


class TemporaryFile(_Path):
    """A file of a test."""

    def open_text(self, mode: str = "rt", encoding: str = "utf8", errors: str = "strict") -> Any:
        """Open the file in text mode.  Raises ValueError if `mode` has a "b"."""
        if "b" in mode:
            raise ValueError(f'Invalid mode {mode!r}: "b" flag not allowed when opening file in text mode')
        return open(self.full_path, mode, encoding=encoding, errors=errors)

    def open_bytes(self, mode: str = "rb") -> Any:
        """Open the file in binary mode.  Raises ValueError if `mode` has a "t"."""
        if "t" in mode:
            raise ValueError(f'Invalid mode {mode!r}: "t" flag not allowed when opening file in binary mode')
        return open(self.full_path, mode if "b" in mode else mode + "b")

    def read_text(self, encoding: str = "utf8", errors: str = "strict") -> str:
        """The content as text."""
        return Path(self.full_path).read_text(encoding, errors)

    def read_bytes(self) -> bytes:
        """The content as bytes."""
        return Path(self.full_path).read_bytes()

    def write_text(self, text: str, mode: str = "w", encoding: str = "utf8", errors: str = "strict") -> None:
        """Write text; the default mode replaces the content."""
        with self.open_text(mode, encoding, errors) as file:
            file.write(text)

    def write_bytes(self, data: bytes, mode: str = "wb") -> None:
        """Write bytes; the default mode replaces the content."""
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
        """Create a file with a content in the folder; by default its name is new."""
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
        """Create a folder in the folder; by default its name is new."""
        path = os.path.join(self.full_path, dir_path) if dir_path else tempfile.mkdtemp(dir=self.full_path)
        os.makedirs(path, exist_ok=True)
        return TemporaryFolder(path)


class CheckedThread:
    """A thread whose errors fail a test.

    Args:
        test: the test.  It fails in `join` if the target raised an error, and at its end if `join` was not called.
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
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread, and fail the test if the target raised an error."""
        self._is_joined = True
        self._thread.join()
        if self._error is not None:
            self._test.fail(f"Error in checkedThread: {self._error}")

    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def check_termination(self) -> None:
        """Fail the test unless `join` was called."""
        if not self._is_joined:
            self._test.fail("A checked thread was not joined.")


class CapturedWrites:
    """The output that `captureWritesToStream` has captured."""

    def __init__(self, path: str) -> None:
        self.capture_location = path

    def contents(self) -> str:
        """The output so far."""
        return Path(self.capture_location).read_text()


class _EnterContext:
    """Descriptor for `enter_context`, which works on a test and on its class."""

    def __get__(self, test: unittest.TestCase | None, kind: type[unittest.TestCase]) -> Callable[[Any], Any]:
        return kind.enterClassContext if test is None else test.enterContext


class TestResources(unittest.TestCase):
    """Files and folders that are deleted at the end of the test, threads, captured output and recorded properties."""

    # Without this, pytest collects the class, since its name begins with "Test".
    __test__ = False

    enter_context = _EnterContext()

    def _folder(self) -> TemporaryFolder:
        """The test's folder; the first call creates it."""
        found: TemporaryFolder | None = self.__dict__.get("_own_folder")
        if found is None:
            path = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, path, ignore_errors=True)
            found = self.__dict__["_own_folder"] = TemporaryFolder(path)
        return found

    def get_temp_dir(self) -> str:
        """The path of the test's folder, which is deleted after the test."""
        return self._folder().full_path

    def create_tempdir(self, name: str | None = None, cleanup: Any = None) -> TemporaryFolder:
        """Create an empty folder, which is deleted after the test.  It replaces an earlier one of that name."""
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
        """Create a file with a content, which is deleted after the test."""
        refuse("create_tempfile", cleanup=cleanup)
        return self._folder().create_file(file_path, content, mode, encoding, errors)

    @contextmanager
    def captureWritesToStream(self, stream: Any) -> Iterator[CapturedWrites]:
        """Context manager: capture the output to a stream's file descriptor, which C code writes to as well.

        Yields:
            A `CapturedWrites`.
        """
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
        """Create a `CheckedThread`; the test must start and join it."""
        thread = CheckedThread(self, target, args or (), kwargs or {})
        self.addCleanup(thread.check_termination)
        return thread

    def record_property(self, property_name: str, property_value: Any) -> None:
        """Record a property of the test or of the running subtest, for `get_recorded_properties`."""
        self._properties(getattr(self, "_subtest", None))[property_name] = property_value

    def get_recorded_properties(self, subtest: Any = None) -> dict[str, Any]:
        """The recorded properties of a subtest; by default of the test and the running subtest together."""
        if subtest:
            return dict(self._properties(subtest))
        running = getattr(self, "_subtest", None)
        return {**self._properties(None), **(self._properties(running) if running else {})}

    def _properties(self, subtest: Any) -> dict[str, Any]:
        recorded: dict[Any, dict[str, Any]] = self.__dict__.setdefault("_recorded_properties", {})
        return recorded.setdefault(subtest and subtest.id(), {})
