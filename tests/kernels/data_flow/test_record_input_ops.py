"""Batches of the records of many files: epochs, order, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aexec import errors
from aexec.io.record import write_records
from tests.kernels.harness import build, in_tensorflow, registered

ALL = [b"%d-%d" % (file, number) for file in range(3) for number in range(4 + file)]


def files(folder: Path, compression: str = "") -> str:
    """The pattern of three files of 4, 5 and 6 records."""
    for file in range(3):
        write_records(str(folder / f"r{file}"), [b"%d-%d" % (file, number) for number in range(4 + file)], compression)
    return f"{folder}/r*"


def made(pattern: str, **attrs: Any) -> Any:
    """A call of the kernel, which keeps its place between calls."""
    built, _, _ = build("RecordInput", [], file_pattern=pattern.encode(), **attrs)
    return lambda: built.compute().tolist()


def test_registrations_are_tensorflows() -> None:
    assert registered("RecordInput") == in_tensorflow("RecordInput")


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("settings", [{}, {"file_buffer_size": 1, "file_parallelism": 1}, {"file_parallelism": 2}])
def test_each_epoch_has_each_record_once(tmp_path: Path, settings: dict[str, int], compression: str) -> None:
    run = made(files(tmp_path, compression), batch_size=5, compression_type=compression.encode(), **settings)
    for _ in range(3):
        assert sorted(run() + run() + run()) == ALL


def test_batch_may_be_of_two_epochs_or_more(tmp_path: Path) -> None:
    run = made(files(tmp_path), batch_size=20)
    found = run() + run()
    assert sorted(found[:15]) == sorted(found[15:30]) == ALL and made(files(tmp_path), batch_size=0)() == []


def test_order_is_that_of_the_seed_and_other_in_each_epoch(tmp_path: Path) -> None:
    pattern = files(tmp_path)
    first, same, other = (made(pattern, batch_size=15, file_random_seed=seed) for seed in (1, 1, 2))
    epochs = [first(), first()]
    assert [same(), same()] == epochs and other() != epochs[0] != epochs[1] != ALL


def test_files_are_shifted_after_they_are_shuffled(tmp_path: Path) -> None:
    """With one record ahead and one open file, records come as they are in the files."""
    settings = {"batch_size": 15, "file_buffer_size": 1, "file_parallelism": 1}
    orders = []
    for ratio in (0.0, 0.4, 0.7):
        found = made(files(tmp_path), file_shuffle_shift_ratio=ratio, **settings)()
        orders.append(list(dict.fromkeys(record[:1] for record in found)))
    a, b, c = orders[0]
    assert orders[1:] == [[b, c, a], [c, a, b]]


def test_patterns_are_between_commas(tmp_path: Path) -> None:
    files(tmp_path)
    assert sorted(made(f"{tmp_path}/r0,{tmp_path}/r2", batch_size=10)()) == ALL[:4] + ALL[9:]


@pytest.mark.parametrize(
    ("attrs", "error", "message"),
    [
        ({"file_pattern": b"/none/*"}, errors.NotFoundError, "Found no files at /none/"),
        ({"batch_size": -1}, errors.InvalidArgumentError, "must not be negative"),
        ({"file_parallelism": 0}, errors.InvalidArgumentError, "must be positive"),
        ({"file_buffer_size": 0}, errors.InvalidArgumentError, "must be positive"),
        ({"compression_type": b"XX"}, errors.InvalidArgumentError, "XX"),
    ],
)
def test_refused(tmp_path: Path, attrs: dict[str, Any], error: Any, message: str) -> None:
    attrs = {"file_pattern": files(tmp_path).encode(), **attrs}
    with pytest.raises(error, match=message):
        build("RecordInput", [], **attrs)[0].compute()


def test_files_without_records_are_refused(tmp_path: Path) -> None:
    write_records(str(tmp_path / "empty"), [])
    with pytest.raises(errors.FailedPreconditionError, match="have no records"):
        made(f"{tmp_path}/empty")()


def test_records_before_a_corrupt_one_are_not_lost(tmp_path: Path) -> None:
    pattern = files(tmp_path)
    data = (tmp_path / "r1").read_bytes()
    (tmp_path / "r1").write_bytes(data[:-3] + b"xxx")
    run = made(pattern, batch_size=5, file_buffer_size=1, file_parallelism=1)
    found: list[bytes] = []

    def all_batches() -> None:
        for _ in range(4):
            found.extend(run())

    with pytest.raises(errors.DataLossError):
        all_batches()
    (tmp_path / "r1").write_bytes(data)
    assert set(found) <= set(ALL) and set(run() + run() + run() + run() + run() + run()) == set(ALL)
