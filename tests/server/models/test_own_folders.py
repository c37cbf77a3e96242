"""Temporary folders of servers: gone with them, or with the next one if they were killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from aexec_server.models.own_folders import OwnFolder, remove_abandoned_folders

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no locks of files")

KILLED = """
import os, signal
from aexec_server.models.own_folders import OwnFolder
folder = OwnFolder()
(folder.path / "model").mkdir()
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_folder_is_gone_when_it_is_closed() -> None:
    with OwnFolder() as path:
        (path / "file").write_text("text")
    assert not path.exists()


def test_folder_of_killed_process_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    printed = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, check=False).stdout
    left = Path(printed.strip())
    assert left.parent == tmp_path and (left / "model").is_dir()
    remove_abandoned_folders()
    assert not left.exists()


def test_folder_of_living_process_stays() -> None:
    with OwnFolder() as path:
        remove_abandoned_folders()
        assert path.is_dir()


def test_folders_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "aexec-other").mkdir()
    (tmp_path / "aexec-unlocked").mkdir()  # is being made, or is none of ours
    with OwnFolder() as path:
        (tmp_path / "aexec-link").symlink_to(path)
        remove_abandoned_folders()
        assert {p.name for p in tmp_path.iterdir()} == {
            "aexec-other",
            "aexec-unlocked",
            "aexec-link",
            path.name,
        }
