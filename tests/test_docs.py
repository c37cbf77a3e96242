"""The documentation: its examples run, its links lead somewhere, and what it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aexec import cli

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS, *sorted((ROOT / "protos").glob("*.md"))]
CONCEPTS = ROOT / "docs" / "concepts.md"

# Blocks that are not to be run are marked `text` or `py-fragment`.
EXAMPLES = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in DOCS
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
]
COMMANDS = [
    line.split("#")[0].split()[1:]
    for page in DOCS
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if re.match(r"aexec (ops|kernels|devices)\b", line)
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_example(code: str, tmp_path: Path) -> None:
    """Each in a process of its own, as a reader would run it; warnings are errors, and it prints something."""
    script = tmp_path / "example.py"
    script.write_text(code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_listing_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) >= 2 or arguments[1:]
    assert all(word in printed for word in arguments[1:])


def anchors(page: Path) -> set[str]:
    """The anchors that headings of a page get."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    """What looks like a path of the repository, in backticks, is one; after `::` stands a name of that file."""
    for path, name in re.findall(
        r"`((?:aexec|docs|protos|scripts|tests)/[\w./-]*)(?:::(\w+))?`", page.read_text("utf-8")
    ):
        file = ROOT / path
        assert file.exists(), f"{page.name} names {path}"
        if name:
            source = file.read_text("utf-8")
            assert re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", source, re.MULTILINE), f"{path} has no {name}"


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
    groups = {"0": range(1, 29), "1": range(1, 29), "2": range(1, 34), "3": range(1, 35), "4": range(1, 27)}
    expected = {f"{group}.{i}" for group, members in groups.items() for i in members}
    expected |= {f"X{i}" for i in range(1, 8)}
    assert sorted(listed) == sorted(expected)
