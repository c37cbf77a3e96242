"""Whole models against other runtimes: `scripts/bench models`; training steps: `scripts/bench training` and `programs`.

Each model of the zoo (`models.py`) is run by aexec and by whatever of TensorFlow, onnxruntime and OpenVINO can be
imported, all in this process, taking turns many times; what is printed are medians, and ratios between them, because
machines differ and drift while ratios hold.  aexec's figure is that of a callable (`Session.make_callable`) with
NumPy's kernels alone; `run` is `session.run`; `delegate` is a session that may give regions to OpenVINO, and does where
it thinks that worth it.

The environment of the scripts has none of the others.  To compare with them, run this file with an interpreter that has
them and aexec's dependencies:

    PYTHONPATH=. path/to/python scripts/benchmarks.py models

The models of `training` (`training_models.py`) change in each run: after as many runs, all contenders have the same
loss.  So do `programs` (`training_programs.py`), which are run as programs for TensorFlow do it, by `Session.run` of a
session that blocks.  TensorFlow builds more of them itself where tf_keras and tf_slim can be imported.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from model_contenders import CONTENDERS, Contender, Contenders, UnsuitedError, available, versions
from models import Model, zoo
from process_benchmarks import cold_start, concurrency
from training_models import training_zoo
from training_programs import PROGRAM_CONTENDERS, programs

__all__ = ["Measured", "main", "markdown", "measure"]

TITLES = {
    "aexec": "aexec",
    "run": "aexec `run`",
    "delegate": "aexec + delegate",
    "numpy": "NumPy loop",
    "onnxruntime": "onnxruntime",
    "tensorflow": "TensorFlow",
    "openvino": "OpenVINO",
}
# The pairs of contenders whose ratio is shown.
RATIOS = (
    ("aexec", "numpy"),
    ("aexec", "onnxruntime"),
    ("aexec", "tensorflow"),
    ("delegate", "onnxruntime"),
    ("delegate", "tensorflow"),
)
# The head of the page that each command writes.
PAGES = {
    "models": """# Models against other runtimes

Written by `scripts/bench models`: every contender runs the same model with the same weights in one process,
by turns; times are medians in milliseconds, a ratio below 1 means that aexec is faster.
""",
    "training": """# Training steps against TensorFlow

Written by `scripts/bench training`: aexec and TensorFlow run the same graph from the same initial values in one
process, by turns; times are medians in milliseconds, a ratio below 1 means that aexec is faster.
""",
    "programs": """# Programs against TensorFlow

