"""A test that hangs fails at its limit, and its failure tells what was in flight."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import time_limit

ROOT = Path(__file__).parents[1]

HANGING = """
import asyncio, threading, time
import pytest
import aexec
from aexec import ops

hangs = pytest.mark.time_limit(0.4)


def waiting_for_a_queue():
    with aexec.Graph() as graph:
        queue = ops.fifo_queue_v2(["int64"], shared_name="q")
        ops.queue_dequeue_v2(queue, ["int64"], name="never_given")
    return graph


# Imports the kernels, which takes long, so that the next test begins its step within its limit.
async def test_first_step_of_the_process():
    async with aexec.Session(waiting_for_a_queue()) as session:
        step = session.start("never_given:0")
        while "never_given" not in step.dump():
            await asyncio.sleep(0)


@hangs
async def test_waits_on_a_queue():
    async with aexec.Session(waiting_for_a_queue()) as session:
        await session.run("never_given:0")


@hangs
async def test_expects_to_be_cancelled():
    with pytest.raises(asyncio.CancelledError):
        await asyncio.Event().wait()


@hangs
async def test_swallows_cancellation():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@hangs
async def test_blocks_the_loop():
    threading.Lock().acquire() and threading.Event().wait()


@hangs
def test_polls():
    while True:
        time.sleep(0.01)


@pytest.fixture
def hanging():
    yield
    threading.Event().wait()


@hangs
def test_has_a_hanging_fixture(hanging):
    pass


def test_passes():
    pass
"""

CONFTEST = """
import asyncio, os
import uvloop
from tests.support import time_limit

def pytest_configure(config):
    time_limit._PATIENCE = 0.2
    config.pluginmanager.register(time_limit)

if os.environ["AEXEC_TEST_LOOP"] == "uvloop":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
"""

FAILED = (
    "waits_on_a_queue",
    "expects_to_be_cancelled",
    "swallows_cancellation",
    "blocks_the_loop",
    "polls",
)


def run_tests(
    folder: Path, name: str, source: str, processes: str = "0", loop: str = "asyncio"
) -> subprocess.CompletedProcess[str]:
    """Run a file of tests in processes of their own."""
    (folder / name).write_text(source)
    (folder / "conftest.py").write_text(CONFTEST)
    options = ["-n", processes, "-c", str(ROOT / "pyproject.toml"), "--rootdir", folder, "-p", "no:cacheprovider"]
    # A process of pytest-xdist that found itself in another's environment would wait for that one.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, folder],
        cwd=ROOT,
        env={**own, "AEXEC_TEST_LOOP": loop},
        capture_output=True,
        text=True,
    )


def test_every_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.is_registered(time_limit)
    assert signal.getitimer(signal.ITIMER_REAL)[1] == time_limit.LIMIT / 8


@pytest.mark.time_limit(600)
@pytest.mark.parametrize(("processes", "loop"), [("0", "uvloop"), ("1", "asyncio")])
def test_hanging_tests_fail_and_tell_what_is_in_flight(processes: str, loop: str, tmp_path: Path) -> None:
    output = run_tests(tmp_path, "test_hanging.py", HANGING, processes, loop).stdout
    for name in FAILED:
        assert f"test_hanging.py::test_{name} took longer than 0.4 s.  In flight were:" in output, output
    for name in ("has_a_hanging_fixture", "swallows_cancellation"):
        assert f"teardown of test_hanging.py::test_{name} took longer than 0.4 s." in output, output
    told = output.partition("test_waits_on_a_queue took longer")[2]
    assert "never_given" in told.partition("tasks:")[0], "the node that waits is in the dump of its step"
    assert 'await session.run("never_given:0")' in told, "the line of the test is in the stack of its task"
    assert "MainThread, at" in told
    assert f"{len(FAILED)} failed, 3 passed" in output, output


IN_C = """
import signal, time
import pytest


@pytest.mark.time_limit(0.1)
def test_never_returns():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(3600)
"""


def test_process_whose_test_is_in_c_for_ever_is_ended(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, "test_in_c.py", IN_C)
    assert ended.returncode == 1
    assert "in test_never_returns" in ended.stderr.partition("Timeout")[2], ended.stderr


def test_process_that_was_stopped_gets_one_tick() -> None:
    """A stop of twice the limit, which a process of its own ends."""
    continued = f"import os, time; time.sleep(1); os.kill({os.getpid()}, {signal.SIGCONT})"
    with subprocess.Popen([sys.executable, "-S", "-c", continued]), time_limit.limited_time(0.5, "a stopped test"):
        os.kill(os.getpid(), signal.SIGSTOP)


def test_limits_may_be_nested() -> None:
    def hang() -> None:
        with time_limit.limited_time(0.1, "the inner one"):
            while True:
                time.sleep(0.01)

    with time_limit.limited_time(600, "the outer one"):
        before = signal.getitimer(signal.ITIMER_REAL)
        with pytest.raises(pytest.fail.Exception, match="the inner one took"):
            hang()
        after = signal.getitimer(signal.ITIMER_REAL)
    assert after[1] == before[1] and 0 < after[0] <= before[0]
