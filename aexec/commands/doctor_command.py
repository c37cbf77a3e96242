"""`aexec doctor`: checks what aexec needs of this machine: Python, packages, processors, BLAS, GPUs, folders."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib import metadata

from aexec import errors

__all__ = ["Finding", "machine_findings", "print_findings"]

# What was looked at, `ok`, `warning` or `error`, and what was found.
Finding = tuple[str, str, str]

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?\s*([^;]*)(?:;(.*))?")
_EXTRA = re.compile(r"extra == ['\"](\w+)['\"]")
_OF_DEVELOPERS = "dev"
_LEAST_FREE_BYTES = 2**28
_SIGNS = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}


def machine_findings() -> Iterator[Finding]:
    """Yield what was found on this machine, apart from any settings of a server."""
    yield from _python()
    yield from _packages()
    yield from _processors()
    yield from _blas()
    yield _loops()
    yield from _gpus()
    yield _folder("temporary files", tempfile.gettempdir())


def print_findings(findings: Iterable[Finding], *, as_json: bool) -> int:
    """Print findings, each as it comes, or all as one JSON object; return the exit status, 1 if there is an error."""
    worst, listed = 0, []
    for what, state, text in findings:
        worst |= state == "error"
        if as_json:
            listed.append({"what": what, "state": state, "found": text})
        else:
            print(f"{_SIGNS[state]}  {what}: {text}", flush=True)
    if as_json:
        print(json.dumps({"ok": not worst, "findings": listed}, indent=2))
    return int(worst)


def _python() -> Iterator[Finding]:
    import aexec

    wanted = (3, 11)
    state = "ok" if sys.version_info >= wanted else "error"
    yield "python", state, f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "aexec", "ok", aexec.__version__


def _packages() -> Iterator[Finding]:
    """What the installed distribution requires, and its extras."""
    try:
        required = metadata.requires("aexec") or []
    except metadata.PackageNotFoundError:
        yield "packages", "warning", "aexec runs from its sources, and is not installed: its requirements are unknown"
        return
    extras: dict[str, list[tuple[str, str]]] = {}
    for text in required:
        match, extra = _REQUIREMENT.match(text), _EXTRA.search(text)
        if match is None or (extra is None and "sys_platform" in text and sys.platform == "win32"):
            continue
        one = match[1], match[2].strip()
        if extra is not None:
            extras.setdefault(extra[1], []).append(one)
        else:
            yield (f"package {one[0]}", *_package(*one))
    extras.pop(_OF_DEVELOPERS, None)
    for name, packages in extras.items():
        found = [_package(*one) for one in packages]
        if any(_version(package) is None for package, _ in packages):
            yield f"extra {name}", "ok", "not installed"
        else:
            worst = "error" if any(state == "error" for state, _ in found) else "ok"
            yield f"extra {name}", worst, ", ".join(text for _, text in found)


def _package(name: str, wanted: str) -> tuple[str, str]:
    """Return the state of a package, and its version."""
    version = _version(name)
    if version is None:
        return "error", f"is not installed; wanted {wanted}"
    return ("ok", version) if _fits(version, wanted) else ("error", f"{version}; wanted {wanted}")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _fits(version: str, wanted: str) -> bool:
    """True if a version has the bounds `>=` and `<` of a requirement; others are not looked at."""
    for sign, bound in re.findall(r"(>=|<)\s*([\d.]+)", wanted):
        given, limit = _numbers(version), _numbers(bound)
        if (given < limit) if sign == ">=" else (given >= limit):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _processors() -> Iterator[Finding]:
    from aexec.framework.waiting.processors import num_processors
    from aexec.runtime.threads.worker_pool import WorkerPool

    usable, all_ = num_processors(), os.cpu_count() or 1
    few = "" if usable == all_ else f", of {all_} of the machine"
    yield "processors", "ok" if usable > 1 else "warning", f"{usable}{few}"
    pool = WorkerPool().statistics()
    yield "threads", "ok", f"{pool.workers} for heavy kernels, {pool.intra_op_threads} with those that help them"


def _blas() -> Iterator[Finding]:
    import numpy  # noqa: F401  which loads it

    from aexec.blas import blas_libraries
    from aexec.framework.waiting.processors import num_processors

    libraries = list(blas_libraries())
    if not libraries:
        yield "blas", "warning", "no BLAS library was found: products of matrices are slow"
    for one in libraries:
        state = "warning" if one.threads > num_processors() else "ok"
        name = " ".join(filter(None, (one.name, one.version, one.architecture)))
        yield "blas", state, f"{name}, {one.threads} threads"


def _loops() -> Finding:
    from aexec import native

    if native.loops is None:
        return "loops in C", "warning", "none: some kernels are several times slower (docs/install.md)"
    return "loops in C", "ok", native.loops.INSTRUCTIONS


def _gpus() -> Iterator[Finding]:
    from aexec.devices.device_registry import make_devices

    try:
        devices = [one for one in make_devices({}) if one.type == "GPU"]
    except errors.OpError as error:
        yield "gpu", "error", error.message
        return
    for one in devices:
        yield "gpu", "ok", " ".join(filter(None, (one.name, one.description)))
    if not devices:
        unused = shutil.which("nvidia-smi") is not None
        advice = "there is a driver, but no CuPy that can use a GPU: pip install 'aexec[cuda12]' or 'aexec[cuda13]'"
        yield "gpu", "warning" if unused else "ok", advice if unused else "none"


def _folder(what: str, path: str) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=path):
            free = shutil.disk_usage(path).free
    except OSError as error:
        return what, "error", f"{path} cannot be written: {error.strerror}"
    state = "ok" if free >= _LEAST_FREE_BYTES else "warning"
    return what, state, f"{path}, {free / 2**30:.1f} GiB free"