Written by `scripts/bench programs`. Each row is one training step of a program of [examples](../../examples), in the
sizes that people use: all `Session.run` calls that the program makes for a step, with what they feed. aexec runs the
program under `aexec.compat.v1`, TensorFlow runs the same source under `tensorflow.compat.v1`; the CRF tagger and the
translation, for which TensorFlow 2 lacks `tf.contrib`, run as the graph that aexec built. Both run in one process by
turns, from the same initial values, and the losses of the first step agree. Times are medians in milliseconds, a ratio
below 1 means that aexec is faster.
""",
}
# Runs before the first that is measured: aexec compiles a plan at its third run, a large one in a thread.
WARM_UP = 10
# May be named besides models; see `process_benchmarks.py`.
COLD_START, CONCURRENCY = "cold-start", "concurrency"
# Approximate length of a turn, so that the cost of reading the clock does not matter.
TURN_SECONDS = 0.02
# Thread pools spin for a moment after their work, and would take cores from the next contender.
PAUSE_SECONDS = 0.03
# Relative to the largest value: sums are taken in another order.
TOLERANCE = 1e-3


@dataclass
class Measured:
    """Measurements of one model.

    Attributes:
        title: of the model.
        seconds: contender → median seconds of a run.
        notes: contenders that failed or gave another result.
    """

    title: str
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ratio(self, ours: str, theirs: str) -> float | None:
        """Return how many times as long `ours` took as `theirs`; None if either was not measured."""
        if ours in self.seconds and theirs in self.seconds:
            return self.seconds[ours] / self.seconds[theirs]
        return None


async def measure(
    model: Any,
    names: Sequence[str],
    *,
    threads: int,
    seconds: float,
    contenders: Contenders | None = None,
) -> Measured:
    """Run `model` with the named contenders by turns, each for about `seconds` in all.

    Args:
        model: a `Model`, or another class with its interface as far as the `contenders` use it.
        contenders: by default those of `model_contenders.py`.
    """
    measured = Measured(model.title)
    runners = await _prepared(model, names, threads, measured, CONTENDERS if contenders is None else contenders)
    numbers = {name: max(1, round(TURN_SECONDS / await _turn(runner, 3))) for name, runner in runners.items()}
    times: dict[str, list[float]] = {name: [] for name in runners}
    end = time.perf_counter() + (seconds + PAUSE_SECONDS) * len(runners)
    try:
        while time.perf_counter() < end or any(len(taken) < 3 for taken in times.values()):
            for name, runner in runners.items():
                await asyncio.sleep(PAUSE_SECONDS)
                times[name].append(await _turn(runner, numbers[name]))
    finally:
        for runner in runners.values():
            await runner.close()
    measured.seconds = {name: statistics.median(taken) for name, taken in times.items()}
    return measured


async def _turn(runner: Contender, number: int) -> float:
    """Return the seconds per run, over `number` runs."""
    began = time.perf_counter()
    for _ in range(number):
        await runner.run()
    return (time.perf_counter() - began) / number


async def _prepared(
    model: Any, names: Sequence[str], threads: int, measured: Measured, contenders: Contenders
) -> dict[str, Contender]:
    """Return the contenders that can run the model, warmed up; note those that cannot, or whose first result differs
    from that of the first contender.
    """
    runners: dict[str, Contender] = {}
    expected: list[Any] | None = None
    for name in (name for name in names if name not in model.not_for):
        runner = contenders[name][0]()
        try:
            await runner.prepare(model, threads)
            answer = await runner.run()
            for _ in range(WARM_UP - 1):
                await runner.run()
                await asyncio.sleep(PAUSE_SECONDS / 10)  # plans are compiled meanwhile
        except UnsuitedError:
            continue
        except Exception as error:  # any error of another runtime becomes a line of the table
            measured.notes.append(f"{TITLES[name]} failed: {_first_line(error)}")
            continue
        runners[name] = runner
        expected = answer if expected is None else expected
        if not _agree(expected, answer):
            measured.notes.append(f"{TITLES[name]} gives another answer")
    return runners


def _agree(expected: Sequence[Any], answer: Sequence[Any]) -> bool:
    pairs = zip(expected, answer, strict=False)
    return len(expected) == len(answer) and all(_close(np.asarray(e), np.asarray(a)) for e, a in pairs)


def _close(expected: np.ndarray, answer: np.ndarray) -> bool:
    if expected.shape != answer.shape:
        return False
    if expected.dtype.kind in "iu":
        return bool(np.array_equal(expected, answer))
    scale = np.abs(expected).max(initial=0)
    return bool(np.allclose(expected, answer, rtol=TOLERANCE, atol=TOLERANCE * scale))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


# The table


def _columns(rows: Iterable[Measured]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the contenders and the ratios that have at least one figure."""
    rows = list(rows)
    names = [name for name in TITLES if any(name in row.seconds for row in rows)]
    return names, [pair for pair in RATIOS if any(row.ratio(*pair) is not None for row in rows)]


def _cells(row: Measured, names: Sequence[str], ratios: Sequence[tuple[str, str]]) -> list[str]:
    times = [_milliseconds(row.seconds[name]) if name in row.seconds else "" for name in names]
    return [row.title, *times, *("" if (r := row.ratio(*pair)) is None else f"{r:.2f}" for pair in ratios)]


def _milliseconds(seconds: float) -> str:
    """Format with three significant digits: 0.0123, 4.56, 789."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.1 else f"{value:.4f}"


def _headings(names: Sequence[str], ratios: Sequence[tuple[str, str]]) -> list[str]:
    return ["model", *(f"{TITLES[n]}, ms" for n in names), *(f"{TITLES[a]} / {TITLES[b]}" for a, b in ratios)]


def _medians(rows: Sequence[Measured], ratios: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
    return {pair: statistics.median(r for row in rows if (r := row.ratio(*pair)) is not None) for pair in ratios}


def markdown(
    rows: Sequence[Measured], facts: dict[str, str], remarks: Sequence[str] = (), command: str = "models"
) -> str:
    """Return the table as a page of the documentation.

    Args:
        rows: one per model.
        facts: machine and versions, name → text.
        remarks: figures that are in no row.
        command: which of the commands measured the rows.
    """
    names, ratios = _columns(rows)
    headings = _headings(names, ratios)
    medians = _medians(rows, ratios)
    last = ["**median**", *("" for _ in names), *(f"**{medians[pair]:.2f}**" for pair in ratios)]
    lines = [
        PAGES[command],
        *(f"- {name}: {text}" for name, text in facts.items()),
        "",
        f"| {' | '.join(headings)} |",
        f"|{'---|' * len(headings)}",
        *(f"| {' | '.join(_cells(row, names, ratios))} |" for row in rows),
        f"| {' | '.join(last)} |",
    ]
    notes = [*(f"- {remark}" for remark in remarks), *(f"- {row.title}: {note}" for row in rows for note in row.notes)]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def print_table(rows: Sequence[Measured], remarks: Sequence[str] = ()) -> None:
    from rich.console import Console
    from rich.table import Table

    names, ratios = _columns(rows)
    table = Table(title="medians; below 1: aexec is faster")
    for number, heading in enumerate(_headings(names, ratios)):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*_cells(row, names, ratios))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for remark in remarks:
        console.print(remark, markup=False)
    for row in rows:
        for note in row.notes:
            console.print(f"{row.title}: {note}", style="yellow", markup=False)


def facts(threads: int, loop: str) -> dict[str, str]:
    """Return the machine and the versions."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "threads": f"{threads} for each",
        "Python": f"{platform.python_version()}, {loop}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "processes that wanted a core": f"{os.getloadavg()[0]:.1f} on average in the last minute",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


