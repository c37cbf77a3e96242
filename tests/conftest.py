"""What every test gets: its event loop, a limit on its time, and a check that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.util
import linecache
import os
import sysconfig
import threading
from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import settings

import aexec.autodiff  # noqa: F401  whose families the registry of gradients knows then
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.op_contract import gradient_registry, op_registry
from aexec.framework.printed import set_printer
from aexec.graph.graph import set_default_graph
from aexec.runtime.session.session import Session
from tests.support import time_limit
from tests.support.server_process import ServerProcess

# Tests have stand-ins for GPUs; `scripts/gpu-check` is for this machine's.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# The collector need not look at what all tests share: modules, and tens of thousands of tests.
gc.disable()

SCANNED = [name for name in ("aexec", "aexec_server") if importlib.util.find_spec(name)]
# Reading a module that is imported lazily happens once per process.
LAZY_IMPORTS = {"get_data", "path_stats", "_path_stat", "_path_isfile", "_path_isdir", "_fill_cache", "find_spec"}

# The same examples each time, however long a busy machine takes over them: a few for all days, many with the soaks.
settings.register_profile("suite", max_examples=40, deadline=None, derandomize=True, database=None)
settings.register_profile("soak", settings.get_profile("suite"), max_examples=200)
settings.load_profile("suite")

if os.environ.get("AEXEC_TEST_LOOP") == "uvloop":
    import uvloop

    # pytest-asyncio asks the policy for each test's loop.
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

if os.environ.get("PYTHONASYNCIODEBUG"):
    # The stack of each callback is noted then.  To ask the disk, for each frame of it, whether the source file has
    # changed would take half the time of these tests.
    linecache.checkcache = lambda filename=None: None


@functools.cache
def load_families() -> None:
    """They are imported at their first use, which reads files: not inside a test's event loop."""
    sysconfig.get_config_vars()  # SciPy asks for them when it is imported, and they are read from files
    op_registry.global_registry.load()
    kernel_registry.global_registry.load()
    gradient_registry.global_registry.ops()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(time_limit)
    if "not soak" not in config.option.markexpr:
        settings.load_profile("soak")


def pytest_collectstart() -> None:
    load_families()  # not in a process that leaves collecting and testing to others


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def nothing_blocks_the_loop() -> Iterator[None]:
    """A call of aexec that blocks the event loop (a file, a socket, a sleep) is an error."""
    with blockbuster_ctx(scanned_modules=SCANNED) as blockbuster:
        for name, function in blockbuster.functions.items():
            if name.startswith(("io.", "os.")):
                function.can_block_in("<frozen importlib._bootstrap_external>", LAZY_IMPORTS)
                # The kernel's own figures, for which no disk is asked.
                function.can_block_in("framework/memory/memory.py", {"available_memory"})
        # Until a helper has ended the piece of a kernel that it is at: it takes no longer than what is done meanwhile.
        blockbuster.functions["threading.Lock.acquire"].can_block_in("framework/waiting/intra_op.py", {"share"})
        # Names are deleted when a pass ends before its files are whole.
        for name in ("os.unlink", "os.rmdir", "io.BufferedWriter.write"):
            blockbuster.functions[name].can_block_in("resources/datasets/written_elements.py", {"close"})
        # A SyncSession in a notebook: its methods wait, which is what they are for.
        blockbuster.functions["threading.Lock.acquire"].can_block_in(
            "runtime/threads/loop_thread.py", {"__init__", "wait", "stop"}
        )
        yield


@pytest.fixture(autouse=True, scope="session")
def what_tests_share_stays_frozen() -> Iterator[None]:
    """A collection that looked at all of it would hold a test for a second, whatever that is about."""
    frozen = gc.get_freeze_count()
    yield
    assert gc.get_freeze_count() > frozen / 2, "something has called gc.unfreeze"


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """After each test no worker thread and no server runs, no session is open, and graphs print where they did."""
    before, servers = set(threading.enumerate()), set(ServerProcess.running)
    set_default_graph(None)  # importing `aexec.compat.v1` makes one, also while tests are collected
    yield
    set_printer(None)  # a server in this process has them print to its log
    left_servers = ServerProcess.running - servers
    for server in left_servers:
        server.kill()
    assert not left_servers, f"servers left running: {[server.pid for server in left_servers]}"
    left = [t for t in threading.enumerate() if t not in before and t.name.startswith("aexec-")]
    assert not left, f"threads left running: {left}"
    # A session that was never used holds nothing; one that ran must be closed.
    gc_needed = any(not s.closed and s.statistics().runs for s in Session.live())
    if gc_needed:
        gc.collect()
    open_sessions = [s for s in Session.live() if not s.closed and s.statistics().runs]
    assert not open_sessions, f"sessions left open: {open_sessions}"
