"""Deprecated names: what they say, whom they blame, and that none stays longer than promised."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import aexec
from aexec.framework.deprecation import Renamed, warn_deprecated

# Modules with a table of renamed names.
RENAMING = {"aexec": "_RENAMED"}
ROOT = Path(__file__).parents[2]


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def tables() -> list[tuple[str, str, Renamed]]:
    return [
        (module, old, renamed)
        for module, table in RENAMING.items()
        for old, renamed in getattr(importlib.import_module(module), table).items()
    ]


def old_function() -> int:
    warn_deprecated("old_function()", "new_function()", "7.1")
    return 3


def test_warning_says_what_to_use_and_blames_the_caller() -> None:
    text = "old_function() is deprecated and goes with aexec 7.1: use new_function()"
    with pytest.warns(DeprecationWarning, match=re.escape(text)) as warned:
        assert old_function() == 3
    (warning,) = warned
    assert warning.filename == __file__


@pytest.mark.parametrize(("module", "old", "renamed"), tables())
def test_renamed_name_is_the_new_one_and_warns(module: str, old: str, renamed: Renamed) -> None:
    there = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{old} is deprecated and goes with aexec") as warned:
        assert getattr(there, old) is getattr(there, renamed.name)
    assert warned[0].filename == __file__
    assert old not in there.__all__
    assert old not in dir(there)


@pytest.mark.parametrize(("module", "old", "renamed"), tables())
def test_renamed_name_goes_when_it_was_promised_to(module: str, old: str, renamed: Renamed) -> None:
    assert numbers(renamed.removed_in) > numbers(aexec.__version__)[:2]


def test_import_of_a_renamed_name_blames_the_importing_line() -> None:
    module, old, _ = tables()[0]
    code = f"\nfrom {module} import {old}\n"
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "<string>:2: DeprecationWarning" in done.stderr


def test_names_that_are_not_renamed_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in aexec.__all__:
            getattr(aexec, name)
