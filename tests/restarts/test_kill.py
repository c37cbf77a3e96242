"""A server that is killed at any moment loses nothing that it has acknowledged, and does nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.restarts.killed_server import Rounds
from tests.support.server_process import ServerProcess


def test_killed_server_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    Rounds(tmp_path, seed=1).run(4)


def test_killed_server_with_hosts_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    Rounds(tmp_path, seed=2, hosts="2").run(3)


def test_killed_server_loses_nothing_of_direct_runs(tmp_path: Path) -> None:
    Rounds(tmp_path, seed=3, keyed=False).run(4)


def test_killed_server_with_hosts_loses_nothing_of_direct_runs(tmp_path: Path) -> None:
    Rounds(tmp_path, seed=4, keyed=False, hosts="2").run(3)


def test_killed_server_loses_little_of_relaxed_direct_runs(tmp_path: Path) -> None:
    Rounds(tmp_path, seed=5, keyed=False, durability="relaxed").run(3)


@pytest.mark.soak
@pytest.mark.time_limit(1200)
@pytest.mark.parametrize("durability", ["strict", "relaxed"])
@pytest.mark.parametrize("hosts", ["0", "2", "auto"])
@pytest.mark.parametrize("keyed", [True, False])
def test_killed_server_loses_nothing_in_many_rounds(
    tmp_path: Path, hosts: str, durability: str, *, keyed: bool
) -> None:
    Rounds(tmp_path, seed=100, durability=durability, keyed=keyed, hosts=hosts).run(50)


def test_server_with_a_damaged_store_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "state.db").write_bytes(b"nothing that SQLite reads" * 100)
    with pytest.raises(AssertionError, match="Restore a copy of its folder"):
        ServerProcess(tmp_path, watch=False, state=tmp_path / "state")
    assert (tmp_path / "state" / "state.db").read_bytes().startswith(b"nothing that")
