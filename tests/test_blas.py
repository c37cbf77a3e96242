"""OpenBLAS's kernels: chosen by the CPU's flags, before NumPy is loaded, never against the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aexec import blas, cli

ROOT = Path(__file__).parent.parent
AVX512 = ["sse2", "avx2", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]
IN_USE = "import threadpoolctl; print([i.get('architecture') for i in threadpoolctl.threadpool_info()][0])"

on_avx512 = pytest.mark.skipif(
    blas.core_type_for(blas._cpu_flags()) is None
    or not any(library.name == "openblas" for library in blas.blas_libraries()),
    reason="the CPU has no AVX-512, or NumPy no OpenBLAS",
)


def run_python(code: str, core_type: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if k != blas.VARIABLE}
    if core_type is not None:
        environ[blas.VARIABLE] = core_type
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environ, check=True
    )


@pytest.mark.parametrize(
    ("flags", "core_type"),
    [(AVX512, "SkylakeX"), (AVX512[:3], None), (AVX512[:2], None), ([], None)],
    ids=["AVX-512", "a first part of it", "AVX2", "unknown"],
)
def test_core_type_follows_the_flags(flags: list[str], core_type: str | None) -> None:
    assert blas.core_type_for(flags) == core_type


def test_choice_goes_to_the_environment() -> None:
    environ: dict[str, str] = {}
    assert blas._choose(environ, AVX512, loaded=False) == "SkylakeX"
    assert environ == {blas.VARIABLE: "SkylakeX"}


@pytest.mark.parametrize("given", ["Haswell", ""])
def test_settings_of_the_user_stay(given: str) -> None:
    environ = {blas.VARIABLE: given}
    assert blas._choose(environ, AVX512, loaded=False) is None
    assert environ == {blas.VARIABLE: given}


def test_threads_are_not_chosen_too_late_or_without_need() -> None:
    environ: dict[str, str] = {}
    assert blas._choose(environ, AVX512, loaded=True) is None
    assert blas._choose(environ, AVX512[:2], loaded=False) is None
    assert not environ


def test_flags_are_those_of_the_first_cpu(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert blas._cpu_flags(path) == ["fpu", "avx2"]
    path.write_text("processor\t: 0\nFeatures\t: asimd\n")
    assert blas._cpu_flags(path) == []
    assert blas._cpu_flags(tmp_path / "none") == []


@on_avx512
def test_importing_aexec_first_chooses() -> None:
    done = run_python(f"import warnings; warnings.simplefilter('error'); import aexec; aexec.tune_blas(); {IN_USE}")
    assert done.stdout.strip() == "SkylakeX"


@on_avx512
def test_users_choice_is_in_use() -> None:
    """No warning either: the user meant it."""
    code = f"import warnings; warnings.simplefilter('error'); import aexec; print(aexec.tune_blas()); {IN_USE}"
    assert run_python(code, "Haswell").stdout.split() == ["None", "Haswell"]


@on_avx512
def test_warning_where_numpy_came_first() -> None:
    code = f"import numpy, os; del os.environ['{blas.VARIABLE}']; import aexec; print(aexec.tune_blas())"
    done = run_python(code, "Haswell")
    assert done.stdout.strip() == "None"
    assert "RuntimeWarning: NumPy was loaded before aexec" in done.stderr
    assert f"{blas.VARIABLE}=SkylakeX" in done.stderr


def test_devices_says_what_is_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices"]) == 0
    printed = capsys.readouterr().out
    for library in blas.blas_libraries():
        assert f"BLAS: {library.name} {library.version}" in printed
        assert library.architecture in printed