# The command


def parser(command: str, contenders: Contenders) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"scripts/bench {command}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    others = f", {COLD_START} or {CONCURRENCY}" if command == "models" else ""
    made.add_argument("models", nargs="*", help=f"names of models (see --list){others}; default all of these")
    made.add_argument("--list", action="store_true", help="list models and contenders, and stop")
    made.add_argument(
        "--only",
        metavar="NAMES",
        help=f"contenders, comma separated, of {', '.join(contenders)}; default: all there are",
    )
    made.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="of each contender (default %(default)s)"
    )
    made.add_argument(
        "--seconds", type=float, default=2.0, help="measuring time for each contender and model (default %(default)s)"
    )
    made.add_argument("--small", action="store_true", help="tiny models, to see that all of it runs")
    made.add_argument("--markdown", metavar="FILE", help="write the table with machine and versions")
    made.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    made.add_argument(
        "--loop", choices=("uvloop", "asyncio"), default="uvloop", help="event loop (default %(default)s)"
    )
    return made


def _chosen(wanted: Sequence[str], known: Sequence[str], what: str, fail: Callable[[str], Any]) -> list[str]:
    unknown = [name for name in wanted if name not in known]
    if unknown:
        fail(f"no {what} '{unknown[0]}'; there are {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


def main(argv: Sequence[str] | None = None, name: str = "models") -> int:
    """Run the command `scripts/bench models`, `scripts/bench training` or `scripts/bench programs`."""
    contenders: Contenders = PROGRAM_CONTENDERS if name == "programs" else CONTENDERS
    command = parser(name, contenders)
    arguments = command.parse_args(argv)
    zoos: dict[str, Callable[..., Sequence[Any]]] = {"models": zoo, "training": training_zoo, "programs": programs}
    found = zoos[name](small=arguments.small)
    models = {model.name: model for model in found}
    # `process_benchmarks.py` measures these.
    others = [COLD_START, CONCURRENCY] if name == "models" else []
    here = available(contenders)
    if arguments.list:
        for model in models.values():
            print(f"{model.name:14} {model.title}")
        if others:
            print(f"{COLD_START:14} processes that load and run MobileNetV2 once, from the shell to their end")
            print(f"{CONCURRENCY:14} a hundred steps at once, against one after another")
        print(
            f"\ncontenders here: {', '.join(here)}; not importable: {', '.join(set(contenders) - set(here)) or 'none'}"
        )
        return 0
    wanted = _chosen(arguments.models, [*models, *others], "model", command.error)
    names = _chosen(arguments.only.split(",") if arguments.only else [], here, "contender", command.error)

    rows: list[Measured] = []
    remarks: list[str] = []

    async def run_all() -> None:
        from rich.console import Console

        console = Console(stderr=True)
        with console.status("") as status:
            for number, name in enumerate(wanted, 1):
                status.update(f"{name} ({number} of {len(wanted)}): {', '.join(names)}")
                if not console.is_terminal:
                    print(f"{number} of {len(wanted)}: {name}", file=sys.stderr, flush=True)
                if name == COLD_START:
                    rows.append(_cold_start(models["mobilenet-v2"], names, arguments))
                elif name == CONCURRENCY:
                    longest = [model for model in models.values() if model.name.startswith("chain")][-1]
                    remarks.append(f"{longest.title}, {await concurrency(longest)}")
                else:
                    measured = await measure(
                        models[name],
                        names,
                        threads=arguments.threads,
                        seconds=arguments.seconds,
                        contenders=contenders,
                    )
                    rows.append(measured)

    _run(run_all, arguments.loop)
    print_table(rows, remarks)
    about = facts(arguments.threads, arguments.loop)
    if arguments.markdown:
        Path(arguments.markdown).write_text(markdown(rows, about, remarks, command=name))
    if arguments.json:
        figures = [{"model": row.title, "seconds": row.seconds, "notes": row.notes} for row in rows]
        report = about | {"models": figures, "remarks": remarks}
        Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _cold_start(model: Model, names: Sequence[str], arguments: argparse.Namespace) -> Measured:
    repeats = max(3, round(arguments.seconds * 2))
    times = cold_start(model, names, threads=arguments.threads, repeats=repeats)
    seconds = {name: statistics.median(taken) for name, taken in times.items()}
    return Measured(f"cold start: a process that runs {model.title} once", seconds)


def _run(work: Callable[[], Any], loop: str) -> Any:
    if loop == "uvloop":
        import uvloop

        return uvloop.run(work())
    return asyncio.run(work())


if __name__ == "__main__":
    sys.exit(main())
