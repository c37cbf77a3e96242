"""TensorFlow as a client of `aexec serve`, beside its own server; see `scripts/grpc-check`.

Usage: grpc_check.py AEXEC [cases] [programs] [times] [--family NAME …] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from grpc_servers import running_server

from tests.conformance import cases

HERE = Path(__file__).parent
_PARTS = ("cases", "programs", "times")
_OURS, _THEIRS = "aexec", "TensorFlow"
# A case that takes longer has failed.
_CASE_SECONDS = 60.0
_SERVER = """
import sys, tensorflow as tf
server = tf.distribute.Server.create_local_server()
print(server.target, flush=True)
server.join()
"""


def running(server: str, aexec: str) -> contextlib.AbstractContextManager[str]:
    """Context manager: a server in a process of its own, by its target."""
    if server == _THEIRS:
        return running_server([sys.executable, "-c", _SERVER], r"(grpc://localhost:\d+)")
    ours = [aexec, "serve", "--port", "0", "--grpc-port", "0", "--trust-graphs"]
    return running_server(ours, r"serves gRPC on (grpc://\S+)")


@contextlib.contextmanager
def servers(aexec: str) -> Iterator[dict[str, str]]:
    """Context manager: the targets of both servers by name."""
    with running(_OURS, aexec) as own, running(_THEIRS, aexec) as theirs:
        yield {_OURS: own, _THEIRS: theirs}


def worker(name: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / f"grpc_check_{name}.py"), *arguments]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True, **options)


def run_cases(server: str, aexec: str, names: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The outcome of each case on a server.

    A case that ends the client's process or the server, or takes too long, has failed; the next one has a new server
    and a new process.
    """
    outcomes: dict[tuple[str, str], str] = {}
    while len(outcomes) < len(names):
        left = names[len(outcomes) :]
        with running(server, aexec) as target, worker("cases", target, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            for name in left:
                line = one_line(process, f"{json.dumps(name)}\n")
                if line is None:
                    process.kill()
                outcomes[name] = json.loads(line) if line else f"wrong: {_ended(line)}"
                if not line or "UNAVAILABLE" in outcomes[name]:
                    break
            process.stdin.close()
    return outcomes


def one_line(process: subprocess.Popen[str], question: str) -> str | None:
    """A process's answer to a line; "" if it has ended, None if the answer takes too long."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(question)
        process.stdin.flush()
    except BrokenPipeError:
        return ""
    # There is one line for each question, so none is left in the buffer of stdout.
    if not select.select([process.stdout], [], [], _CASE_SECONDS)[0]:
        return None
    return process.stdout.readline()


def _ended(line: str | None) -> str:
    return f"no answer within {_CASE_SECONDS:g} s" if line is None else "the client's process ended"


def cases_table(aexec: str, families: list[str]) -> list[str]:
    """Counts by family, and the cases that pass in one of the servers alone."""
    names = [(family, name) for family in families for name in cases.names(family)]
    found = {server: run_cases(server, aexec, names) for server in (_OURS, _THEIRS)}
    lines = [
        "| family | cases | refused by the client itself | TensorFlow's server passes | aexec passes | of these |",
        "|---|---|---|---|---|---|",
    ]
    for family in [*families, "**all**"]:
        of = [name for name in names if family in (name[0], "**all**")]
        theirs = {name for name in of if found[_THEIRS][name] == "pass"}
        ours = {name for name in of if found[_OURS][name] == "pass"}
        client = sum(found[_THEIRS][name] == "client" for name in of)
        lines.append(f"| {family} | {len(of)} | {client} | {len(theirs)} | {len(ours)} | {len(theirs & ours)} |")
    lines.append("")
    for name in names:
        ours, theirs = (found[server][name] for server in (_OURS, _THEIRS))
        if (ours == "pass") != (theirs == "pass"):
            passed, failed, why = (_OURS, _THEIRS, theirs) if ours == "pass" else (_THEIRS, _OURS, ours)
            lines.append(f"- `{name[1]}` passes on {passed} alone: on {failed}, {_shortened(why)}")
    return lines


def _shortened(why: str) -> str:
    """Which step failed, and with which code."""
    return re.sub(r"(: [A-Z_]+):.*", r"\1", why.removeprefix("wrong WrongError "))


def programs_table(aexec: str) -> list[str]:
    """The outcome of each program on each server."""
    found: dict[str, dict[str, str]] = {}
    for server in (_OURS, _THEIRS):
        with (
            running(server, aexec) as target,
            tempfile.TemporaryDirectory() as folder,
            worker("programs", target, folder) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                name, _, outcome = line.strip().partition("\t")
                found.setdefault(name, {})[server] = outcome
    rows = [f"| {name} | {of.get(_OURS, '')} | {of.get(_THEIRS, '')} |" for name, of in found.items()]
    return ["| program | on aexec | on TensorFlow's server |", "|---|---|---|", *rows]


def times_table(aexec: str) -> list[str]:
    """What steps take on each server, by turns."""
    with servers(aexec) as targets, worker("times", targets[_OURS], targets[_THEIRS]) as process:
        output, _ = process.communicate()
    lines = ["| | aexec | TensorFlow's server | aexec / TensorFlow |", "|---|---|---|---|"]
    for name, (ours, theirs) in json.loads(output).items():
        ratio = "" if min(ours, theirs) < 0 else f"{ours / theirs:.2f}"
        lines.append(f"| {name} | {_ms(ours)} | {_ms(theirs)} | {ratio} |")
    return lines


def _ms(value: float) -> str:
    return "does not end" if value < 0 else f"{value:.3g}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("aexec")
    parser.add_argument("parts", nargs="*", choices=[*_PARTS, []], default=[])
    parser.add_argument("--family", action="append", choices=cases.families())
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    parts = arguments.parts or _PARTS
    made = {
        "times": ("Times", times_table),
        "programs": ("Programs", programs_table),
        "cases": ("Conformance cases", lambda aexec: cases_table(aexec, arguments.family or cases.families())),
    }
    lines = [
        "# TensorFlow's client, here and on TensorFlow's own server",
        "",
        "Written by `scripts/grpc-check`: the client is `tf.compat.v1.Session`, over gRPC on this machine;",
        "each server has a process of its own. Times are medians of one client, of both servers by turns.",
        "",
        f"- machine: {platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        f"- versions: Python {platform.python_version()}, TensorFlow {tf.__version__}",
        f"- processes that wanted a core: {os.getloadavg()[0]:.1f} on average in the last minute",
        f"- date: {time.strftime('%Y-%m-%d')}",
    ]
    for part, (title, table) in made.items():
        if part in parts:
            lines += ["", f"## {title}", "", *table(arguments.aexec)]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.markdown is not None:
        arguments.markdown.write_text(text)


if __name__ == "__main__":
    main()
