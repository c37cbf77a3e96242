"""Runs the examples of a Markdown page, and compares their output with what the page says.

An example is a fenced block of `python` or `sh`. The block of `text` right after it is its whole output, with `...` for
parts that vary. An example that cannot be run is marked ```` ```sh not-run: why ````. The examples of a page are run in
its order and in one folder, so that a later one finds the files of an earlier one; requests to `localhost:8500`, and by
gRPC to `localhost:8501`, go to a server with the example model.

`python -m tests.support.examples docs/queues.md` prints what the examples of a page print now.
"""

from __future__ import annotations

import contextlib
import doctest
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tests.support.forked_scripts import ForkedScripts

__all__ = ["Example", "Page", "examples", "run_page"]

ROOT = Path(__file__).parent.parent.parent
_FENCE = re.compile(r"^ *```(\w*) *(.*)$")
_LANGUAGES = {"python", "sh"}
_DISPLAYED = {"text", "json"}
_PORT, _RPC_PORT = 8500, 8501


@dataclass(frozen=True)
class _Block:
    language: str
    note: str
    text: str
    line: int
    end: int


@dataclass(frozen=True)
class Example:
    """One example.

    Attributes:
        where: `page:line`.
        expected: its expected output; None if the page gives none.
        why_not: why it is not run; "" if it is.
    """

    where: str
    language: str
    source: str
    expected: str | None
    why_not: str

    def complaint(self) -> str:
        """Return what is wrong with the example's form, or ""."""
        if self.why_not:
            return ""
        if self.expected is None:
            return f"{self.where}: no block of `text` after it says what this example prints"
        if not re.sub(r"[.\s]", "", self.expected):
            return f"{self.where}: what this example prints is said to be anything"
        return ""

    def difference(self, printed: str) -> str:
        """Return the difference between its output and the page, or ""."""
        checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.REPORT_NDIFF
        expected = doctest.Example(self.source, _tidy(self.expected or ""))
        if checker.check_output(expected.want, _tidy(printed), flags):
            return ""
        return f"{self.where} prints something else:\n{checker.output_difference(expected, _tidy(printed), flags)}"


def _tidy(text: str) -> str:
    """Return text without spaces at line ends, and with a final line end."""
    return "".join(line.rstrip() + "\n" for line in text.rstrip().splitlines())


def _blocks(text: str) -> Iterator[_Block]:
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            continue
        indent = len(line) - len(line.lstrip())
        inside = []
        for end, content in lines:
            if content.strip() == "```":
                yield _Block(fence[1], fence[2], "".join(f"{x[indent:]}\n" for x in inside), number, end)
                break
            inside.append(content)
        else:
            raise ValueError(f"the block of line {number} does not end")


def examples(page: Path) -> list[Example]:
    """Return the examples of a page.

    Raises:
        ValueError: a block is neither an example nor of a language that is only shown.
    """
    text = page.read_text("utf-8")
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name
    lines = text.splitlines()
    blocks = list(_blocks(text))
    found = []
    for block, following in zip_longest(blocks, blocks[1:]):
        where = f"{name}:{block.line}"
        if block.language in _DISPLAYED and not block.note:
            continue
        mark = re.fullmatch(r"not-run: (\S.*)", block.note)
        if block.language not in _LANGUAGES or (block.note and not mark):
            raise ValueError(f"{where}: a block is `python`, `sh`, either with `not-run: why`, `text` or `json`")
        expected = None
        if following is not None and following.language == "text":
            between = lines[block.end : following.line - 1]
            expected = None if any(line.strip() for line in between) else following.text
        found.append(Example(where, block.language, block.text, expected, mark[1] if mark else ""))
    return found


class Page:
    """The environment in which the examples of one page run.

    Args:
        folder: working directory of the examples.
        tools: an empty folder for the commands that they call.
        scripts: runs the Python examples.
    """

    def __init__(self, folder: Path, tools: Path, scripts: ForkedScripts) -> None:
        self._folder = folder
        self._scripts = scripts
        self._closing = ExitStack()
        command = tools / "aexec"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error -m aexec.cli "$@"\n')
        command.chmod(0o755)
        self._env = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'server'}",
            "HOME": str(folder),
            "COLUMNS": "120",
        }
        # Port on the page → port of the server.
        self._ports: dict[int, int] = {}

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._closing.close()

    def run(self, example: Example) -> str:
        """Run an example and return its output on both streams.

        Raises:
            subprocess.CalledProcessError: the example fails.
        """
        source = example.source
        if any(f"localhost:{port}" in source for port in (_PORT, _RPC_PORT)):
            if not self._ports:
                self._ports = self._closing.enter_context(self._server())
            for written, port in self._ports.items():
                source = source.replace(f"localhost:{written}", f"localhost:{port}")
        script = self._folder / f"example.{'py' if example.language == 'python' else 'sh'}"
        script.write_text(source, "utf-8")
        status, printed = (self._scripts.run if example.language == "python" else _run_shell)(script, self._env)
        script.unlink()
        if status:
            raise RuntimeError(f"{example.where} failed with {status}:\n{printed}")
        for written, port in self._ports.items():
            printed = printed.replace(f":{port}", f":{written}")
        return printed

    @contextmanager
    def _server(self) -> Iterator[dict[int, int]]:
        """Context manager: a server with the example model on free ports, which it gives by those on the page."""
        command = ["aexec", "serve", "--example", "--port", "0", "--grpc-port", "0"]
        with subprocess.Popen(
            command,
            executable=Path(self._env["PATH"].partition(":")[0]) / "aexec",
            stdout=subprocess.PIPE,
            text=True,
            env=self._env,
            cwd=self._folder,
        ) as server:
            try:
                assert server.stdout is not None
                ports = [_told(server.stdout, words) for words in ("serves on", "serves gRPC on")]
                yield dict(zip((_PORT, _RPC_PORT), ports, strict=True))
            finally:
                server.terminate()


def _told(lines: Iterable[str], words: str) -> int:
    """The port in the first line with these words before an address."""
    for line in lines:
        if (match := re.search(rf"{words} \w+://[\d.]+:(\d+)", line)) is not None:
            return int(match[1])
    raise AssertionError(f"no line has {words!r}")


def _run_shell(script: Path, env: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-e", script.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=300,
        cwd=script.parent,
        env=env,
        check=False,
    )
    return done.returncode, done.stdout


def run_page(page: Path, folder: Path, tools: Path, scripts: ForkedScripts) -> list[str]:
    """Run the examples of a page; return the differences from what it says."""
    wrong = []
    with Page(folder, tools, scripts) as place:
        for example in examples(page):
            if example.why_not:
                continue
            try:
                wrong.append(example.complaint() or example.difference(place.run(example)))
            except RuntimeError as error:
                wrong.append(str(error))
    return [complaint for complaint in wrong if complaint]


def _main() -> None:
    for name in sys.argv[1:]:
        with (
            tempfile.TemporaryDirectory() as folder,
            tempfile.TemporaryDirectory() as tools,
            contextlib.closing(ForkedScripts()) as scripts,
            Page(Path(folder), Path(tools), scripts) as place,
        ):
            for example in examples(Path(name).resolve()):
                if not example.why_not:
                    print(f"--- {example.where}\n{place.run(example)}", end="", flush=True)


if __name__ == "__main__":
    _main()
