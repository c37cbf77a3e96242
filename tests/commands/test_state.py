"""`aexec state`: what it prints of a store, and that an exported session is the same in another store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from aexec_server.durable.session_rows import FILE_BYTES

from aexec import cli
from tests.server.durable.stores import Kept, opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with the sessions `one`, which has a small and a large variable, and `two`."""
    store = opened(tmp_path / "state")
    for handle in ("one", "two"):
        kept = Kept(store, handle)
        kept.set("small", np.float32(2.5))
        kept.set("large", np.arange(FILE_BYTES, dtype=np.int64))
        kept.state.add_tensor("t;0;", np.array([b"text"], object))
        assert kept.write() is None
    store.close_here()
    return tmp_path / "state"


def _run(*arguments: object) -> int:
    return cli.main(["state", *map(str, arguments)])


def test_sessions_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("ls", folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["one", "two"] and all("strict" in line for line in lines)


def test_store_is_listed_while_a_server_uses_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = opened(folder)
    assert _run("ls", folder) == 0
    assert "one" in capsys.readouterr().out
    assert _run("drop", folder, "one") == 19  # FAILED_PRECONDITION
    assert "used by another server" in capsys.readouterr().err
    store.close_here()


def test_session_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("show", folder, "one") == 0
    out = capsys.readouterr().out
    assert f"variable localhost/large: int64[{FILE_BYTES}]" in out and "variable localhost/small: float32[]" in out
    assert "kept tensor t;0;: object[1]" in out


def test_exported_session_is_the_same_in_another_store(folder: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "one.aexec", tmp_path / "other"
    assert _run("export", folder, "one", file) == 0
    assert [path.name for path in tmp_path.iterdir()].count("one.aexec") == 1
    opened(other).close_here()
    assert _run("import", other, file) == 0
    assert _run("import", other, file, "--handle", "copy") == 0
    assert _run("import", other, file) == 16  # ALREADY_EXISTS
    for handle in ("one", "copy"):
        store = opened(other)
        stored = store.load_here(handle)
        values = {record.name: record.tensors["value"] for record in stored.records}
        assert values["small"] == 2.5 and values["large"][-1] == FILE_BYTES - 1
        assert stored.kept["t;0;"].tolist() == [b"text"] and stored.facts.handle == handle
        assert set(store.facts) == {"one", "copy"}
        store.close_here()


def test_file_that_was_not_exported_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"nothing" * 1000)
    assert _run("import", folder, tmp_path / "file") == 19
    assert _run("import", folder, tmp_path / "absent") == 15
    assert _run("export", folder, "one", tmp_path / "file") == 16
    assert _run("export", folder, "none", tmp_path / "new") == 15
    assert not (tmp_path / "new").exists()
    assert _run("import", folder, folder / "state.db") == 19
    assert "has 2 sessions" in capsys.readouterr().err


def test_dropped_sessions_are_gone_and_their_space_given_back(folder: Path) -> None:
    assert _run("drop", folder, "one", "none") == 15
    assert _run("drop", folder, "one") == 0
    assert len(list((folder / "tensors").iterdir())) == 1
    assert _run("compact", folder) == 0
    store = opened(folder)
    assert list(store.facts) == ["two"]
    store.close_here()


def test_folder_without_a_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("ls", tmp_path) == 15
    assert "There is no store" in capsys.readouterr().err and not list(tmp_path.iterdir())
