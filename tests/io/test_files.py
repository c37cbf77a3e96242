from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.io.files import make_directories, os_error, text_path, write_atomically
from aexec.io.matching import matching_files


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOENT, errors.NotFoundError),
        (errno.EACCES, errors.PermissionDeniedError),
        (errno.EISDIR, errors.FailedPreconditionError),
        (errno.EEXIST, errors.AlreadyExistsError),
        (errno.ENOSPC, errors.ResourceExhaustedError),
        (errno.EINVAL, errors.InvalidArgumentError),
        (errno.EIO, errors.UnknownError),
    ],
)
def test_errors_of_the_system(code: int, expected: type[errors.OpError]) -> None:
    import os

    error = os_error(OSError(code, os.strerror(code)), "a/b")
    assert type(error) is expected
    assert str(error) == f"a/b; {os.strerror(code)}"


def test_writing_atomically(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with write_atomically(str(path)) as file:
        file.write(b"one")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), write_atomically(str(path)) as file:
        file.write(bytes(1 // 0))
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"one"]
    with pytest.raises(errors.NotFoundError), write_atomically(str(tmp_path / "no" / "f")):
        pass


def test_making_directories(tmp_path: Path) -> None:
    make_directories(str(tmp_path / "a" / "b"))
    make_directories(str(tmp_path / "a" / "b"))
    make_directories("")
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(errors.FailedPreconditionError, match="f is not a directory"):
        make_directories(str(tmp_path / "f"))


def test_paths() -> None:
    assert text_path(b"a\xff") == "a\udcff"
    with pytest.raises(errors.InvalidArgumentError):
        text_path("a\0")


NAMES = [".hidden", "[a", "a1", "a2", "b.txt", "b\\c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    for name in NAMES:
        (folder / name).write_bytes(b"")
    (folder / "sub").mkdir()
    (folder / "sub" / "a1").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a?", ["a1", "a2"]),
        ("*", [*NAMES, "sub"]),
        ("a[1-1]", ["a1"]),
        ("a[!1]", ["a2"]),
        ("a[^1]", ["a2"]),
        ("[[]a", ["[a"]),
        ("[a", ["[a"]),
        ("[[a]*", ["[a", "a1", "a2"]),
        ("\\[a", ["[a"]),
        ("b\\\\c", ["b\\c"]),
        ("*/a1", ["sub/a1"]),
        ("s*/a[12]", ["sub/a1"]),
        ("a1/x*", []),
        ("no*/x", []),
        ("{a1,a2}", []),
        ("a1", ["a1"]),
        ("no", []),
        ("a[z-a]", []),
        ("a[]1]", ["a1"]),
    ],
)
def test_patterns(folder: Path, pattern: str, found: list[str]) -> None:
    assert matching_files(f"{folder}/{pattern}") == sorted(f"{folder}/{name}" for name in found)


def test_relative_and_empty_patterns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert matching_files("a*") == ["./a1", "./a2"]
    assert matching_files("a1") == ["a1"]
    assert matching_files("") == []


def test_many_stars_take_no_longer_than_one(tmp_path: Path) -> None:
    (tmp_path / ("a" * 200)).touch()
    stars = "*a" * 50
    assert matching_files(f"{tmp_path}/{stars}b") == []
    assert matching_files(f"{tmp_path}/{stars}*") == [f"{tmp_path}/{'a' * 200}"]


@given(st.text(st.sampled_from("ab1[]!^-*?\\."), max_size=8))
def test_any_pattern_is_taken(folder: Path, pattern: str) -> None:
    assert set(matching_files(f"{folder}/{pattern}")) <= {f"{folder}/{name}" for name in [*NAMES, "sub", "", ".", ".."]}
