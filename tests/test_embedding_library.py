"""The shared library of scripts/embedding: a program in C runs a graph by it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import aexec

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "scripts" / "embedding"
COMPILER = shutil.which("cc")
HAS_LIBRARY = bool(sysconfig.get_config_var("Py_ENABLE_SHARED")) and sys.platform != "win32"

pytestmark = [
    pytest.mark.time_limit(600),
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler named cc"),
    pytest.mark.skipif(importlib.util.find_spec("cffi") is None, reason="cffi is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="setuptools, which cffi builds with"),
    pytest.mark.skipif(not HAS_LIBRARY, reason="this Python has no shared library to be embedded from"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedding")
    build = [sys.executable, str(SOURCES / "build.py"), str(folder)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    made = folder / "example"
    assert COMPILER is not None
    flags = ["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread"]
    where = [f"-I{folder}", f"-L{folder}", f"-Wl,-rpath,{folder}"]
    command = [COMPILER, *flags, *where, str(SOURCES / "example.c"), "-laexec", "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return made


def run(program: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHOME": sys.base_prefix}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path]) if path is None else path
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=120, env=environment)


def test_program_in_c(program: Path, tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [None], name="x"), name="y")
        queue = aexec.ops.fifo_queue_v2(component_types=[aexec.float32], shapes=[[]])
        aexec.ops.queue_dequeue_v2(queue, component_types=[aexec.float32], name="wait")
    (tmp_path / "graph.pb").write_bytes(graph.to_bytes())
    done = run(program, str(tmp_path / "graph.pb"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "devices: 1",
        "run: 1 4 9",
        "a fetch that is not there: code 5: FetchOutputs node none:0: not found (the graph's outputs: y:0, wait:0)",
        "partial run: 1 4 9",
        "one that is over: code 5",
        "callable: 1 4 9",
        "callable: 1 4 9",
        "the run that waited: code 1: The call with run_id 7 was cancelled",
        "closed again: code 5",
    ]


def test_bytes_that_are_no_graph(program: Path, tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_bytes(b"\xff\xff\xff")
    done = run(program, str(tmp_path / "graph.pb"))
    assert done.returncode == 1 and done.stderr.startswith("new session: code 3: ")


def test_missing_installation_is_reported(program: Path, tmp_path: Path) -> None:
    """It is no success."""
    (tmp_path / "graph.pb").write_bytes(b"")
    done = run(program, str(tmp_path / "graph.pb"), path=str(tmp_path))
    assert done.returncode == 1 and "new session: code 14: Python or aexec could not be started" in done.stderr
    assert "No module named 'aexec'" in done.stderr
