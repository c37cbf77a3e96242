"""Prints how many conformance cases pass, family by family, when the tests are over."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "conformance"
    ]
    if not counts:
        return
    terminalreporter.section("conformance cases that pass, by family")
    totals: dict[str, tuple[int, int]] = {}
    for family, passed, total in counts:
        before = totals.get(family, (0, 0))
        totals[family] = (before[0] + passed, before[1] + total)
    for family, (passed, total) in sorted(totals.items()):
        terminalreporter.line(f"{family:26} {passed:4} of {total}")
    terminalreporter.line(f"{'all':26} {sum(c[1] for c in counts):4} of {sum(c[2] for c in counts)}")
