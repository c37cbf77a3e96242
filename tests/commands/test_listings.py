"""`aexec kernels`: the listing of kernels, and which of them CuPy could run."""

from __future__ import annotations

import re

import pytest

from aexec import cli
from aexec.framework.kernel_contract import kernel_registry
from aexec.kernels.common.portable import PORTABLE, READS_BACK


def listing(capsys: pytest.CaptureFixture[str], *op: str) -> list[str]:
    assert cli.main(["kernels", *op]) == 0
    return capsys.readouterr().out.splitlines()


def test_op_with_kernels_of_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    numbers, on_host, strings = listing(capsys, "Add")
    assert numbers.startswith("Add: device='CPU'; T in [DT_FLOAT, ") and numbers.endswith("]; xp")
    assert on_host == "Add: device='DEFAULT'; T in [DT_INT32]"
    assert strings == "Add: device='CPU'; T in [DT_STRING]"


def test_kernel_that_reads_values_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(line.endswith("; xp, reads back") for line in listing(capsys, "GatherNd"))


def test_whole_list_ends_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    *lines, summary = listing(capsys)
    ops = kernel_registry.global_registry.ops()
    assert {line.partition(":")[0] for line in lines} == set(ops)
    counted = [int(n) for n in re.findall(r"\d+", summary)]
    assert counted == [len(ops), len(lines), len(PORTABLE), len(READS_BACK)]
