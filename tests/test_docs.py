"""The documentation: its examples print what it says, its links lead somewhere, and what it names exists."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
import aexec.client.progress_bars  # here, since its libraries ask for the working folder, which blocks an event loop
from aexec import proto
from tests.support.examples import Example, examples, run_page
from tests.support.forked_scripts import ForkedScripts
from tests.support.virtual_clock import run_virtual

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS, *sorted((ROOT / "protos").glob("*.md"))]
CONCEPTS = ROOT / "docs" / "concepts.md"


def pages(with_examples: bool = False) -> list[object]:
    chosen = [page for page in PAGES if not with_examples or any(not e.why_not for e in examples(page))]
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in chosen]


@pytest.fixture(scope="module")
def scripts() -> Iterator[ForkedScripts]:
    with contextlib.closing(ForkedScripts()) as scripts:
        yield scripts


@pytest.mark.time_limit(600)
@pytest.mark.parametrize("page", pages(with_examples=True))
def test_examples(page: Path, tmp_path: Path, scripts: ForkedScripts) -> None:
    """Each in a process of its own, as a reader would run it, with warnings as errors."""
    folder, tools = tmp_path / "folder", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    if "curl" in page.read_text("utf-8") and shutil.which("curl") is None:
        pytest.skip("the page calls curl, which is not installed")
    wrong = run_page(page, folder, tools, scripts)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", pages())
def test_each_example_says_what_it_prints(page: Path) -> None:
    complaints = [example.complaint() for example in examples(page)]
    assert not any(complaints), complaints


def test_cells_of_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They await at the top level, as notebooks let them; all of a page are one notebook."""
    page = ROOT / "docs" / "notebooks.md"
    graph, *_ = examples(page)
    cells = [example for example in examples(page) if example.why_not == "cells of a notebook"]
    assert cells
    monkeypatch.chdir(tmp_path)
    exec(graph.source, {})
    names: dict[str, Any] = {"__name__": "__main__"}

    async def run() -> None:
        for cell in cells:
            code = compile(cell.source, cell.where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                awaited = eval(code, names)
                if awaited is not None:
                    await awaited
            assert not (wrong := cell.difference(printed.getvalue())), wrong

    asyncio.run(run())


def test_installation_page_names_each_extra() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name, requirements in project["optional-dependencies"].items():
        row = re.search(rf"^\| `{name}` \| (.*) \|$", page, re.M)
        assert row is not None, name
        for requirement in requirements if name != "dev" else ():
            assert re.split(r"[=<>\[]", requirement)[0] in row[1], (name, requirement)
    assert f"Python {project['requires-python'].removeprefix('>=')}" in page


def test_synchronous_replicas_finish_though_one_loses_its_token_to_another() -> None:
    """One is held up between giving its gradient and taking its token, until another has had two of a round."""
    source = examples(ROOT / "docs" / "training.md")[-1].source
    names: dict[str, Any] = {}
    assert source.count("\nasyncio.run(main())\n") == 1
    exec(source.replace("\nasyncio.run(main())\n", ""), names)

    async def main() -> None:
        lost = asyncio.Event()

        class Fast:
            def __init__(self, session: aexec.Session) -> None:
                self.session = session
                self.last = 0

            async def run(self, *request: Any) -> Any:
                token = await self.session.run(*request)
                if token == self.last:
                    lost.set()
                self.last = token
                return token

        class HeldUp(Fast):
            async def run(self, *request: Any) -> Any:
                if lost.is_set():
                    return await self.session.run(*request)
                await self.session.run([], request[1], ["give"])
                await lost.wait()
                return await self.session.queue("tokens").get()

        async with aexec.Session(names["graph"]) as session:
            await session.run([], targets=["init"])
            kinds = [HeldUp, *[Fast] * (names["REPLICAS"] - 1)]
            replicas = [names["replica"](kind(session), seed) for seed, kind in enumerate(kinds)]
            await asyncio.gather(names["chief"](session), *replicas)
            assert lost.is_set()
            np.testing.assert_allclose(await session.run("value:0"), 3, atol=1e-3)

    run_virtual(main())


class TestExamples:
    """The check of examples, itself."""

    def example(self, tmp_path: Path, text: str) -> Example:
        (tmp_path / "page.md").write_text(text)
        return examples(tmp_path / "page.md")[0]

    @pytest.mark.parametrize("after", ["", "So it is.\n\n```text\n1\n```\n", "```python\nprint(2)\n```\n"])
    def test_example_without_output_is_refused(self, tmp_path: Path, after: str) -> None:
        example = self.example(tmp_path, f"```python\nprint(1)\n```\n{after}")
        assert "page.md:1: no block of `text`" in example.complaint()

    def test_example_that_may_print_anything_is_refused(self, tmp_path: Path) -> None:
        example = self.example(tmp_path, "```sh\nls\n```\n\n```text\n...\n```\n")
        assert "is said to be anything" in example.complaint()

    @pytest.mark.parametrize("fence", ["", "py", "python norun", "python not-run:", "text not-run: why"])
    def test_other_marks_are_refused(self, tmp_path: Path, fence: str) -> None:
        with pytest.raises(ValueError, match=r"page.md:1: a block is"):
            self.example(tmp_path, f"```{fence}\nprint(1)\n```\n")

    @pytest.mark.parametrize(
        ("source", "complaint"),
        [
            ("print('a')\nprint('b', 7)", ""),
            ("print('a')\nprint('c', 7)", "prints something else"),
            ("print('a')\nprint('b', 7)\nprint('c')", "prints something else"),
            ("print('a')", "prints something else"),
            ("print('a')\nprint('b', 7)\nraise SystemExit(3)", "failed with 3"),
            ("import warnings\nwarnings.warn('old')", "failed with 1"),
        ],
    )
    def test_output_of_an_example_is_compared(
        self, tmp_path: Path, source: str, complaint: str, scripts: ForkedScripts
    ) -> None:
        (tmp_path / "page.md").write_text(f"```python\n{source}\n```\n\n```text\na\nb ...7\n```\n")
        (tmp_path / "tools").mkdir()
        wrong = run_page(tmp_path / "page.md", tmp_path, tmp_path / "tools", scripts)
        assert (complaint in wrong[0]) if complaint else not wrong

    def test_shell_examples_share_a_folder_with_the_others(self, tmp_path: Path, scripts: ForkedScripts) -> None:
        (tmp_path / "page.md").write_text(
            "```python\nimport pathlib\npathlib.Path('file').write_text('x')\nprint(1)\n```\n```text\n1\n```\n\n"
            "```sh\ncat file >&2\naexec --version\n```\n```text\nxaexec ...\n```\n"
        )
        (tmp_path / "tools").mkdir()
        assert run_page(tmp_path / "page.md", tmp_path, tmp_path / "tools", scripts) == []


def test_named_attributes_exist() -> None:
    """What looks like `aexec.name` is a message, or found by a program that imports aexec and nothing else."""
    names = {}
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for name in re.findall(r"`(?:await |with |async with )?(aexec(?:\.\w+)+)", text):
            if not hasattr(proto, name.removeprefix("aexec.")):
                names[name] = page.name
    program = f"import operator, aexec\nfor name in {names}:\n    operator.attrgetter(name[6:])(aexec)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def anchors(page: Path) -> set[str]:
    """The anchors that headings of a page get."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages())
def test_links(page: Path) -> None:
    """Links within the repository lead to a file, and to a heading if they name one."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


FILES = [
    file.relative_to(ROOT).as_posix()
    for folder in ("aexec", "docs", "protos", "scripts", "server", "tests")
    for file in [ROOT / folder, *(ROOT / folder).rglob("*")]
]


@pytest.mark.parametrize("page", pages())
def test_named_files_exist(page: Path) -> None:
    """What looks like a path of the repository, or the end of one, is one; after `::` stands a name of that file."""
    text = page.read_text("utf-8")
    for path, name in re.findall(r"`((?:aexec|docs|protos|scripts|server|tests)/[\w./-]*)(?:::(\w+))?`", text):
        file = ROOT / path
        assert file.exists(), f"{page.name} names {path}"
        if name:
            source = file.read_text("utf-8")
            assert re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", source, re.MULTILINE), f"{path} has no {name}"
    for path in re.findall(r"`([\w/]+\.py|\w+/\w[\w/]*/)`", text):
        assert any(f"/{file}".endswith(f"/{path.rstrip('/')}") for file in FILES), f"{page.name} names {path}"


def test_index_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(([\w./-]+)\)", (ROOT / "docs" / "README.md").read_text("utf-8")))
    assert {page.name for page in DOCS} - {"README.md"} <= listed


def rows() -> list[list[str]]:
    lines = [line for line in CONCEPTS.read_text("utf-8").splitlines() if re.match(r"\| (\d|X)", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_each_concept_has_a_place_and_a_test() -> None:
    for row in rows():
        if len(row) == 2:  # planned
            continue
        number, concept, where, shown_by = row
        assert concept, number
        assert re.search(r"`\S+`|\]\(", where), f"row {number} says no place"
        assert "`tests/" in shown_by, f"row {number} names no test"


def numbers(text: str) -> list[str]:
    """`2.1, 3.2 to 3.4` → 2.1, 3.2, 3.3, 3.4."""
    found: list[str] = []
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        group, dot, start = first.partition(".")
        stop = last.partition(".")[2] or start
        found += [f"{group}.{i}" for i in range(int(start), int(stop) + 1)] if dot else [first]
    return found


def test_no_row_of_the_checklist_is_forgotten() -> None:
    listed = [number for row in rows() for number in numbers(row[0])]
    listed += re.findall(r"\(row (\d\.\d+)\)", CONCEPTS.read_text("utf-8"))
    groups = {"0": range(1, 29), "1": range(1, 32), "2": range(1, 34), "3": range(1, 35), "4": range(1, 27)}
    expected = {f"{group}.{i}" for group, members in groups.items() for i in members}
    expected |= {f"X{i}" for i in (*range(1, 11), 12, 13, 14)}
    assert sorted(listed) == sorted(expected)


def test_limits_are_of_rows_that_are_there() -> None:
    limited = re.findall(r"^- \*\*([\d. to]+)\*\*:", CONCEPTS.read_text("utf-8"), re.MULTILINE)
    there = {row[0] for row in rows() if len(row) == 4}
    assert len(limited) > 5
    assert set(limited) <= there
