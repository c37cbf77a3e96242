"""Chooses the kernels of OpenBLAS before NumPy loads it, as OpenBLAS chooses only once.

An OpenBLAS that is older than the CPU does not know it and falls back to instructions of 2013.  With AVX-512 that
halves the speed of matrix products.  So `import aexec` reads the CPU's flags and names the core type in the
environment, unless NumPy is loaded already, or the user has named one.  This module must not import NumPy.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, MutableMapping
from pathlib import Path

from aexec.framework.late_dataclass import dataclass

__all__ = ["BlasLibrary", "blas_libraries", "core_type_for", "tune_blas"]

VARIABLE = "OPENBLAS_CORETYPE"
_CPU_INFO = Path("/proc/cpuinfo")
_AVX512 = frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))
# OpenBLAS's core types whose kernels are for AVX-512.
_AVX512_TYPES = frozenset(("SkylakeX", "Cooperlake", "SapphireRapids"))


@dataclass(frozen=True, slots=True)
class BlasLibrary:
    """A BLAS library that is loaded.

    Attributes:
        name, version: such as `openblas`, `0.3.31`; version is "" if the library does not report it.
        architecture: the CPU that its kernels are for; "" if the library does not report it.
        threads: most threads of one call.
    """

    name: str
    version: str
    architecture: str
    threads: int


def core_type_for(flags: Iterable[str]) -> str | None:
    """Return the core type to request on a CPU with these flags; None if OpenBLAS's own choice is as good."""
    return "SkylakeX" if _AVX512.issubset(flags) else None


def _cpu_flags(path: Path = _CPU_INFO) -> list[str]:
    """Return the flags of the first CPU; empty if the system does not report them."""
    try:
        with path.open() as lines:
            # All CPUs of a machine are alike, and on large machines reading all of them takes long.
            return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    except OSError:
        return []


def _choose(environ: MutableMapping[str, str], flags: Iterable[str], *, loaded: bool) -> str | None:
    """Set and return the core type in the environment; None if NumPy is loaded or a type is set already."""
    core_type = core_type_for(flags)
    if loaded or VARIABLE in environ or core_type is None:
        return None
    environ[VARIABLE] = core_type
    return core_type


_chosen = _choose(os.environ, _cpu_flags(), loaded="numpy" in sys.modules)


def tune_blas() -> str | None:
    """Make NumPy's OpenBLAS use the newest instructions of this CPU.

    `import aexec` does this if it comes before `import numpy`; later OpenBLAS cannot change.  This call checks it: it
    warns if NumPy came first and uses the slower kernels.  An OPENBLAS_CORETYPE that the user has set is never changed.

    Returns:
        The core type that aexec chose; None if it left the choice to the user or to OpenBLAS.

    Warns:
        RuntimeWarning: NumPy was loaded before, with kernels older than the CPU.
    """
    wanted = core_type_for(_cpu_flags())
    if _chosen is not None or wanted is None or VARIABLE in os.environ:
        return _chosen
    for library in blas_libraries():
        if library.name == "openblas" and library.architecture not in _AVX512_TYPES:
            warnings.warn(
                f"NumPy was loaded before aexec, and its OpenBLAS uses kernels for {library.architecture}, though this "
                f"CPU has AVX-512: import aexec before NumPy, or set {VARIABLE}={wanted} before Python starts",
                RuntimeWarning,
                stacklevel=2,
            )
            break
    return None


def blas_libraries() -> list[BlasLibrary]:
    """Return the BLAS libraries that are loaded, NumPy's first.  Takes milliseconds."""
    import threadpoolctl

    return [
        BlasLibrary(
            info["internal_api"], info.get("version") or "", info.get("architecture") or "", info["num_threads"]
        )
        for info in threadpoolctl.threadpool_info()
        if info["user_api"] == "blas"
    ]
