"""Replacing functions of a library as one module sees them, while other modules and threads keep the real ones."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

__all__ = ["replace_in"]


def replace_in(monkeypatch: pytest.MonkeyPatch, module: ModuleType, library: str, **functions: Any) -> None:
    """Replace functions of a library that a module has imported.

    Args:
        module: sees the functions from now on, until the test ends.
        library: the name that it has given the library, as in `import numpy as np`.
        functions: by name.
    """
    monkeypatch.setattr(module, library, SimpleNamespace(**{**vars(getattr(module, library)), **functions}))
