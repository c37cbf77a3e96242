"""`scripts/release`: what it refuses, the links and files that it checks; and the whole of it, as a soak."""

from __future__ import annotations

import email
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
releasing: Any = importlib.import_module("releasing")
sys.path.remove(str(ROOT / "scripts"))

PROJECT = """[project]
name = "aexec"
version = "1.2.0"
license = "MIT"
requires-python = ">=3.11"
"""
URL = "https://example.org/aexec"


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout of main that could be released as 1.2.0."""
    root = tmp_path / "repository"
    (root / "aexec").mkdir(parents=True)
    (root / "changelog.d").mkdir()
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "aexec/__init__.py").write_text('__version__ = "1.2.0"\n')
    (root / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.0 (2030-01-01)\n\n## 1.1.0 (2029-01-01)\n")
    git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "Begin")
    return root


def dry_run(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = releasing.main(["--dry-run", "--python", sys.executable, *arguments], root)
    printed = capsys.readouterr()
    return status, printed.out + printed.err


class TestTree:
    def test_clean_checkout_of_main_is_fine_and_nothing_is_built(
        self, repository: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (repository / "changelog.d/x.added.md").write_text("Added x.")
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "--message", "Add x")
        status, printed = dry_run(repository, capsys, "--url", URL, "--out", str(repository / "dist"))
        assert status == 0, printed
        assert "does not list 1 changes" in printed
        assert "would do: build" in printed
        assert "nothing was built" in printed
        assert not (repository / "dist").exists()

    def test_address_is_asked_for_by_name(self, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
        status, printed = dry_run(repository, capsys)
        assert status == 1
        assert "[project.urls]" in printed and "--url" in printed

    def test_address_of_the_project_is_used(self, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (repository / "pyproject.toml").write_text(f'{PROJECT}\n[project.urls]\nSource = "{URL}/"\n')
        git(repository, "commit", "--quiet", "--all", "--message", "Say where it is")
        assert f"links lead to {URL}\n" in dry_run(repository, capsys)[1]

    @pytest.mark.parametrize(
        ("file", "text", "expected"),
        [
            ("CHANGELOG.md", "# Changes\n\n## 1.1.0 (2029-01-01)\n", "the head of CHANGELOG.md has 1.1.0"),
            ("CHANGELOG.md", "# Changes\n", "the head of CHANGELOG.md has None"),
            ("aexec/__init__.py", '__version__ = "1.3.0"\n', "aexec/__init__.py has 1.3.0"),
            ("aexec/__init__.py", '__version__ = "1.2.0"\n# changed\n', "not committed:\n M aexec/__init__.py"),
            ("new.py", "", "not committed:\n?? new.py"),
        ],
    )
    def test_refusal_says_what_is_wrong(
        self, file: str, text: str, expected: str, repository: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (repository / file).write_text(text)
        status, printed = dry_run(repository, capsys, "--url", URL)
        assert status == 1
        assert expected in printed

    def test_other_branch_is_refused(self, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
        git(repository, "switch", "--quiet", "--create", "topic")
        assert "expected the branch main, got topic" in dry_run(repository, capsys, "--url", URL)[1]

    def test_version_with_a_tag_is_refused(self, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
        git(repository, "tag", "v1.2.0")
        assert "the tag v1.2.0 is there already" in dry_run(repository, capsys, "--url", URL)[1]


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("[a](docs/a.md#b)", f"[a]({URL}/blob/v1.2.0/docs/a.md#b)"),
        ("[a](https://other.org/a.md)", "[a](https://other.org/a.md)"),
        ("[a](#there) and [b](LICENSE)", f"[a](#there) and [b]({URL}/blob/v1.2.0/LICENSE)"),
        ("```python\nx[0](y)\n```\n[a](b.md)", f"```python\nx[0](y)\n```\n[a]({URL}/blob/v1.2.0/b.md)"),
    ],
)
def test_links_become_absolute(markdown: str, expected: str) -> None:
    assert releasing.absolute_links(markdown, f"{URL}/", "1.2.0") == expected


def test_links_of_readme_all_become_absolute() -> None:
    text = releasing.absolute_links((ROOT / "README.md").read_text("utf-8"), URL, "1.2.0")
    assert f"({URL}/blob/v1.2.0/docs/install.md)" in text
    assert releasing.absolute_links(text, URL, "1.2.0") == text


def test_source_distribution_lacks_what_is_tracked_and_not_in_it() -> None:
    tracked = [".ci/run", ".gitignore", "docs/a.md", "tests/test_a.py", "LICENSE"]
    assert releasing.missing_from_sdist(tracked, ["aexec-1/docs/a.md", "aexec-1/LICENSE"]) == ["tests/test_a.py"]


def test_wheel_lacks_files_of_the_packages_that_are_not_in_it() -> None:
    tracked = ["aexec/py.typed", "server/aexec_server/static/a.js", "tests/test_a.py", "aexec/proto/SHA256SUMS"]
    names = ["aexec/py.typed", "aexec-1.dist-info/METADATA"]
    assert releasing.missing_from_wheel(tracked, names) == ["LICENSE", "aexec_server/static/a.js"]
    names += ["aexec_server/static/a.js", "aexec-1.dist-info/licenses/LICENSE"]
    assert releasing.missing_from_wheel(tracked, names) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ""),
        ("1.2.0", "1.1.0", "expected Version 1.2.0, got 1.1.0"),
        ("License-Expression: MIT", "License: MIT", "expected License-Expression MIT, got None"),
        ("Project-URL: Source, https://example.org/aexec\n", "", "no Project-URL"),
        ("https://example.org/a.md", "docs/a.md", "README has relative links: docs/a.md"),
    ],
)
def test_metadata_is_compared_with_the_project(
    old: str, new: str, expected: str, repository: Path, tmp_path: Path
) -> None:
    text = (
        "Name: aexec\nVersion: 1.2.0\nLicense-Expression: MIT\nRequires-Python: >=3.11\n"
        "Project-URL: Source, https://example.org/aexec\n\nSee [a](https://example.org/a.md).\n"
    )
    release = releasing.Release(repository, tmp_path / "dist", tmp_path)
    metadata = email.message_from_string(text.replace(old, new))
    if not expected:
        release.check_metadata(metadata)
        return
    with pytest.raises(releasing.ReleaseError, match="metadata: ") as raised:
        release.check_metadata(metadata)
    assert expected in str(raised.value)


def test_commands_that_fail_are_told_with_what_they_printed() -> None:
    with pytest.raises(releasing.ReleaseError, match=r"failed with 3:\nbecause"):
        releasing.run([sys.executable, "-c", "print('because'); raise SystemExit(3)"])


def test_pythons_that_are_given_are_told_apart_by_version() -> None:
    version = ".".join(map(str, sys.version_info[:2]))
    assert releasing.pythons([sys.executable]) == {version: sys.executable}


def test_last_words_are_the_commands_that_are_left(repository: Path, tmp_path: Path) -> None:
    words = releasing.last_words(releasing.Release(repository, tmp_path / "dist", tmp_path))
    assert "git tag --annotate v1.2.0" in words
    assert "twine upload" in words


@pytest.mark.soak
@pytest.mark.time_limit(3000)
def test_release_of_this_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but lint and types, with a clone: what is committed here is built, installed and tried with this Python."""
    monkeypatch.setattr(releasing, "check_code", lambda: None)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--no-tags", str(ROOT), str(clone))
    git(clone, "switch", "--quiet", "--force-create", "main")
    status = releasing.main(["--url", URL, "--out", str(tmp_path / "dist"), "--python", sys.executable], clone)
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert "twine upload" in printed.out
