"""`scripts/bench memory`: the most memory that models and training steps take, aexec beside other runtimes.

Each figure is the peak of a process of its own, which imports a runtime, loads one model and runs it some times: how
much more resident memory it had at its peak than after its imports.  Processes take turns, and the table has medians.
Models with the weights in the graph run as a server runs them; the programs of `training_programs.py` run training
steps.  Needs Linux, whose `/proc/self/status` has the peak.

    PYTHONPATH=. path/to/python scripts/benchmarks.py memory [NAME...] [--turns N] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from model_benchmarks import TITLES, facts
from model_contenders import CONTENDERS, Contenders, available
from models import zoo
from training_programs import PROGRAM_CONTENDERS, programs

__all__ = ["main", "markdown", "measure"]

# Models of the zoo; each process reads one from a file, as making its weights would take memory too.
MODELS = ("mobilenet-v2", "resnet50", "transformer")
RUNS = 30
NAMES = ("aexec", "tensorflow", "onnxruntime")
MIB = 2**10  # the kernel counts in KiB
# (name of the model, contender) → MiB in each process
Peaks = dict[tuple[str, str], list[float]]


def _known(small: bool) -> dict[str, tuple[Any, Contenders]]:
    """Return each model that may be measured, with what runs it."""
    models = {model.name: (model, CONTENDERS) for model in zoo(small=small)}
    trained = {program.name: (program, PROGRAM_CONTENDERS) for program in programs(small=small)}
    return {name: models[name] for name in MODELS if name in models} | trained


def _status(field: str) -> float:
    """Return a field of this process's status in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / MIB


class Saved:
    """A model in files of a folder, with the interface of `models.Model` that contenders use."""

    initialize, targets, brief, numpy = None, (), False, None

    def __init__(self, folder: Path, outputs: Sequence[str]) -> None:
        self._folder = folder
        self.outputs = tuple(outputs)

    @classmethod
    def save(cls, model: Any, folder: Path, *, with_onnx: bool) -> None:
        """Write the files of a model."""
        (folder / "model.pb").write_bytes(model.graph_def)
        if with_onnx:
            (folder / "model.onnx").write_bytes(model.onnx)
        np.savez(folder / "feeds.npz", **model.feeds)
        (folder / "outputs.json").write_text(json.dumps(model.outputs))

    @classmethod
    def load(cls, folder: Path) -> Saved:
        """Return the model in a folder."""
        return cls(folder, json.loads((folder / "outputs.json").read_text()))

    @property
    def graph_def(self) -> bytes:
        return (self._folder / "model.pb").read_bytes()

    @property
    def onnx(self) -> bytes:
        return (self._folder / "model.onnx").read_bytes()

    @property
    def feeds(self) -> dict[str, Any]:
        with np.load(self._folder / "feeds.npz") as arrays:
            return dict(arrays)


async def _peak(name: str, contender: str, folder: Path, *, small: bool, threads: int) -> float:
    """Run a model in this process; return the most MiB by which its memory grew."""
    contenders = CONTENDERS if name in MODELS else PROGRAM_CONTENDERS
    model: Any = Saved.load(folder) if name in MODELS else _known(small)[name][0]
    factory, needs = contenders[contender]
    for package in needs:
        importlib.import_module(package)
    before = _status("VmRSS")
    runner = factory()
    await runner.prepare(model, threads)
    for _ in range(RUNS):
        await runner.run()
        await asyncio.sleep(0.003)  # plans are compiled meanwhile
    await runner.close()
    return _status("VmHWM") - before


def measure(names: Sequence[str], *, turns: int, small: bool, threads: int) -> Peaks:
    """Return the growth of each process, in MiB.

    Raises:
        CalledProcessError: a process failed.
    """
    peaks: Peaks = {}
    known, here = _known(small), available()
    for name in names:
        model, contenders = known[name]
        able = [who for who in NAMES if who in contenders and who in here and who not in model.not_for]
        with tempfile.TemporaryDirectory() as folder:
            if name in MODELS:
                Saved.save(model, Path(folder), with_onnx="onnxruntime" in able)
            for _ in range(turns):
                for contender in able:
                    grown = _in_a_process(name, contender, folder, small=small, threads=threads)
                    peaks.setdefault((name, contender), []).append(grown)
                    print(f"{name}, {contender}: {grown:.0f} MiB", file=sys.stderr, flush=True)
    return peaks


def _in_a_process(name: str, contender: str, folder: str, *, small: bool, threads: int) -> float:
    arguments = [name, contender, folder, str(threads), *(["small"] if small else [])]
    command = [sys.executable, "-W", "ignore", __file__, *arguments]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def rows(peaks: Peaks, small: bool) -> list[list[str]]:
    """Return the cells of the table, its headings first."""
    contenders = [name for name in NAMES if any(who == name for _, who in peaks)]
    others = [name for name in contenders if name != "aexec"]
    found = [["model", *(f"{TITLES[n]}, MiB" for n in contenders), *(f"aexec / {TITLES[n]}" for n in others)]]
    for name, (model, _) in _known(small).items():
        medians = {who: statistics.median(peaks[name, who]) for who in contenders if (name, who) in peaks}
        if medians:
            ratios = [f"{medians['aexec'] / medians[n]:.2f}" if {"aexec", n} <= medians.keys() else "" for n in others]
            cells = [f"{medians[n]:.0f}" if n in medians else "" for n in contenders]
            found.append([model.title if name in MODELS else f"{model.title}: training", *cells, *ratios])
    return found


def markdown(peaks: Peaks, about: dict[str, str], *, turns: int, small: bool) -> str:
    """Return the table as a page of the documentation."""
    headings, *cells = rows(peaks, small)
    lines = [
        "# Memory of models and of training steps",
        "",
        "Written by `scripts/bench memory`: how much more resident memory a process has at its peak, while it loads a",
        f"model and runs it {RUNS} times, than after its imports. Each figure is the median of several",
        "processes, which take turns. A ratio below 1 means that aexec takes less.",
        "",
        *(f"- {name}: {text}" for name, text in about.items()),
        f"- processes for each figure: {turns}",
        "",
        f"| {' | '.join(headings)} |",
        f"|{'---|' * len(headings)}",
        *(f"| {' | '.join(line)} |" for line in cells),
    ]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """Run the command `scripts/bench memory`."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(_known(small=False))}; default all")
    parser.add_argument("--turns", type=int, default=3, help="processes for each figure (default %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="default %(default)s")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that all of it runs")
    parser.add_argument("--markdown", metavar="FILE", help="write the table with machine and versions")
    arguments = parser.parse_args(argv)
    known = list(_known(arguments.small))
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no model '{unknown[0]}'; there are {', '.join(known)}")
    turns, small, threads = arguments.turns, arguments.small, arguments.threads
    peaks = measure(arguments.names or known, turns=turns, small=small, threads=threads)
    for line in rows(peaks, small):
        print(" | ".join(line))
    if arguments.markdown:
        page = markdown(peaks, facts(threads, "asyncio"), turns=turns, small=small)
        Path(arguments.markdown).write_text(page)
    return 0


if __name__ == "__main__":
    _, of, who, where, count, *rest = sys.argv
    print(json.dumps(asyncio.run(_peak(of, who, Path(where), small=bool(rest), threads=int(count)))))
