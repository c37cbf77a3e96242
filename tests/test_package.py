"""The package as a whole: what importing it costs, and using it from other processes and threads."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from tests.support.programs.graphs import GraphBuilder, counting_loop

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_loads_nothing_heavy_or_optional() -> None:
    heavy = [
        "cupy",
        "distributed",
        "aiohttp",
        "uvloop",
        "scipy",
        "rich",
        "threadpoolctl",
        "json",
        "tempfile",
        "difflib",
        "google.protobuf.json_format",
        "aexec.kernels.math",
        "aexec.ops.math",
    ]
    loaded = run_python(f"import sys, aexec; print([m for m in {heavy} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_importing_writes_the_methods_of_few_dataclasses() -> None:
    code = """
import dataclasses
write, count = dataclasses._process_class, 0
def counted(*arguments):
    global count
    count += 1
    return write(*arguments)
import numpy
dataclasses._process_class = counted
import aexec
assert aexec.SessionConfig() == aexec.SessionConfig()
print(count)
"""
    written = int(run_python(code))
    assert 1 <= written <= 10  # there are some seventy


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collector_rests_while_importing(enabled: bool) -> None:
    code = f"""
import gc, numpy
gc.enable() if {enabled} else gc.disable()
seen = []
gc.callbacks.append(lambda phase, info: seen.append(phase))
import aexec
gc.callbacks.clear()
print(len(seen) // 2 <= 3, gc.isenabled(), gc.get_freeze_count())  # else some fifty
"""
    assert run_python(code).strip() == f"True {enabled} 0"


def test_imports_of_the_command_are_not_collected() -> None:
    code = """
import gc, sys
from aexec.cli import main
main(["devices"])
frozen_by_a_caller = gc.get_freeze_count()
sys.argv = ["aexec", "devices"]
main()
print(frozen_by_a_caller, gc.get_freeze_count() > 10_000)
"""
    assert run_python(code).splitlines()[-1] == "0 True"


def test_gpu_and_cluster_libraries_are_extras() -> None:
    """An install without extras has no use for CUDA."""
    required = " ".join(PROJECT["dependencies"])
    assert "cupy" not in required
    assert "distributed" not in required
    extras = PROJECT["optional-dependencies"]
    assert any("cupy" in requirement for name, given in extras.items() if name != "dev" for requirement in given)


def test_command_that_runs_a_model_imports_nothing_that_trains_one(tmp_path: Path) -> None:
    (tmp_path / "model.pb").write_bytes(counting_loop().graph().to_bytes())
    unused = ["aexec.training", "aexec.variables", "importlib.metadata", "numpy.ma"]
    code = f"""
import sys
from aexec.cli import main
status = main(["run", {str(tmp_path / "model.pb")!r}, "--feed", "n:0=3", "--fetch", "result:0"])
print(status, [m for m in {unused} if m in sys.modules])
"""
    assert run_python(code).splitlines()[-1] == "0 []"


def test_sessions_run_where_no_gpu_library_can_be_imported() -> None:
    code = """
import sys
sys.modules["cupy"] = None  # importing it fails, as where it is not installed
import asyncio, aexec
async def main():
    with aexec.Graph() as graph:
        y = aexec.constant([1.0, 2.0]) * 3.0
    async with aexec.Session(graph) as session:
        print(await session.run(y))
asyncio.run(main())
"""
    assert run_python(code).strip() == "[3. 6.]"


def _count(data: bytes, n: int, answers: Any) -> None:
    async def main() -> Any:
        async with aexec.Session(aexec.Graph.from_bytes(data)) as session:
            return await session.run("result:0", {"n:0": n})

    answers.put(int(asyncio.run(main())))


def test_spawned_processes_make_sessions_of_their_own() -> None:
    """What crosses is the graph as bytes; a session that the parent uses meanwhile is not disturbed."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    graph = counting_loop().graph()

    async def main() -> Any:
        async with aexec.Session(graph) as session:
            child = context.Process(target=_count, args=(graph.to_bytes(), 5, answers))
            child.start()
            mine = await session.run("result:0", {"n:0": 3})
            theirs = await asyncio.to_thread(answers.get, timeout=60)
            await asyncio.to_thread(child.join)
            assert child.exitcode == 0
            return mine, theirs

    assert asyncio.run(main()) == (3, 5)
    answers.close()
    answers.join_thread()


async def test_plain_threads_run_steps_on_the_loop() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "Square", "x", T=aexec.framework.dtypes.float32)
    loop = asyncio.get_running_loop()
    got: list[Any] = []
    async with aexec.Session(g.graph()) as session:

        def work(number: int) -> None:
            future = asyncio.run_coroutine_threadsafe(session.run("y:0", {"x:0": np.float32(number)}), loop)
            got.append(future.result(timeout=60))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
    assert sorted(got) == [0, 1, 4, 9]


@pytest.mark.parametrize(("name", "hint"), [("Sesion", "; did you mean 'Session'?"), ("__wrapped__", "")])
def test_name_that_is_not_there(name: str, hint: str) -> None:
    """Nothing is compared for names that tools ask of every module."""
    with pytest.raises(AttributeError) as raised:
        getattr(aexec, name)
    assert str(raised.value) == f"module 'aexec' has no attribute {name!r}{hint}"


@pytest.mark.parametrize("name", sorted(aexec.__all__))
def test_public_names_are_there_and_documented(name: str) -> None:
    assert getattr(aexec, name).__doc__
