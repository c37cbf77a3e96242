"""`tf.gfile`: the same on this machine, by its scheme, and in a store of fsspec's (here its memory)."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import pytest
from fsspec.registry import known_implementations

import aexec.compat.v1 as tf
from aexec import errors

gfile = tf.io.gfile


@pytest.fixture(params=["", "file://", "memory://"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder's name."""
    name = f"memory://{uuid.uuid4()}" if request.param == "memory://" else f"{request.param}{tmp_path}"
    gfile.makedirs(name)
    return name


def write(path: str, text: str) -> str:
    with gfile.GFile(path, "w") as file:
        file.write(text)
    return path


def test_file_is_written_and_read(root: str) -> None:
    path = write(f"{root}/f.txt", "one\r\ntwo\n")
    with gfile.GFile(path) as file:
        assert list(file) == ["one\r\n", "two\n"] and file.size() == 9
    with gfile.GFile(path, "a") as file:
        file.write("three")
    with gfile.GFile(path, "rb") as file:
        assert file.read(3) == b"one" and file.tell() == 3
        file.seek(-5, 2)
        assert file.read() == b"three"


def test_folders_are_listed_and_walked(root: str) -> None:
    gfile.makedirs(f"{root}/a/b")
    gfile.makedirs(f"{root}/a/b")
    for name in ("a/b/y.txt", "a/b/x.txt", "a/z.txt"):
        write(f"{root}/{name}", "")
    assert gfile.listdir(f"{root}/a/b") == ["x.txt", "y.txt"] and gfile.listdir(root) == ["a"]
    assert gfile.glob(f"{root}/a/b/*.txt") == [f"{root}/a/b/x.txt", f"{root}/a/b/y.txt"]
    assert gfile.glob([f"{root}/a/z*", f"{root}/a/b/y*"]) == [f"{root}/a/z.txt", f"{root}/a/b/y.txt"]
    walked = [(folder, folders, sorted(names)) for folder, folders, names in gfile.walk(root)]
    below = (f"{root}/a", ["b"], ["z.txt"]), (f"{root}/a/b", [], ["x.txt", "y.txt"])
    assert walked == [(root, ["a"], []), *below]
    assert [folder for folder, *_ in gfile.walk(root, topdown=False)] == [f"{root}/a/b", f"{root}/a", root]
    gfile.rmtree(f"{root}/a")
    assert gfile.listdir(root) == [] and not gfile.exists(f"{root}/a/b/x.txt")


def test_files_are_copied_moved_and_removed(root: str, tmp_path: Path) -> None:
    path, other = write(f"{root}/f", "data"), f"{root}/g"
    gfile.copy(path, other)
    for call in (gfile.copy, gfile.rename):
        with pytest.raises(errors.AlreadyExistsError, match="file already exists"):
            call(path, other)
    gfile.rename(path, other, overwrite=True)
    assert not gfile.exists(path) and gfile.exists(other) and gfile.isdir(root) and not gfile.isdir(other)
    gfile.copy(other, str(tmp_path / "here"))
    assert (tmp_path / "here").read_text() == "data"
    gfile.copy(write(str(tmp_path / "empty"), ""), other, overwrite=True)
    assert gfile.stat(other).length == 0
    gfile.remove(other)
    assert not gfile.exists(other)


def test_statistics_tell_length_and_time(root: str) -> None:
    found = gfile.stat(write(f"{root}/f", "data"))
    assert found.length == 4 and not found.is_directory and found.mtime_nsec > 1.7e18
    assert gfile.stat(root).is_directory


def test_what_is_missing_is_not_found(root: str) -> None:
    for call in (lambda name: gfile.GFile(name).read(), gfile.remove, gfile.stat, gfile.listdir, gfile.rmtree):
        with pytest.raises(errors.NotFoundError):
            call(f"{root}/missing")
    assert not gfile.exists(f"{root}/missing") and gfile.glob(f"{root}/missing*") == []


def test_file_is_not_moved_to_another_store(tmp_path: Path) -> None:
    here = write(str(tmp_path / "f"), "data")
    with pytest.raises(errors.UnimplementedError, match=r"Renaming .*/f to memory://f not implemented"):
        gfile.rename(here, "memory://f")
    gfile.rename(f"file://{here}", str(tmp_path / "g"))
    assert (tmp_path / "g").read_text() == "data"


def test_unknown_scheme_is_refused_with_tensorflows_words() -> None:
    with pytest.raises(errors.UnimplementedError, match=r"File system scheme 'zz' not implemented \(file: 'zz://a'\)"):
        gfile.exists("zz://a")


def test_package_that_a_store_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_implementations, "faraway", {"class": "faraway.Store", "err": "Install faraway"})
    with pytest.raises(errors.UnimplementedError, match="Install faraway"):
        gfile.listdir("faraway://a")


def test_names_keep_their_host() -> None:
    class Hosted(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "hosted"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.removeprefix("hosted://").partition("/")[2].rstrip("/") if "://" in path else path

        def ls(self, path: str, detail: bool = True, **_: object) -> list[object]:
            found = [{"name": f"{path.rstrip('/')}/x", "size": 3, "type": "file"}] if path.rstrip("/") == "/a" else []
            return list(found) if detail else [each["name"] for each in found]

    fsspec.register_implementation("hosted", Hosted, clobber=True)
    assert gfile.glob("hosted://host:1/a/*") == ["hosted://host:1/a/x"]
    assert [folder for folder, *_ in gfile.walk("hosted://host:1/a")] == ["hosted://host:1/a"]
    with pytest.raises(errors.UnimplementedError, match="hosted://host:1/a/x: this store keeps no times"):
        _ = gfile.stat("hosted://host:1/a/x").mtime_nsec
