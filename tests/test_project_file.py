"""pyproject.toml names what is there, and the files of changelog.d/ make a changelog."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
TOOLS = PROJECT["tool"]
FRAGMENTS = sorted(p for p in (ROOT / "changelog.d").iterdir() if p.name != "template.jinja")


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [s for item in value.values() for s in strings(item)]
    return [s for item in value for s in strings(item)] if isinstance(value, list) else [str(value)]


def names_something(pattern: str, folder: Path = ROOT) -> bool:
    """Is there a file of our own that the pattern of a tool's setting stands for?"""
    found = folder.glob(pattern if "/" in pattern else f"**/{pattern}")
    return any(".venv" not in path.parts for path in found)


@pytest.mark.parametrize(
    "pattern",
    [
        PROJECT["project"]["readme"],
        *PROJECT["project"]["license-files"],
        *TOOLS["ruff"]["extend-exclude"],
        *TOOLS["ruff"]["format"]["exclude"],
        *TOOLS["ruff"]["lint"]["per-file-ignores"],
        *TOOLS["mypy"]["mypy_path"],
        *TOOLS["pytest"]["ini_options"]["testpaths"],
        *TOOLS["pytest"]["ini_options"]["pythonpath"],
        *TOOLS["setuptools"]["packages"]["find"]["where"],
        *TOOLS["setuptools"]["package-dir"].values(),
        *[TOOLS["towncrier"][key] for key in ("directory", "filename", "template")],
    ],
)
def test_files(pattern: str) -> None:
    assert pattern == "." or names_something(pattern.removesuffix("/**"))


@pytest.mark.parametrize(
    ("package", "pattern"),
    [(package, pattern) for package, patterns in TOOLS["setuptools"]["package-data"].items() for pattern in patterns],
)
def test_package_data(package: str, pattern: str) -> None:
    folder = ROOT / TOOLS["setuptools"]["package-dir"][package]
    assert list(folder.glob(pattern))


def test_scripts_that_are_spoken_of() -> None:
    for name in re.findall(r"\b(?:scripts|tests|docs)/[\w./-]+\w", " ".join(strings(PROJECT))):
        assert (ROOT / name).exists(), name


def test_commands() -> None:
    for target in PROJECT["project"]["scripts"].values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("module", sorted({m for o in TOOLS["mypy"]["overrides"] for m in o["module"]}))
def test_modules_of_mypy_overrides(module: str) -> None:
    """Our own are there; others are imported somewhere, or mypy need not be told about them."""
    name = module.removesuffix(".*")
    if name.startswith(("aexec.", "aexec_server.")):
        assert importlib.util.find_spec(name) is not None
        return
    imports = re.compile(rf"^\s*(?:import|from) {re.escape(name)}\b", re.MULTILINE)
    files = [p for folder in ("aexec", "server", "scripts", "tests") for p in (ROOT / folder).rglob("*.py")]
    assert any(imports.search(path.read_text("utf-8")) for path in files)


@pytest.mark.parametrize("module", TOOLS["mypy"]["packages"])
def test_packages_of_mypy(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


def test_dependencies_have_bounds() -> None:
    """What is needed to use aexec; tools of those who work on it are as they come."""
    optional = PROJECT["project"]["optional-dependencies"]
    of_users = [
        *PROJECT["project"]["dependencies"],
        *(each for name in optional if name != "dev" for each in optional[name]),
    ]
    for requirement in map(Requirement, of_users):
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators == {">=", "<"} or operators == {"=="}, requirement
        if _is_installed(requirement.name):
            assert requirement.specifier.contains(importlib.metadata.version(requirement.name)), requirement


def _is_installed(name: str) -> bool:
    return any(True for _ in importlib.metadata.distributions(name=name))


def test_layers() -> None:
    for contract in TOOLS["importlinter"]["contracts"]:
        for layer in contract.get("layers", []):
            for name in re.split(r"\s*[:|]\s*", layer):
                for container in contract.get("containers", [""]):
                    module = f"{container}.{name}".lstrip(".")
                    assert importlib.util.find_spec(module) is not None, module


def test_each_room_has_a_place_in_the_contract_of_its_package() -> None:
    contracts = [each for each in TOOLS["importlinter"]["contracts"] if "containers" in each]
    assert contracts
    for contract in contracts:
        for container in contract["containers"]:
            (folder,) = importlib.import_module(container).__path__
            rooms = {path.parent.name for path in Path(folder).glob("*/__init__.py")}
            assert rooms <= set(contract["layers"]), container


class TestChangelog:
    @pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
    def test_names_of_fragments(self, path: Path) -> None:
        kinds = "|".join(kind["directory"] for kind in TOOLS["towncrier"]["type"])
        assert re.fullmatch(rf"[a-z0-9]+(-[a-z0-9]+)*\.({kinds})\.md", path.name)
        assert path.read_text("utf-8").strip()

    def test_changelog_has_every_fragment(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.8.7"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "## 9.8.7 (" in done.stdout
        lines = done.stdout.splitlines()
        for kind in TOOLS["towncrier"]["type"]:
            texts = [
                " ".join(p.read_text("utf-8").split()) for p in FRAGMENTS if p.suffixes[0][1:] == kind["directory"]
            ]
            if texts:
                begin = lines.index(f"### {kind['name']}") + 1
                section = " ".join(lines[begin:]).partition(" ### ")[0]
                assert all(f"- {text}" in section for text in texts)
