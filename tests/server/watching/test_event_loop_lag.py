"""`watch_lag`: how often the loop is looked at."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aexec_server.watching.event_loop_lag import watch_lag
from aexec_server.watching.metrics import FAMILIES, Histogram

from tests.support.virtual_clock import run_virtual


@pytest.mark.parametrize(("in_host", "looks"), [(False, 40), (True, 10)])
def test_loop_of_a_host_is_woken_more_seldom(in_host: bool, looks: int) -> None:
    """There may be hundreds of hosts that do nothing else."""
    seen = Histogram(FAMILIES["aexec_event_loop_lag_seconds"])

    async def watch() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10.1):
                await watch_lag(seen, in_host=in_host)

    run_virtual(watch())
    assert sum(seen.values[:-1]) == looks
